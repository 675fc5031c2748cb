"""What verifying a store finds, and what repairing drops."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from toy_stores import key_of, overwrite, put

from sglforge.base.workspace import Workspace
from sglforge.build.audit import Audit, audit, repair
from sglforge.build.entry import dump, parse
from sglforge.build.store import StoredWheel, entry_path, keys, lookup
from sglforge.errors import Severity


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


def found(result: Audit) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity.value) for finding in result.findings]


def test_a_store_that_is_not_there_is_whole(workspace: Workspace) -> None:
    assert audit(workspace) == Audit(entries=0, objects=0, hashed_bytes=0, findings=(), broken=())


def test_a_whole_store_has_no_findings(workspace: Workspace) -> None:
    for number in range(3):
        put(workspace, number)
    put(workspace, 3, content=b"wheel 0")  # the same wheel as of another key
    seen: list[tuple[int, int]] = []
    result = audit(workspace, progress=lambda done, total: seen.append((done, total)))
    assert (result.entries, result.objects, result.hashed_bytes, result.findings) == (4, 3, 21, ())
    assert seen == [(1, 3), (2, 3), (3, 3)]


def flip(stored: StoredWheel, entry: Path) -> None:
    content = bytearray(stored.path.read_bytes())
    content[3] ^= 4
    overwrite(stored.path, bytes(content))


def cut(stored: StoredWheel, entry: Path) -> None:
    overwrite(stored.path, stored.path.read_bytes()[:-1])


def gone(stored: StoredWheel, entry: Path) -> None:
    stored.path.unlink()


def a_folder(stored: StoredWheel, entry: Path) -> None:
    stored.path.unlink()
    stored.path.mkdir()


def a_pipe(stored: StoredWheel, entry: Path) -> None:
    stored.path.unlink()
    os.mkfifo(stored.path)


def a_link(stored: StoredWheel, entry: Path) -> None:
    """As good as the wheel to who follows it, but nobody does."""
    elsewhere = stored.path.parents[3] / "elsewhere"
    stored.path.rename(elsewhere)
    stored.path.symlink_to(elsewhere)


def entry_cut(stored: StoredWheel, entry: Path) -> None:
    overwrite(entry, entry.read_bytes()[:-9])


def entry_flipped(stored: StoredWheel, entry: Path) -> None:
    overwrite(entry, entry.read_bytes().replace(b"2026-11-30", b"2026-11-31"))


def entry_a_folder(stored: StoredWheel, entry: Path) -> None:
    entry.unlink()
    entry.mkdir()


def entry_a_pipe(stored: StoredWheel, entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry)


def entry_of_another_size(stored: StoredWheel, entry: Path) -> None:
    overwrite(entry, dump(replace(parse(entry.read_bytes(), stored.key), size=10**30)))


def entry_of_other_parts(stored: StoredWheel, entry: Path) -> None:
    made = parse(entry.read_bytes(), stored.key)
    other = type(made)(
        key=made.key,
        name=made.name,
        size=made.size,
        sha256=made.sha256,
        key_parts={"source": 99},
        provenance=made.provenance,
    )
    overwrite(entry, dump(other))


DAMAGE = [
    (flip, "store-damaged"),
    (cut, "store-damaged"),
    (gone, "store-damaged"),
    (a_folder, "store-damaged"),
    (a_pipe, "store-damaged"),
    (a_link, "store-damaged"),
    (entry_of_another_size, "store-damaged"),
    (entry_a_pipe, "store-entry-invalid"),
    (entry_cut, "store-entry-invalid"),
    (entry_flipped, "store-entry-invalid"),
    (entry_a_folder, "store-entry-invalid"),
    (entry_of_other_parts, "store-entry-invalid"),
]


@pytest.mark.parametrize(("harm", "code"), DAMAGE)
def test_damage_is_found_and_only_it_is_dropped(
    harm: Callable[[StoredWheel, Path], None], code: str, workspace: Workspace
) -> None:
    put(workspace, 1)
    harm(put(workspace, 2), entry_path(workspace.store, key_of(2)))
    result = audit(workspace)
    assert (code, "error") in found(result)
    assert [one for one in found(result) if one[1] == "error"] == [(code, "error")]
    repair(workspace, result)
    assert Severity.ERROR not in {finding.severity for finding in audit(workspace).findings}
    assert set(keys(workspace)) == {key_of(1)}
    put(workspace, 2)
    assert audit(workspace).findings == ()


def test_what_was_made_good_meanwhile_is_not_dropped(workspace: Workspace) -> None:
    stored = put(workspace, 1)
    overwrite(stored.path, b"WHEEL 1")
    result = audit(workspace)
    overwrite(stored.path, b"wheel 1")
    repair(workspace, result)
    assert lookup(workspace, key_of(1))
    assert audit(workspace).findings == ()


def test_what_an_interrupted_run_leaves_is_a_remark(workspace: Workspace) -> None:
    stored = put(workspace, 1)
    entry_path(workspace.store, key_of(1)).unlink()
    stored.path.with_name(".toy.whl.abcd.tmp").touch()
    (workspace.store / "entries" / f".{key_of(2)}.json.1.tmp").touch()
    (workspace.store / ("c" * 64)).mkdir()
    result = audit(workspace)
    assert sorted(found(result)) == [("store-file-unknown", "info")] * 3 + [("store-object-unused", "info")]
    assert result.broken == ()


def test_a_damaged_wheel_without_an_entry_is_dropped_by_repairing(workspace: Workspace) -> None:
    stored = put(workspace, 1)
    entry_path(workspace.store, key_of(1)).unlink()
    overwrite(stored.path, b"x")
    result = audit(workspace)
    assert found(result) == [("store-object-unused", "info")]
    repair(workspace, result)
    assert not stored.path.exists()


def test_what_others_put_there_is_a_warning_and_stays(workspace: Workspace) -> None:
    put(workspace, 1)
    for name in ("README", "entries/notes.txt", "entries/x.json", "objects/notes"):
        (workspace.store / name).write_text("mine")
    result = audit(workspace)
    assert found(result) == [("store-file-unknown", "warning")] * 4
    repair(workspace, result)
    assert (workspace.store / "README").read_text() == "mine"


def test_verifying_beside_publication_finds_nothing(workspace: Workspace) -> None:
    done = threading.Event()

    def publish() -> None:
        for number in range(40):
            put(workspace, number)
        done.set()

    thread = threading.Thread(target=publish)
    thread.start()
    rounds = 0
    while not done.is_set():
        errors = [finding for finding in audit(workspace).findings if finding.severity is Severity.ERROR]
        assert errors == []
        rounds += 1
    thread.join()
    assert rounds
