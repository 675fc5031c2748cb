"""The default contracts, each with a text that breaks it."""

from __future__ import annotations

import pytest

from sglforge.errors import PatchError
from sglforge.patches.contracts import names
from sglforge.patches.contracts.origins import Brought, origins_of
from sglforge.patches.pytext import PythonText, read

ORIGINS = origins_of([Brought(topic="one", file="toy.py", first=2, last=4, payload="payload.py", line=1)])


def text(source: str) -> PythonText:
    return read(source.encode(), "toy.py")


def test_bound_names_and_old_sins_are_accepted() -> None:
    before = text("import os\ndef f():\n    return missing\n")
    after = text("import os\ndef f():\n    x = os.sep\n    print(x, f)\n    return missing\n")
    names.check("toy.py", before, after, lambda: ORIGINS)


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
        names.check("toy.py", before, after, lambda: ORIGINS)
    assert caught.value.code == "patch-undefined-name"
    assert f"`{name}` (line 3)" in caught.value.message
    assert caught.value.where == "payload.py:2"
    assert caught.value.context == {f"`{name}` (line 3)": "from payload.py:2"}


def test_what_parses_but_does_not_compile_is_refused() -> None:
    with pytest.raises(PatchError) as caught:
        names.check("toy.py", text("x = 1\n"), text("x = 1\nreturn x\n"), lambda: ORIGINS)
    assert caught.value.code == "patch-does-not-compile"
    assert "'return' outside function" in caught.value.message
    assert caught.value.where == "payload.py:1"


def test_the_warnings_that_upstream_deserves_are_not_ours() -> None:
    source = "def f():\n    assert (x, 'always')\n    return '\\d' is y\n"
    names.check("toy.py", text(source + "z = 1\n"), text(source + "z = 2\n"), lambda: ORIGINS)
