"""Reading the log of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.smoke.serverlog import TAIL_LINES, cause, exceptions, read, tail

# The end of a real log: speculation with overlap on a machine without a Triton driver.
DEATH = """\
[2026-11-30 03:17:10] Scheduler hit an exception: Traceback (most recent call last):
  File "/env/sglang/srt/managers/scheduler.py", line 6368, in run_scheduler_process
    scheduler.run_event_loop()
    ^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/env/triton/runtime/driver.py", line 20, in _create_driver
    raise RuntimeError(f"{len(active_drivers)} active drivers ({active_drivers}). There should only be one.")
RuntimeError: 0 active drivers ([]). There should only be one.

[2026-11-30 03:17:10] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
"""


def test_a_traceback_is_named_by_its_last_line() -> None:
    assert exceptions(DEATH) == ("RuntimeError: 0 active drivers ([]). There should only be one.",)
    assert cause(DEATH) == exceptions(DEATH)[0]


def test_of_chained_tracebacks_the_last_one_is_the_cause() -> None:
    text = (
        "Traceback (most recent call last):\n  File x\nKeyError: 'a'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n  File y\nValueError: b\n"
    )
    assert exceptions(text) == ("KeyError: 'a'", "ValueError: b")
    assert cause(text) == "ValueError: b"


def test_a_traceback_that_is_cut_off_still_counts() -> None:
    assert exceptions("Traceback (most recent call last):\n  File x\n") == ("cut off",)


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-30 03:15:51] Ignore import error when loading sglang.srt.models.grok: no such op",
        "/env/awq.py:53: UserWarning: Only CUDA, HIP and XPU support AWQ currently.",
        "[2026-11-30 03:18:11] [http_server] Error: Requested token count exceeds the limit",
        "The word Traceback alone is none.",
    ],
)
def test_what_looks_bad_in_a_sound_log_is_no_exception(line: str) -> None:
    assert exceptions(line) == ()


def test_without_a_traceback_the_last_complaint_will_do() -> None:
    assert cause("loading\nbash: line 1: python: command not found\nbye\n") == "bash: line 1: python: command not found"
    assert cause("Fatal Python error: Segmentation fault\n") == "Fatal Python error: Segmentation fault"
    assert cause("all is well\n") is None


def test_the_tail_is_readable() -> None:
    lines = tail("\n".join(["x" * 20_000, "", *(str(number) for number in range(100))]))
    assert len(lines) == TAIL_LINES
    assert lines[-1] == "99"
    assert len(tail("x" * 20_000)[0]) == 300


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path / "none") == ""
