"""What a module is made by: its commands and inputs, as ninja says them, and the key that they give.

The key has all that is known before anything is compiled. What the compilers read is known afterwards, and is kept
beside the module (`keep`): with both, no edit is missed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from sglforge.base.files import digest
from sglforge.base.ids import Sha256
from sglforge.base.proc import Runner
from sglforge.build.modules.contents import ABSENT, Contents
from sglforge.build.modules.dependencies import dependencies
from sglforge.build.modules.driving import Asked
from sglforge.build.modules.roots import Roots

FORMAT = 1
"""Counted up when the engine makes something else of the same statements."""
AT_ONCE = 4
TIMEOUT_S = 60.0
_INCLUDES = ("-I", "-isystem", "-iquote", "-idirafter", "--include-path", "--system-include")
_TRACED = frozenset({"-MD", "--generate-dependencies-with-compile"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """A module before it is compiled, every path under its own name.

    ``commands`` are what ninja would run for it; ``sources`` its inputs that are there before; ``objects`` what is
    compiled; ``includes`` the folders in which headers are looked for; ``libraries`` files that the linker may take.
    ``traces`` are the files to which compilers write what they read; ``traced`` is False where one of them would not
    name every file: such a module is compiled, and never kept.
    """

    name: str
    library: str
    commands: tuple[str, ...]
    sources: tuple[str, ...]
    objects: tuple[str, ...]
    includes: tuple[str, ...]
    libraries: tuple[str, ...]
    traces: tuple[str, ...]
    traced: bool

    def runs(self, programs: str) -> bool:
        """Say whether a command has a word that begins so: a program of that folder is run."""
        return any(word.startswith(programs) for command in self.commands for word in command.split())


def read_statements(
    modules: Sequence[Asked], *, ninja: Path, roots: Roots, launcher: str, environment: Mapping[str, str], run: Runner
) -> tuple[Statements, ...]:
    """Return the statements of modules, in their order; nothing is compiled.

    Args:
        modules: What the driver answered.
        ninja: The program.
        roots: The folders of the build.
        launcher: What stands before compilers and decides nothing, empty for nothing.
        environment: Of ninja's own process.
        run: How to run it.
    """
    read = partial(_read, ninja=ninja, roots=roots, launcher=launcher, environment=environment, run=run)
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        return tuple(pool.map(read, modules))


def _read(
    module: Asked, *, ninja: Path, roots: Roots, launcher: str, environment: Mapping[str, str], run: Runner
) -> Statements:
    def say(tool: str, *words: str) -> list[str]:
        file = roots.real(roots.name(module.statements))
        asked: list[str | Path] = [ninja, "-f", file, "-t", tool, *words, module.library]
        return [line for line in run(asked, env=environment, timeout_s=TIMEOUT_S).stdout.splitlines() if line]

    commands = [line.replace(launcher, "").strip() if launcher else line.strip() for line in say("commands")]
    inputs = [roots.name(path) for path in say("inputs", "--no-shell-escape")]
    there = {name for name in inputs if roots.real(name).is_file()}
    words = [shlex.split(command) for command in commands]
    compilers = [each for each in words if "-c" in each]
    return Statements(
        name=module.name,
        library=roots.name(module.library),
        commands=tuple(roots.neutral(command) for command in commands),
        sources=tuple(sorted(there)),
        objects=_names(roots, (path for each in compilers for path in _after("-o", each))),
        includes=_names(roots, (folder for each in compilers for folder in _includes(each))),
        libraries=_names(roots, (path for each in words for path in _libraries(each))),
        traces=_names(roots, (path for each in compilers for path in _after("-MF", each))),
        traced=all(_TRACED.intersection(each) and "-MF" in each for each in compilers),
    )


def key_of(
    statements: Statements,
    *,
    roots: Roots,
    contents: Contents,
    toolchain: Mapping[str, str],
    environment: Mapping[str, str],
) -> Sha256:
    """Return the key of a module: everything that decides it, but for the headers that it reads.

    Of those it has the names: a header that is added to a folder in which headers are looked for, or that goes from
    there, gives another key, also where it only shadows another one.

    Args:
        statements: The module.
        roots: The folders of the build.
        contents: Looks at files and folders.
        toolchain: What compilers and toolkit are.
        environment: The variables of the build's recipe.
    """
    hashed = {name: contents.of(roots.real(name)) for name in (*statements.sources, *statements.libraries)}
    searched = {*statements.includes, *(name.rpartition("/")[0] for name in statements.sources)}
    return digest(
        {
            "format": FORMAT,
            "commands": list(statements.commands),
            "files": {name: found for name, found in hashed.items() if found != ABSENT},
            "folders": {name: contents.names(roots.real(name)) for name in searched if not roots.pinned(name)},
            "toolchain": dict(toolchain),
            "environment": dict(environment),
        }
    )


def _after(option: str, words: Sequence[str]) -> Iterator[str]:
    return (following for word, following in pairwise(words) if word == option)


def read_of(statements: Statements, *, roots: Roots, contents: Contents, since_s: float) -> dict[str, str] | None:
    """Return the hashes of the files that a module was compiled from, by their names; None where nobody can tell.

    Files of pinned folders are left out. A file of the machine that was changed since the compilation began (seconds
    since the epoch) may have been read as it was before: then nobody can tell.
    """
    if not statements.traced:
        return None
    found: set[str] = set()
    try:
        for trace in statements.traces:
            text = roots.real(trace).read_text(encoding="utf-8", errors="surrogateescape")
            found.update(roots.name(path) for path in dependencies(text))
    except (OSError, ValueError):
        return None
    if any(_changed(roots.real(name), since_s) for name in found if not name.startswith("@")):
        return None
    return {name: contents.of(roots.real(name)) for name in sorted(found) if not roots.pinned(name)}


def _changed(path: Path, since_s: float) -> bool:
    try:
        return path.stat().st_ctime >= since_s
    except OSError:
        return True


def _names(roots: Roots, paths: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(roots.name(path) for path in paths))


def _includes(words: Sequence[str]) -> Iterator[str]:
    """Yield the folders in which a compiler looks for headers, as it is told."""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        for option in _INCLUDES:
            if word == option:
                yield following
            elif word.startswith(option) and not option.startswith("--") and word != "-Include":
                yield word.removeprefix(option).removeprefix("=")
            elif word.startswith(f"{option}="):
                yield word.partition("=")[2]


def _libraries(words: Sequence[str]) -> Iterator[str]:
    """Yield the files that may be the libraries of a linker: each name in each folder that it is told."""
    folders = [word[2:] for word in words if word.startswith("-L") and len(word) > len("-L")]
    for name in (word[2:] for word in words if word.startswith("-l")):
        for folder in folders:
            yield from (f"{folder}/lib{name}.so", f"{folder}/lib{name}.a")
