"""Resolving toy requirements with a real uv and no network."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pytest_httpserver import HTTPServer

from sglforge.base.files import sha256_file
from sglforge.base.index_locations import IndexLocations
from sglforge.config.lockfile import LockedPython, LockedRequirement
from sglforge.config.model import StackEnvironment, TorchPin
from sglforge.errors import LockError
from sglforge.provision.resolve import Resolution, resolve, resolve_build
from sglforge.provision.uv import open_uv

if TYPE_CHECKING:
    from unit.provision.conftest import Toys


def resolved(
    toys: Toys,
    *requirements: str,
    previous: LockedPython | None = None,
    update: tuple[str, ...] = (),
    constraints: tuple[Path, ...] = (),
    held: tuple[LockedRequirement, ...] = (),
) -> Resolution:
    environment = StackEnvironment(
        torch=TorchPin(version="9.9.0", variant="cpu"), pythons=[toys.minor], requirements=list(requirements)
    )
    locations = IndexLocations(no_index=True, find_links=(str(toys.links),), constraints=constraints)
    return resolve(
        environment,
        toys.minor,
        uv=open_uv(locations),
        scratch=toys.workspace.scratch,
        previous=previous,
        update=update,
        constraints=held,
    )


def versions(resolution: Resolution) -> dict[str, str]:
    return {entry.name: entry.version for entry in resolution.locked.requirements}


def test_the_closure_is_complete_and_hashed(toys: Toys) -> None:
    top = toys.make_wheel("toytop", "3.0", {"toytop.py": ""}, requires=["toydep>=1"])
    result = resolved(toys, "toytop")
    assert result.findings == ()
    assert [(entry.name, entry.version) for entry in result.locked.requirements] == [
        ("toydep", "1.2"),
        ("toytop", "3.0"),
    ]
    assert [(file.name, file.sha256) for file in result.locked.requirements[1].files] == [(top.name, sha256_file(top))]
    assert not any(toys.workspace.scratch.iterdir())


def test_what_the_toolkit_pins_is_no_other_version_in_an_environment(toys: Toys, tmp_path: Path) -> None:
    toys.make_wheel("nvcc", "13.5.1", {"nvcc.py": ""})
    toys.make_wheel("top", "1.0", {"top.py": ""}, requires=["nvcc", "toydep"])
    pin = toys.locked(toys.make_wheel("nvcc", "13.0.88", {"nvcc.py": ""}))
    unused = toys.locked(toys.make_wheel("unused", "1.0", {"unused.py": ""}))
    (tmp_path / "own.txt").write_text("toydep<1.3\n")
    toys.make_wheel("toydep", "1.3", {"toydep.py": ""})
    assert versions(resolved(toys, "top"))["nvcc"] == "13.5.1"
    found = versions(resolved(toys, "top", held=(pin, unused), constraints=(tmp_path / "own.txt",)))
    assert found == {"nvcc": "13.0.88", "toydep": "1.2", "top": "1.0"}
    with pytest.raises(LockError) as caught:
        resolved(toys, "nvcc>13.0.88", held=(pin,))
    assert caught.value.code == "requirements-unsatisfiable"
    assert "nvcc==13.0.88" in caught.value.context["uv said"]


def test_torch_is_held_out_whoever_wants_it(toys: Toys) -> None:
    toys.make_torch(version="9.9.0", cuda="13.0")
    toys.make_wheel("toytop", "3.0", {"toytop.py": ""}, requires=["toydep", "torch>=9", "torch==1; extra == 'x'"])
    result = resolved(toys, "toytop")
    assert set(versions(result)) == {"toydep", "toytop"}
    assert result.locked.torch.sha256 == toys.torch_hashes


def test_the_same_input_gives_the_same_lock(toys: Toys) -> None:
    assert resolved(toys, "toydep") == resolved(toys, "toydep")


def test_versions_stay_until_they_are_named(toys: Toys) -> None:
    toys.make_wheel("other", "1.0", {"other.py": ""})
    before = resolved(toys, "toydep", "other")
    toys.make_wheel("toydep", "1.3", {"toydep.py": ""})
    toys.make_wheel("other", "1.1", {"other.py": ""})
    kept = resolved(toys, "toydep", "other", previous=before.locked)
    assert kept == before
    moved = resolved(toys, "toydep", "other", previous=before.locked, update=("toydep",))
    assert versions(moved) == {"toydep": "1.3", "other": "1.0"}
    assert versions(resolved(toys, "toydep>1.2", "other", previous=before.locked)) == {"toydep": "1.3", "other": "1.0"}
    assert versions(resolved(toys, "toydep", "other")) == {"toydep": "1.3", "other": "1.1"}


def test_a_torch_that_was_accepted_stays_accepted_for_its_version(toys: Toys) -> None:
    before = resolved(toys, "toydep").locked
    for path in toys.links.glob("torch-*"):
        path.unlink()
    assert resolved(toys, "toydep").locked.torch.sha256 == []
    assert resolved(toys, "toydep", previous=before).locked.torch.sha256 == toys.torch_hashes
    older = before.model_copy(update={"torch": before.torch.model_copy(update={"version": "9.8.0"})})
    assert resolved(toys, "toydep", previous=older).locked.torch.sha256 == []


def test_the_constraints_of_pip_hold(toys: Toys, tmp_path: Path) -> None:
    toys.make_wheel("toydep", "1.3", {"toydep.py": ""})
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("toydep<1.3\n")
    assert versions(resolved(toys, "toydep", constraints=(constraints,))) == {"toydep": "1.2"}


def test_what_cannot_be_held_together_is_named(toys: Toys) -> None:
    toys.make_wheel("toytop", "3.0", {"toytop.py": ""}, requires=["toydep>=2"])
    with pytest.raises(LockError) as caught:
        resolved(toys, "toytop")
    assert caught.value.code == "requirements-unsatisfiable"
    assert "toydep" in caught.value.context["uv said"]


def test_no_code_of_a_source_archive_runs(toys: Toys, tmp_path: Path) -> None:
    project, marker = tmp_path / "sourceonly-1.0", tmp_path / "code-ran"
    project.mkdir()
    (project / "backend.py").write_text(f"open({str(marker)!r}, 'w')\n")
    (project / "pyproject.toml").write_text(
        '[project]\nname = "sourceonly"\nversion = "1.0"\ndynamic = ["dependencies"]\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (project / "PKG-INFO").write_text("Metadata-Version: 2.2\nName: sourceonly\nVersion: 1.0\nDynamic: Requires-Dist\n")
    with tarfile.open(toys.links / "sourceonly-1.0.tar.gz", "w:gz") as archive:
        archive.add(project, project.name)
    with pytest.raises(LockError) as caught:
        resolved(toys, "sourceonly")
    assert caught.value.code == "requirements-unsatisfiable"
    assert not marker.exists()


def native(toys: Toys, version: str, architecture: str, text: str = "") -> Path:
    python = toys.native_tag.split("-")[0]
    tag = f"{python}-{python}-manylinux_2_28_{architecture}"
    return toys.make_wheel("toynative", version, {"toynative.py": f"# {architecture} {text}\n"}, tag=tag)


def test_files_of_both_architectures_are_locked(toys: Toys) -> None:
    wheels = [native(toys, "1.0", architecture) for architecture in ("aarch64", "x86_64")]
    toys.make_wheel("toynative", "1.0", {"toynative.py": ""}, tag="cp39-cp39-manylinux_2_28_x86_64")
    toys.make_wheel("toynative", "1.0", {"toynative.py": ""}, tag=f"{toys.native_tag.split('-')[0]}-none-win_amd64")
    result = resolved(toys, "toynative")
    assert result.findings == ()
    assert [file.name for file in result.locked.requirements[0].files] == sorted(path.name for path in wheels)


@pytest.mark.parametrize("other", [[], ["0.9"]])
def test_an_architecture_without_the_same_versions_is_left_out_and_said(toys: Toys, other: list[str]) -> None:
    native(toys, "1.0", "x86_64")
    for version in other:
        native(toys, version, "aarch64")
    result = resolved(toys, "toynative")
    assert {file.name.rpartition("_2_28_")[2] for file in result.locked.requirements[0].files} == {"x86_64.whl"}
    (finding,) = result.findings
    assert (finding.code, finding.subject) == ("architecture-not-locked", "aarch64")


def test_a_build_environment_is_resolved_for_every_python(toys: Toys) -> None:
    toys.make_wheel("backend", "2.0", {"backend.py": ""}, requires=["toydep"])
    pins = resolve_build(["backend>=1"], ["3.11", "3.12"], uv=toys.uv, scratch=toys.workspace.scratch)
    assert [(pin.name, pin.version) for pin in pins] == [("backend", "2.0"), ("toydep", "1.2")]


def test_a_build_environment_stays_until_it_is_updated(toys: Toys) -> None:
    def pinned(**more: Any) -> dict[str, list[LockedRequirement]]:
        pins = resolve_build(["backend>=1"], ["3.11", "3.12"], uv=toys.uv, scratch=toys.workspace.scratch, **more)
        return {pin.version: pins for pin in pins if pin.name == "backend"}

    toys.make_wheel("backend", "2.0", {"backend.py": ""}, requires=["toydep"])
    (first,) = pinned().values()
    toys.make_wheel("backend", "2.1", {"backend.py": ""}, requires=["toydep"])
    assert [*pinned(previous=first)] == ["2.0"]
    assert [*pinned(previous=first)["2.0"]] == first
    assert [*pinned(previous=first, update=["Backend"])] == ["2.1"]
    assert [*pinned()] == ["2.1"]
    (toys.links / "backend-2.0-py3-none-any.whl").unlink()
    assert [*pinned(previous=first)] == ["2.1"]


def test_a_build_environment_takes_what_the_oldest_python_can_use(toys: Toys) -> None:
    older, newer = ("3.11", "3.12")
    for version, pythons in (("1.0", (older, newer)), ("1.1", (newer,))):
        for python in pythons:
            tag = f"cp{python.replace('.', '')}"
            for architecture in ("x86_64", "aarch64"):
                full = f"{tag}-{tag}-manylinux_2_28_{architecture}"
                toys.make_wheel("array", version, {"array.py": ""}, tag=full)
    (pin,) = resolve_build(["array"], [newer, older], uv=toys.uv, scratch=toys.workspace.scratch)
    assert pin.version == "1.0"
    assert len(pin.files) == 4


def test_a_build_environment_that_differs_between_pythons_is_refused(toys: Toys) -> None:
    toys.make_wheel("backend", "2.0", {"backend.py": ""}, requires=['toydep; python_version >= "3.12"'])
    with pytest.raises(LockError) as caught:
        resolve_build(["backend"], ["3.11", "3.12"], uv=toys.uv, scratch=toys.workspace.scratch)
    assert caught.value.code == "build-requires-differ"
    assert "toydep" in caught.value.context["differs"]


def test_a_mirror_with_one_file_does_not_hide_the_others(toys: Toys, httpserver: HTTPServer) -> None:
    wheels = [native(toys, "1.0", architecture) for architecture in ("aarch64", "x86_64")]

    def page(*paths: Path) -> str:
        return "".join(f'<a href="/files/{path.name}#sha256={sha256_file(path)}">{path.name}</a>' for path in paths)

    httpserver.expect_request("/simple/toynative/").respond_with_data(page(*wheels), content_type="text/html")
    for path in wheels:
        httpserver.expect_request(f"/files/{path.name}").respond_with_data(path.read_bytes())
    mirror = toys.root / "mirror" / "toynative" / "index.html"
    mirror.parent.mkdir(parents=True)
    mirror.write_text(page(wheels[1]).replace("/files/", f"file://{toys.links}/"))
    for path in toys.links.glob("torch-*"):
        path.unlink()
    locations = IndexLocations(
        index_url=httpserver.url_for("/simple/"), extra_index_urls=(mirror.parent.parent.as_uri(),)
    )
    environment = StackEnvironment(
        torch=TorchPin(version="9.9.0", variant="cpu"), pythons=[toys.minor], requirements=["toynative"]
    )
    result = resolve(environment, toys.minor, uv=open_uv(locations), scratch=toys.workspace.scratch)
    assert result.findings == ()
    assert [file.name for file in result.locked.requirements[0].files] == sorted(path.name for path in wheels)
