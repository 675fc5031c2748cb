"""Undefined symbols of real libraries, made with gcc: who is at fault, and who is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_files import library

from sglforge.artifacts.elf import opened, read_elf
from sglforge.artifacts.libraries import Libraries
from sglforge.artifacts.symbols import Unresolved, near_names, scopes, sorted_out, unresolved

CHECK = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_{}b"
OPEN = 'extern "C" int {0}(void); int call(void) {{ return {0}(); }}'


@pytest.mark.parametrize(
    ("name", "cause", "owner"),
    [
        (CHECK.format("i"), "torch", ""),
        ("_ZN2at4_ops10empty_like4callERKNS_6TensorE", "torch", ""),
        ("_ZNK5torch8autograd4Node4nameEv", "torch", ""),
        ("_ZTIN3c105ErrorE", "torch", ""),
        ("_ZTVN3c1020intrusive_ptr_targetE", "torch", ""),
        ("_ZGVZN3c1010getMutexEvE5mutex", "torch", ""),
        ("aoti_torch_empty_strided", "torch", ""),
        ("_Z20cutlass_moe_mm_sm100RN2at6TensorERKS0_S3_bb", "own", ""),
        ("_ZN10flashinfer4pageEN3c105SymIntE", "own", ""),
        ("cutlass_gemm", "own", ""),
        ("cudaLaunchKernelExC", "library", "libcudart"),
        ("__cudaRegisterFatBinary", "library", "libcudart"),
        ("cuGreenCtxDestroy", "library", "libcuda"),
        ("cublasLtMatmul", "library", "libcublasLt"),
        ("cublasGemmEx", "library", "libcublas"),
        ("nvrtcCompileProgram", "library", "libnvrtc"),
        ("ncclAllReduce", "library", "libnccl"),
        ("TVMFFIErrorSetRaised", "library", "libtvm_ffi"),
        ("_ZNSt6vectorIiSaIiEE9push_backERKi", "library", "libstdc++"),
        ("PyObject_Call", "library", "Python"),
    ],
)
def test_who_a_symbol_is_of(name: str, cause: str, owner: str) -> None:
    found = sorted_out(name)
    assert (found.cause, found.owner) == (cause, owner)


def test_namespaces_of_mangled_names() -> None:
    assert scopes(CHECK.format("i")) == ("c10", "cuda", "c10_cuda_check_implementation")
    assert scopes("_Z20cutlass_moe_mm_sm100RN2at6TensorE") == ("cutlass_moe_mm_sm100",)
    assert scopes("malloc") == scopes("_Z") == scopes("_ZN99999999999x") == ()


class Site:
    """A site-packages folder with a torch of its own."""

    def __init__(self, root: Path) -> None:
        self.path = root / "lib" / "python3.11" / "site-packages"
        lib = self.path / "torch" / "lib"
        function = "c10_cuda_check_implementation(int, const char*, const char*, unsigned, bool)"
        body = f"namespace c10 {{ namespace cuda {{ void {function} {{}} }} }}"
        self.torch = library(lib / "libc10_cuda.so", body=body, options=["-Wl,-soname,libc10_cuda.so"], language="c++")
        (self.path / "torch" / "version.py").write_text("from typing import Optional\n__version__ = '2.14.1+cu130'\n")

    def open_ends(self, path: Path, *, root: Path | None = None) -> tuple[tuple[Unresolved, ...], tuple[str, ...]]:
        with opened(path) as data:
            elf = read_elf(data)
        libraries = Libraries(site=self.path)
        scope = libraries.scope(elf, folder=path.parent, root=root or path.parent)
        return unresolved(elf.undefined, scope, torch=libraries.of_torch), scope.missing


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "venv")


def calling(path: Path, name: str, *options: str | Path) -> Path:
    """Build a library that calls a function of a name, and links with what the options say."""
    body = f'extern int called(void) __asm__("{name}"); int call(void) {{ return called(); }}'
    return library(path, body=body, options=["-Wl,--no-as-needed", *options])


def test_another_torch(site: Site, tmp_path: Path) -> None:
    path = calling(tmp_path / "ext.so", CHECK.format("i"), site.torch)
    (found,), missing = site.open_ends(path)
    assert (found.cause, found.near, missing) == ("torch", (CHECK.format("j"),), ())


def test_the_same_torch(site: Site, tmp_path: Path) -> None:
    assert site.open_ends(calling(tmp_path / "ext.so", CHECK.format("j"), site.torch)) == ((), ())


def test_a_library_of_torch_that_the_file_does_not_name(site: Site, tmp_path: Path) -> None:
    (found,), missing = site.open_ends(calling(tmp_path / "ext.so", CHECK.format("j")))
    assert (found.cause, found.owner, missing) == ("library", "libc10_cuda", ())
    (found,), _ = site.open_ends(calling(tmp_path / "old.so", CHECK.format("i")))
    assert (found.cause, found.near) == ("torch", (CHECK.format("j"),))


def test_its_own_symbol(site: Site, tmp_path: Path) -> None:
    (found,), missing = site.open_ends(calling(tmp_path / "ext.so", "_Z9moe_sm100v", site.torch))
    assert (found.cause, missing) == ("own", ())


def test_a_weak_symbol_may_be_absent(site: Site, tmp_path: Path) -> None:
    body = "__attribute__((weak)) int maybe(void); int call(void) { return maybe ? maybe() : 0; }"
    assert site.open_ends(library(tmp_path / "ext.so", body=body)) == ((), ())


def test_a_library_that_is_not_there(site: Site, tmp_path: Path) -> None:
    gone = library(tmp_path / "libgone.so", body="int gone(void) { return 1; }", options=["-Wl,-soname,libgone.so.7"])
    path = calling(tmp_path / "ext.so", "gone", gone)
    gone.unlink()
    (found,), missing = site.open_ends(path)
    assert (found.name, missing) == ("gone", ("libgone.so.7",))


def versioned(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    script = path.with_suffix(".map")
    script.write_text(f"{version} {{ global: cudaThing; local: *; }};")
    body = "int cudaThing(void) { return 1; }"
    options = [f"-Wl,--version-script={script}", "-Wl,-soname,libcudart.so.13"]
    return library(path, body=body, options=options)


def test_versions_of_symbols_count(site: Site, tmp_path: Path) -> None:
    linked = versioned(tmp_path / "linked" / "libcudart.so.13", "libcudart.so.13")
    path = calling(tmp_path / "ext.so", "cudaThing", linked)
    folder = site.path / "nvidia" / "cu13" / "lib"
    versioned(folder / "libcudart.so.13", "another")
    (found,), missing = site.open_ends(path)
    assert (found.cause, found.owner, found.version, missing) == ("library", "libcudart", "libcudart.so.13", ())
    versioned(folder / "libcudart.so.13", "libcudart.so.13")
    assert site.open_ends(path) == ((), ())


def test_the_driver_is_not_expected_here(site: Site, tmp_path: Path) -> None:
    stub = library(
        tmp_path / "libcuda.so", body="int cuInit(int n) { return n; }", options=["-Wl,-soname,libcuda.so.1"]
    )
    linked = calling(tmp_path / "linked.so", "cuGreenCtxDestroy", stub)
    stub.unlink()
    assert site.open_ends(linked) == ((), ())
    (found,), _ = site.open_ends(calling(tmp_path / "unlinked.so", "cuGreenCtxDestroy"))
    assert (found.cause, found.owner) == ("library", "libcuda")


def test_the_search_path_leads_into_the_environment(site: Site, tmp_path: Path) -> None:
    """A wheel's file lies in a working folder, and says where to look from where it will be installed."""
    hidden, other = site.path / "pkg" / "deep" / "libhidden.so", site.path / "elsewhere" / "libhidden.so"
    library(other, options=["-Wl,-soname,libhidden.so"])
    library(hidden, body="int hidden(void) { return 1; }", options=["-Wl,-soname,libhidden.so"])
    work = tmp_path / "work"
    path = calling(
        work / "pkg" / "sub" / "ext.so", "hidden", hidden, "-Wl,-rpath,$ORIGIN/../deep", "-Wl,--enable-new-dtags"
    )
    assert site.open_ends(path, root=work) == ((), ())
    other.rename(site.path / "a-first.so")
    hidden.rename(site.path / "gone")
    assert site.open_ends(path, root=work)[1] == ("libhidden.so",)


def test_what_importing_a_package_loads_for_all(site: Site, tmp_path: Path) -> None:
    """FlashInfer's modules call libtvm_ffi and do not name it."""
    path = calling(tmp_path / "module.so", "TVMFFIBacktrace")
    (found,), _ = site.open_ends(path)
    assert (found.cause, found.owner) == ("library", "libtvm_ffi")
    library(site.path / "tvm_ffi" / "lib" / "libtvm_ffi.so", body="int TVMFFIBacktrace(void) { return 1; }")
    assert site.open_ends(path) == ((), ())


def test_a_library_that_some_package_of_the_environment_brings(site: Site, tmp_path: Path) -> None:
    engine = library(site.path / "engine" / "_C" / "libengine.so", options=["-Wl,-soname,libengine.so"])
    assert site.open_ends(calling(tmp_path / "plugin.so", "one", engine)) == ((), ())


def test_a_library_that_is_text_or_of_another_machine_is_passed_over(site: Site, tmp_path: Path) -> None:
    real = library(
        tmp_path / "libthing.so.1", body="int thing(void) { return 1; }", options=["-Wl,-soname,libthing.so.1"]
    )
    path = calling(tmp_path / "ext.so", "thing", real, "-Wl,-rpath,$ORIGIN/a:$ORIGIN/b:$ORIGIN/c")
    for folder, content in (("a", b"INPUT(libthing.so.2)"), ("b", b"\x7fELF\x01" + bytes(60))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "libthing.so.1").write_bytes(content)
    (tmp_path / "c").mkdir()
    real.rename(tmp_path / "c" / "libthing.so.1")
    assert site.open_ends(path) == ((), ())


def test_libraries_that_need_each_other_end(site: Site, tmp_path: Path) -> None:
    first = library(tmp_path / "libone.so", options=["-Wl,-soname,libone.so"])
    second = calling(tmp_path / "libtwo.so", "one", first, "-Wl,-soname,libtwo.so", "-Wl,-rpath,$ORIGIN")
    library(first, body="int call(void); int one(void) { return call(); }", options=["-Wl,-soname,libone.so", second])
    assert site.open_ends(calling(tmp_path / "ext.so", "one", first, "-Wl,-rpath,$ORIGIN")) == ((), ())


def test_a_destructor_is_no_other_constructor() -> None:
    wanted, names = (
        "_ZN3c1013MessageLoggerC1EPKcii",
        ["_ZN3c1013MessageLoggerD1Ev", "_ZN3c1013MessageLoggerC1ENS_1LEib"],
    )
    assert near_names([wanted], names) == {wanted: (names[1],)}
