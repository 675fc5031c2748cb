"""Serve until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import uvicorn.config
import uvicorn.server

from fake_sglang import log
from fake_sglang.app import Application
from fake_sglang.engine import Engine
from fake_sglang.faults import TRACEBACK, Faults
from fake_sglang.options import Options, parse

_SLOW_STOP_S = 3.0
_VIEWS: list[mmap.mmap] = []


class Server(uvicorn.server.Server):
    """A server that says in SGLang's words when it listens, and leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        print("INFO:     Application startup complete.", flush=True)
        log.line("The server is fired up and ready to roll!")


def main(argv: list[str]) -> None:
    """Start a server with the options of a command line and the faults of the environment."""
    try:
        options = parse(argv, os.environ)
    except ValueError as error:
        sys.exit(f"fake server: {error}")
    log.arguments(options)
    _start(options)
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "ignores-sigterm" in options.faults else _stopping(options))
    asyncio.run(_serve(options))


def _start(options: Options) -> None:
    """Do what a worker does before its server listens, and fail where a fault says so."""
    faults = options.faults
    if options.threshold and options.speculative and not options.adaptive and "threshold-silent" not in faults:
        log.line(f"sglforge: speculation threshold {options.threshold} (a fake worker)")
    if options.port in faults.lost_ports:
        sys.exit(f"OSError: [Errno 98] error while attempting to bind on port {options.port}: address already in use")
    if "dies-at-start" in faults or ("control-dies" in faults and options.algorithm is None):
        log.raised(TRACEBACK)
        sys.exit(3)
    _leave_behind(faults)
    if "out-of-memory" in faults:
        sys.exit(TRACEBACK.replace("AttributeError: no threshold", "torch.OutOfMemoryError: CUDA out of memory."))
    if "stuck" in faults:
        time.sleep(600)
    log.line("Load weight begin. avail mem=8.00 GB")
    if faults.any_of("traceback", "swallowed-init"):
        log.raised(TRACEBACK)
    log.line("Load weight end. type=LlamaForCausalLM, dtype=torch.float32, avail mem=8.00 GB")
    log.line(
        f"max_total_num_tokens={options.max_total_tokens}, max_running_requests={options.max_running_requests}, "
        f"context_len={options.context_length}"
    )


def _leave_behind(faults: Faults) -> None:
    """Make what survives the server's end."""
    if "leaves-a-child" in faults:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if "leaves-a-daemon" in faults and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    for fault, name in (("leaves-shared-memory", "fake-server-{}"), ("known-leak", "sglang_loads_fake_{}.shm")):
        if fault in faults:
            with Path("/dev/shm", name.format(os.getpid())).open("w+b") as stream:
                stream.truncate(4096)
                _VIEWS.append(mmap.mmap(stream.fileno(), 4096))


def _stopping(options: Options) -> Callable[[int, FrameType | None], None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        if "slow-stop" in options.faults:
            time.sleep(_SLOW_STOP_S)
        os._exit(0)

    return stop


async def _serve(options: Options) -> None:
    engine = Engine(options=options)
    config = uvicorn.config.Config(
        Application(engine),
        host=options.host,
        port=options.port,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    await asyncio.gather(engine.run(), Server(config).serve())  # a mistake in the engine ends the server
