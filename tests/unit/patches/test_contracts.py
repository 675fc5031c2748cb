"""The default contracts, each with a text that breaks it."""

from __future__ import annotations

import pytest

from sglforge.errors import PatchError
from sglforge.patches import contracts
from sglforge.patches.pytext import PythonText, read


def text(source: str) -> PythonText:
    return read(source.encode(), "toy.py")


def test_bound_names_and_old_sins_are_accepted() -> None:
    before = text("import os\ndef f():\n    return missing\n")
    after = text("import os\ndef f():\n    x = os.sep\n    print(x, f)\n    return missing\n")
    contracts.check("toy.py", before, after)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("    lgr.info('x')\n", "lgr"),
        ("    print(later)\n    later = 1\n", "later"),
        ("    missing()\n", "missing"),
    ],
)
def test_a_new_undefined_name_is_refused_with_its_line(code: str, name: str) -> None:
    before = text("later = 0\ndef f():\n    pass\ndef g():\n    missing\n")
    after = text("later = 0\ndef f():\n" + code + "def g():\n    missing\n")
    with pytest.raises(PatchError) as caught:
        contracts.check("toy.py", before, after)
    assert caught.value.code == "patch-undefined-name"
    assert f"`{name}` (line " in caught.value.message


def test_what_parses_but_does_not_compile_is_refused() -> None:
    with pytest.raises(PatchError) as caught:
        contracts.check("toy.py", text("x = 1\n"), text("x = 1\nreturn x\n"))
    assert caught.value.code == "patch-does-not-compile"
    assert "'return' outside function" in caught.value.message


def test_the_warnings_that_upstream_deserves_are_not_ours() -> None:
    source = "def f():\n    assert (x, 'always')\n    return '\\d' is y\n"
    contracts.check("toy.py", text(source + "z = 1\n"), text(source + "z = 2\n"))
