"""Torture: faults at random instants of real runs, judged by an audit that imports nothing of sglforge."""
