"""The variable by which guarded processes are found; loaded by every hook of a build, so it imports nothing."""

MARK = "SGLFORGE_PROCESS_"
"""How its name begins; a token follows, another one for each program that is started."""
