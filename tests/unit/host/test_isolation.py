"""What a machine allows of the sandbox, as findings."""

from __future__ import annotations

import pytest

from sglforge.base.sandbox.step import Isolation
from sglforge.errors import Severity, verdict_of
from sglforge.host import isolation

COMPLETE = Isolation(network="none", writes="own-folder", processes="contained", place="fixed")


def test_what_this_machine_allows_is_found_out() -> None:
    found = isolation.probe()
    assert found.processes in {"contained", "ended"}
    assert bool(isolation.judge(found)) == (not found.complete)


def test_a_complete_sandbox_is_no_finding() -> None:
    assert isolation.judge(COMPLETE) == ()


@pytest.mark.parametrize(
    ("found", "severity", "words"),
    [
        (Isolation(network="no-tcp", writes="own-folder", processes="ended"), Severity.INFO, "UDP is not checked"),
        (Isolation(network="none", writes="own-folder", processes="ended"), Severity.INFO, "survives a kill"),
        (Isolation(network="none", writes="unchecked", processes="contained"), Severity.WARNING, "outside"),
        (Isolation(network="unchecked", writes="own-folder", processes="ended"), Severity.WARNING, "the network"),
        (Isolation(network="none", writes="own-folder", processes="contained"), Severity.INFO, "may hold the path"),
        (Isolation(why=("because",)), Severity.WARNING, "a process can outlive its build"),
    ],
)
def test_what_is_lacking_is_one_finding_and_never_an_error(found: Isolation, severity: Severity, words: str) -> None:
    (finding,) = isolation.judge(found)
    assert (finding.code, finding.severity) == ("sandbox-incomplete", severity)
    assert words in finding.message
    assert finding.detail == found.why
    assert verdict_of([finding]) in {"pass", "warn"}
