"""What a compiler is asked to do, and the same in words that a cache understands. Light and pure.

nvcc's long words for dependency files make ccache give up; their short ones do not. ``--threads`` multiplies the
memory of a unit and changes nothing of what comes out, so it goes. ``--objdir-as-tempdir`` keeps the process id out of
objects.
"""

from __future__ import annotations

_WITH_VALUE = {
    "-o": "output",
    "--output-file": "output",
    "-MF": "dependencies",
    "--dependency-output": "dependencies",
    "-MT": "target",
    "-MQ": "target",
    "--dependency-target-name": "target",
    "-odir": "folder",
    "--output-directory": "folder",
}
_SHORT = {"--dependency-output": "-MF", "--dependency-target-name": "-MT"}
_DEPENDENCIES = {
    "-MD": "-MD",
    "-MMD": "-MD",
    "--generate-dependencies-with-compile": "-MD",
    "--generate-nonsystem-dependencies-with-compile": "-MD",
}
_COMPILE = {"-c", "--compile", "-dc", "--device-c"}
_THREADS = {"-t", "--threads"}
# These make something else, or hide words in a file: such a call is left alone.
_OPAQUE = {
    *("-E", "--preprocess", "-M", "-MM", "--generate-dependencies", "--dryrun", "-dryrun", "-###", "-S"),
    *("-optf", "--options-file"),
}
# Options with their value in the next word: that word is no source file.
_SKIPS = {
    *("-I", "-isystem", "-iquote", "-idirafter", "-include", "-imacros", "-D", "-U", "-L", "-l", "-Xcompiler"),
    *("-Xptxas", "-Xlinker", "-Xcudafe", "-Xnvlink", "-Xarchive", "-gencode", "--generate-code", "-arch", "-code"),
    *("--include-path", "--system-include", "--pre-include", "--define-macro", "--undefine-macro", "--std", "-ccbin"),
    *("--compiler-options", "--ptxas-options", "--linker-options", "--compiler-bindir", "--gpu-architecture"),
    *("--gpu-code", "-maxrregcount", "--maxrregcount", "-diag-suppress", "--diag-suppress", "-x", "--x"),
    *("-target", "--param", "-aux-info", "-Xclang", "-Xassembler", "-Xpreprocessor", "-std", "--library", "-lib"),
}


class Call:
    """One call of a compiler.

    ``words``: the call, rewritten. ``nvcc``: whether it is nvcc. ``compiles``: whether it makes an object of one
    source file. ``output``: its object, ``source``: the source file, ``dependencies``: whether a file of dependencies
    is asked for. ``includes``: the folders that it names for headers. All paths as they stand in the words.
    """

    __slots__ = ("compiles", "dependencies", "includes", "nvcc", "output", "source", "words")

    def __init__(
        self,
        words: list[str],
        *,
        nvcc: bool,
        compiles: bool = False,
        output: str = "",
        source: str = "",
        dependencies: bool = False,
        includes: tuple[str, ...] = (),
    ) -> None:
        self.words = words
        self.nvcc = nvcc
        self.compiles = compiles
        self.output = output
        self.source = source
        self.dependencies = dependencies
        self.includes = includes


def read(words: list[str]) -> Call:
    """Return what a command line asks for; one that compiles nothing, or several sources, keeps its words."""
    nvcc = words[0].rpartition("/")[2] == "nvcc"
    found: dict[str, str] = {}
    kept, sources, includes = [words[0]], [], []
    compiles = other = asked = False
    rest = iter(words[1:])
    for word in rest:
        name, equals, value = word.partition("=")
        if word in _COMPILE:
            compiles = True
            kept.append(word)
        elif name in _OPAQUE or word.startswith("@"):
            other = True
        elif word in _DEPENDENCIES:
            asked = True
            kept.append("-MD")
        elif nvcc and (name in _THREADS or (word.startswith("-t") and word[2:].isdigit())):
            _ = next(rest, "") if word in _THREADS else ""
        elif not nvcc and word.startswith("-o") and word != "-o":
            found["output"] = word[2:]
            kept += ["-o", word[2:]]
        elif (what := _WITH_VALUE.get(name)) and (equals or word == name):
            value = value if equals else next(rest, "")
            found[what] = value
            kept += _spelled(name, value, equals)
        elif word.startswith("-"):
            kept.append(word)
            value = next(rest, "") if word in _SKIPS else ""
            kept += [value] if word in _SKIPS else []
            includes += _included(word, value)
        else:
            sources.append(word)
            kept.append(word)
    single = compiles and not other and len(sources) == 1 and "folder" not in found
    if not single:
        return Call(list(words), nvcc=nvcc)
    if nvcc and "--objdir-as-tempdir" not in kept:
        kept.append("--objdir-as-tempdir")
    return Call(
        kept,
        nvcc=nvcc,
        compiles=True,
        output=found.get("output") or sources[0].rpartition("/")[2].rpartition(".")[0] + ".o",
        source=sources[0],
        dependencies=asked,
        includes=tuple(includes),
    )


def seeded(call: Call, unit: str) -> list[str]:
    """Return the words with what the host compiler may make names from: its own choice differs from run to run."""
    if call.nvcc or any(word.startswith("-frandom-seed=") for word in call.words):
        return call.words
    return [*call.words, f"-frandom-seed={unit}"]


def _spelled(name: str, value: str, equals: str) -> list[str]:
    if name in _SHORT:
        return [_SHORT[name], value]
    return [f"{name}={value}"] if equals else [name, value]


def _included(word: str, value: str) -> list[str]:
    """Return the folder that an option adds for headers, if it is such a one."""
    if word in {"-I", "-isystem", "-iquote", "-idirafter", "--include-path", "--system-include"}:
        return [value]
    for prefix in ("--include-path=", "--system-include=", "-isystem=", "-isystem", "-iquote", "-idirafter", "-I"):
        if word.startswith(prefix):
            return [word.removeprefix(prefix)]
    return []
