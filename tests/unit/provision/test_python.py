"""Which Python is taken, and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sglforge.config.lockfile import LockedPython, LockedTorch
from sglforge.errors import DoctorError
from sglforge.provision.python import Interpreter, choose_python, running_interpreter

if TYPE_CHECKING:
    from unit.provision.conftest import Toys

STRANGER = Interpreter(path=Path("/nonexistent/python3.99"), minor="3.99", version="3.99.1")


def section(minor: str, *, proven: bool) -> LockedPython:
    torch = LockedTorch(version="9.9.0", variant="cpu", sha256=["0" * 64] if proven else [])
    return LockedPython(minor=minor, torch=torch, requirements=[])


def test_the_running_python_is_the_real_one() -> None:
    running = running_interpreter()
    assert running.version == ".".join(map(str, sys.version_info[:3]))
    assert not running.path.is_symlink()
    assert running.path == Path(sys.executable).resolve()


def test_the_running_python_is_taken_when_its_torch_is_proven(toys: Toys) -> None:
    chosen = choose_python([section("3.98", proven=True), section(toys.minor, proven=True)], toys.uv)
    assert chosen.interpreter == running_interpreter()
    assert "runs sglforge" in chosen.why


def test_another_python_with_a_proven_torch_is_preferred_to_an_unproven_one(toys: Toys) -> None:
    sections = [section("3.99", proven=False), section("3.98", proven=True), section(toys.minor, proven=True)]
    chosen = choose_python(sections, toys.uv, running=STRANGER)
    assert chosen.interpreter.minor == chosen.locked.minor == toys.minor
    assert chosen.interpreter.path.is_file()
    assert "3.99" in chosen.why


def test_another_unproven_python_is_no_better(toys: Toys) -> None:
    sections = [section(toys.minor, proven=False), section("3.99", proven=False)]
    chosen = choose_python(sections, toys.uv, running=STRANGER)
    assert chosen.interpreter == STRANGER
    assert chosen.why == "the Python that runs sglforge; the lock proves torch for no Python yet"


def test_the_running_python_is_taken_unproven_when_nothing_better_is_here(toys: Toys) -> None:
    sections = [section("3.98", proven=True), section("3.99", proven=False)]
    chosen = choose_python(sections, toys.uv, running=STRANGER)
    assert chosen.interpreter == STRANGER
    assert chosen.why.endswith("the lock proves torch only for Python 3.98, which is not here")


def test_a_python_that_no_lock_knows_is_refused(toys: Toys) -> None:
    with pytest.raises(DoctorError) as caught:
        choose_python([section("3.98", proven=True)], toys.uv, running=STRANGER)
    assert caught.value.code == "python-not-locked"
    assert "3.98" in caught.value.message


@pytest.mark.parametrize("request_of", ["minor", "path"])
def test_an_explicit_python_is_taken_as_it_is(toys: Toys, request_of: str) -> None:
    explicit = toys.minor if request_of == "minor" else sys.executable
    chosen = choose_python([section(toys.minor, proven=False)], toys.uv, explicit=explicit, running=STRANGER)
    assert chosen.interpreter.minor == toys.minor
    assert not chosen.interpreter.path.is_symlink()
    assert explicit in chosen.why


@pytest.mark.parametrize("explicit", ["3.77", "/bin/true", "/nonexistent/python", "/tmp"])
def test_what_is_no_python_is_named(toys: Toys, explicit: str) -> None:
    with pytest.raises(DoctorError) as caught:
        choose_python([section(toys.minor, proven=True)], toys.uv, explicit=explicit)
    assert caught.value.code == "python-not-found"
    assert explicit in caught.value.message


def test_an_explicit_python_must_be_locked(toys: Toys) -> None:
    with pytest.raises(DoctorError) as caught:
        choose_python([section("3.98", proven=True)], toys.uv, explicit=sys.executable)
    assert caught.value.code == "python-not-locked"
