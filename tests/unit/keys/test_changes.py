"""What changed, in words."""

from __future__ import annotations

import pytest

from sglforge.keys.changes import changes, described

from .conftest import World, drafted, put


def texts(world: World, *sets: tuple[tuple[str | int, ...], object]) -> list[str]:
    before = drafted(world)["engine"]
    for place, value in sets:
        put(world, place, value)
    return [change.text for change in changes(before.key_parts, drafted(world)["engine"].key_parts)]


SERIES = ("known", "series", "engine")
PINS = ("lock", "build_requires", "engine")
GIT = ("lock", "sources", "engine")


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ((*GIT, "paths", 0, "id"), "1234567890" * 4, ["source: python: tree bbbbbbbb -> 12345678"]),
        ((*GIT, "paths"), lambda paths: paths[:1], ["source: include: tree cccccccc -> none"]),
        ((*GIT, "submodules", 0, "commit"), "9" * 40, ["source: submodule include/deep: dddddddd -> 99999999"]),
        (
            (*GIT, "version"),
            "0.5.24.dev1",
            ["source: version 0.5.24.dev0 -> 0.5.24.dev1", "environment: ENGINE_VERSION 0.5.24.dev0 -> 0.5.24.dev1"],
        ),
        (SERIES, {"first-topic": "1" * 64, "second-topic": "9" * 64}, ["patches: topic first-topic changed"]),
        (SERIES, {"second-topic": "9" * 64}, ["patches: topic first-topic removed"]),
        (
            SERIES,
            {"new": "1" * 64, "first-topic": "8" * 64, "second-topic": "9" * 64},
            ["patches: topic new added"],
        ),
        (
            SERIES,
            {"second-topic": "9" * 64, "first-topic": "8" * 64},
            ["patches: order first-topic, second-topic -> second-topic, first-topic"],
        ),
        (SERIES, {}, ["patches: topic first-topic removed", "patches: topic second-topic removed"]),
        ((*PINS, 0, "version"), "3.31.10", ["build-requires: cmake 3.31.9 -> 3.31.10"]),
        ((*PINS, 0, "files", 0, "sha256"), "0" * 64, ["build-requires: cmake: other files of the same version"]),
        (PINS, lambda pins: [pins[0]], ["build-requires: ninja 1.13.0 removed"]),
        (PINS, lambda pins: [*pins, {**pins[0], "name": "meson"}], ["build-requires: meson 3.31.9 added"]),
        (("known", "toolchain", "nvcc"), "13.1.2", ["toolchain: nvcc 13.0.88 -> 13.1.2"]),
        (("lock", "pythons", 0, "torch", "version"), "2.15.0", ["toolchain: torch 2.14.1+cu130 -> 2.15.0+cu130"]),
        (("known", "compilers"), {"CXX": ""}, ["environment: CXX g++-13 -> \"\"", "environment: CC gcc-13 -> none"]),
        (
            ("recipes", "engine", "environment", "ENGINE_MODE"),
            "\x1b[2Jslow\n",
            ['environment: ENGINE_MODE fast -> "\\u001b[2Jslow\\n"'],
        ),
        (("target", "arch_list"), ["12.0a"], ["target: arch-list 12.0f -> 12.0a"]),
        (("recipes", "engine", "exclude"), {}, ["recipe: exclude engine/tests/* -> none"]),
    ],
)  # fmt: skip
def test_a_change_is_said_in_words(place: tuple[str | int, ...], value: object, said: list[str], world: World) -> None:
    found = texts(world, (place, value))
    # of the target, what the engine is built with is changed as well
    assert [text for text in found if not text.startswith("depends: base changed")] == said


def test_another_format_is_said() -> None:
    (change,) = changes({"format": 1}, {"format": 2})
    assert (change.text, change.part, change.to_json()["before"]) == ("format: 1 -> 2", "format", 1)


def test_nothing_changed_between_the_same_parts(world: World) -> None:
    parts = drafted(world)["engine"].key_parts
    assert changes(parts, parts) == ()


def test_every_leaf_that_says_something_is_described(world: World) -> None:
    said = list(described(drafted(world)["engine"].key_parts))
    assert "source.paths.python bbbbbbbb" in said
    assert "build-requires.cmake.version 3.31.9" in said
    assert "target.arch-list 12.0f" in said
    assert not any(line.endswith("none") for line in said)
