"""The process of a laboratory: ``python -m speculation.lab.process FD``, FD being its end of a socket pair."""

from __future__ import annotations

import os
import sys
import traceback
from multiprocessing.connection import Connection


def main() -> None:
    """Build the scheduler that is asked for, then run jobs until the other end closes."""
    link = Connection(int(sys.argv[1]))
    setup = link.recv()
    import torch

    torch.set_num_threads(1)
    from speculation.lab.bench import Bench

    try:
        bench = Bench(setup)
    except BaseException:  # noqa: BLE001 - whatever it is, the log shows it
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # threads that SGLang has begun would keep the process
    link.send("ready")
    while True:
        try:
            job = link.recv()
        except EOFError:
            return
        link.send(bench.run(job))


if __name__ == "__main__":
    main()
