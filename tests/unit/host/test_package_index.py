"""pip's own configuration is read as pip reads it, and uv finds what pip would."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sglforge.base import proc
from sglforge.base.index_locations import IndexLocations
from sglforge.base.proc import Completed
from sglforge.errors import ConfigError
from sglforge.host import package_index, pip_files, programs
from sglforge.host.package_index import locations, uv_arguments, uv_environment

SECRET = "s3cret%40word"

CONFIGURATION = f"""\
[global]
index-url = https://me:{SECRET}@index.invalid/simple
extra_index_url =
    https://more.invalid/simple
    file:///srv/simple
find-links = /not/there https://links.invalid/page.html
    {{wheels}}
cert = ~/bundle.pem
no-index = yes
timeout = 7

[install]
constraint = {{constraints}}
    other.txt
no-index = off

[download]
find-links = /only/for/download
"""


@pytest.fixture(scope="module")
def python_with_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter that has pip."""
    base = Path(getattr(sys, "_base_executable", sys.executable))
    if subprocess.run([base, "-c", "import pip"], capture_output=True, check=False).returncode == 0:
        return base
    folder = tmp_path_factory.mktemp("with-pip")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin/python"


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the home of a user who has configured nothing."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "xdg"))
    return tmp_path


@pytest.fixture
def configured(home: Path) -> Path:
    """Return the home of a user with a pip.conf that uses every kind of value."""
    (home / "wheels").mkdir()
    text = CONFIGURATION.format(wheels=home / "wheels", constraints=home / "constraints.txt")
    (home / ".config/pip").mkdir(parents=True)
    (home / ".config/pip/pip.conf").write_text(text)
    return home


def test_every_kind_of_value_is_read(configured: Path, python_with_pip: Path) -> None:
    assert package_index.read(python_with_pip) == IndexLocations(
        index_url=f"https://me:{SECRET}@index.invalid/simple",
        extra_index_urls=("https://more.invalid/simple", "file:///srv/simple"),
        find_links=("/not/there", "https://links.invalid/page.html", str(configured / "wheels")),
        constraints=(configured / "constraints.txt", Path.cwd() / "other.txt"),
        ca_bundle=configured / "bundle.pem",
        no_index=False,
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("files", "variables"),
    [
        ({}, {}),
        ({}, {"PIP_FIND_LINKS": "/a /b\n/c", "PIP_NO_INDEX": "1", "PIP_TRUSTED_HOST": "one two"}),
        ({".config/pip/pip.conf": "[global]\nfind-links = /user"}, {"PIP_FIND_LINKS": "/variable"}),
        ({".config/pip/pip.conf": "[global]\nfind-links = /user"}, {"PIP_FIND_LINKS": ""}),
        ({".pip/pip.conf": "[global]\nindex_url = https://old.invalid/simple"}, {}),
        (
            {
                ".pip/pip.conf": "[global]\nindex-url = https://old.invalid/simple",
                ".config/pip/pip.conf": "[global]\nindex-url = https://new.invalid/simple",
                "xdg/pip/pip.conf": "[global]\nfind-links = /system\nindex-url = https://x.invalid/simple",
            },
            {},
        ),
        (
            {
                ".config/pip/pip.conf": "[global]\nfind-links = /user",
                "own.conf": "[install]\nno-index = true",
            },
            {"PIP_CONFIG_FILE": "own.conf"},
        ),
        (
            {".config/pip/pip.conf": "[global]\nfind-links = /user"},
            {"PIP_CONFIG_FILE": "missing.conf", "PIP_EXTRA_INDEX_URL": "https://a.invalid/simple"},
        ),
        ({".config/pip/pip.conf": "[global]\nfind-links = /user"}, {"PIP_CONFIG_FILE": os.devnull}),
        ({".config/pip/pip.conf": "[global]\nindex-url = https://u:100%25@a.invalid/%(x)s"}, {}),
    ],
)
def test_the_files_are_read_as_pip_reads_them(
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    python_with_pip: Path,
    files: dict[str, str],
    variables: dict[str, str],
) -> None:
    for name, text in files.items():
        _write(home / name, text + "\n")
    for name, value in variables.items():
        own = name == "PIP_CONFIG_FILE" and value != os.devnull
        monkeypatch.setenv(name, str(home / value) if own else value)
    assert locations(pip_files.read_files()) == package_index.read(python_with_pip)


def test_without_any_pip_the_files_are_read(configured: Path, python_with_pip: Path) -> None:
    def no_pip(argv: object, **options: object) -> Completed:
        del options
        assert isinstance(argv, tuple)
        return Completed(
            argv=argv, returncode=1, stdout="", stderr="/usr/bin/python3: No module named pip", seconds=0.0
        )

    assert package_index.read(None, no_pip) == package_index.read(python_with_pip)
    assert configured.is_dir()


def test_an_environment_without_pip_asks_its_base(configured: Path) -> None:
    asked: list[str] = []

    def run(argv: object, **options: object) -> Completed:
        del options
        assert isinstance(argv, tuple)
        asked.append(str(argv[0]))
        return Completed(argv=argv, returncode=0, stdout="global.find-links='/x'\n", stderr="", seconds=0.0)

    assert package_index.read(None, run).find_links == ("/x",)
    has_pip = subprocess.run([sys.executable, "-c", "import pip"], capture_output=True, check=False).returncode == 0
    assert asked == [sys.executable if has_pip else getattr(sys, "_base_executable", None)]
    assert configured.is_dir()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[global\n", "Configuration file could not be loaded"),
        ("[global]\nno-index = perhaps\n", "no-index is 'perhaps', it must be yes or no"),
        ("[global]\nconstraint = https://a.invalid/c.txt\n", "here it must be a file"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_named(home: Path, python_with_pip: Path, text: str, words: str) -> None:
    _write(home / ".config/pip/pip.conf", text)
    with pytest.raises(ConfigError) as caught:
        package_index.read(python_with_pip)
    assert caught.value.code == "pip-configuration-invalid"
    if "could not" not in words:
        assert words in caught.value.message
    with pytest.raises(ConfigError) as caught:
        locations(pip_files.read_files())
    assert caught.value.code == "pip-configuration-invalid"


def test_credentials_are_shown_nowhere(configured: Path, python_with_pip: Path) -> None:
    index = package_index.read(python_with_pip)
    assert SECRET in uv_environment(index)["UV_DEFAULT_INDEX"]
    assert SECRET not in repr(index)
    assert SECRET not in str([index])
    assert SECRET not in " ".join(uv_arguments(index, resolving=True))
    assert configured.is_dir()


def test_nothing_configured_leaves_uv_its_defaults() -> None:
    assert uv_environment(IndexLocations()) == {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    assert uv_arguments(IndexLocations(), resolving=True) == []


def test_no_index_leaves_find_links_only() -> None:
    index = IndexLocations(index_url="https://a.invalid/simple", find_links=("/a", "/b"), no_index=True)
    assert uv_environment(index) == {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_FIND_LINKS": "/a,/b"}
    assert uv_arguments(index, resolving=False) == ["--no-index"]


def test_constraints_and_certificates_are_passed_on() -> None:
    index = IndexLocations(
        constraints=(Path("/c.txt"), Path("/d.txt")), ca_bundle=Path("/ca.pem"), trusted_hosts=("one", "two")
    )
    assert uv_environment(index)["SSL_CERT_FILE"] == "/ca.pem"
    assert uv_environment(index)["UV_INSECURE_HOST"] == "one two"
    assert uv_arguments(index, resolving=True) == ["--constraints", "/c.txt", "--constraints", "/d.txt"]
    assert uv_arguments(index, resolving=False) == []


def _wheel(folder: Path, version: str) -> Path:
    """Write a small wheel of the project ``forged``."""
    info = f"forged-{version}.dist-info"
    files = {
        "forged.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: forged\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},"
        f"{len(text)}\n"
        for name, text in files.items()
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"forged-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (files | {f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}).items():
            archive.writestr(name, text)
    return path


def _index(folder: Path, *versions: str) -> str:
    """Write a simple index with versions of ``forged`` and return its URL."""
    names = [_wheel(folder / "forged", version).name for version in versions]
    (folder / "forged/index.html").write_text("".join(f'<a href="{name}">{name}</a>\n' for name in names))
    return folder.as_uri()


def _uv_resolves(index: IndexLocations, cache: Path) -> str:
    uv = programs.locate("uv")
    assert uv is not None, "uv is a dependency of sglforge"
    done = proc.run(
        [
            uv,
            "pip",
            "compile",
            "--quiet",
            "--no-header",
            "--no-annotate",
            *uv_arguments(index, resolving=True),
            "-",
        ],
        env={**os.environ, **uv_environment(index), "UV_CACHE_DIR": str(cache), "UV_NO_CONFIG": "1"},
        stdin="forged\n",
        timeout_s=60,
    )
    return done.stdout.strip()


def test_uv_takes_the_best_version_of_all_places(home: Path) -> None:
    main, more, links = _index(home / "main", "1.0"), _index(home / "more", "1.2", "1.1"), home / "links"
    cache = home / "cache"
    _wheel(links, "1.3")
    assert _uv_resolves(IndexLocations(index_url=main), cache) == "forged==1.0"
    both = IndexLocations(index_url=main, extra_index_urls=(more,))
    assert _uv_resolves(both, cache) == "forged==1.2"
    everything = IndexLocations(index_url=main, extra_index_urls=(more,), find_links=(str(links),))
    assert _uv_resolves(everything, cache) == "forged==1.3"
    constraints = home / "constraints.txt"
    constraints.write_text("forged<1.2\nother==1\n")
    capped = IndexLocations(index_url=main, extra_index_urls=(more,), constraints=(constraints,))
    assert _uv_resolves(capped, cache) == "forged==1.1"
    offline = IndexLocations(index_url=main, find_links=(str(links),), no_index=True)
    assert _uv_resolves(offline, cache) == "forged==1.3"
