"""Three processes around a step: the launcher waits, an init reaps and ends what is left, the step runs.

The launcher is what the caller started and signals: when it dies, the init dies (by the kernel), and with the
init of a pid namespace everything in it. Without such a namespace the init adopts what loses its parent, and ends
it when the step has ended.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import stat
import sys
import time

from sglforge.base.marks import MARK
from sglforge.base.sandbox import kernel, landlock, namespaces

DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
NOT_STARTED = 127
UMASK = 0o022
"""What a step makes has the same modes, whoever runs it."""

# What only an administrator needs: with these a step of root could undo what is done here.
_CAPABILITIES_DROPPED = {
    "net_admin": 12,
    "sys_module": 16,
    "sys_rawio": 17,
    "sys_ptrace": 19,
    "sys_admin": 21,
    "sys_boot": 22,
    "sys_time": 25,
    "mknod": 27,
}
_IGNORED_BY_PYTHON = (kernel.SIGPIPE, kernel.SIGXFSZ)
# The step gets them as well, and how it ends is passed on.
_ASKED_TO_END = (kernel.SIGTERM, kernel.SIGINT, kernel.SIGHUP)


class Asked:
    """What the command line asks for."""

    def __init__(self, words: list[str]) -> None:
        """Read ``REPORT-DESCRIPTOR WITHOUT,... USER FOLDER... +NAME=FOLDER... -- COMMAND...``."""
        end = words.index("--")
        report, without, user, *folders = words[:end]
        self.report = int(report)
        self.without = [name for name in without.split(",") if name]
        self.user = int(user) if user else None
        named = [word[1:].partition("=") for word in folders if word.startswith("+")]
        self.fixed = {name: os.path.realpath(folder) for name, _, folder in named}
        own = [word for word in folders if not word.startswith("+")]
        self.folders = _outermost([os.path.realpath(folder) for folder in own if os.path.isdir(folder)])
        self.command = words[end + 1 :]

    def seen(self, path: str) -> str:
        """Return where the step sees a path, once its folders are at their place."""
        for name, folder in self.fixed.items():
            if f"{path}/".startswith(f"{folder.rstrip('/')}/"):
                return f"{namespaces.PLACE}/{name}{path[len(folder.rstrip('/')) :]}"
        return path


def main(words: list[str]) -> int:
    """Run a step and write to the report's descriptor what it was kept from and what it took."""
    asked = Asked(words)
    os.set_inheritable(asked.report, False)
    os.umask(UMASK)
    begin = time.monotonic()
    here = os.getcwd()
    kernel.prctl(kernel.NO_NEW_PRIVS, 1)
    entered, why = namespaces.enter(asked.without)
    lines, words_end = os.pipe()
    init = os.fork()
    if init == 0:
        try:
            os.close(lines)
            _init(asked, entered, here, words_end)
        except OSError as error:
            _say(words_end, f"not-started {error.errno}")
        finally:
            os._exit(NOT_STARTED)
    os.close(words_end)
    for number in _ASKED_TO_END:
        kernel.ignore(number)
    with os.fdopen(lines, encoding="utf-8") as stream:
        said = stream.read()
    status = os.waitpid(init, 0)[1]
    for line in said.splitlines():
        if line.startswith("status "):
            status = int(line.removeprefix("status "))
    reasons = "".join(f"why {reason}\n" for reason in why)
    seconds = f"seconds {time.monotonic() - begin:.3f}\n"
    os.write(asked.report, f"{reasons}{said}{seconds}".encode())
    return status


def end_like(status: int) -> None:
    """End this process as another one ended, by the same status or the same signal."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        kernel.obey(number)
        os.kill(os.getpid(), number)
    sys.exit(os.WEXITSTATUS(status))


def _init(asked: Asked, entered: set[str], here: str, report: int) -> None:
    """Start the step, reap until it ends, end the others, say how it went; return only if nobody waits for that."""
    kernel.prctl(kernel.PDEATHSIG, kernel.SIGKILL)
    if _alone(report):
        return
    for number in _ASKED_TO_END:
        kernel.ignore(number)
    contained = "pid" in entered and os.getpid() == 1
    adopts = contained or kernel.prctl(kernel.CHILD_SUBREAPER, 1)
    own, read_only, placed = _arrange_mounts(asked, entered, here, contained=contained, report=report)
    if asked.fixed and not placed:  # its command names what lies there
        _say(report, f"not-started {errno.EPERM}")
        return
    network = "none" if "net" in entered else "unchecked"
    step = os.fork()
    if step == 0:
        here = asked.seen(here)
        _become_step(asked, here, own, network=network, read_only=read_only, report=report)
    status = _reap(step)
    _end_others(contained=contained)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processes = "contained" if contained else "ended" if adopts else "unchecked"
    _say(
        report,
        f"processes {processes}",
        f"cpu_seconds {used.ru_utime + used.ru_stime:.3f}",
        f"peak_rss_mib {used.ru_maxrss / 1024:.1f}",
        f"status {status}",
    )


def _alone(report: int) -> bool:
    """Say whether the launcher died before we asked to die with it."""
    watch = select.poll()
    watch.register(report, 0)
    return bool(watch.poll(0))


def _arrange_mounts(
    asked: Asked, entered: set[str], here: str, *, contained: bool, report: int
) -> tuple[list[str], bool, bool]:
    """Mount what belongs to the step.

    Returns the folders that it may write to, whether the rest is read-only, whether it has its fixed place.
    """
    own, why = list(asked.folders), ["own /dev/shm: no mount namespace"]
    read_only = placed = False
    if "mount" in entered:
        why = namespaces.keep_mounts_private()
        if not why:
            left_out = ["read-only file systems: left out"] if "read-only" in asked.without else []
            why = left_out or namespaces.make_read_only(asked.folders)
            read_only = not why
            command = [word for word in asked.command if not f"{word}/".startswith(f"{namespaces.PLACE}/")]
            needed = [*asked.folders, *asked.fixed.values(), here, *command]
            shared = namespaces.mount_shared_memory(needed)
            missing = shared or namespaces.mount_place(asked.fixed, asked.folders) if asked.fixed else []
            placed = bool(asked.fixed) and not missing
            why += dict.fromkeys((*shared, *missing))
            why += namespaces.mount_processes() if contained else []
    if placed:
        own += [namespaces.PLACE]
    if read_only or not any(map(namespaces.lies_in_shared_memory, asked.folders)):
        own.append(namespaces.SHARED_MEMORY)  # else the whole workspace that lies there could be written to
    _say(report, f"place {'fixed' if placed else 'real'}", *(f"why {reason}" for reason in why))
    return own, read_only, placed


def _become_step(asked: Asked, here: str, own: list[str], *, network: str, read_only: bool, report: int) -> None:
    """Give up what a step may not have, and run the command; never returns."""
    try:
        kernel.prctl(kernel.PDEATHSIG, kernel.SIGKILL)
        for number in (*_ASKED_TO_END, *_IGNORED_BY_PYTHON):
            kernel.obey(number)
        if asked.user is not None:
            _drop_capabilities()
            _become(asked.user)
        os.chdir(here)
        writes, network = _restrict(asked, own, network=network, read_only=read_only, report=report)
        _say(report, f"network {network}", f"writes {writes}")
        _drop_capabilities()
        for name in [name for name in os.environ if name.startswith(MARK)]:
            del os.environ[name]  # it is for us, who end with our parent: what the step makes must not hold it
        os.execvp(asked.command[0], asked.command)
    except OSError as error:
        _say(report, f"not-started {error.errno}")
    finally:
        os._exit(NOT_STARTED)


def _restrict(asked: Asked, own: list[str], *, network: str, read_only: bool, report: int) -> tuple[str, str]:
    """Apply Landlock where it is there; return what is so for writes and for the network."""
    writes = "own-folder" if read_only else "unchecked"
    version = 0 if "landlock" in asked.without else landlock.abi()
    if version < landlock.LEAST_ABI:
        _say(report, f"why Landlock: {'too old (ABI 1)' if version else 'not there'}")
        return writes, network
    closed = network != "none" and version >= landlock.TCP_ABI
    try:
        landlock.restrict(version, own, [*DEVICES, *_outputs()], tcp=not closed)
    except OSError as error:
        _say(report, f"why Landlock: {error.strerror}")
        return writes, network
    return "own-folder", "no-tcp" if closed else network


def _outputs() -> list[str]:
    """Return the files that standard output and error go to: a step may open /dev/stdout."""
    return [f"/proc/self/fd/{number}" for number in (1, 2) if stat.S_ISREG(os.fstat(number).st_mode)]


def _become(user: int) -> None:
    """Become a user, and nobody else for good; the kernel forgets then that we die with our parent."""
    import warnings  # noqa: F401 - os.execvp loads it, and the user may not reach the library of this Python

    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    kernel.prctl(kernel.PDEATHSIG, kernel.SIGKILL)


def _drop_capabilities() -> None:
    for number in _CAPABILITIES_DROPPED.values():
        kernel.prctl(kernel.CAPBSET_DROP, number)  # refused to whoever is not root, who has none of them


def _reap(step: int) -> int:
    while True:
        child, status = os.wait()
        if child == step:
            return status


def _end_others(*, contained: bool) -> None:
    """End whatever the step left, and wait for it so that its time is counted."""
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if contained:
            os.kill(-1, kernel.SIGKILL)  # everybody in our pid namespace but us
        else:
            for child in _children():
                os.kill(child, kernel.SIGKILL)
        os.wait()


def _children() -> list[int]:
    """Return our children: those of processes that end become ours."""
    found, us = [], str(os.getpid())
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    parent = file.read().rpartition(")")[2].split()[1]
            except (OSError, IndexError):
                continue
            if parent == us:
                found.append(int(name))
    return found


def _outermost(folders: list[str]) -> list[str]:
    """Return the folders that lie in no other one of them."""
    kept: list[str] = []
    for folder in sorted(set(folders)):
        if not any(folder.startswith(f"{outer.rstrip('/')}/") for outer in kept):
            kept.append(folder)
    return kept


def _say(report: int, *lines: str) -> None:
    os.write(report, "".join(f"{line}\n" for line in lines).encode())
