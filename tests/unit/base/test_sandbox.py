"""Build steps kept to themselves, for real; where a kernel refuses a part, the report has to say so."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglforge.base import proc
from sglforge.base.proc import Completed, ProcessError
from sglforge.base.sandbox.step import Isolation, Report, Resources, Sandbox, total, weakest

NO_NAMESPACES = ("user", "net", "pid", "mount", "ipc", "uts")
KINDS = {
    "all of it": (),
    "no Landlock": ("landlock",),
    "no mount namespace": ("user", "mount"),
    "no namespaces, as in a container without privileges": NO_NAMESPACES,
    "nothing": (*NO_NAMESPACES, "landlock"),
}

every_kind = pytest.mark.parametrize("without", list(KINDS.values()), ids=list(KINDS))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own folder"
    folder.mkdir()
    return folder


@pytest.fixture
def token() -> Iterator[str]:
    """Seconds that no other process sleeps: a mark on a process that every kernel shows."""
    number = f"9{secrets.randbelow(10**8):08}"
    yield number
    for pid in alive(number):
        os.kill(pid, signal.SIGKILL)


def alive(token: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"sleep") and token.encode() in words:
            found.append(int(entry.name))
    return found


def gone(token: str, *, within_s: float = 20.0) -> bool:
    deadline = time.monotonic() + within_s
    while alive(token):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def shell(sandbox: Sandbox, script: str, cwd: Path, **more: object) -> Completed:
    return sandbox(["sh", "-c", script], cwd=cwd, check=False, timeout_s=100.0, **more)  # type: ignore[arg-type]


def last(sandbox: Sandbox) -> Isolation:
    return sandbox.reports[-1].isolation


@every_kind
def test_it_runs_as_it_would_outside(without: tuple[str, ...], own: Path) -> None:
    sandbox = Sandbox(folders=(own,), without=without)
    script = 'pwd; id -u; echo complaint >&2; echo "$WORD"; env | wc -l; exit 7'
    done = shell(sandbox, script, own, env={"PATH": os.environ["PATH"], "WORD": "a  b", "LANG": "C.UTF-8"})
    assert done.returncode == 7
    plain = subprocess.run(
        ["sh", "-c", "env | wc -l"],
        env={"PATH": os.environ["PATH"], "WORD": "", "LANG": "C.UTF-8"},
        cwd=own,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [str(own), str(os.getuid()), "a  b", plain.stdout.strip()]
    assert done.stderr == "complaint\n"
    assert done.argv == ("sh", "-c", script)


@every_kind
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE])
def test_a_signal_is_passed_on(number: int, without: tuple[str, ...], own: Path) -> None:
    sandbox = Sandbox(folders=(own,), without=without)
    assert shell(sandbox, f"kill -{number} $$", own).returncode == -number


@every_kind
def test_it_writes_to_its_folder_only(without: tuple[str, ...], own: Path, tmp_path: Path) -> None:
    sandbox = Sandbox(folders=(own,), without=without)
    (tmp_path / "theirs").write_text("theirs")
    script = """
        mkdir deep && echo ours > deep/a && mv deep/a b && ln b c && : > /dev/null && rm -r deep || exit 3
        for change in 'echo x > ../new' 'echo x > ../theirs' 'rm ../theirs' 'mkdir ../folder' 'ln -s b ../link' \
          'mv b ../stolen' ': > /tmp/sglforge-test-of-writes'; do
            if (eval "$change") 2> /dev/null; then echo "$change"; fi
        done
    """
    done = shell(sandbox, script, own)
    Path("/tmp/sglforge-test-of-writes").unlink(missing_ok=True)
    assert done.returncode == 0
    if last(sandbox).writes == "own-folder":
        assert done.stdout == ""
        assert sorted(path.name for path in tmp_path.iterdir()) == [own.name, "theirs"]
        assert (tmp_path / "theirs").read_text() == "theirs"
        assert sorted(path.name for path in own.iterdir()) == ["b", "c"]
    else:
        assert "echo x > ../new" in done.stdout
        assert any("Landlock" in reason for reason in last(sandbox).why)


def test_more_folders_for_one_call(own: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    sandbox = Sandbox(folders=(own, own / "missing"))
    assert shell(sandbox, "echo x > ../other/a", own, more=(other,)).returncode == 0
    outcome = shell(sandbox, "echo x > ../other/b", own).returncode
    assert (outcome != 0) == (last(sandbox).writes == "own-folder")


CONNECT = """
import socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=10).close()
except OSError as error:
    print(error)
else:
    print("connected")
"""


@every_kind
def test_it_reaches_nobody(without: tuple[str, ...], own: Path) -> None:
    sandbox = Sandbox(folders=(own,), without=without)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        done = sandbox([sys.executable, "-c", CONNECT, port], cwd=own, timeout_s=60.0)
    match last(sandbox).network:
        case "none":
            assert "refused" in done.stdout
        case "no-tcp":
            assert "Permission denied" in done.stdout
        case "unchecked":
            assert done.stdout == "connected\n"
            assert last(sandbox).why


LISTEN = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname(), timeout=10).close()
print("talked to itself")
"""


def test_it_may_talk_to_itself(own: Path) -> None:
    sandbox = Sandbox(folders=(own,))
    done = sandbox([sys.executable, "-c", LISTEN], cwd=own, timeout_s=60.0, check=False)
    if last(sandbox).network == "no-tcp":
        pytest.skip("no network namespace here")
    assert done.stdout == "talked to itself\n"


POOL = """
import multiprocessing, os
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(sum(pool.map(abs, [-1, -2])))
    print(open(f"/proc/{os.getpid()}/stat").read().split()[0] == str(os.getpid()))
    open("/dev/stdout", "a").write("by name\\n")
"""


@every_kind
def test_processes_locks_and_devices_work_inside(without: tuple[str, ...], own: Path, tmp_path: Path) -> None:
    (own / "pool.py").write_text(POOL)
    sandbox = Sandbox(folders=(own,), without=without)
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(own), "LANG": "C.UTF-8"}
    done = sandbox([sys.executable, "pool.py"], cwd=own, env=env, timeout_s=60.0, log=tmp_path / "log")
    said = done.stdout.splitlines()
    assert "3" in said
    assert "by name" in said
    if not any("/proc" in reason for reason in last(sandbox).why):
        assert "True" in said


DAEMON = "(setsid env -i sleep {token} > /dev/null 2>&1 &) ; "


@every_kind
def test_a_daemon_ends_with_the_step(without: tuple[str, ...], own: Path, token: str) -> None:
    """It left the session, the parent and its environment: nothing names it any more."""
    sandbox = Sandbox(folders=(own,), without=without)
    done = shell(sandbox, DAEMON.format(token=token) + "sleep 0.2; echo done", own)
    assert done.stdout == "done\n"
    assert last(sandbox).processes in {"contained", "ended"}
    assert gone(token, within_s=0.0)


def test_a_daemon_ends_with_a_step_that_takes_too_long(own: Path, token: str) -> None:
    sandbox = Sandbox(folders=(own,))
    shell(sandbox, "true", own)
    deaf = "trap '' TERM; " if last(sandbox).processes == "contained" else ""
    with pytest.raises(ProcessError, match="process-timeout"):
        sandbox(["sh", "-c", DAEMON.format(token=token) + deaf + "sleep 60"], cwd=own, timeout_s=2.0)
    assert gone(token)


KILLED = """
import sys
from pathlib import Path
from sglforge.base.sandbox.step import Sandbox
Sandbox(folders=(Path(sys.argv[1]),))(["sh", "-c", sys.argv[2]], cwd=Path(sys.argv[1]))
"""


def test_a_daemon_ends_when_we_are_killed(own: Path, token: str) -> None:
    sandbox = Sandbox(folders=(own,))
    shell(sandbox, "true", own)
    if last(sandbox).processes != "contained":
        pytest.skip("no pid namespace here")
    script = DAEMON.format(token=token) + f"sleep {token}"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(own), script]) as ours:
        deadline = time.monotonic() + 30
        while len(alive(token)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ours.kill()
    assert gone(token)


@every_kind
def test_what_a_step_takes_is_measured(without: tuple[str, ...], own: Path) -> None:
    """A grandchild of a shell that does not wait for it burns time and memory."""
    burn = "import time; b = bytearray(b'x') * (80 << 20)\\nwhile time.process_time() < 0.6: sum(range(1000))"
    script = f"""{sys.executable} -c "$(printf "{burn}")" & sleep 0.1; wait; echo done"""
    sandbox = Sandbox(folders=(own,), without=without)
    assert shell(sandbox, script, own).stdout == "done\n"
    took = sandbox.reports[-1].resources
    assert took.cpu_seconds >= 0.6
    assert took.seconds >= 0.1
    assert 80 <= took.peak_rss_mib < 400


def test_a_missing_program_is_said(own: Path) -> None:
    with pytest.raises(ProcessError, match="program-missing") as caught:
        Sandbox(folders=(own,))([own / "nothing"], cwd=own, timeout_s=60.0)
    assert "No such file" in caught.value.message


def test_a_failure_names_the_program_and_not_the_launcher(own: Path, tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match="sh ended with status 4") as caught:
        Sandbox(folders=(own,))(["sh", "-c", "echo why; exit 4"], cwd=own, timeout_s=60.0, log=tmp_path / "log")
    assert caught.value.context["command"].startswith("sh -c")
    assert "why\n" in (tmp_path / "log").read_text()


def test_it_gains_no_rights(own: Path) -> None:
    done = shell(Sandbox(folders=(own,)), "grep -E '^(NoNewPrivs|CapEff)' /proc/self/status", own)
    rights = dict(line.split(":\t") for line in done.stdout.splitlines())
    assert rights["NoNewPrivs"] == "1"
    assert not int(rights["CapEff"], 16) & (1 << 21)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")

AS_NOBODY = """
import os, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os.execv(sys.argv[1], sys.argv[1:])
"""


@needs_root
def test_a_plain_user_has_it_too() -> None:
    """Through a user namespace where the machine allows one, else through Landlock."""
    with tempfile.TemporaryDirectory() as folder:  # those of pytest are closed to other users
        own = Path(folder)
        own.chmod(0o777)
        _try_as_nobody(own)


def _try_as_nobody(own: Path) -> None:
    def run_as_nobody(argv: list[str], **more: object) -> Completed:
        return proc.run([sys.executable, "-c", AS_NOBODY, *argv], **more)  # type: ignore[arg-type]

    if subprocess.run(
        [sys.executable, "-c", AS_NOBODY, sys.executable, "-c", f"open({str(own)!r} + '/x', 'w')"], check=False
    ).returncode:
        pytest.skip("a plain user reaches neither this Python nor the test's folder")
    sandbox = Sandbox(folders=(own,), fixed={"work": own}, run=run_as_nobody)  # type: ignore[arg-type]
    done = shell(
        sandbox, "id -u; id -g; echo x > a; cat /proc/self/uid_map | wc -l; grep CapEff /proc/self/status", own
    )
    assert done.stdout.split() == ["65534", "65534", "1", "CapEff:", "0000000000000000"]
    assert (own / "a").stat().st_uid == 65534
    known = last(sandbox)
    assert known.complete or known.why


@needs_root
@pytest.mark.parametrize("dropped", ["-sys_admin", "-sys_admin,-setuid"])
def test_root_without_its_rights_keeps_the_files_of_others(dropped: str, own: Path) -> None:
    """A container of a pod: root may enter a user namespace, and must still be able to write where others own."""
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")

    def run_without(argv: list[str], **more: object) -> Completed:
        return proc.run(["setpriv", "--bounding-set", dropped, *argv], **more)  # type: ignore[arg-type]

    os.chown(own, 4321, 4321)
    own.chmod(0o700)
    sandbox = Sandbox(folders=(own,), fixed={"work": own}, run=run_without)  # type: ignore[arg-type]
    assert shell(sandbox, "id -u; echo x > a && chown 1234:1234 a && echo y >> a", own).returncode == 0
    assert (own / "a").stat().st_uid == 1234
    assert last(sandbox).complete or last(sandbox).why


@needs_root
def test_a_kernel_that_refuses_is_believed(own: Path, tmp_path: Path) -> None:
    """strace stands in for seccomp: unshare and Landlock fail as they do in a container."""
    probe = ["strace", "-o", str(tmp_path / "t"), "-e", "inject=unshare:error=EPERM", "true"]
    try:
        if subprocess.run(probe, capture_output=True, check=False).returncode:
            pytest.skip("strace cannot trace here")
    except FileNotFoundError:
        pytest.skip("strace is not installed")

    def run_traced(argv: list[str], **more: object) -> Completed:
        inject = ["unshare:error=EPERM", "landlock_create_ruleset:error=EOPNOTSUPP"]
        words = [word for rule in inject for word in ("-e", f"inject={rule}")]
        return proc.run(["strace", "-f", "-o", str(tmp_path / "t"), *words, *argv], **more)  # type: ignore[arg-type]

    sandbox = Sandbox(folders=(own,), run=run_traced)  # type: ignore[arg-type]
    assert shell(sandbox, "echo still built", own).stdout == "still built\n"
    known = last(sandbox)
    assert (known.network, known.writes, known.processes) == ("unchecked", "unchecked", "ended")
    assert "namespaces (net, pid, mount, ipc, uts, user): Operation not permitted" in known.why
    assert "Landlock: not there" in known.why


def test_the_launcher_imports_little() -> None:
    """Every hook of a build waits for it."""
    code = """
        import sys
        sys.argv = ["launcher.py"]
        sys.path.append({root!r})
        import sglforge.base.sandbox.supervise
        print(*sorted(sys.modules))
    """
    root = str(Path(__file__).parents[3] / "src")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", textwrap.dedent(code).format(root=root)],
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"json", "subprocess", "pathlib", "typing", "dataclasses", "re", "site", "socket", "argparse", "enum"}
    assert not heavy & set(done.stdout.split())


networks = st.sampled_from(["none", "no-tcp", "unchecked"])
isolations = st.builds(
    Isolation,
    network=networks,
    writes=st.sampled_from(["own-folder", "unchecked"]),
    processes=st.sampled_from(["contained", "ended", "unchecked"]),
    place=st.sampled_from(["fixed", "real"]),
    why=st.lists(st.sampled_from("abc"), max_size=2).map(tuple),
)


@settings(deadline=None)
@given(st.lists(isolations, max_size=4))
def test_several_steps_are_as_isolated_as_the_weakest(found: list[Isolation]) -> None:
    together = weakest(found)
    assert together.complete == (bool(found) and all(item.complete for item in found))
    assert (together.network == "none") == (bool(found) and all(item.network == "none" for item in found))
    assert set(together.why) == {reason for item in found for reason in item.why}
    assert weakest([*found, together]) == together


def test_several_steps_take_the_sum_of_times_and_the_largest_memory() -> None:
    reports = [
        Report(resources=Resources(seconds=1.0, cpu_seconds=0.5, peak_rss_mib=30.0)),
        Report(resources=Resources(seconds=2.0, cpu_seconds=0.25, peak_rss_mib=20.0)),
    ]
    assert total(reports)["resources"] == {"seconds": 3.0, "cpu_seconds": 0.75, "peak_rss_mib": 30.0}
    assert total([]) == {}


@every_kind
def test_a_step_may_lie_in_shared_memory(without: tuple[str, ...]) -> None:
    """A workspace there is as it is elsewhere: what belongs to the step can be written to, what lies beside it not."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as there:
        own, beside = Path(there, "own"), Path(there, "beside")
        own.mkdir()
        beside.write_text("as it was")
        (own / "tool").write_text("#!/bin/sh\necho started\n")
        (own / "tool").chmod(0o755)
        sandbox = Sandbox(folders=(own,), without=without)
        script = f"{own}/tool; cat {beside}; echo in > {own}/in; (echo out > {beside}) 2>/dev/null; ls /dev/shm"
        done = shell(sandbox, script, own)
        assert done.stdout.startswith("started\nas it was"), done.stdout
        assert (own / "in").read_text() == "in\n"
        kept = last(sandbox)
        assert (beside.read_text() == "as it was") == (kept.writes == "own-folder")
        if not any("/dev/shm" in why for why in kept.why):
            assert done.stdout.rstrip().endswith(f"as it was{Path(there).name}")
