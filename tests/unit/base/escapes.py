"""Leave the session twice over, as a daemon does; the argument is the file that gets the daemon's pid."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

pid_file = Path(sys.argv[1])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        partial = pid_file.with_suffix(".partial")
        partial.write_text(str(os.getpid()))
        partial.rename(pid_file)
        time.sleep(120)
    os._exit(0)
os.wait()
time.sleep(120)
