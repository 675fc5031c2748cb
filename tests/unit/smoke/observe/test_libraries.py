"""Real libraries in real processes: what is loaded, from where, and whether it is still what was installed."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from shared_objects import Load, shared_object

from sglforge.base.files import sha256_file
from sglforge.base.ids import BuildKey, Sha256
from sglforge.errors import Finding
from sglforge.provision.receipt import BuiltFile, BuiltReceipt, Environment, PythonReceipt, Receipt, TorchReceipt
from sglforge.smoke.observe.libraries import (
    Loaded,
    cuda_majors,
    duplicates,
    expected_hashes,
    judge_libraries,
    read_libraries,
)

PACKAGES = Path("venv/lib/python3.11/site-packages")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "environment" / PACKAGES
    folder.mkdir(parents=True)
    return folder


def seen(tmp_path: Path, *pids: int, expected: dict[str, str] | None = None) -> Loaded:
    """Return the libraries of processes under the test's own folder, as a transcript would hold them."""
    loaded = read_libraries(pids, environment=tmp_path / "environment", expected=expected or {})
    ours = tuple(library for library in loaded.libraries if library.path.startswith(str(tmp_path)))
    full = Loaded(environment=loaded.environment, libraries=ours, unreadable=loaded.unreadable, search=loaded.search)
    again = TypeAdapter(Loaded).validate_python(json.loads(json.dumps(asdict(full))))
    assert again == full
    return again


def age(*paths: Path) -> None:
    """Let files be an hour old, as those of an installed environment are."""
    for path in paths:
        os.utime(path, (time.time() - 3600,) * 2)


def codes(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.code for finding in findings]


def test_a_clean_process_has_no_finding(tmp_path: Path, site: Path, load: Load) -> None:
    runtime = shared_object(site / "nvidia/cu13/lib/libcudart.so.13", soname="libcudart.so.13")
    kernels = shared_object(site / "sgl_kernel/sm100/common_ops.abi3.so", needs=[runtime])
    age(runtime, kernels)
    one, two = load(kernels), load(runtime)
    loaded = seen(tmp_path, one.pid, two.pid)
    assert [(Path(library.path).name, library.pids) for library in loaded.libraries] == [
        ("libcudart.so.13", (one.pid, two.pid)),
        ("common_ops.abi3.so", (one.pid,)),
    ]
    assert loaded.libraries[0].soname == "libcudart.so.13"
    assert "libcudart.so.13" in loaded.libraries[1].needed
    assert all(library.inside for library in loaded.libraries)
    assert cuda_majors(loaded) == {13: (f"{runtime} is libcudart.so.13", f"{kernels} needs libcudart.so.13")}
    assert judge_libraries(loaded) == ()


def test_the_interpreter_and_the_system_are_no_findings(tmp_path: Path, load: Load) -> None:
    whole = read_libraries([load().pid], environment=tmp_path, expected={})
    assert {"libc.so.6"} <= {library.soname for library in whole.libraries}
    assert judge_libraries(whole) == ()


def test_two_cuda_majors_by_soname_and_by_need(tmp_path: Path, site: Path, load: Load) -> None:
    old = shared_object(site / "nvidia/cublas/lib/libcublas.so.12", soname="libcublas.so.12")
    new = shared_object(site / "nvidia/cu13/lib/libcudart.so.13", soname="libcudart.so.13")
    user = shared_object(site / "other/ops.so", needs=[old])
    age(old, new, user)
    loaded = seen(tmp_path, load(new, user).pid)
    (finding,) = judge_libraries(loaded)
    assert finding.code == "so-cuda-major-mixed"
    assert "CUDA 12 and 13" in finding.message
    assert f"CUDA 12: {user} needs libcublas.so.12" in finding.detail
    assert f"CUDA 13: {new} is libcudart.so.13" in finding.detail


@pytest.mark.parametrize("name", ["libcurand.so.10", "libcufft.so.12", "libcudnn.so.9", "libcusolver.so.11"])
def test_a_number_that_is_not_cudas_says_nothing(tmp_path: Path, site: Path, load: Load, name: str) -> None:
    library = shared_object(site / "nvidia" / name, soname=name)
    runtime = shared_object(site / "nvidia/libcudart.so.13", soname="libcudart.so.13")
    age(library, runtime)
    assert list(cuda_majors(seen(tmp_path, load(library, runtime).pid))) == [13]


def test_a_torch_of_the_user_site(tmp_path: Path, site: Path, load: Load) -> None:
    theirs = shared_object(tmp_path / "home/.local/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so")
    loaded = seen(tmp_path, load(theirs, env={"PYTHONPATH": "/somewhere"}).pid)
    (finding,) = judge_libraries(loaded)
    assert finding.code == "library-not-ours"
    assert str(theirs) in finding.message
    assert "PYTHONPATH=/somewhere" in finding.detail


def test_a_preloaded_nccl(tmp_path: Path, site: Path, load: Load) -> None:
    theirs = shared_object(tmp_path / "opt/libnccl.so.2.27.3", soname="libnccl.so.2")
    loaded = seen(tmp_path, load(env={"LD_PRELOAD": str(theirs)}).pid)
    (finding,) = judge_libraries(loaded)
    assert finding.code == "library-not-ours"
    assert f"LD_PRELOAD={theirs}" in finding.detail


def test_what_belongs_to_the_machine_is_no_fault(tmp_path: Path, site: Path, load: Load) -> None:
    plugin = shared_object(tmp_path / "opt/libnccl-net.so")
    compiled = shared_object(tmp_path / "home/.cache/flashinfer/0.7.2/120f/cached_ops/page/page.so")
    allocator = shared_object(tmp_path / "opt/libjemalloc.so.2")
    assert judge_libraries(seen(tmp_path, load(plugin, compiled, allocator).pid)) == ()


def test_the_same_name_from_two_files(tmp_path: Path, site: Path, load: Load) -> None:
    one = shared_object(site / "a/libomp.so", soname="libomp.so.5")
    two = shared_object(site / "b/libomp.so", soname="libomp.so.5")
    both, single = load(one, two), load(one)
    assert duplicates(seen(tmp_path, both.pid)) == {"libomp.so.5": (str(one), str(two))}
    assert duplicates(seen(tmp_path, single.pid)) == {}


def test_one_file_by_two_names_is_no_duplicate(tmp_path: Path, site: Path, load: Load) -> None:
    one = shared_object(site / "a/libomp.so.5", soname="libomp.so.5")
    (site / "a/libomp.so").symlink_to(one)
    assert duplicates(seen(tmp_path, load(one, site / "a/libomp.so").pid)) == {}


def test_a_file_that_was_replaced_under_the_server(tmp_path: Path, site: Path, load: Load) -> None:
    library = shared_object(site / "sgl_kernel/common_ops.so")
    age(library)
    service = load(library)
    assert judge_libraries(seen(tmp_path, service.pid)) == ()
    shared_object(site / "sgl_kernel/new.so").replace(library)
    (finding,) = judge_libraries(seen(tmp_path, service.pid))
    assert finding.code == "library-replaced"
    assert "was replaced after the server had loaded it" in finding.message


def test_a_file_that_was_removed_under_the_server(tmp_path: Path, site: Path, load: Load) -> None:
    library = shared_object(site / "sgl_kernel/common_ops.so")
    age(library)
    service = load(library)
    library.unlink()
    loaded = seen(tmp_path, service.pid)
    assert [(row.path, row.deleted, row.present) for row in loaded.libraries] == [(str(library), True, False)]
    assert codes(judge_libraries(loaded)) == ["library-replaced"]


def test_a_temporary_copy_that_was_loaded_and_removed_is_no_fault(tmp_path: Path, site: Path, load: Load) -> None:
    copy = shared_object(tmp_path / "tmp/copy.so")
    service = load(copy)
    copy.unlink()
    assert judge_libraries(seen(tmp_path, service.pid)) == ()


def test_a_file_that_was_written_in_place(tmp_path: Path, site: Path, load: Load) -> None:
    library = shared_object(site / "flashinfer/page.so")
    age(library)
    service = load(library)
    os.utime(library, (time.time() + 60,) * 2)
    (finding,) = judge_libraries(seen(tmp_path, service.pid))
    assert "was written after the server had started" in finding.message


def test_a_file_that_is_not_what_the_receipt_says(tmp_path: Path, site: Path, load: Load) -> None:
    library = shared_object(site / "sgl_kernel/common_ops.so")
    age(library)
    service = load(library)
    good = {str(library): str(sha256_file(library))}
    loaded = seen(tmp_path, service.pid, expected=good)
    assert loaded.libraries[0].sha256 == good[str(library)]
    assert judge_libraries(loaded) == ()
    (finding,) = judge_libraries(seen(tmp_path, service.pid, expected={str(library): "0" * 64}))
    assert finding.code == "library-replaced"
    assert "another content than the receipt says" in finding.message


def test_a_process_that_ended_is_unreadable(tmp_path: Path, site: Path, load: Load) -> None:
    service = load()
    service.stop(grace_s=0.0)
    assert seen(tmp_path, service.pid).unreadable == (service.pid,)


def test_hashes_come_from_the_receipt_for_libraries_only(tmp_path: Path) -> None:
    row = BuiltFile(sha256="a" * 64, size=1, mtime_ns=1, inode=1)
    files = {"sgl_kernel/common_ops.cpython-311-x86_64-linux-gnu.so": row, "sgl_kernel/__init__.py": row}
    built = BuiltReceipt(name="sgl-kernel", version="1", build_key="k", wheel="w", wheel_sha256="b" * 64, files=files)

    receipt = Receipt(
        environment_key=BuildKey("k"),
        name="e",
        created="",
        engine="",
        site_packages=str(PACKAGES),
        python=PythonReceipt(minor="3.11", version="3.11.7", base="", config_sha256=""),
        torch=TorchReceipt(version="2.13.0", variant="cpu", sha256=None, origin="download", proven=False),
        requirements=(),
        built=(built,),
        omitted=(),
        relaxed=(),
        records={},
        loose=(),
    )
    environment = Environment(path=tmp_path, name="e", receipt=receipt, receipt_sha256=Sha256("0" * 64))
    assert expected_hashes(environment) == {
        str(tmp_path / PACKAGES / "sgl_kernel/common_ops.cpython-311-x86_64-linux-gnu.so"): "a" * 64
    }
