"""The probes of smoke, each with the fault that only it catches."""
