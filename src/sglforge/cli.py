"""The command ``sglforge``: arguments in, one document out, exit code by stage.

stdout carries the result (one JSON document with ``--json``); everything else goes to stderr.
"""

from __future__ import annotations

import argparse
import errno
import json
import math
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO, TypeAlias

from sglforge import __version__, pipeline
from sglforge.base import console as consoles
from sglforge.base import workspace
from sglforge.base.arguments import shown
from sglforge.base.console import Console, Verbosity
from sglforge.config import suggest
from sglforge.errors import EXIT_BUG, EXIT_INTERRUPTED, ConfigError, Finding, InstallError, Severity, SglforgeError
from sglforge.pipeline.request import Outcome, Request, again, find_catalog

BREATH_S = 1.0


class _Parser(argparse.ArgumentParser):
    """Report a wrong command line as any other fault."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(code="usage", message=message, hint=f"{self.prog} --help")


def run(argv: Sequence[str]) -> int:
    """Run one verb, print its result and return its exit code.

    No exception leaves but KeyboardInterrupt; one that is a bug is recorded first.
    """
    interrupt = _Interrupt()
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    console, started = consoles.for_terminal(_verbosity(argv)), time.monotonic()
    outcome = _call(argv, console)
    if console.recorder:
        from sglforge.pipeline.running import finish_run

        finish_run(console, outcome, argv=shown(argv), started=started)
    return _print(outcome, argv, console)


def _call(argv: Sequence[str], console: Console) -> Outcome:
    """Return what a verb returns, or a document about why it does not."""
    try:
        _require_a_place(argv)
        arguments = _parse(argv)
        return pipeline.verb(arguments.verb)(_request(arguments, argv), console)
    except SglforgeError as error:
        return _failed(error, console, argv)
    except KeyboardInterrupt:
        return _interrupted(console, argv)
    except BrokenPipeError:  # nobody listens to what we say: end, as programs in a pipe do
        _drop(sys.stderr)
        return Outcome(document={"schema": 1, "verdict": "unknown", "findings": []}, exit_code=1)
    except OSError as error:
        ours = error.errno not in _MACHINE_FAULTS and not _stops_the_workspace(error, argv)
        return _bug(error, console, argv) if ours else _failed(_machine_fault(error), console, argv)
    except Exception as error:  # noqa: BLE001 - the last net: a bug of ours must not print a traceback
        return _bug(error, console, argv)


def _print(outcome: Outcome, argv: Sequence[str], console: Console) -> int:
    """Write the result to stdout and return the exit code; nobody there to read it is no fault."""
    as_json = "--json" in argv
    text = _json(outcome.document) if as_json else outcome.text.rstrip("\n")
    if not text or sys.stdout is None:
        return outcome.exit_code
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:  # a terminal with fewer characters
        text = text.encode("ascii", "backslashreplace").decode()
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError as error:
        _drop(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            console.error(f"error: the result cannot be written: {error.strerror} [disk-full]")
        return outcome.exit_code or 1
    return outcome.exit_code


def _json(document: Mapping[str, object]) -> str:
    """Return a document as JSON that stdout can take, null where it holds a number that JSON has no word for."""
    escaped = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("_", "-") not in {"utf-8", "utf8"}
    try:
        text = json.dumps(document, indent=2, ensure_ascii=escaped, allow_nan=False)
    except ValueError:
        document = json.loads(json.dumps(document), parse_constant=lambda _word: None)
        text = json.dumps(document, indent=2, ensure_ascii=escaped)
    # half a surrogate pair stands for a byte of a file name that is no UTF-8
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _drop(stream: TextIO) -> None:
    """Send what a stream still holds to nowhere, or it would fail again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def interrupted(argv: Sequence[str]) -> int:
    """Report that a run was interrupted and return its exit code."""
    console = consoles.for_terminal(_verbosity(argv))
    return _print(_interrupted(console, argv), argv, console)


class _Interrupt:
    """Raise KeyboardInterrupt at a signal, but not again within a second: what the first one ends is then ended whole.

    One key press may come twice, from the terminal and from whoever started us.
    """

    def __init__(self) -> None:
        self._last = -math.inf

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last >= BREATH_S:
            self._last = now
            raise KeyboardInterrupt


def _verbosity(argv: Sequence[str]) -> Verbosity:
    if {"-q", "--quiet"} & set(argv):
        return Verbosity.QUIET
    return Verbosity.VERBOSE if {"-v", "--verbose"} & set(argv) else Verbosity.NORMAL


def _failed(error: SglforgeError, console: Console, argv: Sequence[str]) -> Outcome:
    findings = list(error.as_findings())
    errors = [place for place, finding in enumerate(findings) if finding.severity is Severity.ERROR]
    if console.left and argv and errors:
        findings[errors[0]] = _with_way_on(findings[errors[0]], again(argv))
    _report(error, findings, console)
    _say_what_is_left(console, argv)
    document = {"schema": 1, "verdict": "fail", "findings": [finding.to_json() for finding in findings]}
    return Outcome(document=document, exit_code=error.exit_code)


def _interrupted(console: Console, argv: Sequence[str]) -> Outcome:
    finding = Finding(
        code="run-interrupted",
        severity=Severity.ERROR,
        message="interrupted; what was published is whole",
        hint=f"it goes on from there: {again(argv)}" if argv else "",
    )
    console.finding(finding)
    _say_what_is_left(console, argv)
    document = {"schema": 1, "verdict": "unknown", "findings": [finding.to_json()]}
    return Outcome(document=document, exit_code=EXIT_INTERRUPTED)


def _with_way_on(finding: Finding, command: str) -> Finding:
    """Return a finding whose hint ends with how the run goes on."""
    if command in finding.hint:
        return finding
    return replace(finding, hint=f"{finding.hint}; then go on with {command}" if finding.hint else command)


def _say_what_is_left(console: Console, argv: Sequence[str]) -> None:
    """End with what a run that stopped has done, what is left, and the command that goes on."""
    if not (console.left and argv):
        return
    done = [name for name in console.done if name in console.expected]
    console.error(f"  done: {_listed(done) or 'nothing yet'}")
    console.error(f"  left: {_listed(console.left)}")
    console.error(f"  go on with: {again(argv)}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


_NAMES_SHOWN = 10

_BROKEN_DISK = frozenset({errno.EIO, errno.EREMOTEIO, errno.ESTALE, errno.ENODEV, errno.ENOTCONN})
_MACHINE_FAULTS = _BROKEN_DISK | frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOTDIR,
        errno.EEXIST,
        errno.EMFILE,
    }
)


def _stops_the_workspace(error: OSError, argv: Sequence[str]) -> bool:
    """Whether the folder of the workspace is one that cannot be made, as below /proc."""
    if error.errno not in {errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP} or not isinstance(error.filename, str):
        return False
    root, path = workspace.locate(_given_workspace(argv)).root, Path(error.filename).absolute()
    exists = os.path.exists(root)  # noqa: PTH110 - that of a Path raises for a name that is too long
    return not exists and (path.is_relative_to(root) or root.is_relative_to(path))


def _machine_fault(error: OSError) -> SglforgeError:
    """Return the fault for a file system that does not let us work; such errors are not bugs of ours."""
    code, what = "workspace-unusable", "name a folder that you may write to"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        code, what = "disk-full", "free some space, or name another folder"
    elif error.errno in _BROKEN_DISK:
        what = "the disk does not work: look at its log (dmesg), or name another folder"
    return InstallError(
        code=code,
        message=f"{error.strerror}: {error.filename or 'the workspace'}",
        where=str(error.filename) if error.filename else None,
        hint=f"{what} with --workspace DIR or SGLFORGE_HOME",
    )


def _report(error: SglforgeError, findings: Sequence[Finding], console: Console) -> None:
    """Say what failed, where, why and what to do."""
    if error.log and error.log not in console.shown_logs and (tail := consoles.tail_of(Path(error.log))):
        console.error("\n".join(["", *(f"    | {line}" for line in tail)]))
    console.error("")
    for finding in findings:
        console.finding(finding)
    console.error(f"  more: sglforge explain {error.code}")
    if error.log:
        console.error(f"  full log: {error.log}")


def _bug(error: Exception, console: Console, argv: Sequence[str]) -> Outcome:
    finding = {"code": "bug", "severity": "error", "message": f"{type(error).__name__}: {error}"}
    console.record("finding", **Finding(code="bug", severity=Severity.ERROR, message=finding["message"]).to_json())
    console.error(f"this is a bug of sglforge {__version__}: {finding['message']} [bug]")
    import traceback

    trace = "".join(traceback.format_exception(error))
    try:
        place = workspace.locate(_given_workspace(argv)).runs / "bug.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        text = f"sglforge {__version__}\nargv: {[*shown(argv)]}\n\n{trace}"
        place.write_text(text, encoding="utf-8", errors="backslashreplace")
        console.error(f"  please report it with {place}")
    except OSError:
        console.error(trace)
    return Outcome(document={"schema": 1, "verdict": "unknown", "findings": [finding]}, exit_code=EXIT_BUG)


def _given_workspace(argv: Sequence[str]) -> Path | None:
    """Return what ``--workspace`` says, without the parser, which may be what failed."""
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == "--workspace" and (value if equals else following):
            return Path(value if equals else following)
    return None


def _request(arguments: argparse.Namespace, argv: Sequence[str]) -> Request:
    values = vars(arguments)
    catalog_root, place = find_catalog(values.get("catalog")), workspace.locate(arguments.workspace)
    _require_text("the catalog's path", str(catalog_root))
    _require_text("the workspace's path", str(place.root))
    return Request(
        argv=shown(argv),
        catalog_root=catalog_root,
        workspace=place,
        stack=values.get("stack"),
        target=values.get("target", "auto"),
        facts_file=values.get("facts"),
        offline=values.get("offline", False),
        python=values.get("python"),
        options={name: value for name, value in values.items() if name not in _COMMON},
    )


_COMMON = {
    "catalog", "facts", "json", "offline", "python", "quiet", "stack", "target", "verb", "verbose", "workspace",
}  # fmt: skip


def _require_a_place(argv: Sequence[str]) -> None:
    """Refuse a folder that is gone, and words that no document can hold."""
    try:
        os.getcwd()  # noqa: PTH109 - the same, without a path
    except FileNotFoundError:
        raise _usage("the current folder was removed", "change into a folder that is there") from None
    for word in argv:
        _require_text("the argument", word)


def _require_text(what: str, text: str) -> None:
    if not _is_text(text):
        raise _usage(f"{what} {text!r} is not UTF-8", "give it another name; for the workspace: --workspace DIR")


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line; whatever it does not know is told with what it resembles."""
    first = argv[0] if argv else ""
    parser, verbs = _parser(first)
    if first.startswith("-") and first not in {"-h", "--help", "--version"}:
        raise _usage(f"`{first}` stands before the verb", "options come after it: sglforge VERB --help")
    if first and not first.startswith("-") and first not in verbs:
        raise _usage(f"there is no verb `{first}`", f"{suggest.hint(first, verbs)} (sglforge --help)")
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        verb = _called(verbs[arguments.verb], arguments)
        word = unknown[0].partition("=")[0]
        near = suggest.nearest(word, _options(verb)) if word.startswith("-") else None
        help_text = f"{verb.prog} --help"
        raise _usage(
            f"`{arguments.verb}` does not take `{' '.join(shown(unknown))}`",
            f"did you mean `{near}`? ({help_text})" if near else help_text,
        )
    return arguments


def _called(verb: argparse.ArgumentParser, arguments: argparse.Namespace) -> argparse.ArgumentParser:
    """Return the parser that options belong to: that of the verb, or of its action."""
    actions = next((action.choices for action in verb._actions if action.dest == "action"), None)  # noqa: SLF001
    found = actions.get(arguments.action) if isinstance(actions, Mapping) else None
    return found if isinstance(found, argparse.ArgumentParser) else verb


def _usage(message: str, hint: str) -> ConfigError:
    return ConfigError(code="usage", message=message, hint=hint)


def _options(verb: argparse.ArgumentParser) -> list[str]:
    """Return the long options of a verb."""
    return [word for action in verb._actions for word in action.option_strings if word.startswith("--")]  # noqa: SLF001


def _text(value: str) -> str:
    """Refuse an empty value: it is a shell variable that was not set, not a wish for the default."""
    if not value.strip():
        raise argparse.ArgumentTypeError("it is empty")
    return value


def _count(value: str) -> int:
    """Return a number of one or more."""
    if not value.isascii() or not value.isdecimal() or not 1 <= int(value) <= 100_000:
        raise argparse.ArgumentTypeError(f"{value!r} is no number from 1 to 100000")
    return int(value)


def _days(value: str) -> float:
    """Return a number of days."""
    try:
        days = float(value)
    except ValueError:
        days = -1.0
    if not 0 <= days < 1e6:
        raise argparse.ArgumentTypeError(f"{value!r} is no number of days from 0 to 1000000")
    return days


def _path(value: str) -> Path:
    return Path(_text(value))


def _parser(first: str) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Return the parser of the command line, and that of each verb; of one verb only where it is the first word."""
    parser = _Parser(
        prog="sglforge",
        description="Build SGLang from pinned, patched sources, serve it, and prove that it decodes.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sglforge {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    known = (
        _doctor, _lock, _fetch, _patch, _drift, _plan, _build, _rebuild, _check, _install, _verify, _render, _smoke,
        _tune, _store, _explain,
    )  # fmt: skip
    for add in [add for add in known if add.__name__ == f"_{first}"] or known:
        add(verbs)
    return parser, verbs.choices


Verbs: TypeAlias = "argparse._SubParsersAction[_Parser]"  # noqa: SLF001 - argparse names it nowhere else


def _verb(verbs: Verbs, name: str, help_text: str) -> _Parser:
    parser = verbs.add_parser(name, help=help_text, description=help_text, allow_abbrev=False)
    common = parser.add_argument_group("common options")
    common.add_argument("--json", action="store_true", help="print the result as one JSON document on stdout")
    common.add_argument(
        "--workspace", type=_path, metavar="DIR", help="default: $SGLFORGE_HOME, else the user data folder"
    )
    common.add_argument(
        "--catalog",
        type=_path,
        metavar="DIR",
        help="folder with recipes/, patches/, locks/ (default: this checkout)",
    )
    common.add_argument("-v", "--verbose", action="store_true", help="say more")
    common.add_argument("-q", "--quiet", action="store_true", help="say only what is wrong")
    return parser


def _selecting(parser: argparse.ArgumentParser, *, machine: bool = True) -> None:
    parser.add_argument("--stack", type=_text, metavar="NAME", help="default: release-0.5.23 on cpu, main on sm120")
    parser.add_argument("--target", type=_text, metavar="NAME", default="auto", help="cpu, sm120 or auto (default)")
    if machine:
        parser.add_argument("--facts", type=_path, metavar="FILE", help="host facts (JSON) instead of probing")


def _online(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--offline", action="store_true", help="use only what was fetched before")
    parser.add_argument(
        "--python", type=_text, metavar="X.Y", help="Python minor of the environment (default: chosen from the lock)"
    )


def _compiling(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--modules",
        type=_text,
        metavar="SET",
        help="set of modules that packages compile ahead of time (default: the recipe's)",
    )


def _recording(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--events", type=_path, metavar="FILE", help="append events there as they happen, as JSON lines: a file, a FIFO"
    )


def _sharing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        type=_text,
        action="append",
        default=[],
        metavar="URL|DIR",
        help="take wheels from this store too, verified; may be repeated (also: SGLFORGE_STORES)",
    )


def _doctor(verbs: Verbs) -> None:
    _selecting(_verb(verbs, "doctor", "Probe the machine and judge it against the target."))


def _lock(verbs: Verbs) -> None:
    parser = _verb(verbs, "lock", "Resolve sources and requirements to versions and hashes; writes locks/.")
    _selecting(parser)
    _recording(parser)
    parser.add_argument("--python", type=_text, metavar="X.Y", help="lock only this Python minor again")
    parser.add_argument(
        "--update",
        type=_text,
        nargs="*",
        metavar="PKG",
        help="resolve these packages and requirements anew (none named: all)",
    )
    parser.add_argument(
        "--walk-back",
        type=_count,
        nargs="?",
        const=100,
        metavar="N",
        help="with --update: the newest of N commits (default: 100) on which the whole patch series applies",
    )


def _fetch(verbs: Verbs) -> None:
    parser = _verb(verbs, "fetch", "Fetch and verify everything a build needs; afterwards --offline works.")
    _selecting(parser)
    _compiling(parser)
    _recording(parser)
    _online(parser)
    _sharing(parser)
    parser.add_argument(
        "packages", type=_text, nargs="*", metavar="PKG", help="only what building these packages takes"
    )


def _patch(verbs: Verbs) -> None:
    parser = _verb(
        verbs,
        "patch",
        "Apply the patch series to the stack's sources (or a copy of DIR) and check contracts.",
    )
    _selecting(parser)
    _online(parser)
    parser.add_argument("--diff", action="store_true", help="print the effective unified diff")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--topic", type=_text, metavar="T", help="only this topic")
    which.add_argument(
        "--edit", type=_text, metavar="T", help="make a tree to edit this topic in, and print where it is"
    )
    which.add_argument(
        "--refresh", type=_text, metavar="T", help="write this topic anew from the tree that --edit made"
    )
    parser.add_argument(
        "--package", type=_text, metavar="PKG", help="package of --tree (default: sglang), or of the topic"
    )
    parser.add_argument("--tree", type=_path, metavar="DIR", help="a source tree; a copy of it is patched")
    parser.add_argument(
        "--drift",
        dest="versions",
        nargs="*",
        type=_text,
        metavar="V,V,...",
        help="try the series on locked releases instead (none named: the final ones; all): see sglforge drift",
    )
    _drifting(parser)


def _drift(verbs: Verbs) -> None:
    parser = _verb(verbs, "drift", "Apply a series to many released versions, in memory; print the matrix.")
    parser.add_argument(
        "versions",
        nargs="*",
        type=_text,
        metavar="VERSION",
        help="locked releases; final (default): the last upload of every version; all: every one",
    )
    parser.add_argument("--topic", type=_text, metavar="T", help="only this topic")
    parser.add_argument("--package", type=_text, metavar="PKG", default="sglang", help="whose series (default: sglang)")
    parser.add_argument("--offline", action="store_true", help="use only what was fetched before")
    parser.add_argument(
        "--lock",
        nargs="+",
        type=_text,
        metavar="VERSION",
        help="pin these releases in locks/releases.<package>.toml; try nothing",
    )
    _drifting(parser)


def _drifting(parser: argparse.ArgumentParser) -> None:
    matrix = parser.add_argument_group("drift matrix")
    matrix.add_argument("--svg", type=_path, metavar="FILE", help="draw it there too")
    matrix.add_argument(
        "--expect",
        type=_path,
        metavar="FILE",
        help="the expected states (default: patches/<package>/drift.json, where it is)",
    )
    matrix.add_argument("--update", action="store_true", help="write the states that are found into that file")


def _plan(verbs: Verbs) -> None:
    parser = _verb(verbs, "plan", "Show steps, keys, hit or miss and why; never downloads.")
    _selecting(parser)
    _compiling(parser)
    _online(parser)
    _sharing(parser)
    parser.add_argument(
        "--explain", action="store_true", help="show what changed since the last build, or all that decides"
    )


def _build(verbs: Verbs) -> None:
    parser = _verb(verbs, "build", "Doctor, fetch, patch, build, check, install, smoke: ends with a proven server.")
    _selecting(parser)
    _compiling(parser)
    _recording(parser)
    _online(parser)
    _sharing(parser)
    parser.add_argument(
        "packages", type=_text, nargs="*", metavar="PKG", help="build only these packages; nothing is installed"
    )
    parser.add_argument("--jobs", type=_count, metavar="N", help="at most so much at once (default: cores, up to 4)")
    parser.add_argument("--keep", action="store_true", help="keep working folders")
    parser.add_argument("--prove", action="store_true", help="start and probe the server again, although proven")


def _rebuild(verbs: Verbs) -> None:
    parser = _verb(
        verbs, "rebuild", "Build stored packages again, elsewhere, as somebody else; the same bytes, or which differ."
    )
    _selecting(parser)
    _compiling(parser)
    _recording(parser)
    _online(parser)
    parser.add_argument("packages", type=_text, nargs="*", metavar="PKG", help="default: all of the stack")


def _check(verbs: Verbs) -> None:
    parser = _verb(verbs, "check", "Judge wheels and libraries, ours or not, against the target: by their binaries.")
    _selecting(parser)
    parser.add_argument("files", nargs="+", type=_path, metavar="FILE", help="a wheel, a library, a cubin")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--env", metavar="NAME", help="look undefined symbols up in it (default: <stack>.<target>, if it is installed)"
    )
    where.add_argument("--site", type=_path, metavar="DIR", help="or in any venv or site-packages folder")
    parser.add_argument("--python", type=_text, metavar="X.Y", help="Python minor that wheels are for")
    parser.add_argument(
        "--gpu", type=_text, metavar="CC,...", help="GPUs to serve: 12.0 (default: this machine's, or the target's)"
    )
    parser.add_argument(
        "--claim",
        action="append",
        default=[],
        type=_text,
        metavar="[GLOB=]NAME",
        help="instructions that must be there: fp4-convert, omma, qmma; may be repeated",
    )


def _install(verbs: Verbs) -> None:
    parser = _verb(verbs, "install", "Install the built wheels and their locked requirements into an environment.")
    _selecting(parser)
    _compiling(parser)
    _recording(parser)
    _online(parser)
    parser.add_argument("--env", metavar="NAME", help="default: <stack>.<target>")


def _verify(verbs: Verbs) -> None:
    parser = _verb(verbs, "verify", "Is the environment still what its receipt says? Hashes every file.")
    _selecting(parser)
    parser.add_argument("--env", metavar="NAME", help="default: <stack>.<target>")


def _store(verbs: Verbs) -> None:
    help_text = "What is in the store of built wheels, is it whole, and what may go?"
    store = verbs.add_parser("store", help=help_text, description=help_text, allow_abbrev=False)
    actions = store.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=_Parser)
    _verb(actions, "list", "List the wheels: package, version, size, made when, used by what.")
    verify = _verb(actions, "verify", "Hash every wheel, and compare every entry with its key.")
    verify.add_argument("--repair", action="store_true", help="drop what is damaged: it is built again when wanted")
    why = _verb(actions, "why", "What was it built from, who refers to it, and what do plans want instead?")
    why.add_argument("key", type=_text, metavar="KEY", help="a build key, or how it begins")
    collect = _verb(actions, "gc", "Remove what nothing refers to and nobody used lately: wheels, archives, runs ...")
    collect.add_argument(
        "--keep-days", type=_days, metavar="N", help="keep what was used within so many days (default: 14)"
    )
    collect.add_argument("--dry-run", action="store_true", help="only say what would be removed")


def _render(verbs: Verbs) -> None:
    parser = _verb(verbs, "render", "Render a profile to a launch script.")
    _selecting(parser)
    parser.add_argument("profile", type=_text, metavar="PROFILE")
    parser.add_argument("--format", type=_text, default="bash", metavar="F", help="bash")
    parser.add_argument("-o", "--output", type=_path, metavar="DIR", help="write files there (default: stdout)")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="replace a profile value: port=31000")
    parser.add_argument("--env", metavar="NAME", help="environment to start from (default: <stack>.<target>)")


def _smoke(verbs: Verbs) -> None:
    parser = _verb(
        verbs, "smoke", "Start the profile's server, or ask a running one, with real requests; judge; or judge again."
    )
    _selecting(parser)
    _recording(parser)
    parser.add_argument("profile", type=_text, nargs="?", metavar="PROFILE", help="default: the target's tiny model")
    parser.add_argument("--probe", type=_text, metavar="NAME,...", help="only these probes")
    door = parser.add_mutually_exclusive_group()
    door.add_argument("--url", type=_text, metavar="URL", help="ask the server at this address; it is left running")
    door.add_argument(
        "--judge", type=_path, metavar="RUN", help="judge a transcript, a run, or latest; no server is asked"
    )
    parser.add_argument(
        "--baseline",
        type=_text,
        metavar="RUN",
        help="compare with a run, a transcript, or latest: the last of its kind",
    )
    parser.add_argument(
        "--measure", action="store_true", help="measure the speed, for a later --baseline (15 s on cpu)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="replace a profile value")
    parser.add_argument("--env", metavar="NAME", help="default: <stack>.<target>")


def _tune(verbs: Verbs) -> None:
    parser = _verb(
        verbs, "tune", "Measure a profile with and without speculation; recommend above how many requests to stop it."
    )
    _selecting(parser)
    _recording(parser)
    parser.add_argument("profile", type=_text, metavar="PROFILE")
    parser.add_argument(
        "--concurrency",
        type=_text,
        metavar="N,...",
        help="requests at once (default: 1,2,4,... up to max-running-requests)",
    )
    parser.add_argument("--repeats", type=int, metavar="N", help="how often each level is measured (default: 5)")
    parser.add_argument(
        "--prompts", type=_path, metavar="FILE", help="ask these prompts, one a line (default: those of the profile)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="replace a profile value")
    parser.add_argument("--env", metavar="NAME", help="default: <stack>.<target>")
    parser.add_argument(
        "-o", "--output", type=_path, metavar="FILE", help="the new profile (default: <profile>-tuned.toml in the run)"
    )
    parser.add_argument("--svg", type=_path, metavar="FILE", help="draw the curves there too")


def _explain(verbs: Verbs) -> None:
    parser = _verb(verbs, "explain", "Print the page of a finding.")
    parser.add_argument("finding", type=_text, metavar="CODE")
