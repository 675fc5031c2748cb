"""Probes of the server's life: it starts without hiding a fault, is alive afterwards, stops cleanly."""

from __future__ import annotations

from sglforge.smoke import serverlog
from sglforge.smoke.client import Request
from sglforge.smoke.generation import greedy
from sglforge.smoke.probes.model import Judgement, Need, Probe, Waves, failed, passed, skipped
from sglforge.smoke.probes.quality import degenerate
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Observed

_ALIVE_TOKENS = 4
_READ_IT = "what raised it did not finish its work: find the traceback in the log"


def _judge_started(observed: Observed) -> Judgement:
    if observed.fault:
        return failed(*observed.fault)
    hidden = serverlog.exceptions(observed.ready_log)
    if hidden:
        return failed(
            "swallowed-traceback",
            f"the server says that it is ready, but its log holds {len(hidden)} traceback(s): {hidden[-1]}",
            _READ_IT,
            exceptions=list(hidden),
        )
    return passed("decoded its first token; no traceback in its log")


def _ask_alive(subject: Subject) -> Waves:
    route = "/model_info" if subject.api == "sglang" else "/v1/models"
    once_more = greedy("once-more", subject.long_prompt, _ALIVE_TOKENS)
    return (Request(name="model-info", path=route),), (once_more,)


def _judge_alive(observed: Observed) -> Judgement:
    answered = [exchange for exchange in observed.exchanges if exchange.ok or exchange.status == 404]
    if observed.ended or len(answered) < 2 or "once-more" not in observed.generations():
        how = observed.ended or ", ".join(f"{e.request.name}: {e.status}" for e in observed.exchanges)
        return failed(
            "server-died-after-success",
            f"the server decoded at first and is dead or silent after the probes ({how}; health is {observed.health})",
            "the last probe that it answered is the one to look at; its log says more",
        )
    if (spoiled := degenerate(observed.generations()["once-more"])) and spoiled.broken:
        return failed(
            "degenerate-output",
            f"the server still decodes, but no text any more: {spoiled.message}",
            "compare with probe decode-single, which asked the same at first: a probe in between has spoiled something",
            text=observed.generations()["once-more"].text,
        )
    fresh = serverlog.exceptions(observed.log[len(observed.ready_log) :])
    if fresh:
        return failed(
            "swallowed-traceback",
            f"the server still answers, but {len(fresh)} traceback(s) came since it was ready: {fresh[-1]}",
            _READ_IT,
            exceptions=list(fresh),
        )
    return passed("still answers and decodes; no traceback in its log")


def _judge_stopped(observed: Observed) -> Judgement:
    evidence = {
        name: {
            "seconds": round(stopped.seconds, 2),
            "status": stopped.status,
            "orphans": list(stopped.orphans),
            "ports": list(stopped.ports),
            "shared_memory": list(stopped.shared_memory),
            "known_leaks": list(stopped.known_leaks),
            "perhaps_of_others": list(stopped.perhaps),
        }
        for name, stopped in observed.stops
    }
    for name, stopped in observed.stops:
        if stopped.clean:
            continue
        if stopped.forced:
            fault = f"did not end within {stopped.seconds:.0f} s of SIGTERM and was killed"
        elif stopped.orphans:
            fault = f"ended but left {len(stopped.orphans)} process(es) behind: {'; '.join(stopped.orphans)}"
        elif stopped.untidy:
            fault = f"ended but left shared memory behind: {', '.join(stopped.shared_memory)}"
        elif stopped.ports:
            fault = f"ended, but something still listened on its port {', '.join(map(str, stopped.ports))}"
        else:
            fault = "ended, but something still listens on its port"
        return failed("server-stop-unclean", f"the {name} server {fault}", "what was left is ended now", **evidence)
    if any(stopped.ended_before for _, stopped in observed.stops):
        return skipped("a server had already ended by itself; nothing of it was left", **evidence)
    slowest = max((stopped.seconds for _, stopped in observed.stops), default=0.0)
    leaks = [leak for _, stopped in observed.stops for leak in stopped.known_leaks]
    known = f"; removed what SGLang is known to leave: {', '.join(leaks)}" if leaks else ""
    return passed(f"SIGTERM was enough ({slowest:.1f} s); no process left, ports closed{known}", **evidence)


STARTED = Probe(
    name="started",
    proves="the server came up, decoded a token, and hid no exception on the way",
    judge=_judge_started,
)
ALIVE_AFTER = Probe(
    name="alive-after",
    proves="the probes' requests have not killed, hung or spoiled the server, nor raised anything in it",
    requests=_ask_alive,
    judge=_judge_alive,
    judges_silence=True,
)
STOPS_CLEAN = Probe(
    name="stops-clean",
    proves="SIGTERM ends the server, its children, its ports and its shared memory",
    needs=(Need.OWN,),
    judge=_judge_stopped,
)
