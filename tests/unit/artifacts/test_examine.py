"""Wheels and libraries judged whole: what fits passes, each fault has its code, and what is made to harm does not."""

from __future__ import annotations

import shutil
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_files import container, cubin, entry, library, wheel_of

from sglforge.artifacts.architectures import Architecture, parse
from sglforge.artifacts.binary import Wanted
from sglforge.artifacts.examine import Examined, Tools, examine_library, examine_wheel, installed, printable
from sglforge.artifacts.libraries import Libraries
from sglforge.artifacts.sass import Disassembler
from sglforge.errors import Severity

MINOR = "3.12"


def arch(text: str) -> Architecture:
    found = parse(text)
    assert found
    return found


SM120 = Wanted(gpus=(arch("12.0"),), arch_list=(arch("12.0f"),), cuda_major=13, glibc="2.99", python_minor=MINOR)


class Examiner:
    """Makes libraries and wheels, and examines them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def library(self, *containers: bytes, name: str = "a.so", **more: object) -> Path:
        return library(self.folder / "made" / name, *containers, **more)  # type: ignore[arg-type]

    def one(self, path: Path, wanted: Wanted = SM120, **tools: object) -> Examined:
        return examine_library(path, wanted, Tools(scratch=self.folder, **tools), name=path.name)  # type: ignore[arg-type]

    def wheel(
        self, files: Mapping[str, bytes | Path], wanted: Wanted = SM120, name: str = "toy_gpu-1.0-py3-none-any.whl"
    ) -> Examined:
        wheel = wheel_of(self.folder / "wheels", files, name=name)
        scratch = self.folder / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        return examine_wheel(wheel, wanted, Tools(scratch=scratch), python_minor=MINOR)


@pytest.fixture
def make(tmp_path: Path) -> Examiner:
    return Examiner(tmp_path)


def loud(examined: Examined) -> dict[str, Severity]:
    return {one.code: one.severity for one in examined.findings if one.severity is not Severity.INFO}


@pytest.mark.parametrize("code", ["120f", "120a"])
def test_code_for_the_gpu_passes(make: Examiner, code: str) -> None:
    examined = make.one(make.library(container(code)))
    assert (loud(examined), examined.verdict) == ({}, "pass")


@pytest.mark.parametrize("codes", [["90a", "100f"], ["121f"], ["ptx:120a", "ptx:90a"][1:], ["100f", "ptx:121"]])
def test_no_code_for_the_gpu(make: Examiner, codes: list[str]) -> None:
    examined = make.one(make.library(container(*codes)))
    assert loud(examined) == {"so-missing-arch": Severity.ERROR}
    assert "12.0 (sm_120)" in examined.findings[0].message


def test_ptx_alone_is_told(make: Examiner) -> None:
    examined = make.one(make.library(container("90a", "ptx:90")))
    assert (loud(examined), examined.verdict) == ({"so-ptx-only": Severity.WARNING}, "warn")


@pytest.mark.parametrize(("built", "severity"), [(True, Severity.ERROR), (False, Severity.WARNING)])
def test_the_plain_architecture_is_not_the_one_asked_for(make: Examiner, built: bool, severity: Severity) -> None:
    examined = make.one(make.library(container("120")), replace(SM120, built=built))
    assert loud(examined) == {"arch-needs-suffix": severity}


def test_every_unit_of_what_we_built_has_code_for_the_gpu_and_no_other(make: Examiner) -> None:
    path = make.library(container("120f"), container("90a"))
    assert loud(make.one(path)) == {}
    assert loud(make.one(path, replace(SM120, built=True))) == {
        "so-missing-arch": Severity.ERROR,
        "so-unused-arch": Severity.WARNING,
    }


def test_every_gpu_of_the_group_counts(make: Examiner) -> None:
    group = replace(SM120, gpus=(arch("12.0"), arch("9.0")))
    assert loud(make.one(make.library(container("120f", "90a")), group)) == {}
    assert loud(make.one(make.library(container("120f")), group)) == {"so-missing-arch": Severity.ERROR}


def test_the_file_that_the_loader_picks_counts(make: Examiner) -> None:
    hopper, other = make.library(container("90a"), name="h.so"), make.library(container("120a"), name="o.so")
    paths = {"sgl_kernel/sm90/common_ops.abi3.so": hopper, "sgl_kernel/sm100/common_ops.abi3.so": other}
    assert loud(make.wheel(paths)) == {}
    swapped = dict(zip(paths, reversed(paths.values()), strict=True))
    examined = make.wheel(swapped)
    assert loud(examined) == {"so-missing-arch": Severity.ERROR}
    assert examined.findings[0].subject == "sgl_kernel/sm100/common_ops.abi3.so"


def test_a_cpu_target_asks_for_no_gpu_code(make: Examiner) -> None:
    assert loud(make.one(make.library(container("90a")), replace(SM120, gpus=()))) == {}


def test_what_is_not_understood_is_inconclusive_and_never_a_pass(make: Examiner) -> None:
    examined = make.one(make.library(container(entry("120f", flags=0x8000011 | 0x4000000))))
    assert (loud(examined), examined.verdict) == ({"so-not-understood": Severity.WARNING}, "inconclusive")


def tool(folder: Path, says: str, status: int = 0) -> Disassembler:
    """Return a stand-in for cuobjdump that says the same whatever it is asked."""
    program = folder / "cuobjdump"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\nexit {status}\n")
    program.chmod(0o755)
    return Disassembler(path=program, nvdisasm=program)


LISTING = "\nFatbin elf code:\n================\narch = {}\n\t\t/*0090*/  {} R0, R4 ;  /* 0x00 */"


def test_cuobjdump_is_asked_for_what_is_not_understood(make: Examiner, tmp_path: Path) -> None:
    path = make.library(container(entry("120f", flags=0x4000011)))
    assert make.one(path, disassembler=tool(tmp_path, LISTING.format("sm_120f", "MOV"))).verdict == "pass"
    assert loud(make.one(path, disassembler=tool(tmp_path, LISTING.format("sm_90a", "MOV")))) == {
        "so-missing-arch": Severity.ERROR
    }
    failing = tool(tmp_path, "cuobjdump fatal   : Unknown format", 1)
    examined = make.one(path, disassembler=failing)
    assert examined.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("claim", "instruction", "kept"),
    [
        ("fp4-convert", "F2FP.SATFINITE.E2M1.F32.PACK_AB_MERGE_C", True),
        ("fp4-convert", "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C", False),
        ("omma", "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X", True),
        ("omma", "HMMA.16816.F32", False),
        ("qmma", "QMMA.16832.F32.E4M3.E4M3", True),
        ("qmma", "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X", False),
    ],
)
def test_claimed_instructions(make: Examiner, tmp_path: Path, claim: str, instruction: str, kept: bool) -> None:
    path, wanted = make.library(container("120f")), replace(SM120, claims={"*.so": (claim,)})
    examined = make.one(path, wanted, disassembler=tool(tmp_path, LISTING.format("sm_120f", instruction)))
    assert loud(examined) == ({} if kept else {"so-instructions-missing": Severity.ERROR})


def test_instructions_for_another_gpu_do_not_count(make: Examiner, tmp_path: Path) -> None:
    path, wanted = make.library(container("120f", "100f")), replace(SM120, claims={"*": ("fp4-convert",)})
    disassembler = tool(tmp_path, LISTING.format("sm_100f", "F2FP.E2M1") + LISTING.format("sm_120f", "MOV"))
    assert loud(make.one(path, wanted, disassembler=disassembler)) == {"so-instructions-missing": Severity.ERROR}


def test_no_more_is_listed_than_it_takes(make: Examiner, tmp_path: Path) -> None:
    path, asked = make.library(container("120f")), tmp_path / "asked"
    disassembler = tool(tmp_path, LISTING.format("sm_120f", "F2FP.E2M1"))
    said = disassembler.path.read_text()
    disassembler.path.write_text(said.replace("#!/bin/sh", f'#!/bin/sh\necho "$@" >> {asked}'))
    wheel = wheel_of(make.folder / "wheels", {f"toy_gpu/{name}.so": path for name in ("a", "b", "fp4", "z")})
    scratch, claims = tmp_path / "scratch", {"toy_gpu/*.so": ("fp4-convert",)}
    tools = Tools(scratch=scratch, disassembler=disassembler)
    assert loud(examine_wheel(wheel, replace(SM120, claims=claims), tools, python_minor=MINOR)) == {}
    assert asked.read_text() == f"-sass -arch sm_120f {scratch}/site/toy_gpu/fp4.so\n"


def test_a_file_that_may_not_be_read(make: Examiner) -> None:
    examined = make.one(Path("/proc/self/mem"))
    assert loud(examined) == {"so-unreadable": Severity.ERROR}


def test_claims_without_cuobjdump_are_inconclusive(make: Examiner) -> None:
    wanted = replace(SM120, claims={"*": ("omma",)})
    examined = make.one(make.library(container("120f")), wanted)
    assert (loud(examined), examined.verdict) == ({"so-not-understood": Severity.WARNING}, "inconclusive")


def test_fp4_in_plain_code_cannot_be(make: Examiner) -> None:
    wanted = replace(SM120, claims={"*": ("fp4-convert",)}, arch_list=())
    assert loud(make.one(make.library(container("120")), wanted)) == {"arch-needs-suffix": Severity.ERROR}


def test_a_claim_about_no_file(make: Examiner) -> None:
    wanted = replace(SM120, claims={"flashinfer/data/aot/fp4*": ("omma",)})
    assert loud(make.one(make.library(container("120f")), wanted)) == {"so-instructions-missing": Severity.ERROR}


@pytest.mark.parametrize(
    ("needs", "path", "codes"),
    [
        (["libcudart.so.13"], "a.so", []),
        (["libcudart.so.12"], "a.so", ["so-cuda-major-mixed"]),
        (["libcublas.so.13", "libnvrtc.so.12"], "a.so", ["so-cuda-major-mixed"]),
        (["libcurand.so.10", "libcudnn.so.9", "libcusparse.so.12"], "a.so", []),
        (["libcudart.so.12"], "120f/cached_ops/sampling/sampling.so", ["jit-cache-cuda-mismatch"]),
    ],
)
def test_the_cuda_that_it_is_linked_with(make: Examiner, needs: list[str], path: str, codes: list[str]) -> None:
    linked = [make.library(name=f"{name}.real", options=[f"-Wl,-soname,{name}"]) for name in needs]
    file = make.library(name=path, options=["-Wl,--no-as-needed", *linked])
    tools = Tools(scratch=make.folder)
    assert [*loud(examine_library(file, SM120, tools, name=path))] == codes


def test_the_c_library_that_it_needs(make: Examiner) -> None:
    path = make.library(body="void *malloc(unsigned long); void *f(void) { return malloc(1); }")
    assert make.one(path).binaries[0].glibc == "2.2.5"
    assert loud(make.one(path, replace(SM120, glibc="2.2"))) == {"so-glibc-too-new": Severity.ERROR}
    assert loud(make.one(path, replace(SM120, min_glibc="2.2"))) == {"so-glibc-too-new": Severity.WARNING}


def test_the_tag_promises_a_c_library(make: Examiner) -> None:
    body = "#include <math.h>\ndouble f(double x) { return pow(x, x); }"  # pow has a version of 2.29
    path = make.library(body=body, options=["-lm"])
    examined = make.wheel({"toy_gpu/a.so": path}, name="toy_gpu-1.0-cp312-cp312-manylinux2014_x86_64.whl")
    assert loud(examined).get("so-glibc-too-new") is Severity.WARNING
    examined = make.wheel({"toy_gpu/a.so": path}, name="toy_gpu-1.0-cp312-cp312-manylinux_2_34_x86_64.whl")
    assert "so-glibc-too-new" not in loud(examined)


@pytest.mark.parametrize(
    ("path", "odd"), [("$ORIGIN/../lib", False), ("/home/me/build", True), ("$ORIGIN:", True), ("lib", True)]
)
def test_search_paths(make: Examiner, path: str, odd: bool) -> None:
    examined = make.one(make.library(options=[f"-Wl,-rpath,{path}"]))
    assert loud(examined) == ({"so-runpath": Severity.WARNING} if odd else {})


def test_a_module_for_another_python(make: Examiner) -> None:
    path = make.library()
    name = "toy_gpu-1.0-cp310-abi3-linux_x86_64.whl"
    found = make.wheel({"toy_gpu/x.cpython-310-x86_64-linux-gnu.so": path}, name=name)
    assert loud(found) == {"so-python-abi": Severity.WARNING}
    assert (
        loud(make.wheel({"toy_gpu/x.cpython-312-x86_64-linux-gnu.so": path, "toy_gpu/y.abi3.so": path}, name=name))
        == {}
    )


def damaged(path: Path, at: int, value: int) -> bytes:
    content = bytearray(path.read_bytes())
    struct.pack_into("<H", content, at, value)
    return bytes(content)


def test_files_that_cannot_be_loaded(make: Examiner) -> None:
    path = make.library(container("120f"))
    files: dict[str, bytes | Path] = {
        "toy_gpu/cut.so": path.read_bytes()[:3000],
        "toy_gpu/script.so": b"/* GNU ld script */\nINPUT(libc.so.6)\n",
        "toy_gpu/empty.so.1": b"",
        "toy_gpu/arm.so": damaged(path, 18, 183),
        "toy_gpu/old.so": path.read_bytes()[:4] + b"\x01" + path.read_bytes()[5:],
        "toy_gpu/testdata": b"\x7fELF",
        "toy_gpu/good.so": path,
    }
    examined = make.wheel(files)
    said = {one.code: (one.message, *one.detail) for one in examined.findings if one.severity is Severity.ERROR}
    assert set(said) == {"so-unreadable", "so-wrong-machine"}
    unreadable, other = ("\n".join(said[code]) for code in ("so-unreadable", "so-wrong-machine"))
    assert [name for name in files if name in unreadable] == [
        "toy_gpu/cut.so",
        "toy_gpu/script.so",
        "toy_gpu/empty.so.1",
    ]
    assert [name for name in files if name in other] == ["toy_gpu/arm.so", "toy_gpu/old.so"]
    assert "a linker script" in unreadable
    assert "32-bit x86_64" in other


def test_names_that_steer_terminals_are_no_paths(make: Examiner) -> None:
    path = make.library()
    examined = make.wheel({"toy_gpu/a\n\x1b[2J.so": path, "../out.so": path})
    assert loud(examined) == {"wheel-members": Severity.ERROR}
    assert not (make.folder / "scratch" / "out.so").exists()
    odd = path.rename(path.with_name("a\n\x1b[2J.so"))
    assert make.one(odd).binaries[0].path == r"a\n\x1b[2J.so"
    assert printable("a\tb\udc80") == r"a\tb\udc80"


def test_a_file_below_a_file(make: Examiner) -> None:
    examined = make.wheel({"toy_gpu/a.so": make.library(), "toy_gpu/a.so/b.so": make.library(name="b.so")})
    assert loud(examined)["so-unreadable"] is Severity.ERROR


def test_files_for_other_schemes_are_looked_at_where_they_are_installed() -> None:
    assert installed("toy-1.0.data/platlib/toy/a.so") == "toy/a.so"
    assert installed("toy-1.0.data/scripts/tool") == "toy-1.0.data/scripts/tool"
    assert installed("toy/a.so") == "toy/a.so"


def test_a_bomb_is_not_unpacked(make: Examiner) -> None:
    wheel = wheel_of(make.folder, {"toy_gpu/a.so": make.library()})
    with zipfile.ZipFile(wheel, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("toy_gpu/big.so", "w") as stream:
        for _ in range(100):
            stream.write(bytes(1 << 20))
    scratch = make.folder / "scratch"
    examined = examine_wheel(wheel, SM120, Tools(scratch=scratch), python_minor=MINOR)
    assert loud(examined) == {"wheel-members": Severity.ERROR}
    assert "grows from" in examined.findings[0].message
    assert not scratch.exists()


def test_a_wrong_record_is_found_beside_the_rest(make: Examiner) -> None:
    wheel = wheel_of(make.folder, {"toy_gpu/a.so": make.library(container("90a"))})
    again = make.folder / "again" / wheel.name
    again.parent.mkdir()
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(again, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) + (b"\0" if name.endswith(".so") else b""))
    examined = examine_wheel(again, SM120, Tools(scratch=make.folder / "scratch"), python_minor=MINOR)
    assert loud(examined) == {"wheel-record": Severity.ERROR, "so-missing-arch": Severity.ERROR}


def test_no_room_is_the_disk_s_fault(make: Examiner) -> None:
    wheel = wheel_of(make.folder, {"toy_gpu/a.so": make.library()})
    with pytest.raises(FileNotFoundError, match="/proc/self/site"):  # a folder that nobody can write to, root neither
        examine_wheel(wheel, SM120, Tools(scratch=Path("/proc/self")), python_minor=MINOR)


def test_kernels_that_are_files(make: Examiner) -> None:
    fit, other = cubin(120, options="-arch sm_120f"), cubin(100, options="-arch sm_100a")
    assert loud(make.wheel({"toy_gpu/a.cubin": fit, "toy_gpu/b.cubin": other})) == {}
    examined = make.wheel({f"toy_gpu/{number}.cubin": other for number in range(30)})
    assert [one.code for one in examined.findings] == ["so-missing-arch"]
    assert examined.findings[0].detail == ("sm_100a: 30",)
    assert make.wheel({"toy_gpu/a.cubin": cubin(120)}).verdict == "inconclusive"
    assert loud(make.wheel({"toy_gpu/a.cubin": fit, "toy_gpu/b.cubin": b"x"})) == {"so-unreadable": Severity.ERROR}


def test_symbols_are_looked_up_in_an_environment(make: Examiner, tmp_path: Path) -> None:
    path = make.library(body="int nowhere(void); int call(void) { return nowhere(); }")
    assert [one.code for one in make.one(path).findings] == ["not-checked"]
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    examined = make.one(path, libraries=Libraries(site=site))
    assert loud(examined) == {"so-own-undefined-symbol": Severity.ERROR}
    assert examined.to_json()["binaries"][0]["unresolved"] == ["nowhere"]  # type: ignore[index]


def test_symbols_of_a_torch_that_is_not_there(make: Examiner, tmp_path: Path) -> None:
    body = 'extern int called(void) __asm__("_ZN2at4callEv"); int call(void) { return called(); }'
    path = make.library(body=body)
    assert loud(make.one(path, libraries=Libraries(site=tmp_path))) == {"so-library-missing": Severity.ERROR}
    wanted = replace(SM120, torch="2.14.1+cu130")
    assert loud(make.one(path, wanted, libraries=Libraries(site=tmp_path))) == {"torch-abi-mismatch": Severity.ERROR}


def test_a_recipe_says_which_symbols_may_stay_open(make: Examiner, tmp_path: Path) -> None:
    path = make.library(body="int tile32(void); int other(void); int call(void) { return tile32() + other(); }")
    wanted = replace(SM120, open_symbols={"tile*": "nobody calls it"})
    found = make.one(path, wanted, libraries=Libraries(site=tmp_path)).findings
    assert [(one.severity, one.detail) for one in found] == [(Severity.ERROR, ("other",)), (Severity.INFO, ("tile32",))]
    assert "nobody calls it" in found[1].message
    wanted = replace(wanted, open_symbols={"tile*": "nobody calls it", "other": "no"})
    assert make.one(path, wanted, libraries=Libraries(site=tmp_path)).verdict == "pass"


def test_a_missing_library_stands_for_its_symbols(make: Examiner, tmp_path: Path) -> None:
    gone = make.library(name="libgone.so", body="int gone(void) { return 1; }", options=["-Wl,-soname,libgone.so.1"])
    path = make.library(body="int gone(void); int call(void) { return gone(); }", options=[gone])
    gone.unlink()
    assert loud(make.one(path, libraries=Libraries(site=tmp_path))) == {"so-library-missing": Severity.ERROR}
