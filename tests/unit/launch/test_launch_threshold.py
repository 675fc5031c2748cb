"""One setting, two ways to say it, and every case in which nobody would obey it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglforge.base import proc
from sglforge.config.model import Profile, Speculation
from sglforge.errors import RenderError
from sglforge.launch.render import LaunchScript, ScriptExit, render_bash
from sglforge.launch.threshold import ADAPTIVE_OPTION, CONFIG_OPTION, PATCHED_OPTION, ServedTree, threshold
from sglforge.launch.threshold_rules import captured_sizes
from sglforge.patches.load import load_topic

ROOT = Path(__file__).parents[3]
TOPIC = load_topic(ROOT / "patches" / "sglang" / "speculation-threshold")
OLD = ServedTree(version="0.5.9+cpu.t0123abcd.p4567cdef", options={PATCHED_OPTION})
NEW = ServedTree(version="0.5.23+cpu.t0123abcd.p4567cdef", options={ADAPTIVE_OPTION, CONFIG_OPTION})
RELEASES = [
    "0.5.9", "0.5.10rc0", "0.5.10", "0.5.10.post1", "0.5.11", "0.5.12", "0.5.12.post1", "0.5.13rc1", "0.5.13",
    "0.5.13.post1", "0.5.14", "0.5.19", "0.5.23",
]  # fmt: skip


class FakeEnvironment:
    """An environment that only has to be written down."""

    path = Path("/srv/environment")
    name = "release.cpu"
    python = Path("/srv/environment/bin/python")
    receipt_sha256 = "0" * 64
    sglang_version = "0.5.23"


def profile(above: int | None = 32, *, flags: dict[str, object] | None = None, **speculation: object) -> Profile:
    values: dict[str, object] = {"algorithm": "EAGLE", "draft_model": "a/draft", "disable_above_batch": above}
    return Profile(
        name="toy",
        description="A toy.",
        target="sm120",
        model="a/model",
        flags={"max-running-requests": 64, **(flags or {})},  # type: ignore[dict-item]
        environment={"SGLANG_ENABLE_SPEC_V2": "True"},
        speculation=Speculation.model_validate({**values, **speculation}, by_name=True),
    )


def render(profile: Profile, tree: ServedTree, folder: Path | None = None) -> LaunchScript:
    return render_bash(profile, environment=FakeEnvironment(), catalog_root=ROOT, tree=tree, folder=folder)  # type: ignore[arg-type]


def codes(profile: Profile, tree: ServedTree) -> list[str]:
    with pytest.raises(RenderError) as caught:
        render(profile, tree, Path("/srv"))
    assert caught.value.code == caught.value.as_findings()[0].code
    return [finding.code for finding in caught.value.as_findings()]


def test_without_the_setting_nothing_is_asked_of_the_tree() -> None:
    assert threshold(profile(None), None, None).words == ()


def test_a_patched_release_gets_the_option() -> None:
    script = render(profile(), OLD)
    assert script.argv[-2:] == (PATCHED_OPTION, "32")
    assert script.configs == ()


def test_a_later_release_gets_a_configuration_beside_its_script(tmp_path: Path) -> None:
    script = render(profile(num_steps=5, num_draft_tokens=6), NEW, tmp_path)
    (config,) = script.configs
    assert script.argv[-3:] == (ADAPTIVE_OPTION, CONFIG_OPTION, str(config.path))
    assert script.write(tmp_path) == tmp_path / "toy.sh"
    assert json.loads((tmp_path / "toy.adaptive.json").read_text()) == {
        "1": {"candidate_steps": [5]},
        "33": {"candidate_steps": [0]},
    }


def test_a_script_does_not_start_with_another_configuration(tmp_path: Path) -> None:
    environment = FakeEnvironment()
    environment.path = tmp_path
    environment.python = tmp_path / "python"
    environment.python.write_text("#!/bin/sh\necho started\n")
    environment.python.chmod(0o755)
    (tmp_path / "receipt.json").write_text("{}\n")
    environment.receipt_sha256 = proc.run(["sha256sum", tmp_path / "receipt.json"]).stdout.split()[0]
    folder = tmp_path / "it's a $folder"
    script = render_bash(profile(), environment=environment, catalog_root=ROOT, tree=NEW, folder=folder)  # type: ignore[arg-type]
    path = script.write(folder)
    assert proc.run(["bash", path]).stdout == "started\n"
    config = folder / "toy.adaptive.json"
    for content in (config.read_text().replace("33", "17"), None):
        config.unlink()
        if content:
            config.write_text(content)
        done = proc.run(["bash", path], check=False)
        assert done.returncode == ScriptExit.CONFIG_CHANGED
        assert str(config) in done.stderr


def test_a_script_that_is_only_printed_is_refused() -> None:
    with pytest.raises(RenderError) as caught:
        render(profile(), NEW)
    assert caught.value.code == "folder-needed"


def test_the_control_server_has_no_threshold() -> None:
    script = render_bash(
        profile(),
        environment=FakeEnvironment(),  # type: ignore[arg-type]
        catalog_root=ROOT,
        speculation=False,
    )
    assert "threshold" not in script.text
    assert "adaptive" not in script.text


@pytest.mark.parametrize("version", RELEASES)
def test_the_topic_and_the_renderer_agree_about_every_release(version: str) -> None:
    tree = ServedTree(version=version, options={PATCHED_OPTION, ADAPTIVE_OPTION, CONFIG_OPTION})
    standing = TOPIC.standing(version)
    if standing is None:
        assert PATCHED_OPTION in render(profile(), tree, Path("/srv")).argv
    elif standing.state.value == "superseded":
        assert CONFIG_OPTION in render(profile(), tree, Path("/srv")).argv
    else:
        assert standing.state.value == "unsupported"
        assert codes(profile(), tree) == ["threshold-unsupported"]


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12.post1", "0.5.14", "0.5.23+cpu.t1.p2"])
def test_an_installed_release_without_the_option_is_refused(version: str) -> None:
    assert codes(profile(), ServedTree(version=version, options={"--model-path"})) == ["threshold-patch-missing"]


@pytest.mark.parametrize("tree", [OLD, NEW], ids=["0.5.9", "0.5.23"])
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"algorithm": "NGRAM", "draft_model": None}, "threshold-needs-eagle"),
        ({"eagle_topk": 4, "num_draft_tokens": 8}, "threshold-needs-topk-1"),
        ({"flags": {"max-running-requests": 32}}, "threshold-never-reached"),
        ({"flags": {"max-running-requests": "32"}}, "threshold-never-reached"),
        ({"flags": {"max-running-requests": False}}, "threshold-never-reached"),
        ({"flags": {"enable-dp-attention": True}}, "threshold-with-dp-attention"),
        ({"flags": {"enable-multi-layer-eagle": True}}, "threshold-with-multi-layer-eagle"),
        ({"flags": {"enable-two-batch-overlap": True}}, "threshold-with-two-batch-overlap"),
        ({"flags": {"enable-pdmux": True}}, "threshold-with-pdmux"),
        ({"flags": {"speculative-adaptive-config": "mine.json"}}, "option-owned-by-profile"),
        ({"flags": {"speculative-disable-batch-threshold": 3}}, "option-owned-by-profile"),
    ],
)
def test_what_nobody_would_obey_is_refused_by_name(tree: ServedTree, changes: dict[str, object], code: str) -> None:
    assert codes(profile(**changes), tree) == [code]  # type: ignore[arg-type]


def test_only_the_patch_covers_a_draft_that_is_a_model_of_its_own() -> None:
    standalone = profile(algorithm="STANDALONE")
    assert PATCHED_OPTION in render(standalone, OLD).argv
    assert codes(standalone, NEW) == ["threshold-needs-eagle"]


def test_all_broken_rules_are_told_at_once() -> None:
    wrong = profile(20, flags={"enable-pdmux": True, "cuda-graph-bs-decode": ["16", "24"]}, eagle_topk=2)
    assert codes(wrong, NEW) == ["threshold-needs-topk-1", "threshold-with-pdmux", "threshold-not-captured"]


@pytest.mark.parametrize(("version", "refused"), [("0.5.9", True), ("0.5.10.post1", True), ("0.5.11", False)])
def test_the_overlapped_worker_must_be_asked_for(version: str, *, refused: bool) -> None:
    tree = ServedTree(version=version, options={PATCHED_OPTION})
    for value in ("", "0", "false"):
        bare = profile().model_copy(update={"environment": {"SGLANG_ENABLE_SPEC_V2": value} if value else {}})
        if refused:
            assert codes(bare, tree) == ["threshold-needs-spec-v2"]
        else:
            assert render(bare, tree).argv[-1] == "32"


@pytest.mark.parametrize(
    ("above", "flags", "hint"),
    [
        (9, {}, "set the threshold to 8"),
        (33, {}, "set the threshold to 32"),
        (20, {"cuda-graph-bs-decode": ["16", "24"]}, "set the threshold to 16"),
        (20, {"cuda-graph-bs": ["16", "24"]}, "set the threshold to 16"),
        (9, {"cuda-graph-max-bs-decode": 16}, "set the threshold to 8"),
    ],
)
def test_a_threshold_between_captured_sizes_would_switch_early(above: int, flags: dict[str, object], hint: str) -> None:
    with pytest.raises(RenderError) as caught:
        render(profile(above, flags=flags), NEW, Path("/srv"))
    assert caught.value.code == "threshold-not-captured"
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("above", "flags"),
    [
        (33, {"disable-cuda-graph": True}),
        (33, {"device": "cpu"}),
        (33, {"cuda-graph-backend-decode": "disabled"}),
        (33, {"cuda-graph-bs-decode": ["1", "33", "64"]}),
        (33, {"cuda-graph-max-bs-decode": 33}),
        (33, {"cuda-graph-max-bs-decode": 8}),
        (20, {}),
    ],
)
def test_a_threshold_that_batches_are_not_padded_over_is_taken(above: int, flags: dict[str, object]) -> None:
    assert CONFIG_OPTION in render(profile(above, flags=flags), NEW, Path("/srv")).argv


@given(st.integers(1, 63), st.lists(st.integers(1, 64), min_size=1, unique=True))
def test_the_padding_rule_is_the_routing_of_upstream(above: int, captured: list[int]) -> None:
    """A batch is padded to the next captured size (none above the largest), then routed to the slot below it."""
    sizes, largest = captured_sizes({"cuda-graph-bs-decode": [str(size) for size in captured]}) or (frozenset(), None)
    allowed = above in sizes or (largest is not None and above >= largest)
    drafts = {
        batch: min((size for size in captured if size >= batch), default=batch) <= above for batch in range(1, 80)
    }
    assert allowed is all(drafts[batch] is (batch <= above) for batch in drafts)


def test_the_setting_is_a_key_of_the_file() -> None:
    text = 'algorithm = "EAGLE"\ndisable-above-batch = 32\n'
    assert Speculation.model_validate(tomllib.loads(text), by_alias=True, by_name=False).disable_above_batch == 32
