"""Each way in which an environment can stop being what its receipt says, and which check sees it."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sglforge.base.files import sha256_file
from sglforge.provision.distributions import parse_record, read_distributions
from sglforge.provision.receipt import Environment, find_environment
from sglforge.provision.stamps import recorded_paths
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


def remove_requirement(environment: Environment) -> None:
    (environment.site_packages / "toydep.py").unlink()


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


def add_loose_module(environment: Environment) -> None:
    (environment.site_packages / "sitecustomize.py").write_text("")


def add_byte_code(environment: Environment) -> None:
    """Add what a Python that starts may write."""
    for folder in (environment.site_packages, environment.site_packages / "toyserver"):
        (folder / "__pycache__" / "late.cpython-311.pyc").write_bytes(b"")


def exchange_python(environment: Environment) -> None:
    environment.python.unlink()
    environment.python.symlink_to("/bin/sh")


def edit_python_config(environment: Environment) -> None:
    config = environment.path / "venv" / "pyvenv.cfg"
    overwrite(config, config.read_text().replace("packages = false", "packages = true"))


def remove_python_config(environment: Environment) -> None:
    (environment.path / "venv" / "pyvenv.cfg").unlink()


def remove_python(environment: Environment) -> None:
    environment.python.unlink()
    environment.python.symlink_to("/nonexistent/python")


Damage = Callable[[Environment], None]

CASES: list[tuple[Damage, set[tuple[str, str]], set[tuple[str, str]]]] = [
    (edit_built, {("environment-changed", "toyserver")}, {("environment-changed", "toyserver")}),
    (edit_built_and_hide_it, set(), {("environment-changed", "toyserver")}),
    (remove_built, {("environment-changed", "toyserver")}, {("environment-changed", "toyserver")}),
    (edit_requirement, {("environment-changed", "toydep")}, {("environment-changed", "toydep")}),
    (remove_requirement, {("environment-changed", "toydep")}, {("environment-changed", "toydep")}),
    (
        edit_requirement_and_its_record,
        {("environment-changed", "toydep"), ("environment-changed", "site-packages")},
        {("environment-changed", "toydep"), ("environment-changed", "site-packages")},
    ),
    (edit_torch, {("torch-replaced", "torch")}, {("torch-replaced", "torch")}),
    (
        replace_torch,
        {("torch-replaced", "torch"), ("environment-changed", "torch"), ("environment-changed", "site-packages")},
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
    (add_loose_module, {("environment-changed", "site-packages")}, {("environment-changed", "site-packages")}),
    (add_byte_code, set(), set()),
    (exchange_python, {("environment-changed", "python")}, {("environment-changed", "python")}),
    (edit_python_config, {("environment-changed", "python")}, {("environment-changed", "python")}),
    (remove_python_config, {("environment-changed", "python")}, {("environment-changed", "python")}),
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
    assert by_subject["toyserver"].hint == "nox -s install"
    assert environment.receipt.python.base in by_subject["python"].message
    for check in (quick, full):
        assert {finding.hint for finding in check(environment, again="do this")} == {"do this"}


def test_the_quick_check_names_files_that_changed_later(toys: Toys) -> None:
    environment = toys.install()
    edit_requirement(environment)
    edit_torch(environment)
    by_subject = {finding.subject: finding for finding in quick(environment)}
    assert by_subject["toydep"].detail == ("changed: toydep.py",)
    assert by_subject["torch"].detail == ("changed: torch/version.py",)


def test_a_file_that_was_put_back_is_seen_by_the_quick_check_and_not_named(toys: Toys) -> None:
    environment = toys.install()
    path = environment.site_packages / "toydep.py"
    before = path.stat()
    overwrite(path, path.read_text())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    (finding,) = quick(environment)
    assert finding.subject == "toydep"
    assert "nox -s verify" in finding.detail[0]
    assert full(environment) == ()


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


def test_the_fast_reading_of_a_record_finds_the_same_paths(tmp_path: Path) -> None:
    plain = "toys/a.txt,sha256=x,1\r\n../../../bin/toys,,\r\ntoys/./c.py,,\ntoys/__pycache__/c.cpython-311.pyc,,\n"
    for text in (plain, plain + '"toys/a,b.txt",,\n"toys/a ""b"".txt",,\n', "", "\n"):
        record = tmp_path / "RECORD"
        record.write_bytes(text.encode())
        paths = [path for path in parse_record(text.splitlines()) if "__pycache__" not in path]
        assert recorded_paths(record) == paths
    assert recorded_paths(tmp_path / "absent") == []


@pytest.mark.parametrize("name", ["toydep", "toyserver", "torch"])
@pytest.mark.parametrize("file", ["RECORD", "METADATA", "WHEEL"])
def test_damaged_metadata_is_a_finding_not_a_crash(toys: Toys, name: str, file: str) -> None:
    environment = toys.install()
    (info,) = environment.site_packages.glob(f"{name}-*.dist-info")
    (info / file).unlink()
    assert name in {finding.subject for finding in full(environment)}
    (info / file).write_bytes(b"toydep.py,sha256=\xff!,1\n\x00")
    assert name in {finding.subject for finding in full(environment)}
