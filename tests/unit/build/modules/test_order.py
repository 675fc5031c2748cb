"""One module after the other, where ninja has the choice: a kill leaves as many as there was time for."""

from __future__ import annotations

import re
from pathlib import Path

from sglforge.base.proc import run
from sglforge.build.modules.compile import ninja_statements
from sglforge.build.modules.driving import Asked

from .conftest import NINJA


def modules(folder: Path, units: list[int]) -> list[Asked]:
    """Write statements of modules that copy files, so many units each."""
    found = []
    for number, count in enumerate(units):
        name = f"m{number}"
        sources = [folder / f"{name}-{unit}.c" for unit in range(count)]
        objects = [f"{folder}/{name}-{unit}.o" for unit in range(count)]
        lines = ["rule compile", "  command = cp $in $out", "rule link", "  command = cat $in > $out"]
        for source, target in zip(sources, objects, strict=True):
            source.write_text(f"{source.name}\n")
            lines.append(f"build {target}: compile {source}")
        lines += [f"build {folder}/{name}.so: link {' '.join(objects)}", f"default {folder}/{name}.so", ""]
        (folder / f"{name}.ninja").write_text("\n".join(lines))
        found.append(Asked(name=name, statements=f"{folder}/{name}.ninja", library=f"{folder}/{name}.so"))
    return found


def test_each_module_is_finished_before_the_next_one_begins(tmp_path: Path) -> None:
    there, asked = tmp_path / "finished", modules(tmp_path, [3, 1, 5, 2])
    there.mkdir()
    (tmp_path / "top.ninja").write_text(ninja_statements(asked, there))
    done = run([NINJA, "-v", "-j", "1", "-f", tmp_path / "top.ninja"], cwd=tmp_path)
    order = re.findall(r"^\[\d+/\d+\] (?:(cp) \S*/(m\d)-|(ln) -f \S*/(m\d)\.so)", done.stdout, re.MULTILINE)
    said = [f"{copied or linked} {first or second}" for copied, first, linked, second in order]
    expected = [[f"cp m{number}"] * count + [f"ln m{number}"] for number, count in enumerate([3, 1, 5, 2])]
    assert said == [word for words in expected for word in words]
    assert sorted(path.name for path in there.iterdir()) == ["m0", "m1", "m2", "m3"]
    assert (there / "m0").read_text() == "m0-0.c\nm0-1.c\nm0-2.c\n"
