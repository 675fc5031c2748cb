"""Each fault of the fake server shows what its name says, and a sound server does not show it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_serving import fake_process
from fake_sglang import language, serving
from fake_sglang.driving import Asked, Driver
from fake_sglang.faults import FAULTS
from fake_sglang.options import VERSION, parse
from fake_sglang.tokens import as_symbols, encode

STORY = "Tell me a story."
FACT = "The capital of France is"
DRAFTS = ["--speculative-algorithm", "EAGLE"]
THRESHOLD = [*DRAFTS, "--speculative-disable-batch-threshold"]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "country": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"properties": {"city": {}}}}}
FOLDER = Path(__file__).parents[2] / "fake_sglang"
PATIENCE_S = 0.6


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Where a check gets its server from: one with the fault, or a sound one."""

    fault: str
    folder: Path
    killed: list[int]
    output: Callable[[], str]

    @contextmanager
    def server(self, *argv: str) -> Iterator[Driver]:
        with Driver(argv=argv, fault=self.fault, patience_s=PATIENCE_S if self.fault else 10.0) as driver:
            yield driver

    def one(self, *argv: str, prompt: str = STORY, tokens: int = 32, **more: Any) -> Any:
        """Return the answer to one request of a new server."""
        with self.server(*argv) as server:
            return ask(server, prompt, tokens, **more).document

    def scores(self, tokens: int = 200, *argv: str) -> list[float | None]:
        meta = self.one(*argv, tokens=tokens, return_logprob=True)["meta_info"]
        return [row[0] for row in meta.get("output_token_logprobs", ())]

    def json_text(self) -> str:
        sampling = {"json_schema": json.dumps(SCHEMA)}
        return str(self.one(prompt="The capital of France as JSON:", tokens=96, sampling=sampling)["text"])

    def message(self, *argv: str, **more: Any) -> Any:
        with self.server("--tool-call-parser", "any", *argv) as server:
            asked = {"messages": [{"role": "user", "content": "What is the weather in Rome?"}], "temperature": 0}
            return server.post("/v1/chat/completions", {**asked, **more}).document["choices"][0]["message"]

    def stream(self) -> Asked:
        with self.server() as server:
            return server.post("/generate", request(stream=True))

    def wave(self, threshold: int, count: int, tokens: int = 20) -> list[Asked]:
        """Return one long request and others together, above the threshold."""
        with self.server(*THRESHOLD, str(threshold)) as server:
            return server.together("/generate", [request(tokens=tokens * 5), *[request(tokens=tokens)] * (count - 1)])

    def starts(self, *argv: str) -> str:
        """Return what a worker says before its server listens, and how it exits."""
        try:
            serving._start(parse(argv, {"FAKE_FAULT": self.fault}))
        except SystemExit as error:
            return f"{self.output()}exit {error.code}"
        return self.output()


def request(prompt: str = STORY, tokens: int = 32, **more: Any) -> dict[str, Any]:
    sampling = {"temperature": 0, "max_new_tokens": tokens, **more.pop("sampling", {})}
    return {"text": prompt, "sampling_params": sampling, **more}


def ask(server: Driver, prompt: str = STORY, tokens: int = 32, **more: Any) -> Asked:
    return server.post("/generate", request(prompt, tokens, **more))


def silent(lab: Lab, before: int, tokens: int, *argv: str) -> bool:
    """Say whether short requests are answered and a longer one is not, while health is 200."""
    with lab.server(*argv) as server:
        short = [ask(server, tokens=3 * (1 + number)).status for number in range(before)]
        return {200} >= set(short) and ask(server, tokens=tokens).status == 0 and server.get("/health").status == 200


def broken_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return True
    return False


def differs_together(lab: Lab, count: int = 3, tokens: int = 32) -> bool:
    with lab.server("--max-running-requests", "16") as server:
        alone = ask(server, tokens=tokens).document["output_ids"]
        together = server.together("/generate", [request(tokens=tokens)] * count)
        return all(one.document["output_ids"] != alone for one in together)


def other_prompt(lab: Lab) -> bool:
    one, other = (f"A long beginning of the same words, and then {end}" for end in ("the first end", "another"))
    with lab.server() as server:
        first, second, again = (ask(server, prompt).document["output_ids"] for prompt in (one, other, one))
        assert server.post("/flush_cache", {}).status == 200
        return bool(first == second == again != ask(server, other).document["output_ids"])


def half_context(lab: Lab) -> bool:
    prompt = "The surveyors met in June and had tea. " * 3
    right = as_symbols(encode(prompt))
    for _ in range(24):
        right += chr(language.distribution(right).best)
    text = lab.one("--context-length", "200", prompt=prompt, tokens=24)["text"]
    return not right.endswith(text)


def prefill_differs(lab: Lab) -> bool:
    with lab.server() as server:
        decoded = ask(server, tokens=48, return_logprob=True).document["meta_info"]["output_token_logprobs"]
        longer = STORY + "".join(chr(row[1]) for row in decoded)
        scored = ask(server, longer, 1, return_logprob=True, logprob_start_len=len(STORY) - 1).document
        prefilled = scored["meta_info"]["input_token_logprobs"][1:]
        different = [place for place, pair in enumerate(zip(decoded, prefilled, strict=True)) if pair[0] != pair[1]]
        return different == list(range(32, 48))


def lost_in_streams(lab: Lab) -> bool:
    with lab.server() as server:
        whole, last = ask(server).document, server.post("/generate", request(stream=True)).events[-2]
        return len(last["output_ids"]) == 28 and last["meta_info"]["completion_tokens"] == len(whole["output_ids"])


def drafts_after(lab: Lab) -> bool:
    """Say whether a request that was in a large batch drafts no more when it is alone."""
    alone = Lab(fault="", folder=lab.folder, killed=[], output=lab.output).one(*DRAFTS, tokens=100)
    long = lab.wave(2, 3)[0].document
    assert long["output_ids"] == alone["output_ids"]
    return bool(long["meta_info"]["spec_num_correct_drafts"] == 0)


def no_drafts_again(lab: Lab) -> bool:
    with lab.server(*THRESHOLD, "2") as server:
        before = ask(server, tokens=60).document["meta_info"]["spec_num_correct_drafts"]
        server.together("/generate", [request()] * 3)
        after = ask(server, tokens=60).document["meta_info"]["spec_num_correct_drafts"]
        return bool(before > after == 0)


def adaptive_silence(lab: Lab) -> bool:
    config = lab.folder / "adaptive.json"
    config.write_text(json.dumps({"1": {"candidate_steps": [3]}, "2": {"candidate_steps": [0]}}))
    with lab.server(*DRAFTS, "--speculative-adaptive-config", str(config)) as server:
        server.together("/generate", [request()] * 2)
    return "Switch adaptive runtime state: steps 3 -> 0" not in lab.output()


def cliff(lab: Lab) -> bool:
    start = time.monotonic()
    lab.wave(1, 2)
    return time.monotonic() - start > 0.19  # 19 steps together, 10 ms each


def burst(lab: Lab) -> bool:
    with lab.server("--max-running-requests", "2") as server:
        return sorted(one.status for one in server.together("/generate", [request()] * 4)) == [0, 200, 200, 500]


def after_an_abort(lab: Lab) -> tuple[int, int]:
    """Return the status of a request after an abort, and how many are then said to run."""
    with lab.server() as server:
        server.leave("/generate", request(tokens=4000, sampling={"ignore_eos": True}), after_s=0.02)
        status = ask(server).status
        return status, server.get("/v1/loads").document["loads"][0]["num_running_reqs"]


def other_after_an_abort(lab: Lab) -> bool:
    with lab.server() as server:
        before = ask(server).document["output_ids"]
        server.leave("/generate", request(tokens=4000, sampling={"ignore_eos": True}), after_s=0.02)
        return bool(ask(server).document["output_ids"] != before)


def spoiled_by_overlong(lab: Lab) -> bool:
    with lab.server("--context-length", "100") as server:
        assert ask(server, "x" * 100).status == 400
        return set(ask(server, tokens=8).document["text"]) == {"!"}


def killed_by(lab: Lab, *argv: str, prompt: str = STORY, turns: int = 1) -> bool:
    with lab.server(*argv) as server:
        for _ in range(turns):
            ask(server, prompt, 4)
    return bool(lab.killed)


def killed_by_json(lab: Lab, within_s: float) -> bool:
    assert json.loads(lab.json_text())
    time.sleep(within_s)
    return bool(lab.killed)


def no_chat(lab: Lab) -> int:
    with lab.server() as server:
        return server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}).status


def third_times(lab: Lab) -> list[str]:
    with lab.server() as server:
        return [ask(server, tokens=64).document["text"] for _ in range(3)]


def again_cached(lab: Lab) -> int:
    with lab.server() as server:
        return int([ask(server).document["meta_info"]["cached_tokens"] for _ in range(2)][1])


def tied(lab: Lab) -> bool:
    """Say whether company changes a text, where two tokens are then as likely as each other but for a rounding."""
    with lab.server() as server:
        alone = ask(server).document["output_ids"]
        together = server.together("/generate", [request()] * 2)[0].document["output_ids"]
        if alone == together:
            return False
        place = next(at for at, pair in enumerate(zip(alone, together, strict=True)) if len(set(pair)) == 2)
        asked = {"token_ids_logprob": [alone[place], together[place]], "return_logprob": True}
        first, again = (
            server.together("/generate", [scoring(alone[:place], **asked)] * count)[0].document["meta_info"]
            for count in (1, 2)
        )
    gaps = [meta["output_token_ids_logprobs"][0] for meta in (first, again)]
    return all(abs(one[0] - other[0]) < 0.05 for one, other in gaps) and gaps[0] != gaps[1]


def scoring(ids: list[int], **more: Any) -> dict[str, Any]:
    sampling = {"temperature": 0, "max_new_tokens": 1}
    return {"input_ids": [*encode(STORY), *ids], "sampling_params": sampling, **more}


def used_tokens(lab: Lab) -> bool:
    with lab.server() as server:
        ask(server)
        first = server.get("/v1/loads").document["loads"][0]["num_used_tokens"]
        ask(server)
        return bool(0 < first < server.get("/v1/loads").document["loads"][0]["num_used_tokens"])


def status_of(lab: Lab, path: str) -> int:
    with lab.server() as server:
        return server.get(path).status


def changes(lab: Lab) -> bool:
    with lab.server() as server:
        return bool(ask(server, tokens=64).document["text"] != ask(server, tokens=64).document["text"])


def version(lab: Lab) -> str:
    with lab.server() as server:
        return str(server.get("/server_info").document["version"])


CHECKS: dict[str, Callable[[Lab], bool]] = {
    "dies-at-start": lambda lab: lab.starts().endswith("exit 3") and lab.starts(*DRAFTS).endswith("exit 3"),
    "control-dies": lambda lab: lab.starts().endswith("exit 3") and "exit" not in lab.starts(*DRAFTS),
    "traceback": lambda lab: "Traceback" in lab.starts(),
    "swallowed-init": lambda lab: "Traceback" in lab.starts(),
    "never-ready": lambda lab: status_of(lab, "/model_info") == 503,
    "old-route": lambda lab: (status_of(lab, "/model_info"), status_of(lab, "/get_model_info")) == (404, 200),
    "wrong-version": lambda lab: version(lab) != VERSION,
    "jit-at-request": lambda lab: lab.one() and bool(list(lab.folder.rglob("*.so"))),
    "wrong-class-attribute": lambda lab: silent(lab, 0, 1) and "AttributeError" in lab.output(),
    "hangs-at-first-token": lambda lab: silent(lab, 0, 1) and "Traceback" not in lab.output(),
    "hang-after-100-tokens": lambda lab: silent(lab, 3, 120),
    "hangs-after-200-tokens": lambda lab: silent(lab, 3, 220, *DRAFTS),
    "scheduler-dead-health-200": lambda lab: silent(lab, 5, 4),
    "dies-in-decode": lambda lab: killed_by(lab, turns=6),
    "dies-after-json": lambda lab: killed_by_json(lab, 0.3),
    "dies-after-json-schema": lambda lab: killed_by_json(lab, 1.3),
    "raises-while-serving": lambda lab: lab.one(tokens=120) and "Traceback" in lab.output(),
    "refuses": lambda lab: "error" in lab.one(tokens=8) and "error" not in lab.one(tokens=4),
    "stops-early": lambda lab: lab.one(tokens=200)["meta_info"]["completion_tokens"] == 150,
    "empty": lambda lab: lab.one()["text"] == "",
    "not-repeatable": changes,
    "third-time-stale": lambda lab: len(set(third_times(lab))) == 2,
    "wrong-sum": lambda lab: " nine" in lab.one(prompt="One and one is")["text"],
    "wrong-fact": lambda lab: " Lyons" in lab.one(prompt=FACT)["text"],
    "repeats-a-token": lambda lab: lab.one(tokens=200)["text"].endswith("!" * 140),
    "degenerate-long": lambda lab: lab.one(tokens=160)["text"][-24:-12] == lab.one(tokens=160)["text"][-12:],
    "degenerate-late": lambda lab: len(set(lab.one(tokens=240)["text"][-40:])) == 1,
    "rounding-tie": tied,
    "garbage-together": differs_together,
    "garbage-in-large-batches": lambda lab: differs_together(lab, 10, 8) and not differs_together(lab, 3, 8),
    "ignores-prompts": lambda lab: lab.one()["text"] == lab.one(prompt=FACT)["text"],
    "prefix-cache-other-prompt": other_prompt,
    "prefix-never-hit": lambda lab: not again_cached(lab),
    "long-context-wrong": half_context,
    "long-context-crashes": lambda lab: killed_by(lab, "--context-length", "100", prompt="x" * 60),
    "degenerate-behind-long-prompts": lambda lab: set(lab.one(prompt="x " * 301)["text"]) == {"!"},
    "nan-logits": lambda lab: lab.scores() == [None] * 200 and set(lab.one()["output_ids"]) == {0},
    "nan-late": lambda lab: None not in (scores := lab.scores())[:150] and set(scores[150:]) == {None},
    "nan-replaced": lambda lab: set(lab.scores()[150:]) == {-5.5},
    "nan-in-a-batch": lambda lab: None not in lab.scores() and nan_together(lab),
    "decode-differs-from-prefill": prefill_differs,
    "no-logprobs": lambda lab: lab.scores() == [],
    "speculation-without-logprobs": lambda lab: len(lab.scores(200, *DRAFTS)) == 1,
    "invalid-json": lambda lab: broken_json(lab.json_text()) and lab.json_text().endswith("}"),
    "wrong-json": lambda lab: json.loads(lab.json_text())["city"] == 5,
    "open-json": lambda lab: broken_json(lab.json_text()) and not broken_json(lab.json_text() + "}"),
    "chat-template-leak": lambda lab: "<|end|>" in lab.message()["content"],
    "no-chat-template": lambda lab: no_chat(lab) == 400,
    "empty-chat": lambda lab: lab.message()["content"] is None,
    "never-ends": lambda lab: len(lab.message(max_tokens=300)["content"]) > 250,
    "tool-call-as-text": lambda lab: "<tool_call>" in (lab.message(tools=[TOOL])["content"] or ""),
    "tool-arguments-invalid": lambda lab: broken_json(
        lab.message(tools=[TOOL])["tool_calls"][0]["function"]["arguments"]
    ),
    "loses-a-token": lambda lab: len((one := lab.one())["output_ids"]) < one["meta_info"]["completion_tokens"],
    "page-loses-its-last-token": lambda lab: len(lab.one(tokens=16)["output_ids"]) == 15,
    "hidden-limit": lambda lab: lab.one(tokens=300)["meta_info"]["completion_tokens"] == 256,
    "stream-takes-back": lambda lab: any("~" in event["text"] for event in lab.stream().events[:-1]),
    "lost-token-at-stride": lost_in_streams,
    "stream-never-ends": lambda lab: lab.stream().status == 0,
    "stream-without-done": lambda lab: lab.stream().events[-1] != "[DONE]",
    "stream-one-chunk": lambda lab: len(lab.stream().events) == 2,
    "no-acceptance": lambda lab: lab.one(*DRAFTS)["meta_info"]["spec_num_correct_drafts"] == 0,
    "acceptance-zero": lambda lab: lab.one(*DRAFTS)["meta_info"]["spec_num_correct_drafts"] == 0,
    "no-speculation": lambda lab: "spec_verify_ct" not in lab.one(*DRAFTS)["meta_info"],
    "speculation-changes-text": lambda lab: lab.one(*DRAFTS)["text"].endswith("?"),
    "speculation-drifts": lambda lab: lab.one(*DRAFTS, tokens=160)["text"][150] == "?",
    "threshold-ignored": lambda lab: lab.wave(1, 3)[1].document["meta_info"]["spec_num_correct_drafts"] > 0,
    "threshold-sticks": drafts_after,
    "threshold-silent": lambda lab: adaptive_silence(lab) and "threshold" not in lab.starts(*THRESHOLD, "2"),
    "stale-draft-kv": drafts_after,
    "drafts-dead-after-threshold": no_drafts_again,
    "lost-request-at-threshold": lambda lab: sorted(one.status for one in lab.wave(2, 3)) == [0, 200, 200],
    "slow-cliff": cliff,
    "burst-drops-one": burst,
    "abort-leaks": lambda lab: after_an_abort(lab) == (200, 1),
    "abort-blocks": lambda lab: after_an_abort(lab) == (0, 0),
    "spoiled-by-overlong": spoiled_by_overlong,
    "dirty-after-abort": other_after_an_abort,
    "overlong-crashes": lambda lab: killed_by(lab, "--context-length", "20", prompt="x" * 20),
    "memory-grows": used_tokens,
}
# How these end is seen on a real process only.
ENDS = {
    "ignores-sigterm", "slow-stop", "leaves-a-child", "leaves-a-daemon", "leaves-shared-memory", "known-leak", "stuck",
    "out-of-memory",
}  # fmt: skip


def nan_together(lab: Lab) -> bool:
    with lab.server() as server:
        answers = server.together("/generate", [request(return_logprob=True)] * 3)
    rows = [one.document["meta_info"]["output_token_logprobs"] for one in answers]
    return all([place for place, row in enumerate(one) if row[0] is None] == [7] for one in rows)


def test_nan_is_stronger_than_a_grammar() -> None:
    with Driver(fault="nan-logits") as fake:
        answer = ask(fake, tokens=96, sampling={"json_schema": json.dumps(SCHEMA)}).document
    assert answer["output_ids"] == [0] * 96


def test_a_tool_call_that_is_required_ends_where_ends_are_ignored() -> None:
    with Driver() as fake:
        asked = {"messages": [{"role": "user", "content": "Hello"}], "tools": [TOOL], "tool_choice": "required"}
        answer = fake.post("/v1/chat/completions", {**asked, "ignore_eos": True}).document
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


def test_every_fault_is_checked() -> None:
    assert CHECKS.keys() | ENDS == FAULTS.keys()


@pytest.mark.parametrize("fault", CHECKS)
def test_a_fault_is_there_when_it_is_asked_for_and_only_then(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLASHINFER_WORKSPACE_BASE", str(tmp_path))
    killed: list[int] = []
    monkeypatch.setattr("os.kill", lambda pid, number: killed.append(number))

    def output() -> str:
        return "".join(capfd.readouterr())

    assert not CHECKS[fault](Lab(fault="", folder=tmp_path, killed=killed, output=output))
    assert CHECKS[fault](Lab(fault=fault, folder=tmp_path, killed=killed, output=output))


@contextmanager
def process(fault: str) -> Iterator[subprocess.Popen[bytes]]:
    with fake_process(fault=fault) as (server, _):
        yield server


def test_sigterm_ends_a_sound_server_at_once_and_a_slow_one_later() -> None:
    with process("") as server:
        server.terminate()
        assert server.wait(10) == 0
    with process("slow-stop") as server:
        server.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(1)
        assert server.wait(10) == 0


def test_sigterm_can_be_ignored() -> None:
    with process("ignores-sigterm") as server:
        server.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(0.5)


def test_a_child_can_be_left_behind() -> None:
    with process("leaves-a-child") as server:
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        server.terminate()
        server.wait(10)
        assert children
        assert all(Path(f"/proc/{child}").exists() for child in children)
