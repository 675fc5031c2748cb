"""Edits on small files: what comes out, byte for byte, and what is refused."""

from __future__ import annotations

import codecs

import pytest
from pydantic import TypeAdapter

from sglforge.errors import PatchError
from sglforge.patches import payload as payloads
from sglforge.patches import pytext
from sglforge.patches.edits import apply_edit, is_there, text_digest
from sglforge.patches.model import AnyPythonEdit, PythonEdit

MARK = b"mark = 1\n"


def edit_of(operation: str, anchor: str | None = None, **more: object) -> PythonEdit:
    fields = {"kind": "python", "file": "toy.py", "payload": "payload/p.py", "operation": operation, **more}
    adapter: TypeAdapter[PythonEdit] = TypeAdapter(AnyPythonEdit)
    return adapter.validate_python(fields | ({"anchor": anchor} if anchor else {}), by_alias=True, by_name=False)


def edited(source: bytes, edit: PythonEdit, payload: bytes = MARK) -> bytes:
    return apply_edit(pytext.read(source, "toy.py"), edit, payloads.read(payload, "payload/p.py")).raw


def refused(source: bytes, edit: PythonEdit, payload: bytes = MARK) -> PatchError:
    with pytest.raises(PatchError) as caught:
        edited(source, edit, payload)
    return caught.value


PLACES = {
    "below the header": (b"def f(a):\n    x = 1\n", "prepend-to-body", b"def f(a):\n    mark = 1\n    x = 1\n"),
    "below the docstring": (
        b'def f():\n    """Doc."""\n\n    x = 1\n',
        "prepend-to-body",
        b'def f():\n    """Doc."""\n    mark = 1\n\n    x = 1\n',
    ),
    "docstring only": (b'def f():\n    """Doc."""\n', "prepend-to-body", b'def f():\n    """Doc."""\n    mark = 1\n'),
    "above a leading comment": (
        b"def f():\n\n    # why x\n    x = 1\n",
        "prepend-to-body",
        b"def f():\n    mark = 1\n\n    # why x\n    x = 1\n",
    ),
    "header of many lines": (
        b"def f(\n    a,\n    # b\n) -> int:  # c\n    return 1\n",
        "prepend-to-body",
        b"def f(\n    a,\n    # b\n) -> int:  # c\n    mark = 1\n    return 1\n",
    ),
    "decorated": (b"@d(\n  1)\n@e\ndef f():\n  x\n", "prepend-to-body", b"@d(\n  1)\n@e\ndef f():\n  mark = 1\n  x\n"),
    "decorated first statement": (
        b"def f():\n    @ (\n        d)\n    def g(): pass\n",
        "prepend-to-body",
        b"def f():\n    mark = 1\n    @ (\n        d)\n    def g(): pass\n",
    ),
    "async": (b"async def f():\n    await x\n", "prepend-to-body", b"async def f():\n    mark = 1\n    await x\n"),
    "one line": (b"def f(): return 1\n", "prepend-to-body", b"def f(): \n    mark = 1\n    return 1\n"),
    "one line, two statements": (
        b"def f(): x = 1; return x  # c\n",
        "prepend-to-body",
        b"def f(): \n    mark = 1\n    x = 1; return x  # c\n",
    ),
    "one line with a docstring": (
        b"def f(): 'doc'; return 1\n",
        "prepend-to-body",
        b"def f(): \n    'doc'; \n    mark = 1\n    return 1\n",
    ),
    "one line, header of two": (
        b"class A:\n\tdef f(a,\n\t    b): return 1\n",
        "prepend-to-body",
        b"class A:\n\tdef f(a,\n\t    b): \n\t\tmark = 1\n\t\treturn 1\n",
    ),
    "one line behind a backslash": (
        b"def f(): \\\n  return 1\n",
        "prepend-to-body",
        b"def f(): \\\n  \n  mark = 1\n  return 1\n",
    ),
    "at the end": (
        b"def f():\n    if x:\n        y\n    # end\n\nz = 1\n",
        "append-to-body",
        b"def f():\n    if x:\n        y\n    mark = 1\n    # end\n\nz = 1\n",
    ),
    "at the end of one line": (
        b"def f(): x = 1  # c\n",
        "append-to-body",
        b"def f(): \n    x = 1  # c\n    mark = 1\n",
    ),
    "at the end without a newline": (b"def f():\n    x = 1", "append-to-body", b"def f():\n    x = 1\n    mark = 1"),
    "at the end behind a backslash": (
        b"def f():\n    x \\\n\n",
        "append-to-body",
        b"def f():\n    x \\\n\n    mark = 1\n",
    ),
    "comment that ends in a backslash": (
        b"def f():\n    x  # \\\nz\n",
        "append-to-body",
        b"def f():\n    x  # \\\n    mark = 1\nz\n",
    ),
    "before it, above its decorators": (
        b"a\n# f\n@d\ndef f():\n    x\n",
        "insert-before",
        b"a\n# f\nmark = 1\n@d\ndef f():\n    x\n",
    ),
    "after it": (b"def f():\n    x\n\nb\n", "insert-after", b"def f():\n    x\nmark = 1\n\nb\n"),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_function_is_edited_in_place(name: str) -> None:
    source, operation, wanted = PLACES[name]
    anchor = "A.f" if source.startswith(b"class") else "f"
    assert edited(source, edit_of(operation, anchor)) == wanted


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (b"", b"mark = 1\n"),
        (b"# only a comment", b"# only a comment\nmark = 1\n"),
        (b"#!/usr/bin/python\n# licence\n\nimport a\n", b"#!/usr/bin/python\n# licence\n\nmark = 1\nimport a\n"),
        (
            b'"""Doc."""\nfrom __future__ import annotations\nimport a\n',
            b'"""Doc."""\nfrom __future__ import annotations\nmark = 1\nimport a\n',
        ),
    ],
)
def test_a_module_is_edited_below_what_must_stay_first(source: bytes, wanted: bytes) -> None:
    assert edited(source, edit_of("prepend-to-body")) == wanted


def test_the_right_one_of_many_names_is_found() -> None:
    source = b"""\
class A:
    class B:
        def m(self):
            def m():
                return 0
            return m
    def m(self):
        return 1
def m():
    return 2
if x:
    def g(): return 3
"""
    for anchor, near in (
        ("A.B.m", b"        def m(self):\n            mark = 1\n            def m():\n"),
        ("A.B.m.<locals>.m", b"            def m():\n                mark = 1\n                return 0\n"),
        ("A.m", b"    def m(self):\n        mark = 1\n        return 1\n"),
        ("m", b"\ndef m():\n    mark = 1\n    return 2\n"),
        ("g", b"    def g(): \n        mark = 1\n        return 3\n"),
    ):
        assert near in edited(source, edit_of("prepend-to-body", anchor))


def test_a_class_attribute_goes_below_the_docstring() -> None:
    source = b'class A(B):\n\t"""Doc."""\n\tx = 1\n'
    assert edited(source, edit_of("add-class-attribute", "A"), b"y: int = 0\nz = 1\n") == (
        b'class A(B):\n\t"""Doc."""\n\ty: int = 0\n\tz = 1\n\tx = 1\n'
    )


@pytest.mark.parametrize("there", [b"y = 2", b"y: int", b"def y(self): pass", b"class y: pass"])
def test_a_class_attribute_that_is_there_is_refused(there: bytes) -> None:
    error = refused(b"class A:\n    " + there + b"\n", edit_of("add-class-attribute", "A"), b"y = 1\n")
    assert error.code == "patch-already-there"
    assert "line 2" in error.message


def test_a_class_attribute_is_an_assignment_in_a_class() -> None:
    edit = edit_of("add-class-attribute", "A")
    assert refused(b"class A:\n    x = 1\n", edit, b"print()\n").code == "patch-corrupt"
    assert refused(b"def A():\n    x = 1\n", edit, b"y = 1\n").code == "patch-drifted"


STATEMENTS = b"""\
def f(self):
    import os.path
    self.draft.load(1)
    a = 1; b = 2  # both
    if batch.forward_mode.is_extend():
        self.draft.save()
    for x in self.rows: go(x)
    with open(p) as h:
        pass
    try:
        await_me()
    except E: return None
    return a
"""


@pytest.mark.parametrize(
    ("query", "operation", "wanted"),
    [
        ({"type": "call", "name": "draft.load"}, "insert-before", b"os.path\n    mark = 1\n    self.draft.load(1)\n"),
        ({"type": "call", "name": "load"}, "insert-after", b"load(1)\n    mark = 1\n    a = 1;"),
        ({"type": "import", "name": "os.path"}, "insert-after", b"import os.path\n    mark = 1\n"),
        ({"type": "assign", "name": "b"}, "insert-before", b"    a = 1; \n    mark = 1\n    b = 2  # both\n"),
        ({"type": "assign", "name": "a"}, "insert-after", b"    a = 1; \n    mark = 1\n    b = 2  # both\n"),
        ({"type": "assign", "name": "b"}, "insert-after", b"    a = 1; b = 2  # both\n    mark = 1\n"),
        ({"type": "if", "name": "is_extend"}, "insert-after", b"save()\n    mark = 1\n    for"),
        ({"type": "for", "name": "rows"}, "insert-after", b"rows: go(x)\n    mark = 1\n"),
        ({"type": "with"}, "insert-before", b"    mark = 1\n    with open"),
        ({"type": "try"}, "insert-after", b"return None\n    mark = 1\n    return a"),
        ({"type": "return", "name": "a"}, "insert-before", b"    mark = 1\n    return a"),
        (
            {"type": "call", "name": "save", "nested": True},
            "insert-before",
            b":\n        mark = 1\n        self.draft.save",
        ),
        (
            {"type": "call", "name": "go", "nested": True},
            "insert-after",
            b"rows: \n        go(x)\n        mark = 1\n    with",
        ),
        (
            {"type": "call", "name": "go", "nested": True},
            "insert-before",
            b"rows: \n        mark = 1\n        go(x)\n    with",
        ),
    ],
)
def test_a_statement_is_found_by_kind_and_name(query: dict[str, object], operation: str, wanted: bytes) -> None:
    assert wanted in edited(STATEMENTS, edit_of(operation, "f", statement=query))


FLAGS = b"""\
def f(parser):
    parser.add_argument("--one", type=int)
    parser.add_argument("--two", "-t", type=int)
    group = parser.add_argument(name, "--three")
    x = add("--four", 1)
    return parser.add_argument("--five")
"""


@pytest.mark.parametrize(
    ("query", "before"),
    [
        ({"type": "call", "name": "add_argument", "literal": "--two"}, b'    parser.add_argument("--two"'),
        ({"type": "call", "literal": "--one"}, b'    parser.add_argument("--one"'),
        ({"type": "assign", "literal": "--four"}, b"    x = add("),
        ({"type": "return", "literal": "--five"}, b"    return parser"),
    ],
)
def test_a_statement_is_found_by_the_first_argument_of_its_call(query: dict[str, object], before: bytes) -> None:
    wanted = FLAGS.replace(before, b"    mark = 1\n" + before)
    assert edited(FLAGS, edit_of("insert-before", "f", statement=query)) == wanted


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"type": "call", "name": "add_argument", "literal": "-t"}, "`add_argument` with `-t`"),
        ({"type": "call", "name": "add_argument", "literal": "--on"}, "on lines 2 and 3"),
        ({"type": "assign", "literal": "--three"}, "no `assign` statement with `--three`"),
    ],
)
def test_another_argument_than_the_first_is_not_it(query: dict[str, object], words: str) -> None:
    error = refused(FLAGS, edit_of("insert-before", "f", statement=query))
    assert error.code == "patch-drifted"
    assert words in error.message


def test_a_literal_belongs_to_a_call() -> None:
    with pytest.raises(ValueError, match="first argument of a call"):
        edit_of("insert-before", "f", statement={"type": "for", "literal": "--x"})


def test_a_payload_with_the_anchored_statement_in_it_is_recognised_later() -> None:
    edit = edit_of("insert-before", "f", statement={"type": "call", "name": "draft.load"})
    payload = b"if self.ready:\n    self.draft.load(0)\nself.draft.load(2)\n"
    once = edited(STATEMENTS, edit, payload)
    assert is_there(pytext.read(once, "toy.py"), edit, payloads.read(payload, "p.py"))
    assert refused(once, edit, payload).code == "patch-already-there"


@pytest.mark.parametrize("there", [b"1", b"True", b"1.0", b"'1'", b"b'1'", b"u'1'", b"[1]", b"(1,)", b"-1"])
@pytest.mark.parametrize("wanted", [b"1", b"True", b"1.0", b"'1'", b"b'1'", b"u'1'", b"[1]", b"(1,)", b"-1"])
def test_code_that_only_looks_alike_is_not_there(there: bytes, wanted: bytes) -> None:
    edit = edit_of("append-to-body", "f")
    source = pytext.read(b"def f():\n    x = %s\n" % there, "toy.py")
    assert is_there(source, edit, payloads.read(b"x = %s\n" % wanted, "p.py")) == (there == wanted)


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ({"type": "call", "name": "save"}, "patch-drifted", "others of that kind on lines 3"),
        ({"type": "while"}, "patch-drifted", "has no `while` statement"),
        ({"type": "assign"}, "patch-anchor-ambiguous", "on lines 4 and 4"),
    ],
)
def test_a_statement_that_is_not_one_is_refused(query: dict[str, object], code: str, words: str) -> None:
    error = refused(STATEMENTS, edit_of("insert-before", "f", statement=query))
    assert error.code == code
    assert words in error.message


def test_an_insertion_needs_something_to_stand_beside() -> None:
    assert refused(b"x\n", edit_of("insert-before")).code == "patch-corrupt"


@pytest.mark.parametrize("last", [b"return 1", b"raise E", b"return"])
def test_code_that_would_never_run_is_refused(last: bytes) -> None:
    error = refused(b"def f():\n    x\n    " + last + b"\n", edit_of("append-to-body", "f"))
    assert error.code == "patch-no-effect"
    assert "line 3" in error.message


@pytest.mark.parametrize(
    "payload",
    [
        b"return 1\n",
        b"x = 1\nraise E\n",
        b"if x:\n    return 1\nelse:\n    raise E\n",
        b"with x:\n    return 1\n",
        b"try:\n    x()\nfinally:\n    return 1\n",
        b"try:\n    return x()\nexcept E:\n    return 1\n",
        b"while True:\n    x()\n    for y in x:\n        break\n",
        b"match x:\n    case 1:\n        return 1\n    case _:\n        return 2\n",
    ],
)
@pytest.mark.parametrize(
    ("operation", "more"),
    [
        ("prepend-to-body", {}),
        ("insert-before", {"statement": {"type": "assign"}}),
        ("insert-after", {"statement": {"type": "assign"}}),
    ],
)
def test_a_payload_that_never_goes_on_must_say_so(operation: str, more: dict[str, object], payload: bytes) -> None:
    source = b"def f(x):\n    a = 1\n    return a\n"
    error = refused(source, edit_of(operation, "f", **more), payload)
    assert error.code == "patch-changes-flow"
    assert "`leaves = true`" in error.hint
    assert f"toy.py from line {3 if operation == 'insert-after' else 2} on" in error.message
    assert b"return a" in edited(source, edit_of(operation, "f", leaves=True, **more), payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"if x:\n    return 1\n",
        b"for y in x:\n    return y\n",
        b"while True:\n    if x:\n        break\n",
        b"with x:\n    raise E\n",
        b"try:\n    return x()\nexcept E:\n    pass\n",
        b"match x:\n    case 1:\n        return 1\n",
        b"def g():\n    return 1\n",
        b"g = lambda: (yield)\n",
        b"def g():\n    yield 1\n",
        b"class G:\n    def g(self):\n        yield 1\n",
    ],
)
def test_a_payload_that_can_go_on_needs_to_say_nothing(payload: bytes) -> None:
    assert b"return a" in edited(b"def f(x):\n    a = 1\n    return a\n", edit_of("prepend-to-body", "f"), payload)


def test_a_return_at_the_end_hides_nothing() -> None:
    assert edited(b"def f(x):\n    x()\n", edit_of("append-to-body", "f"), b"return 1\n").endswith(b"return 1\n")
    assert refused(b"x = 1\n", edit_of("prepend-to-body"), b"raise E\n").code == "patch-changes-flow"


def test_below_branches_that_all_leave_nothing_runs() -> None:
    source = b"def f(x):\n    if x:\n        return 1\n    else:\n        return 2\n"
    assert refused(source, edit_of("append-to-body", "f")).code == "patch-no-effect"


@pytest.mark.parametrize("payload", [b"yield 1\n", b"x = [(yield from x)]\n", b"def g(a=(yield)):\n    pass\n"])
def test_a_function_that_becomes_a_generator_must_say_so(payload: bytes) -> None:
    source = b"def f(x):\n    return x\n"
    error = refused(source, edit_of("prepend-to-body", "f"), payload)
    assert (error.code, "line 1" in error.message) == ("patch-changes-flow", True)
    assert "`generator = true`" in error.hint
    assert edited(source, edit_of("prepend-to-body", "f", generator=True), payload)
    assert edited(b"def f(x):\n    yield x\n", edit_of("prepend-to-body", "f"), payload)
    replaces = text_digest("return x")
    assert refused(source, edit_of("replace-body", "f", replaces=replaces), payload).code == "patch-changes-flow"
    assert edited(source, edit_of("replace-body", "f", replaces=replaces, generator=True), payload)


def test_a_generator_that_is_none_any_more_must_say_so() -> None:
    source, new = b"def f(x):\n    yield x\n", b"def f(x):\n    return x\n"
    whole = text_digest(source.decode())
    error = refused(source, edit_of("replace-function", "f", replaces=whole), new)
    assert (error.code, "no generator any more" in error.message) == ("patch-changes-flow", True)
    assert edited(source, edit_of("replace-function", "f", replaces=whole, generator=True), new) == new


FUNCTION = b"@d\ndef f(a):\n    '''Doc.'''\n    # how\n    return a  # it\n\nx = 1\n"


def test_a_body_is_replaced_below_its_docstring() -> None:
    edit = edit_of("replace-body", "f", replaces=text_digest("return a  # it"))
    wanted = b"@d\ndef f(a):\n    '''Doc.'''\n    # how\n    if a:\n        return 2\n\nx = 1\n"
    assert edited(FUNCTION, edit, b"if a:\n    return 2\n") == wanted
    assert refused(wanted, edit, b"if a:\n    return 2\n").code == "patch-already-there"


def test_a_one_line_body_is_replaced() -> None:
    edit = edit_of("replace-body", "f", replaces=text_digest("return a"))
    assert (
        edited(b"def f(a): 'doc'; return a\nx\n", edit, b"return 2\n") == b"def f(a): \n    'doc'; \n    return 2\nx\n"
    )
    assert edited(b"def f(a): return a", edit, b"return 2\n") == b"def f(a): \n    return 2"


def test_a_function_is_replaced_but_for_its_decorators() -> None:
    old = "def f(a):\n    '''Doc.'''\n    # how\n    return a  # it\n"
    edit = edit_of("replace-function", "f", replaces=text_digest(old))
    wanted = b"@d\ndef f(a, b=0):\n    return b\n\nx = 1\n"
    assert edited(FUNCTION, edit, b"def f(a, b=0):\n    return b\n") == wanted
    assert refused(wanted, edit, b"def f(a, b=0):\n    return b\n").code == "patch-already-there"
    for payload in (b"def g(a): pass\n", b"async def f(a): pass\n", b"@e\ndef f(a): pass\n", b"def f(): pass\nx = 1\n"):
        assert refused(FUNCTION, edit, payload).code == "patch-corrupt"


def test_another_text_than_the_one_to_replace_is_drift() -> None:
    edit = edit_of("replace-body", "f", replaces=text_digest("return a  # it"))
    error = refused(FUNCTION.replace(b"return a", b"return a + 1"), edit, b"return 2\n")
    assert error.code == "patch-drifted"
    assert text_digest("return a + 1  # it") in error.message


def test_only_functions_with_a_body_are_replaced() -> None:
    edit = edit_of("replace-body", "f", replaces="0" * 64)
    assert "is not a function" in refused(b"class f:\n    x\n", edit).message
    assert "no body" in refused(b"def f():\n    'doc'\n", edit).message


def test_a_gone_anchor_is_drift_with_the_nearest_names() -> None:
    source = b"class Worker:\n    def forward(self): pass\n    def forward_batch(self): pass\ndef other(): pass\n"
    error = refused(source, edit_of("prepend-to-body", "Worker.forward_batches"))
    assert error.code == "patch-drifted"
    assert "`Worker.forward_batch` (line 3)" in error.message
    error = refused(source, edit_of("prepend-to-body", "OldWorker.forward"))
    assert "`Worker.forward` (line 2)" in error.message
    assert "other" not in error.message


TWINS = b"if TYPE_CHECKING:\n    class A: x: int\nelse:\n    class A:\n        x = 1\n"


def test_twins_are_ambiguous_and_both_lines_are_named() -> None:
    error = refused(TWINS, edit_of("append-to-body", "A"))
    assert error.code == "patch-anchor-ambiguous"
    assert "lines 2 and 4" in error.message


def test_names_in_handlers_and_cases_are_found() -> None:
    source = (
        b"try:\n    import a\nexcept E:\n    def f():\n        pass\nmatch x:\n    case 1:\n        def g(): pass\n"
    )
    assert b"def f():\n        mark = 1\n" in edited(source, edit_of("prepend-to-body", "f"))
    assert b"def g(): \n            mark = 1\n            pass\n" in edited(source, edit_of("prepend-to-body", "g"))


CRLF = b"class A:\r\n\tdef f(self):\r\n\t\treturn 'a\r\nb'\r\n".replace(b"'a\r\nb'", b"'''a\r\nb'''")


def test_tabs_and_crlf_are_kept_and_payload_strings_too() -> None:
    payload = b'if self:\n    text = """one\n    two\n\n  three"""\n    call(\n        1)\n'
    assert edited(CRLF, edit_of("prepend-to-body", "A.f"), payload) == (
        b"class A:\r\n\tdef f(self):\r\n\t\tif self:\r\n"
        b'\t\t\ttext = """one\r\n    two\r\n\r\n  three"""\r\n\t\t\tcall(\r\n\t\t\t\t1)\r\n'
        b"\t\treturn '''a\r\nb'''\r\n"
    )


def test_each_line_takes_the_ending_of_its_neighbour() -> None:
    mixed = b"a = 1\r\ndef f():\n    x\r\ndef g():\r\n    y"
    assert (
        edited(mixed, edit_of("prepend-to-body", "f"))
        == b"a = 1\r\ndef f():\n    mark = 1\r\n    x\r\ndef g():\r\n    y"
    )
    assert edited(mixed, edit_of("append-to-body", "g")).endswith(b"    y\r\n    mark = 1")


def test_old_macintosh_endings_are_kept() -> None:
    source = "# coding: latin-1\rdef f():\r  é\r".encode("latin-1")
    assert edited(source, edit_of("append-to-body", "f")) == source + b"  mark = 1\r"


def test_a_byte_order_mark_is_kept() -> None:
    source = codecs.BOM_UTF8 + "é = 'ü'; b = 1\n".encode()
    edit = edit_of("insert-before", None, statement={"type": "assign", "name": "b"})
    assert edited(source, edit) == codecs.BOM_UTF8 + "é = 'ü'; \nmark = 1\nb = 1\n".encode()


@pytest.mark.parametrize("encoding", ["latin-1", "cp1251", "shift_jis", "koi8-r"])
def test_a_declared_encoding_is_kept(encoding: str) -> None:
    letters = {"latin-1": "é", "shift_jis": "表"}.get(encoding, "щ")
    source = f"# -*- coding: {encoding} -*-\ndef f(): x = '{letters * 3}'; y = 2\n".encode(encoding)
    wanted = f"# -*- coding: {encoding} -*-\ndef f(): \n    x = '{letters * 3}'; \n    mark = '{letters}'\n    y = 2\n"
    edit = edit_of("insert-before", "f", statement={"type": "assign", "name": "y"})
    assert edited(source, edit, f"mark = '{letters}'\n".encode()) == wanted.encode(encoding)


def test_a_payload_that_the_encoding_cannot_hold_is_refused() -> None:
    error = refused(b"# coding: latin-1\nx = 1\n", edit_of("append-to-body"), "y = '€'\n".encode())
    assert error.code == "patch-corrupt"
    assert "€" in error.message


@pytest.mark.parametrize(
    "source",
    [
        b"# coding: latin-1\ndef f(:\n",
        b"x = '\xff'\n",
        b"# coding: no-such\n",
        b"x\x00\n",
        b"# coding: utf-7\nx = '+AGE-'\n",
    ],
)
def test_a_file_that_is_not_python_is_refused(source: bytes) -> None:
    assert refused(source, edit_of("append-to-body")).code == "patch-target-unreadable"


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"x = (\n", "p.py:1"),
        (b"a\nif b:\nc\n", "p.py:3"),
        (b"# nothing\n", "holds no statement"),
        (b"", "holds no statement"),
        (b"if a:\n  b\n", "4 spaces"),
        (b"if a:\n\tb\n", "4 spaces"),
        (b"x\x00\n", "not Python"),
    ],
)
def test_a_broken_payload_is_refused_with_its_line(payload: bytes, words: str) -> None:
    error = refused(b"x\n", edit_of("append-to-body"), payload)
    assert error.code == "patch-corrupt"
    assert words in str(error)


def test_a_payload_that_changes_what_stands_around_it_is_refused() -> None:
    source = b"if a:\n    b\nelif c:\n    d\n"
    edit = edit_of("insert-after", None, statement={"type": "if", "name": "c", "nested": True})
    assert refused(source, edit).code == "patch-misplaced"
    edit = edit_of("insert-before", None, statement={"type": "if", "name": "c", "nested": True})
    assert refused(source, edit).code == "patch-does-not-compile"


def test_the_same_edit_is_not_made_twice() -> None:
    source = b"def f():\n    x\n"
    for operation in ("prepend-to-body", "append-to-body", "insert-before", "insert-after"):
        edit = edit_of(operation, "f")
        error = refused(edited(source, edit), edit)
        assert error.code == "patch-already-there"
        assert "line" in error.message
