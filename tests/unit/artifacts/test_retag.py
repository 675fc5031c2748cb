"""A pure wheel to which machine code was added says for which platform it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.artifacts.retag import for_platform, own_platform
from sglforge.errors import BuildError

WHEEL = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\nTag: cp311-abi3-any\n\n"


def test_tags_for_any_platform_are_for_one(tmp_path: Path) -> None:
    folder = tmp_path / "toy-1.dist-info"
    folder.mkdir()
    (folder / "WHEEL").write_text(WHEEL)
    for_platform(tmp_path, "linux_x86_64")
    text = (folder / "WHEEL").read_text()
    assert "Root-Is-Purelib: false\n" in text
    assert "Tag: py3-none-linux_x86_64\nTag: cp311-abi3-linux_x86_64\n" in text
    for_platform(tmp_path, "linux_aarch64")
    assert (folder / "WHEEL").read_text() == text, "what is for a platform stays for it"


def test_a_tree_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="0 WHEEL files"):
        for_platform(tmp_path, "linux_x86_64")


def test_the_own_platform_is_a_tag() -> None:
    assert own_platform().startswith("linux_")
    assert "-" not in own_platform()
    assert "." not in own_platform()
