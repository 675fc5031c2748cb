"""A compiler that takes as much memory and time as its source says: `mib seconds [exit status|die|die-once|falls]`.

Each run adds a line to `<source>.runs`.
"""

import os
import signal
import sys
import time
from pathlib import Path

words = sys.argv[1:]
source = Path(next(word for word in words if word.endswith(".cu")))
mib, seconds, *ending = source.read_text().split()
runs = source.with_name(f"{source.name}.runs")
with runs.open("a") as file:
    file.write(f"{os.getpid()}\n")
print(f"compiling {source.name}", file=sys.stderr)
kept = [b"x" * (16 << 20) for _ in range(int(mib) // 16)]
time.sleep(float(seconds))
if ending == ["falls"]:
    kept.clear()
    time.sleep(2 * float(seconds))
if ending == ["die"] or (ending == ["die-once"] and len(runs.read_text().splitlines()) == 1):
    os.kill(os.getpid(), signal.SIGKILL)
if ending and ending[0].isdigit():
    sys.exit(int(ending[0]))
Path(words[words.index("-o") + 1]).write_text(f"object of {source}")
