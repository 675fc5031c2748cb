"""A benchmark that is ended takes its server with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from unit.smoke.conftest import Bench

ROOT = Path(__file__).parents[3]
DRIVER = """
    import sys
    from pathlib import Path
    from benchmarks import run, serving
    from fake_serving import make_environment
    from unit.smoke.conftest import make_profile

    folder = Path(sys.argv.pop())
    environment = make_environment(folder / "environment", sglang_version="0.5.23")
    profile = make_profile("hangs-at-first-token")
    run._require_proof = run._wait_for_quiet = lambda _: None
    run.FIGURES = {"serving": lambda setting: serving._start(profile, environment, folder, setting, [])}
    sys.exit(run.main())
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 130), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_an_ended_benchmark_leaves_no_server(bench: Bench, tmp_path: Path, number: signal.Signals, status: int) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRIVER), "serving", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src", ROOT / "tests")))},
        stderr=subprocess.PIPE,
        text=True,
    )
    log = tmp_path / "server.log"
    wait_until(lambda: log.exists() and "startup complete" in log.read_text())
    time.sleep(0.3)
    driver.send_signal(number)
    _, talk = driver.communicate(timeout=60)
    assert driver.returncode == status, talk
    assert "Traceback" not in talk
    wait_until(lambda: not bench.survivors())


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
