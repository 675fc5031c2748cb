"""Edits of a small CUDA project, one after the other: the object after each must be the one that a bare nvcc makes.

The project is compiled through our launcher with ccache, and without either. Every edit stays for the next one; every
third step goes back to the project's first state, for a cache that has seen it must give that object again.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = """\
#include "common.h"
#include <system_like.h>
#include "sub/inner.h"
#include GENERATED
#if __has_include("maybe.h")
#include "maybe.h"
#else
#define MAYBE 0
#endif
#ifdef __CUDA_ARCH__
#include "device_only.h"
#else
#include "host_only.h"
#endif
__constant__ int table[2] = {1, 2};
template <int N> __device__ int twice(int x) { return x * N; }
__global__ void kernel(int *out) {
#ifdef __CUDA_ARCH__
  out[threadIdx.x] = twice<2>(DEVICE_ONLY + COMMON + INNER + SYSTEM_LIKE + MAYBE) + table[0] + LINKED;
#endif
}
#ifndef __CUDA_ARCH__
int host_only_code() { return HOST_ONLY + COMMON; }
#endif
#ifndef FLAVOUR
#define FLAVOUR 1
#endif
int flavour() { return FLAVOUR + GENERATED_VALUE; }
const char *where() { return __FILE__; }
"""
UNIT = "src/unit.cu"
FILES = {
    UNIT: SOURCE,
    "src/sub/inner.h": "#define INNER 5\n",
    "include/common.h": '#pragma once\n#include "indirect.h"\n#define COMMON (7 + INDIRECT)\n',
    "include/indirect.h": "#pragma once\n#define INDIRECT 11\n",
    "include/device_only.h": "#define DEVICE_ONLY 13\n",
    "include/host_only.h": "#define HOST_ONLY 17\n",
    "include/linked_a.h": "#define LINKED 19\n",
    "include/linked_b.h": "#define LINKED 23\n",
    "generated/generated.h": '#define GENERATED_VALUE 29\n#include "linked.h"\n',
    "system/system_like.h": "#define SYSTEM_LIKE 31\n",
    "early/.keep": "",
}
FLAGS = (
    "-Iearly", "-Iinclude", "-Igenerated", "-isystem", "system", '-DGENERATED="generated.h"', "-std=c++17",
    "-Xcompiler=-fPIC", "-gencode=arch=compute_120f,code=sm_120f",
)  # fmt: skip
LONG_WORDS = ("--generate-dependencies-with-compile", "--dependency-output", "out/unit.d")
"""How FlashInfer asks nvcc for a file of dependencies; ccache caches nothing that is asked for so."""
AS_LAUNCHED = {
    "nvcc": ("-MD", "-MF", "out/unit.d", "--objdir-as-tempdir"),
    "g++": ("-MD", "-MF", "out/unit.d", "-frandom-seed=out/unit.o"),
}
"""What a bare compiler is told so that it does what it does behind the launcher."""


@dataclass
class Project:
    """The files of the project in a folder, and the words and variables of its one unit."""

    folder: Path
    compiler: str = "nvcc"
    first_flags: tuple[str, ...] = FLAGS
    asking: tuple[str, ...] = LONG_WORDS
    flags: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    source: str = UNIT

    def reset(self) -> None:
        """Bring the first state back."""
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_symlink() or path.is_file():
                path.unlink()
        for name, text in FILES.items():
            self.write(name, text)
        (self.folder / "include/linked.h").symlink_to("linked_a.h")
        (self.folder / "out").mkdir(exist_ok=True)
        self.flags, self.variables, self.source = self.first_flags, {}, UNIT

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def replace(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        text = path.read_text()
        assert old in text, (name, old)
        path.write_text(text.replace(old, new, 1))

    def compile(self, launcher: tuple[str, ...], environment: Mapping[str, str]) -> bytes:
        """Compile the unit and return its object and what it depends on."""
        output = self.folder / "out/unit.o"
        output.unlink(missing_ok=True)
        (self.folder / "out/unit.d").unlink(missing_ok=True)
        asking = self.asking if launcher else AS_LAUNCHED[self.compiler]
        words = (*launcher, self.compiler, *self.flags, *asking, "-c", self.source, "-o", "out/unit.o")
        done = subprocess.run(
            words, cwd=self.folder, env={**environment, **self.variables}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return output.read_bytes() + self._dependencies()

    def _dependencies(self) -> bytes:
        words = (self.folder / "out/unit.d").read_text().replace("\\\n", " ").partition(":")[2].split()
        return "\n".join(sorted({os.path.normpath(word) for word in words})).encode()


Edit = Callable[[Project], None]


def replacing(name: str, old: str, new: str) -> Edit:
    return lambda project: project.replace(name, old, new)


def writing(name: str, text: str) -> Edit:
    return lambda project: project.write(name, text)


def with_flags(*flags: str) -> Edit:
    def edit(project: Project) -> None:
        project.flags = (*project.flags, *flags)

    return edit


def with_arch(*architectures: str) -> Edit:
    def edit(project: Project) -> None:
        kept = tuple(flag for flag in project.flags if not flag.startswith("-gencode"))
        project.flags = (*kept, *(f"-gencode=arch=compute_{a.split()[0]},code={a.split()[1]}" for a in architectures))

    return edit


def with_variable(name: str, value: str) -> Edit:
    def edit(project: Project) -> None:
        project.variables = {**project.variables, name: value.format(folder=project.folder)}

    return edit


def keeping_times(name: str, old: str, new: str) -> Edit:
    """Change a file and leave its size and its times as they were."""
    assert len(old) == len(new)

    def edit(project: Project) -> None:
        before = (project.folder / name).stat()
        project.replace(name, old, new)
        os.utime(project.folder / name, ns=(before.st_atime_ns, before.st_mtime_ns))

    return edit


def linking(name: str, target: str) -> Edit:
    def edit(project: Project) -> None:
        (project.folder / name).unlink()
        (project.folder / name).symlink_to(target)

    return edit


def moving(old: str, new: str) -> Edit:
    def edit(project: Project) -> None:
        (project.folder / new).parent.mkdir(parents=True, exist_ok=True)
        (project.folder / old).rename(project.folder / new)

    return edit


def from_source(name: str) -> Edit:
    def edit(project: Project) -> None:
        project.write(name, (project.folder / project.source).read_text())
        project.write(f"{Path(name).parent}/sub/inner.h", (project.folder / "src/sub/inner.h").read_text())
        project.source = name

    return edit


HOST: Mapping[str, Edit] = {
    "host: value in host-only code": replacing(UNIT, "return HOST_ONLY + COMMON", "return HOST_ONLY - COMMON"),
    "host: another host function": replacing(UNIT, "const char *where", "int more() { return 3; }\nconst char *where"),
    "host: default of a macro": replacing(UNIT, "#define FLAVOUR 1", "#define FLAVOUR 2"),
    "host: other branch of the guard": replacing(UNIT, "#ifndef __CUDA_ARCH__", "#if !defined(__CUDA_ARCH__)"),
    "host: a text": replacing(UNIT, "return __FILE__", 'return "x" __FILE__'),
    "host: a line before all others": replacing(UNIT, '#include "common.h"', '\n#include "common.h"'),
    "host: a comment only": replacing(UNIT, "#ifndef FLAVOUR", "// nothing\n#ifndef FLAVOUR"),
    "host: same size, same times": keeping_times(UNIT, "return HOST_ONLY + COMMON", "return HOST_ONLY * COMMON"),
}
DEVICE: Mapping[str, Edit] = {
    "device: value in device-only code": replacing(UNIT, "+ table[0]", "- table[0]"),
    "device: a template's argument": replacing(UNIT, "twice<2>", "twice<3>"),
    "device: a template's body": replacing(UNIT, "return x * N", "return x + N"),
    "device: a constant": replacing(UNIT, "{1, 2}", "{3, 2}"),
    "device: another kernel": replacing(UNIT, "template <", "__global__ void more(int *p) { *p = 1; }\ntemplate <"),
    "device: launch bounds": replacing(UNIT, "void kernel(", "void __launch_bounds__(64) kernel("),
    "device: inline assembly": replacing(UNIT, "out[threadIdx.x] =", 'asm volatile("membar.gl;"); out[threadIdx.x] ='),
    "device: for other architectures": replacing(UNIT, "#ifdef __CUDA_ARCH__\n  o", "#if __CUDA_ARCH__ >= 900\n  o"),
    "device: same size, same times": keeping_times(UNIT, "threadIdx.x", "threadIdx.y"),
}  # fmt: skip
HEADERS: Mapping[str, Edit] = {
    "header: quoted": replacing("include/common.h", "7 +", "8 +"),
    "header: indirect": replacing("include/indirect.h", "11", "12"),
    "header: in the source's folder": replacing("src/sub/inner.h", "5", "6"),
    "header: system-like": replacing("system/system_like.h", "31", "32"),
    "header: for the device only": replacing("include/device_only.h", "13", "14"),
    "header: for the host only": replacing("include/host_only.h", "17", "18"),
    "header: named by a macro": replacing("generated/generated.h", "29", "30"),
    "header: same size, same times": keeping_times("include/indirect.h", "11", "21"),
    "header: its link leads elsewhere": linking("include/linked.h", "linked_b.h"),
    "header: appears in an earlier folder": writing("early/indirect.h", "#pragma once\n#define INDIRECT 99\n"),
    "header: appears beside the source": writing("src/common.h", "#define COMMON 98\n"),
    "header: appears beside its includer": writing("generated/linked.h", "#define LINKED 97\n"),
    "header: system-like appears earlier": writing("early/system_like.h", "#define SYSTEM_LIKE 96\n"),
    "header: asked for with __has_include": writing("include/maybe.h", "#define MAYBE 95\n"),
    "header: asked for, elsewhere": writing("system/maybe.h", "#define MAYBE 94\n"),
    "header: moved": moving("include/device_only.h", "early/device_only.h"),
    "header: appears empty, and one of its names goes": writing("early/host_only.h", "#define HOST_ONLY 0\n"),
}
CALLS: Mapping[str, Edit] = {
    "flag: -O0": with_flags("-O0"),
    "flag: fast math": with_flags("-use_fast_math"),
    "flag: line information": with_flags("-lineinfo"),
    "flag: for ptxas": with_flags("-Xptxas", "-O1"),
    "flag: for the host compiler": with_flags("-Xcompiler", "-O0"),
    "flag: registers": with_flags("-maxrregcount=32"),
    "flag: standard": with_flags("-std=c++20"),
    "flag: relocatable": with_flags("-rdc=true"),
    "flag: another folder first": with_flags("-Isrc"),
    "flag: a header before all": with_flags("-include", "linked_b.h"),
    "flag: fat binaries compressed": with_flags("-Xfatbin=-compress-all"),
    "arch: 120a": with_arch("120a sm_120a"),
    "arch: 120": with_arch("120 sm_120"),
    "arch: 90a": with_arch("90a sm_90a"),
    "arch: two": with_arch("120f sm_120f", "100f sm_100f"),
    "arch: PTX only": with_arch("120 compute_120"),
    "macro: defined": with_flags("-DFLAVOUR=3"),
    "macro: defined otherwise": with_flags("-DFLAVOUR=4"),
    "macro: two words": with_flags("-D", "FLAVOUR=5"),
    "macro: another header's name": with_flags("-UGENERATED", '-DGENERATED="generated.h"', "-DMORE"),
    "variable: flags before": with_variable("NVCC_PREPEND_FLAGS", "-DFLAVOUR=6"),
    "variable: flags after": with_variable("NVCC_APPEND_FLAGS", "-DFLAVOUR=7"),
    "variable: folder of headers": with_variable("CPLUS_INCLUDE_PATH", "{folder}/src"),
    "source: the same text under another name": from_source("src/other.cu"),
    "source: the same text in another folder": from_source("elsewhere/unit.cu"),
}
NVCC: Mapping[str, Edit] = {**HOST, **DEVICE, **HEADERS, **CALLS}

HOST_FLAGS = (
    *(flag for flag in FLAGS if not flag.startswith(("-gencode", "-Xcompiler"))),
    *("-x", "c++", "-D__global__=", "-D__device__=", "-D__constant__=static"),
)
HOST_CALLS: Mapping[str, Edit] = {
    "flag: -O2": with_flags("-O2"),
    "flag: debug information": with_flags("-g"),
    "flag: position independent": with_flags("-fPIC"),
    "flag: standard": with_flags("-std=c++20"),
    "flag: a header before all": with_flags("-include", "linked_b.h"),
    "macro: defined": with_flags("-DFLAVOUR=3"),
    "variable: folder of headers": with_variable("CPLUS_INCLUDE_PATH", "{folder}/src"),
    "source: the same text under another name": from_source("src/other.cu"),
}
HOST_COMPILER: Mapping[str, Edit] = {**HOST, **HEADERS, **HOST_CALLS}


def rounds(edits: Mapping[str, Edit]) -> Iterator[tuple[str, Edit | None]]:
    """Yield the edits, and after every third one the way back (None)."""
    for number, (name, edit) in enumerate(edits.items(), 1):
        yield name, edit
        if number % 3 == 0:
            yield f"back after {name}", None


def torture(
    project: Project,
    edits: Mapping[str, Edit],
    launcher: tuple[str, ...],
    ours: Mapping[str, str],
    bare: Mapping[str, str],
) -> list[str]:
    """Make every edit; return those after which object or dependencies were not what a bare compiler makes."""
    project.reset()
    first = project.compile((), bare)
    stale = [] if project.compile(launcher, ours) == first else ["the first object"]
    for name, edit in rounds(edits):
        if edit is None:
            project.reset()
            expected = first
        else:
            edit(project)
            expected = project.compile((), bare)
        if project.compile(launcher, ours) != expected:
            stale.append(name)
    return stale
