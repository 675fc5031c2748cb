"""The kill table: what each fault of the fake server must be caught by, and on what server it shows.

A fault of speculation runs with a sound control server, as in real life; any other one without speculation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fake_serving import SMOKE
from fake_sglang.faults import FAULTS

from sglforge.config.model import Profile, Speculation
from sglforge.launch.threshold import ServedTree

TREE = ServedTree(version="0.5.9", options={"--speculative-disable-batch-threshold"})
PROBES_OF_LIFE = frozenset({"started", "alive-after", "stops-clean"})


@dataclass(frozen=True, kw_only=True)
class Case:
    """What catches a fault.

    Attributes:
        caught: The code by the name of each probe that fails; none for what is no fault.
        unsettled: The probes that cannot tell.
        drafts: With speculation, and a control server without the fault.
        threshold: Requests at once above which it does not draft.
        flags: More flags of the server.
        timeout_s: How long an answer may take.
        start_s: How long the start may take.
        settle_s: How long the probes wait for a death that comes late.
    """

    caught: Mapping[str, str] = field(default_factory=dict)
    unsettled: frozenset[str] = frozenset()
    drafts: bool = False
    threshold: int | None = None
    flags: Mapping[str, int | bool | str] = field(default_factory=dict)
    timeout_s: float = 10.0
    start_s: float = 20.0
    settle_s: float = 0.4

    @property
    def sole(self) -> str | None:
        """The one probe that catches it; those of the server's life may have seen its end besides."""
        names = self.caught.keys() - PROBES_OF_LIFE or self.caught.keys()
        return next(iter(names)) if len(names) == 1 else None


def profile_of(fault: str, case: Case, *, compiles_into: Path | None = None) -> Profile:
    """Return the profile of a fake server with a fault, or of a sound one for an empty name.

    ``compiles_into`` is the folder for what it compiles at run time.
    """
    variables = {"FLASHINFER_WORKSPACE_BASE": str(compiles_into)} if compiles_into else {}
    drafts = Speculation(algorithm="EAGLE", draft_model="nobody/draft", disable_above_batch=case.threshold)
    return Profile(
        name="fake",
        description="The fake server.",
        target="cpu",
        model="nobody/nothing",
        flags={"tool-call-parser": "hermes", "max-running-requests": 8, **case.flags},
        environment={
            "FAKE_FAULT": fault,
            "FAKE_SPARE_CONTROL": str(int(case.drafts)),
            "SGLANG_ENABLE_SPEC_V2": "1",
            **variables,
        },
        speculation=drafts if case.drafts else None,
        start_timeout_s=case.start_s,
        request_timeout_s=case.timeout_s,
        smoke=SMOKE,
    )


def _started(code: str, **more: float) -> Case:
    return Case(caught={"started": code}, start_s=more.get("start_s", 20.0))


def _by(probe: str, code: str) -> Case:
    return Case(caught={probe: code})


def _drafts(probe: str, code: str, **more: str) -> Case:
    return Case(caught={probe: code, **{name.replace("_", "-"): also for name, also in more.items()}}, drafts=True)


def _threshold(code: str, probe: str = "threshold-wave", threshold: int = 2, timeout_s: float = 10.0) -> Case:
    return Case(caught={probe: code}, drafts=True, threshold=threshold, timeout_s=timeout_s)


_HANGS_S = 3.0
_DEAD = {"alive-after": "server-died-after-success"}
_SMALL: Mapping[str, int | bool | str] = {"context-length": 1500}

SOUND: Mapping[str, Case] = {
    "": Case(),
    "old-route": Case(),
    "slow-stop": Case(),
    "no-chat-template": Case(),
    "known-leak": Case(),
    "no-logprobs": Case(unsettled=frozenset({"logprobs-finite"})),
    "speculation-without-logprobs": Case(drafts=True),
}
"""No faults: nothing may fail."""

TABLE: Mapping[str, Case] = {
    # at the start
    "out-of-memory": _started("server-died"),
    "stuck": _started("server-start-timeout", start_s=2.0),
    "dies-at-start": _started("server-died"),
    "control-dies": _started("server-died"),
    "traceback": _started("swallowed-traceback"),
    "swallowed-init": _started("swallowed-traceback"),
    "never-ready": _started("server-start-timeout", start_s=2.0),
    "wrong-class-attribute": _started("healthy-but-no-decode", start_s=2.0),
    "hangs-at-first-token": _started("healthy-but-no-decode", start_s=2.0),
    # while it decodes
    "hang-after-100-tokens": Case(caught={"logprobs-finite": "decode-hang", **_DEAD}, timeout_s=_HANGS_S),
    "hangs-after-200-tokens": Case(caught={"decode-long": "decode-hang"}, drafts=True, timeout_s=_HANGS_S),
    "scheduler-dead-health-200": Case(caught={"facts": "decode-hang", **_DEAD}, timeout_s=_HANGS_S),
    "dies-in-decode": Case(caught={"facts": "server-died", **_DEAD}),
    "dies-after-json": Case(caught=_DEAD),
    "dies-after-json-schema": Case(caught=_DEAD, settle_s=2.0),
    "raises-while-serving": _by("alive-after", "swallowed-traceback"),
    "refuses": Case(
        caught={
            **dict.fromkeys(
                [
                    "burst",
                    "decode-single",
                    "greedy-repeat",
                    "facts",
                    "parallel",
                    "stream",
                    "chat",
                    "tool-call",
                    "logprobs-finite",
                    "prefill-vs-decode",
                    "prefix-hit",
                    "decode-long",
                    "degenerate",
                    "abort",
                    "long-context",
                    "json-schema",
                ],
                "request-failed",
            ),
        }
    ),
    # wrong tokens
    "empty": Case(
        caught={
            "decode-single": "empty-completion",
            "facts": "fact-wrong",
            "stream": "stream-broken",
            "chat": "empty-completion",
            "tool-call": "tool-not-called",
            "logprobs-finite": "degenerate-output",
            "degenerate": "degenerate-output",
            "json-schema": "json-invalid",
            "long-context": "degenerate-output",
            "alive-after": "degenerate-output",
        }
    ),
    "not-repeatable": Case(
        caught={
            "greedy-repeat": "greedy-not-repeatable",
            "parallel": "garbage-under-concurrency",
            "stream": "stream-differs",
        },
        unsettled=frozenset({"tool-call"}),
    ),
    "third-time-stale": _by("greedy-repeat", "greedy-not-repeatable"),
    "wrong-fact": Case(
        caught={"facts": "fact-wrong", "chat": "fact-wrong", "long-context": "long-context-wrong"},
        unsettled=frozenset({"tool-call"}),
    ),
    "wrong-sum": _by("facts", "fact-wrong"),
    "repeats-a-token": Case(
        caught={"logprobs-finite": "degenerate-output", "degenerate": "degenerate-output"},
        unsettled=frozenset({"tool-call"}),
    ),
    "degenerate-long": Case(caught={"logprobs-finite": "degenerate-output", "degenerate": "degenerate-output"}),
    "degenerate-late": _by("degenerate", "degenerate-output"),
    "garbage-together": _by("parallel", "garbage-under-concurrency"),
    "garbage-in-large-batches": Case(caught={"burst": "garbage-under-concurrency"}, flags={"max-running-requests": 16}),
    "rounding-tie": Case(caught=dict.fromkeys(["parallel", "burst"], "garbage-under-concurrency")),
    "ignores-prompts": Case(
        caught={
            "facts": "fact-wrong",
            "parallel": "prompt-ignored",
            "degenerate": "prompt-ignored",
            "long-context": "long-context-wrong",
        }
    ),
    "prefix-cache-other-prompt": Case(
        caught={"prefix-hit": "prefix-cache-wrong", "long-context": "long-context-wrong"}
    ),
    "prefix-never-hit": _by("prefix-hit", "prefix-never-hit"),
    "long-context-wrong": Case(caught={"long-context": "long-context-wrong"}, flags=_SMALL),
    "long-context-crashes": Case(caught={"long-context": "server-died", **_DEAD}, flags=_SMALL),
    "degenerate-behind-long-prompts": _by("long-context", "degenerate-output"),
    # numbers
    "nan-logits": Case(
        caught={
            "facts": "fact-wrong",
            "chat": "fact-wrong",
            "logprobs-finite": "nan-logits",
            "degenerate": "degenerate-output",
            "json-schema": "json-invalid",
            "long-context": "degenerate-output",
            "alive-after": "degenerate-output",
        },
        unsettled=frozenset({"tool-call"}),
    ),
    "nan-late": _by("logprobs-finite", "nan-logits"),
    "nan-replaced": _by("logprobs-finite", "nan-logits"),
    "nan-in-a-batch": _by("logprobs-finite", "nan-logits"),
    "decode-differs-from-prefill": _by("prefill-vs-decode", "decode-differs-from-prefill"),
    # grammars, chats, tools
    "invalid-json": _by("json-schema", "json-invalid"),
    "wrong-json": _by("json-schema", "json-invalid"),
    "open-json": _by("json-schema", "json-invalid"),
    "chat-template-leak": _by("chat", "chat-template-leak"),
    "empty-chat": Case(caught={"chat": "empty-completion", "tool-call": "tool-not-called"}),
    "never-ends": _by("chat", "never-stops"),
    "tool-call-as-text": _by("tool-call", "tool-call-as-text"),
    "tool-arguments-invalid": _by("tool-call", "tool-call-invalid"),
    # streams and counts
    "loses-a-token": Case(
        caught={"decode-single": "tokens-lost", "stream": "tokens-lost", "decode-long": "tokens-lost"}
    ),
    "page-loses-its-last-token": _by("decode-single", "tokens-lost"),
    "hidden-limit": _by("decode-long", "tokens-lost"),
    "stream-takes-back": _by("stream", "stream-broken"),
    "lost-token-at-stride": Case(caught={"stream": "tokens-lost", "chat": "stream-differs"}),
    "stream-never-ends": Case(caught={"stream": "decode-hang"}, timeout_s=_HANGS_S),
    "stream-without-done": Case(caught={"stream": "stream-broken", "chat": "stream-broken"}),
    "stream-one-chunk": _by("stream", "stream-broken"),
    # speculation
    "no-acceptance": _drafts("spec-gain", "spec-no-gain"),
    "acceptance-zero": _drafts("spec-gain", "spec-no-gain"),
    "no-speculation": _drafts("spec-gain", "spec-no-gain"),
    "speculation-changes-text": _drafts("spec-parity", "spec-changes-text", parallel="spec-changes-text"),
    "speculation-drifts": _drafts("spec-parity", "spec-changes-text"),
    "threshold-ignored": _threshold("threshold-ignored"),
    "threshold-sticks": _threshold("threshold-sticks"),
    "threshold-silent": _threshold("threshold-not-logged"),
    "stale-draft-kv": _threshold("threshold-sticks"),
    "drafts-dead-after-threshold": Case(
        caught={"spec-gain": "spec-no-gain"}, unsettled=frozenset({"threshold-wave"}), drafts=True, threshold=2
    ),
    "lost-request-at-threshold": _threshold("decode-hang", threshold=4, timeout_s=_HANGS_S),
    "slow-cliff": _threshold("spec-threshold-regression", threshold=7, timeout_s=20.0),
    # many requests
    "burst-drops-one": Case(caught={"burst": "requests-lost"}, timeout_s=_HANGS_S),
    "abort-leaks": Case(caught={"abort": "abort-leaks", **_DEAD}, timeout_s=_HANGS_S),
    "abort-blocks": Case(caught={"abort": "abort-leaks", **_DEAD}, timeout_s=_HANGS_S),
    "spoiled-by-overlong": _by("alive-after", "degenerate-output"),
    "dirty-after-abort": _by("abort", "garbage-under-concurrency"),
    "overlong-crashes": Case(caught={"long-context": "overlong-not-refused", **_DEAD}),
    # seen from outside
    "wrong-version": _by("identity", "wrong-server"),
    "memory-grows": _by("memory-steady", "memory-grows"),
    "jit-at-request": _by("jit-silence", "jit-at-run-time"),
    # the end
    "ignores-sigterm": _by("stops-clean", "server-stop-unclean"),
    "leaves-a-child": _by("stops-clean", "server-stop-unclean"),
    "leaves-a-daemon": _by("stops-clean", "server-stop-unclean"),
    "leaves-shared-memory": _by("stops-clean", "server-stop-unclean"),
}


def reference() -> str:
    """Return the table of docs/reference/probes.md."""
    lines = ["| fault | caught by |", "|---|---|"]
    for fault, case in TABLE.items():
        by = ", ".join(f"`{probe}` ({code})" for probe, code in case.caught.items())
        lines.append(f"| {FAULTS[fault]} | {by if len(case.caught) < 6 else f'{len(case.caught)} probes'} |")
    return "\n".join(lines)
