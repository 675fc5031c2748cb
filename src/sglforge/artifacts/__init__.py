"""Artifacts: wheels that are packed, described and checked."""
