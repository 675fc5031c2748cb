"""The version of a tree, from the files that the three kinds of trees have."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.errors import PatchError
from sglforge.trees.version import tree_version

GENERATED = "__version__: str\n__version__ = version = '0.5.23'\n"
GUARDED = "try:\n    from sglang._version import __version__\nexcept ImportError:\n    __version__ = '0.0.0.dev0'\n"


def write(tree: Path, name: str, text: str) -> None:
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_wheel(tmp_path: Path) -> None:
    write(
        tmp_path,
        "sglang-0.5.23.dist-info/METADATA",
        "Metadata-Version: 2.4\nName: sglang\nVersion: 0.5.23\n\nVersion: 9\n",
    )
    write(tmp_path, "sglang/_version.py", GENERATED.replace("0.5.23", "0.5.22"))
    assert tree_version(tmp_path) == "0.5.23"


def test_an_sdist(tmp_path: Path) -> None:
    write(tmp_path, "PKG-INFO", "Metadata-Version: 2.4\nName: sglang\nVersion: 0.5.10rc0\n")
    assert tree_version(tmp_path) == "0.5.10rc0"


@pytest.mark.parametrize("folder", ["", "python/"])
def test_a_checkout(tmp_path: Path, folder: str) -> None:
    write(tmp_path, f"{folder}sglang/version.py", '__version__ = "0.5.9"\n')
    assert tree_version(tmp_path) == "0.5.9"


def test_a_generated_file_goes_before_the_guarded_fallback(tmp_path: Path) -> None:
    write(tmp_path, "python/sglang/version.py", GUARDED)
    write(tmp_path, "python/sglang/_version.py", GENERATED)
    assert tree_version(tmp_path) == "0.5.23"


@pytest.mark.parametrize("text", ["", GUARDED, "__version__ = compute()\n", "not python (\n"])
def test_a_tree_that_does_not_say(tmp_path: Path, text: str) -> None:
    write(tmp_path, "sglang/version.py", text)
    with pytest.raises(PatchError) as caught:
        tree_version(tmp_path)
    assert caught.value.code == "tree-version-unknown"


def test_the_version_of_another_package(tmp_path: Path) -> None:
    metadata = "Metadata-Version: 2.4\nName: {}\nVersion: {}\n"
    write(tmp_path, "sglang-0.5.23.dist-info/METADATA", metadata.format("sglang", "0.5.23"))
    write(tmp_path, "sglang/version.py", '__version__ = "0.5.23"\n')
    write(tmp_path, "PKG-INFO", metadata.format("sglang", "0.5.23"))
    with pytest.raises(PatchError) as caught:
        tree_version(tmp_path, module="torchvision")
    assert caught.value.code == "tree-version-unknown"
    assert "which version of torchvision" in caught.value.message
    write(tmp_path, "torchvision/version.py", "__version__ = '0.27.0+cpu'\n")
    assert tree_version(tmp_path, module="torchvision") == "0.27.0+cpu"
    write(tmp_path, "torch_vision-0.28.0.dist-info/METADATA", metadata.format("Torch_Vision", "0.28.0"))
    assert tree_version(tmp_path, module="torchvision", project="torch-vision") == "0.28.0"


def test_nothing_of_the_tree_is_run(tmp_path: Path) -> None:
    write(tmp_path, "sglang/version.py", f"open({str(tmp_path / 'ran')!r}, 'w')\n__version__ = '1.0'\n")
    assert tree_version(tmp_path) == "1.0"
    assert not (tmp_path / "ran").exists()
