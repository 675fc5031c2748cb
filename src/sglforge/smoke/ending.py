"""Why a server ended before it was ready: its exit status in words, and the cause that its log gives away."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sglforge.config import suggest
from sglforge.smoke import serverlog
from sglforge.smoke.startlog import step_of

_TAIL = 40
_MESSAGE_LINES = 6
_MORE_MEMORY = "lower mem-fraction-static, max-running-requests or cuda-graph-max-bs in the profile, or free the GPU"

SIGNALS = {
    signal.SIGKILL: "a kill that cannot be refused: by the kernel when memory ran out, by SGLang when a process of its "
    "own had failed, or by somebody",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGBUS: "a crash in native code, often a full /dev/shm",
    signal.SIGILL: "an instruction that this CPU does not have",
    signal.SIGABRT: "native code gave up",
    signal.SIGFPE: "a division by zero in native code",
    signal.SIGTERM: "somebody asked it to end",
    signal.SIGINT: "somebody interrupted it",
    signal.SIGQUIT: "SGLang ends itself so when a process of its own has failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A known way to fail: what a log says then, in words with the pattern's groups in braces, and what to do."""

    name: str
    pattern: re.Pattern[str]
    sentence: str
    then: str


def _cause(name: str, pattern: str, sentence: str, then: str) -> Cause:
    return Cause(name=name, pattern=re.compile(pattern), sentence=sentence, then=then)


# The first that matches the same text wins: the special ones stand before the general ones.
CAUSES: tuple[Cause, ...] = (
    _cause(
        "kv-memory",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "the weights leave no memory for the KV cache",
        "raise mem-fraction-static in the profile, or spread the model over more GPUs (tp-size)",
    ),
    _cause(
        "gpu-memory",
        r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        "the GPU ran out of memory",
        f"{_MORE_MEMORY}; nvidia-smi shows who else uses it",
    ),
    _cause(
        "host-memory",
        r"\bMemoryError\b|Cannot allocate memory|DefaultCPUAllocator: (?:can't|not enough)|std::bad_alloc",
        "the machine ran out of memory",
        "free -h shows what is left; lower mem-fraction-static or max-total-tokens in the profile",
    ),
    _cause(
        "disk-full",
        r"No space left on device(?:: '(?P<path>[^']+)')?",
        "a disk is full: {path}",
        "df -h shows which; JIT and compile caches are in ~/.cache",
    ),
    _cause(
        "unknown-option",
        r"error: unrecognized arguments: (?P<option>--[^\s=]+)",
        "the installed SGLang does not know the option {option}",
        "take it out of [flags] in the profile",
    ),
    _cause(
        "wrong-option",
        r"error: (?P<what>argument --?[^\n]+|the following arguments are required: [^\n]+|ambiguous option: [^\n]+)",
        "the installed SGLang does not take an option as the profile gives it: {what}",
        "correct it under [flags] in the profile",
    ),
    _cause(
        "cuda-driver",
        r"driver version is insufficient|driver on your system is too old|CUDA_ERROR_COMPAT_NOT_SUPPORTED"
        r"|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|system has unsupported display driver",
        "the NVIDIA driver is too old for the CUDA that the environment was built for",
        "nox -s doctor names the driver that is needed",
    ),
    _cause(
        "no-gpu",
        r"[Nn]o CUDA-capable device|Found no NVIDIA driver|No CUDA GPUs are available|libcuda\.so\.1: cannot open",
        "no NVIDIA GPU or driver can be used",
        "nox -s doctor; in a container start it with access to the GPU",
    ),
    _cause(
        "wrong-architecture",
        r"no kernel image is available",
        "the kernels were not built for this GPU",
        "nox -s doctor compares the GPU with the target; build for the right one",
    ),
    _cause(
        "missing-library",
        r"(?P<library>[\w.+-]+\.so(?:\.\d+)*): cannot open shared object file",
        "the shared library {library} is missing",
        "nox -s verify tells whether the environment is still what was installed",
    ),
    _cause(
        "wrong-library",
        r"undefined symbol: (?P<symbol>\w+)|version `(?P<version>GLIBC\w*_[\d.]+)' not found",
        "a shared library does not fit: it lacks {symbol}{version}",
        "nox -s verify; a torch that was replaced afterwards is the usual reason",
    ),
    _cause(
        "model-incomplete",
        r"does not appear to have a file named (?P<file>[\w./-]+)|no file named (?P<other>[\w./-]+)",
        "the model folder is not complete: {file}{other} is not there",
        "compare the folder with where it came from; `model` in the profile must name the folder with config.json",
    ),
    _cause(
        "model-incomplete",
        r"Cannot find any model weights with `?(?P<folder>[^`\n]+)`?",
        "there are no weights in {folder}",
        "compare the folder with where it came from: it needs the weights themselves beside their index",
    ),
    _cause(
        "model-missing",
        r"is not a local folder and is not a valid model identifier|Repo id must|Incorrect path_or_model_id"
        r"|LocalEntryNotFoundError|OfflineModeIsEnabled|RepositoryNotFoundError"
        r"|Unrecognized model in (?P<where>[^\s]+)",
        "there is no such model, or it could not be fetched",
        "`model` in the profile must name a folder with config.json, or a hub id that can be reached",
    ),
    _cause(
        "missing-module",
        r"No module named '(?P<module>[\w.]+)'",
        "the Python module {module} is missing",
        "nox -s verify tells whether the environment is still what was installed",
    ),
    _cause(
        "import-error",
        r"\bImportError: (?P<what>[^\n]+)",
        "a module cannot be imported: {what}",
        "nox -s verify tells whether the environment is still what was installed",
    ),
    _cause(
        "port",
        r"[Aa]ddress already in use|Port is already in use|is not available in \d+ seconds"
        r"|is used by a process already",
        "a port that it needs is taken",
        "ss -ltnp shows who listens; another server may still be ending",
    ),
    _cause(
        "permission",
        r"Permission denied(?:: '(?P<path>[^']+)')?",
        "it may not read or write something: {path}",
        "ls -l shows whose it is",
    ),
    _cause(
        "illegal-instruction",
        r"[Ii]llegal instruction|exit code: -4\b",
        "this CPU lacks an instruction that the server uses",
        "nox -s doctor; build on this machine, or take wheels for an older CPU",
    ),
    _cause(
        "bus-error",
        r"\bBus error\b|exit code: -7\b",
        "it touched memory that could not be provided, most often because /dev/shm is full",
        "df -h /dev/shm; in a container raise its size (--shm-size)",
    ),
)
_BY_SIGNAL = {signal.SIGILL: "illegal-instruction", signal.SIGBUS: "bus-error"}
# What others raise because a process of the server has died already.
_CONSEQUENCE = re.compile(
    r"scheduler (?:died|is dead)|Rank \d+ scheduler|^EOFError|^BrokenPipeError|^ConnectionResetError"
    r"|^KeyboardInterrupt|^SystemExit|Child process .*failed"
)
_CHAINED = re.compile(r"^(?:During handling of the above|The above exception was the direct cause)")
# A line of SGLang's logger tells a fault only if it says so, and does not say that it goes on without.
_LOGGED = re.compile(r"^\[\d{4}-")
_FAULT = re.compile(r"\berror\b|errno|fatal|failed|exception", re.IGNORECASE)
_GOES_ON = re.compile(r"ignor|warning|disabled|fall(?:ing)? back|skip|deprecated", re.IGNORECASE)
_OPTION = re.compile(r"--[a-z][a-z0-9-]+")
_USAGE = re.compile(r"^usage: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why a server ended: the name of the cause, one sentence, its evidence with its line in the log, what to do.

    ``name`` is ``unknown`` where the sentence is only the last exception; ``line`` counts from 1, None without one.
    """

    name: str
    sentence: str
    then: str = ""
    evidence: str = ""
    line: int | None = None


def describe(status: int | None) -> str:
    """Put an exit status into words; negative is a signal, and so is what a shell adds 128 to."""
    if status is None:
        return "still running"
    number = -status if status < 0 else status - 128
    try:
        name = signal.Signals(number)
    except ValueError:
        return f"exit status {status}" if status >= 0 else f"killed by signal {number}"
    meaning = SIGNALS.get(name)
    text = f"killed by {name.name}" if status < 0 else f"exit status {status}, which stands for {name.name}"
    return f"{text} ({meaning})" if meaning else text


def explain(status: int, text: str, *, oom_kills: int = 0) -> Ending:
    """Return why a server ended by itself.

    What a log held before the last fault does not count: a server that goes on after it did not end of it.

    Args:
        status: Its exit status; negative is a signal.
        text: Its log.
        oom_kills: How many processes the kernel has killed for want of memory meanwhile, in its control group.
    """
    lines = text.splitlines()
    raised = _last_exceptions(lines)
    killed = status in {-signal.SIGKILL, 128 + signal.SIGKILL} or "exit code: -9" in "\n".join(lines[-_TAIL:])
    if oom_kills and killed:
        return Ending(
            name="oom-kill",
            sentence=f"the kernel killed {oom_kills} process(es) of its control group, which ran out of memory",
            then="free -h, and the memory limit of the container; lower mem-fraction-static or max-total-tokens",
        )
    for number, message in raised or tuple(_complaints(lines)):
        if ending := _known(message, number, lines):
            return ending
    for cause in CAUSES:
        if any(cause.name == name and status in {-number, 128 + number} for number, name in _BY_SIGNAL.items()):
            return Ending(name=cause.name, sentence=cause.sentence, then=cause.then)
    if raised:
        number, message = raised[0]
        last = serverlog.shorten(message.splitlines()[0])
        return Ending(
            name="unknown", sentence="no known cause, but this is its last exception", evidence=last, line=number
        )
    if killed:
        return Ending(
            name="killed",
            sentence="it was killed and did not say why; perhaps the kernel ran out of memory",
            then="dmesg | grep -i oom",
        )
    complaint = serverlog.cause(text)
    said = f"no known cause; the last complaint in its log is {complaint}" if complaint else "it did not say why"
    return Ending(name="unknown", sentence=said)


def _known(message: str, number: int, lines: Sequence[str]) -> Ending | None:
    for cause in CAUSES:
        if not (match := cause.pattern.search(message)):
            continue
        found = {key: value or "" for key, value in match.groupdict().items()}
        then = cause.then
        if option := found.get("option"):
            known = _options(lines)
            near = suggest.nearest(option, known)
            then = f"{then}; did you mean {near}?" if near else then
        offset = message[: match.start()].count("\n")
        evidence = message.splitlines()[offset].strip()
        return Ending(
            name=cause.name,
            sentence=cause.sentence.format_map(found).rstrip(": "),
            then=then,
            evidence=serverlog.shorten(evidence),
            line=number + offset,
        )
    return None


def _last_exceptions(lines: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """Return the messages of the last chain of exceptions that is no mere consequence, the last one first.

    A chain that the server went on after is none: two different steps of its start came behind it (one alone may be
    another rank's, which did not know yet).
    """
    chains: list[list[tuple[int, str]]] = []
    chained = False
    for number, line in enumerate(lines):
        chained = chained or bool(_CHAINED.match(line))
        if serverlog.TRACEBACK not in line:
            continue
        if not chained:
            chains.append([])
        chained = False
        if (found := _message(lines, number + 1)) and chains:
            chains[-1].append(found)
    for chain in reversed(chains):
        causes = [(number, message) for number, message in chain if not _CONSEQUENCE.search(message)]
        if causes:
            after = {step.name for line in lines[causes[-1][0] :] if (step := step_of(line))}
            return tuple(reversed(causes)) if len(after) < 2 else ()
    return ()


def _message(lines: Sequence[str], start: int) -> tuple[int, str] | None:
    """Return the line number and the text of what a traceback ends with; a message may have several lines."""
    for number in range(start, len(lines)):
        line = lines[number]
        if line.strip() and not line.startswith((" ", "\t")):
            message: list[str] = []
            for more in lines[number : number + _MESSAGE_LINES]:
                if not more.strip() or (message and (more.startswith("[") or serverlog.TRACEBACK in more)):
                    break
                message.append(more)
            return number + 1, "\n".join(message)
    return None


def _complaints(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the last lines, the last one first: where nothing was raised, one of them says why.

    What two different steps came behind was survived, as in a chain.
    """
    after: set[str] = set()
    for number in range(len(lines), max(0, len(lines) - _TAIL), -1):
        line = lines[number - 1]
        if step := step_of(line):
            after.add(step.name)
        if len(after) > 1:
            return
        if not _GOES_ON.search(line) and (_FAULT.search(line) or not _LOGGED.match(line)):
            yield number, line


def _options(lines: Sequence[str]) -> list[str]:
    """Return the options that the installed server knows, from the usage that it prints before it refuses one."""
    start = max((number for number, line in enumerate(lines) if _USAGE.match(line)), default=None)
    if start is None:
        return []
    usage = [line for line in lines[start:] if "error:" not in line]
    return sorted(set(_OPTION.findall("\n".join(usage))))
