"""From wheels to an environment that can be proven: Python, torch, requirements, receipt, verification."""
