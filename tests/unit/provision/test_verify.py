"""Each way in which an environment can stop being what its receipt says, and which check sees it."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sglforge.base import proc
from sglforge.base.files import sha256_file
from sglforge.provision.distributions import parse_record, read_distributions
from sglforge.provision.receipt import Environment, find_environment
from sglforge.provision.verify import full, quick

if TYPE_CHECKING:
    from unit.provision.conftest import Toys


def overwrite(path: Path, text: str) -> None:
    """Replace a file without writing through a hard link."""
    path.unlink()
    path.write_text(text)


def edit_built(environment: Environment) -> None:
    overwrite(environment.site_packages / "toyserver" / "extra.py", "X = 2\n")


def edit_built_and_hide_it(environment: Environment) -> None:
    path = environment.site_packages / "toyserver" / "extra.py"
    before = path.stat()
    with path.open("r+") as stream:
        stream.write("X = 2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def remove_built(environment: Environment) -> None:
    (environment.site_packages / "toyserver" / "extra.py").unlink()


def remove_all(environment: Environment) -> None:
    shutil.rmtree(environment.path / "venv" / "lib")


def edit_requirement(environment: Environment) -> None:
    overwrite(environment.site_packages / "toydep.py", "ANSWER = 43\n")


def edit_requirement_and_its_record(environment: Environment) -> None:
    edit_requirement(environment)
    (info,) = environment.site_packages.glob("toydep-*.dist-info")
    before = (info / "RECORD").read_text()
    overwrite(info / "RECORD", "\n".join(line for line in before.splitlines() if "toydep.py" not in line) + "\n")


def edit_torch(environment: Environment) -> None:
    overwrite(environment.site_packages / "torch" / "version.py", "__version__ = '9.9.0+cpu'\ncuda = '13.0'\n")


def replace_torch(environment: Environment) -> None:
    (info,) = environment.site_packages.glob("torch-*.dist-info")
    info.rename(info.with_name("torch-9.9.0+cu130.dist-info"))


def remove_torch(environment: Environment) -> None:
    for path in environment.site_packages.glob("torch*"):
        shutil.rmtree(path)


def add_distribution(environment: Environment) -> None:
    info = environment.site_packages / "late-1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("toydep.py,,\nlate-1.0.dist-info/RECORD,,\n")


def add_loose_file(environment: Environment) -> None:
    (environment.site_packages / "toyserver" / "shadow.py").write_text("")


def remove_python(environment: Environment) -> None:
    environment.python.unlink()
    environment.python.symlink_to("/nonexistent/python")


Damage = Callable[[Environment], None]

CASES: list[tuple[Damage, set[tuple[str, str]], set[tuple[str, str]]]] = [
    (edit_built, {("environment-changed", "toyserver")}, {("environment-changed", "toyserver")}),
    (edit_built_and_hide_it, set(), {("environment-changed", "toyserver")}),
    (remove_built, {("environment-changed", "toyserver")}, {("environment-changed", "toyserver")}),
    (edit_requirement, set(), {("environment-changed", "toydep")}),
    (
        edit_requirement_and_its_record,
        {("environment-changed", "toydep")},
        {("environment-changed", "toydep"), ("environment-changed", "site-packages")},
    ),
    (edit_torch, set(), {("torch-replaced", "torch")}),
    (
        replace_torch,
        {("torch-replaced", "torch"), ("environment-changed", "torch")},
        {("torch-replaced", "torch"), ("environment-changed", "torch"), ("environment-changed", "site-packages")},
    ),
    (
        remove_torch,
        {("torch-replaced", "torch")},
        {("torch-replaced", "torch"), ("requirement-unmet", "toyserver")},
    ),
    (
        add_distribution,
        {("environment-changed", "late")},
        {("environment-changed", "late"), ("file-owned-twice", "late, toydep")},
    ),
    (add_loose_file, set(), {("environment-changed", "site-packages")}),
    (remove_python, {("environment-changed", "python")}, {("environment-changed", "python")}),
]


@pytest.mark.parametrize(("damage", "seen_quickly", "seen"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_damage_is_seen(
    toys: Toys, damage: Damage, seen_quickly: set[tuple[str, str]], seen: set[tuple[str, str]]
) -> None:
    toys.relaxed = {"absent": "GPU only", "torch": "the CPU build has another version"}
    if damage is remove_torch:
        toys.relaxed.pop("torch")
        toys.wheels = [toys.make_server(requires=["torch", "toydep"])]
    environment = toys.install()
    assert quick(environment) == full(environment) == ()
    damage(environment)
    assert {(finding.code, finding.subject) for finding in quick(environment)} == seen_quickly
    assert {(finding.code, finding.subject) for finding in full(environment)} == seen


def test_everything_gone_is_one_finding_per_distribution(toys: Toys) -> None:
    environment = toys.install()
    remove_all(environment)
    for check in (quick, full):
        subjects = {finding.subject for finding in check(environment)}
        assert {"torch", "toydep", "toyserver"} <= subjects


def test_findings_name_the_files_and_the_way_out(toys: Toys) -> None:
    environment = toys.install()
    edit_built(environment)
    remove_python(environment)
    by_subject = {finding.subject: finding for finding in full(environment)}
    assert by_subject["toyserver"].detail == ("changed: toyserver/extra.py",)
    assert by_subject["toyserver"].hint == f"rm -r {environment.path} && nox -s install"
    assert environment.receipt.python.base in by_subject["python"].message


def test_the_way_out_of_an_edit_that_reached_the_cache_works(toys: Toys) -> None:
    environment = toys.install()
    (environment.site_packages / "toydep.py").write_text("ANSWER = 43\n")  # in place, through the hard link
    (finding,) = full(environment)
    clean, remove, _ = finding.hint.split(" && ")
    assert clean == "uv cache clean toydep"
    proc.run([toys.uv.program, *clean.split()[1:]], env=toys.uv.environment)
    assert remove == f"rm -r {environment.path}"
    shutil.rmtree(environment.path)
    assert full(toys.install()) == ()


def test_a_receipt_survives_reading(toys: Toys) -> None:
    environment = toys.install()
    read = find_environment(toys.workspace, "toys")
    assert read == environment
    installed = read_distributions(environment.site_packages)
    assert {entry.info.name: entry.record for entry in installed.values()} == environment.receipt.records
    assert environment.receipt_sha256 == sha256_file(environment.path / "receipt.json")


def test_a_record_is_read_as_it_is_written() -> None:
    lines = [
        '"toys/a,b.txt",sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0',
        "../../../bin/toys,md5=x,1",
        "toys/./c.py,,",
        "",
    ]
    empty = hashlib.sha256(b"").hexdigest()
    assert parse_record(lines) == {"toys/a,b.txt": empty, "../../../bin/toys": None, "toys/c.py": None}


@pytest.mark.parametrize("name", ["toydep", "toyserver", "torch"])
@pytest.mark.parametrize("file", ["RECORD", "METADATA", "WHEEL"])
def test_damaged_metadata_is_a_finding_not_a_crash(toys: Toys, name: str, file: str) -> None:
    environment = toys.install()
    (info,) = environment.site_packages.glob(f"{name}-*.dist-info")
    (info / file).unlink()
    assert name in {finding.subject for finding in full(environment)}
    (info / file).write_bytes(b"toydep.py,sha256=\xff!,1\n\x00")
    assert name in {finding.subject for finding in full(environment)}
