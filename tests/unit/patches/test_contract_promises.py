"""`flag-exists`, `evidence-exists` and waivers, each with a topic that breaks its promise."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from patching import Put, patch, series_of

from sglforge.errors import Severity
from sglforge.patches.apply import apply_series
from sglforge.patches.result import PatchResult, TopicState
from sglforge.patches.series import Series, load_series

WORKER = """\
import logging

logger = logging.getLogger()


class Worker:
    def run(self):
        print(self)
"""
FILES = {"pkg/worker.py": WORKER}


def log(code: str) -> Put:
    return Put("prepend-to-body", "Worker.run", code)


def codes(result: PatchResult) -> list[str]:
    return [finding.code for finding in result.findings]


SHOWN = {
    "a message": "logger.info('the limit is on')\n",
    "a longer one": "logger.warning('Now the limit is on.')\n",
    "pieces side by side": "logger.info('the limit '\n    'is on')\n",
    "pieces of an f-string": "logger.info(f'{self}: the limit ' f'is on {self}')\n",
    "a sum": "logger.info('the limit ' + 'is on')\n",
    "a format": "logger.info('the limit is on: %s', self)\n",
    "a call in it": "logger.info('the limit is on: {}'.format(self))\n",
    "a print": "print('the limit is on')\n",
    "a raise": "if self:\n    raise ValueError('the limit is on')\n",
    "a helper of upstream's": "log_info_on_rank0(logger, 'the limit is on')\n",
    "the root logger": "logging.getLogger().error('the limit is on')\n",
}


@pytest.mark.parametrize("how", SHOWN)
def test_evidence_that_the_topic_shows_is_accepted(how: str, tmp_path: Path) -> None:
    files = {"pkg/worker.py": "from pkg import log_info_on_rank0\n" + WORKER}
    assert patch(tmp_path, files, log(SHOWN[how]), more='evidence = "the limit is on"').findings == ()


NOT_SHOWN = {
    "nothing": "pass\n",
    "another text": "logger.info('the limit is off')\n",
    "a value in it": "logger.info(f'the {self} limit is on'.replace('a', 'the') + f'the limit {self} is on')\n",
    "a comment": "x = 1  # the limit is on\n",
    "a docstring": "def a():\n    'the limit is on'\n",
    "a text that is not shown": "text = 'the limit is on'\n",
    "a call that shows nothing": "repr('the limit is on')\n",
    "what only debugging shows": "logger.debug('the limit is on')\n",
}


@pytest.mark.parametrize("how", NOT_SHOWN)
def test_evidence_that_nothing_of_the_topic_shows_is_refused(how: str, tmp_path: Path) -> None:
    upstreams = WORKER + "    def other(self):\n        logger.info('the limit is on')\n"
    put = log(NOT_SHOWN[how].replace("the {self} limit is on", "{self} limits are on"))
    result = patch(tmp_path, {"pkg/worker.py": upstreams}, put, more='evidence = "the limit is on"')
    [finding] = result.findings
    assert (finding.code, finding.severity) == ("patch-evidence-missing", Severity.ERROR)
    assert finding.where == f"{tmp_path}/catalog/patches/toy/one/patch.toml:9"
    assert result.topics[0].state is TopicState.REJECTED
    if how == "another text":
        assert finding.hint == "did you mean 'the limit is off'?"


def test_evidence_that_another_topic_shows_is_not_its_own(tmp_path: Path) -> None:
    one = series_of(tmp_path / "one", log("print('the limit is on')\n"))
    other = series_of(tmp_path / "other", log("print('another text')\n"), more='evidence = "the limit is on"')
    topics = (*one.topics, dataclasses.replace(other.topics[0], name="other"))
    (tmp_path / "tree/pkg").mkdir(parents=True)
    (tmp_path / "tree/pkg/worker.py").write_text(WORKER)
    result = apply_series(Series(package="toy", topics=topics), tmp_path / "tree", version="1.0")
    assert [(finding.code, finding.subject) for finding in result.findings] == [("patch-evidence-missing", "toy/other")]


SERVER_ARGS = """\
import argparse
import dataclasses


@dataclasses.dataclass
class ServerArgs:
    model: str = ""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser):
        parser.add_argument("--model", type=str, default=ServerArgs.model, help="m")
"""
FLAG = Put(
    "append-to-body",
    "ServerArgs.add_cli_args",
    "parser.add_argument('--batch-limit', type=int, default=0, help='l')\n",
    "sglang/srt/server_args.py",
)


@pytest.mark.parametrize("folder", ["", "python/"])
def test_flags_of_the_patched_parser_are_found(folder: str, tmp_path: Path) -> None:
    files = {f"{folder}sglang/srt/server_args.py": SERVER_ARGS}
    more = '[contracts]\nflags = ["--model", "--batch-limit"]\n'
    assert patch(tmp_path / "right", files, FLAG, more=more).findings == ()
    wrong = patch(tmp_path / "wrong", files, FLAG, more=more.replace("limit", "limits").replace("--model", "--batch"))
    assert codes(wrong) == ["patch-flag-missing", "patch-flag-missing"]
    assert wrong.findings[1].message == "the parser of the patched tree has no option --batch-limits"
    assert wrong.findings[1].hint == "did you mean `--batch-limit`?"
    assert wrong.findings[1].where == f"{tmp_path}/wrong/catalog/patches/toy/one/patch.toml:10"


def test_a_parser_that_cannot_be_asked_has_no_flags(tmp_path: Path) -> None:
    more = '[contracts]\nflags = ["--model"]\n'
    broken = Put("prepend-to-body", "ServerArgs.add_cli_args", "if parser:\n    raise ValueError('no')\n", FLAG.file)
    [finding] = patch(tmp_path / "broken", {FLAG.file: SERVER_ARGS}, broken, more=more).findings
    assert finding.code == "patch-flag-missing"
    assert "cannot be read" in finding.message
    [finding] = patch(tmp_path / "none", FILES, log("size = 1\n"), more=more).findings
    assert finding.code == "patch-flag-missing"


WAIVER = '[[contracts.waive]]\ncontract = "{}"\nreason = "to see the crash"\n'


def test_a_waived_contract_lets_the_fault_through_and_says_so(tmp_path: Path) -> None:
    result = patch(tmp_path, FILES, log("self.limit\n"), more=WAIVER.format("attribute-set"))
    [finding] = result.findings
    assert result.topics[0].state is TopicState.APPLIED
    assert result.tree_id is not None
    assert "self.limit" in (tmp_path / "tree/pkg/worker.py").read_text()
    assert (finding.code, finding.severity) == ("patch-contract-waived", Severity.WARNING)
    assert finding.message == "the contract `attribute-set` is switched off for this topic: to see the crash"
    assert finding.detail[0].startswith("hidden: patch-attribute-unset: `self.limit`")


def test_a_waiver_of_another_contract_hides_nothing(tmp_path: Path) -> None:
    result = patch(tmp_path, FILES, log("self.limit\n"), more=WAIVER.format("evidence-exists"))
    assert codes(result) == ["patch-attribute-unset", "patch-contract-waived"]
    assert result.findings[1].hint == "it hides nothing: take it out"
    assert result.tree_id is None


def test_a_waiver_is_known_without_a_tree(tmp_path: Path) -> None:
    patch(tmp_path, FILES, log("self.limit\n"), more=WAIVER.format("attribute-set"))
    series = load_series(tmp_path / "catalog", "toy")
    assert series is not None
    [finding] = series.remarks("1.0")
    assert (finding.code, finding.subject) == ("patch-contract-waived", "toy/one")
    assert finding.where == f"{tmp_path}/catalog/patches/toy/one/patch.toml:9"
    assert finding.hint == "correct what it hides, then take the waiver out"
    assert series.remarks("0.0.1") == ()


@pytest.mark.parametrize("contract", ["subclass-assigned", "flag-exists", "evidence-exists"])
def test_every_contract_of_a_topic_can_be_waived(contract: str, tmp_path: Path) -> None:
    promise = 'evidence = "nowhere"\n[contracts]\nflags = ["--none"]\n'
    put = [
        Put("add-class-attribute", "Worker", "limit = 0\n"),
        Put("append-to-body", "Worker", "def __init__(self):\n    self.limit = 1\n"),
        Put("append-to-body", "", "class Child(Worker):\n    def __init__(self):\n        pass\n"),
    ]
    broken = patch(tmp_path / "broken", FILES, *put, more=promise)
    waived = patch(tmp_path / "waived", FILES, *put, more=promise + WAIVER.format(contract))
    assert len(codes(broken)) == 3
    assert sum(finding.severity is Severity.ERROR for finding in waived.findings) == 2
    assert "patch-contract-waived" in codes(waived)


@pytest.mark.parametrize("contract", ["compiles", "names-bound", "everything"])
def test_what_python_itself_refuses_cannot_be_waived(contract: str, tmp_path: Path) -> None:
    from sglforge.errors import PatchError

    with pytest.raises(PatchError) as caught:
        patch(tmp_path, FILES, log("pass\n"), more=WAIVER.format(contract))
    assert caught.value.code == "patch-corrupt"
