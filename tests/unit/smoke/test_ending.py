"""Why a server ended: exit status in words, known causes, and what must not be taken for one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglforge.smoke.ending import CAUSES, describe, explain
from sglforge.smoke.oom import oom_kills

HEAD = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    g()\n'
SCHEDULER_GONE = f"{HEAD}RuntimeError: Rank 0 scheduler died during initialization (exit code: 1). If\n"
USAGE = "usage: serve [-h] --model-path MODEL_PATH\n             [--max-running-requests N] [--port PORT]\n"


def raised(message: str) -> str:
    """Return the log of a server whose scheduler raised, which the other processes then noticed."""
    return (
        f"[2026-01-01 00:00:00] Load weight begin.\n[x] Scheduler hit an exception: {HEAD}{message}\n\n{SCHEDULER_GONE}"
    )


# What a log holds, the cause, and a word of the sentence or of what to do.
KNOWN: list[tuple[str, str, str]] = [
    (raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"), "gpu-memory", "nvidia-smi"),
    (raised("Exception: Capture cuda graph failed: CUDA out of memory.\nPossible ways:\n1. x"), "gpu-memory", "GPU"),
    (raised("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."), "kv-memory", "raise"),
    (raised("MemoryError"), "host-memory", "free -h"),
    (raised("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory"), "host-memory", "machine"),
    ("terminate called after throwing an instance of 'std::bad_alloc'\n", "host-memory", "machine"),
    (raised("OSError: [Errno 28] No space left on device: '/x/cache'"), "disk-full", "/x/cache"),
    (
        f"{USAGE}serve: error: unrecognized arguments: --max-runing-requests 1\n",
        "unknown-option",
        "--max-running-requests?",
    ),
    (f"{USAGE}serve: error: unrecognized arguments: --zzz\n", "unknown-option", "--zzz"),
    (f"{USAGE}serve: error: argument --port: invalid int value: 'x'\n", "wrong-option", "--port"),
    (raised("RuntimeError: CUDA driver version is insufficient for CUDA runtime version"), "cuda-driver", "driver"),
    (raised("RuntimeError: No CUDA GPUs are available"), "no-gpu", "doctor"),
    (raised("ImportError: libcuda.so.1: cannot open shared object file: No such file"), "no-gpu", "GPU"),
    (raised("RuntimeError: CUDA error: no kernel image is available for execution"), "wrong-architecture", "this GPU"),
    (
        raised("ImportError: libfoo.so.12: cannot open shared object file: No such file"),
        "missing-library",
        "libfoo.so.12",
    ),
    (
        "python: error while loading shared libraries: libx.so: cannot open shared object file\n",
        "missing-library",
        "libx",
    ),
    (raised("ImportError: /e/a.so: undefined symbol: _ZN3fooEv"), "wrong-library", "_ZN3fooEv"),
    (
        raised("ImportError: /lib/libc.so.6: version `GLIBC_2.38' not found (required by a)"),
        "wrong-library",
        "GLIBC_2.38",
    ),
    (raised("OSError: /m does not appear to have a file named config.json. Look"), "model-incomplete", "config.json"),
    (raised("RuntimeError: Cannot find any model weights with `/m`"), "model-incomplete", "/m"),
    (raised("OSError: x/y is not a local folder and is not a valid model identifier"), "model-missing", "hub id"),
    (raised("ModuleNotFoundError: No module named 'cutlass.x'"), "missing-module", "cutlass.x"),
    (raised("ImportError: cannot import name 'a' from 'b'"), "import-error", "cannot import name 'a'"),
    (
        "[2026-01-01 00:00:00] ERROR:    [Errno 98] error while binding ('0', 9): address already in use\n",
        "port",
        "ss -ltnp",
    ),
    (raised("ValueError: nccl at 9 is not available in 30 seconds. it"), "port", "taken"),
    (raised("PermissionError: [Errno 13] Permission denied: '/root/x'"), "permission", "/root/x"),
    ("a.sh: line 3: 12 Illegal instruction     python\n", "illegal-instruction", "CPU"),
    ("a.sh: line 3: 12 Bus error     python\n", "bus-error", "/dev/shm"),
]


@pytest.mark.parametrize(("log", "name", "word"), KNOWN, ids=[f"{name}-{n}" for n, (_, name, _) in enumerate(KNOWN)])
def test_a_known_cause_is_named_with_its_evidence(log: str, name: str, word: str) -> None:
    ending = explain(1, log)
    assert ending.name == name
    assert word in f"{ending.sentence} {ending.then}"
    assert ending.then
    assert "{" not in ending.sentence
    assert ending.line is not None
    assert ending.evidence in log.splitlines()[ending.line - 1]
    assert any(cause.pattern.search(ending.evidence) for cause in CAUSES if cause.name == name)


def test_every_cause_has_an_example() -> None:
    assert {cause.name for cause in CAUSES} == {name for _, name, _ in KNOWN}


def test_of_a_chain_the_last_known_exception_counts() -> None:
    chain = (
        f"{HEAD}ImportError: libfoo.so: cannot open shared object file: x\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        f"{HEAD}RuntimeError: the backend could not be made\n"
    )
    assert explain(1, chain).name == "missing-library"


# A sound start goes on after each of these.
SURVIVED = [
    f"{HEAD}OSError: [Errno 28] No space left on device: '/cache'\n",
    f"{HEAD}ModuleNotFoundError: No module named 'openai_harmony'\n",
    "[2026-01-01 00:00:00] Ignore import error when loading x: No module named 'cutlass'\n",
    "[2026-01-01 00:00:00] Responses API disabled: init failed (No module named 'openai_harmony')\n",
    "[2026-01-01 00:00:00] FlashInfer is skipped: CUDA out of memory was seen\n",
    "set_mempolicy: Operation not permitted\n",
]


@pytest.mark.parametrize("noise", SURVIVED)
def test_what_the_server_survived_is_no_cause(noise: str) -> None:
    log = f"{noise}[x] Load weight begin.\n[x] Load weight end.\n[x] Memory pool end.\n"
    assert explain(-signal.SIGKILL, log).name == "killed"
    assert explain(3, log).name == "unknown"
    blamed = explain(1, f"{log}{HEAD}MemoryError\n")
    assert (blamed.name, blamed.evidence) == ("host-memory", "MemoryError")


def test_another_ranks_last_words_do_not_hide_the_cause() -> None:
    log = f"TP1] Load weight begin.\nTP1] {HEAD}torch.OutOfMemoryError: CUDA out of memory.\n\nTP0] Load weight end.\n"
    assert explain(-9, log).name == "gpu-memory"


def test_an_unknown_cause_is_said_to_be_one() -> None:
    ending = explain(1, raised("AttributeError: no threshold"))
    assert (ending.name, ending.evidence) == ("unknown", "AttributeError: no threshold")
    assert ending.sentence == "no known cause, but this is its last exception"
    assert explain(1, "bye\n").sentence == "it did not say why"
    assert "command not found" in explain(127, "bash: python: command not found\n").sentence
    assert explain(1, "").name == "unknown"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    status=st.integers(-64, 255),
    parts=st.lists(
        st.sampled_from([log for log, _, _ in KNOWN] + SURVIVED + ["Traceback (most recent call last):", "\n"])
    ),
)
def test_any_log_has_an_ending_whose_evidence_is_in_it(status: int, parts: list[str]) -> None:
    log = "".join(parts)
    ending = explain(status, log)
    assert ending.sentence
    if ending.line is not None:
        assert ending.evidence in log.splitlines()[ending.line - 1]


def test_a_kill_is_the_kernels_only_where_it_counted_one() -> None:
    assert explain(-9, "x\n", oom_kills=1).name == "oom-kill"
    assert explain(-9, "x\n").name == "killed"
    assert "dmesg" in explain(-9, "x\n").then
    assert explain(1, raised("ValueError: x"), oom_kills=1).name == "unknown"
    assert explain(
        1, "RuntimeError: Rank 1 scheduler died during initialization (exit code: -9).", oom_kills=2
    ).name == ("oom-kill")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "still running"),
        (0, "exit status 0"),
        (3, "exit status 3"),
        (-signal.SIGSEGV, "killed by SIGSEGV (a crash in native code)"),
        (128 + signal.SIGSEGV, "exit status 139, which stands for SIGSEGV (a crash in native code)"),
        (-signal.SIGUSR1, "killed by SIGUSR1"),
        (-200, "killed by signal 200"),
        (255, "exit status 255"),
    ],
)
def test_a_status_is_put_into_words(status: int | None, words: str) -> None:
    assert describe(status) == words


@pytest.mark.parametrize("number", [signal.SIGILL, signal.SIGKILL, signal.SIGBUS])
def test_a_real_process_that_is_killed(number: signal.Signals) -> None:
    done = subprocess.run([sys.executable, "-c", f"import os; os.kill(os.getpid(), {number.value})"], check=False)
    assert describe(done.returncode).startswith(f"killed by {number.name} (")
    expected = {signal.SIGILL: "illegal-instruction", signal.SIGKILL: "killed", signal.SIGBUS: "bus-error"}
    assert explain(done.returncode, "").name == expected[number]


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/a/b", "a/b/memory.events"),
        ("4:cpu,memory:/a", "memory/a/memory.oom_control"),
        ("0::/not/seen", "memory.events"),
    ],
)
def test_kills_are_counted_in_either_version_of_control_groups(tmp_path: Path, line: str, file: str) -> None:
    own, groups = tmp_path / "cgroup", tmp_path / "fs"
    own.write_text(f"1:cpu:/a\n{line}\n")
    counter = groups / file
    counter.parent.mkdir(parents=True)
    counter.write_text("low 0\noom 5\noom_kill 3\n")
    assert oom_kills(groups, own) == 3
    counter.write_text("nonsense\noom_kill many\n")
    assert oom_kills(groups, own) == 0
    assert oom_kills(tmp_path / "none", tmp_path / "none") == 0


def test_this_machines_counter_can_be_read() -> None:
    assert oom_kills() >= 0
