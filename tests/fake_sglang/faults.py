"""The faults that the fake server can have, each with the real one that it stands for and where that was seen.

``FAKE_FAULT=name[,name...]`` switches them on. ``FAKE_SPARE_CONTROL=1`` leaves a server without speculation sound, as a
fault of speculation does in real life.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

FAULTS: Mapping[str, str] = {
    # at the start
    "out-of-memory": "the weights do not fit: the process ends during start",
    "stuck": "the start waits for something that never comes",
    "dies-at-start": "a patch reads a threshold that the class lacks: the process ends during start",
    "control-dies": "the same, only on a server without speculation",
    "traceback": "an exception in a worker's __init__ is caught and logged; the server comes up without what was set",
    "swallowed-init": "the same under the name of the threshold patch: set in a try block, lost in its except",
    "never-ready": "model info stays 503: the scheduler never finishes its warm-up",
    "old-route": "SGLang before 0.5.10, which has get_model_info only",
    "wrong-version": "an older wheel shadows the one that was built",
    "jit-at-request": "a module is missing from the ahead-of-time set, so that the first request of more than one token"
    " compiles it (sgl-project/sglang#5389)",
    # while it decodes
    "wrong-class-attribute": "the threshold is set on the target worker and read on the draft worker: the first decode "
    "raises, the HTTP process lives on",
    "hangs-at-first-token": "a first decode that waits for a rank that is gone",
    "hang-after-100-tokens": "a graph of a later length bucket deadlocks (sgl-project/sglang#35822)",
    "hangs-after-200-tokens": "the same with speculation only, after 200 tokens",
    "scheduler-dead-health-200": "the scheduler dies after some requests without a word, /health does not ask it"
    " (sgl-project/sglang#6624 and #4191)",
    "dies-in-decode": "an exception in a later batch ends the scheduler and all else",
    "dies-after-json": "the grammar backend crashes when its request is freed: 0.1 s after a right answer",
    "dies-after-json-schema": "the same a second later (sgl-project/sglang#28407)",
    "raises-while-serving": "a long request raises in a thread that nobody joins",
    "refuses": "the KV pool is too small: every request but the shortest gets 500",
    "stops-early": "no fault: a model that ends its text early",
    # wrong tokens
    "empty": "no text comes, though tokens are counted",
    "not-repeatable": "uninitialised memory is read: the same request says something else each time, from token 40 on",
    "third-time-stale": "the pages of a prefix that was read twice are given away: the third equal request differs at "
    "token 40",
    "wrong-fact": "wrong weights: a known answer changes",
    "wrong-sum": "one shard of the weights was loaded twice: what it knows changes, all else is right",
    "repeats-a-token": "scales are wrong: one token to the end from the 60th on",
    "degenerate-long": "rotary positions are wrong from some length on: after 100 tokens the text goes in circles",
    "degenerate-late": "numbers overflow at later positions: one sign to the end from the 200th token on",
    "rounding-tie": "no fault on a GPU: two tokens are equally likely, and who else is in the batch decides",
    "garbage-together": "requests of one batch overwrite each other's KV rows; alone all is right",
    "garbage-in-large-batches": "the same for more than eight short requests at once: their graph is wrong",
    "ignores-prompts": "no fault of SGLang: something answers every prompt with one and the same text",
    "prefix-cache-other-prompt": "the prefix cache returns the KV rows of another prompt with the same first page"
    " (waybarrios/vllm-mlx#384, sgl-project/sglang#24175)",
    "prefix-never-hit": "the prefix cache finds nothing: every prompt is computed whole",
    "long-context-wrong": "attention goes wrong beyond half of the context",
    "long-context-crashes": "a kernel reads out of bounds beyond half of the context, and the scheduler dies"
    " (sgl-project/sglang#9599)",
    "degenerate-behind-long-prompts": "attention overflows behind more than 600 tokens: one sign, and nothing else",
    # numbers
    "nan-logits": "NaN from the first layer on: no log-probabilities, token 0 to the end (sgl-project/sglang#24321)",
    "nan-late": "NaN from the 150th token on",
    "nan-replaced": "NaN replaced by one number for all candidates (SGLANG_SANITIZE_NAN_LOGITS)",
    "nan-in-a-batch": "NaN only in company (sgl-project/sglang#20047 on SM120)",
    "decode-differs-from-prefill": "decode and prefill kernels compute different things, from token 32 on",
    "no-logprobs": "no fault: a release that returns no log-probabilities",
    "speculation-without-logprobs": "no fault: 0.5.9 returns one row of log-probabilities with speculation",
    # grammars, chats, tools
    "invalid-json": "the grammar mask is applied to the wrong row",
    "wrong-json": "the grammar forgets types",
    "open-json": "the grammar stops one token early",
    "chat-template-leak": "special tokens are not skipped: the chat's content shows them",
    "no-chat-template": "no fault: a model without a chat template",
    "empty-chat": "a wrong template makes the model end its turn at once",
    "never-ends": "the token that ends the model's turn is not known: a chat goes on behind its answer",
    "tool-call-as-text": "no parser for this model's calls: the call arrives as text (sgl-project/sglang#26790)",
    "tool-arguments-invalid": "the parser cuts the arguments: they are no JSON",
    # streams
    "loses-a-token": "the last token of an answer is dropped, though it is counted",
    "page-loses-its-last-token": "an answer that ends with its first page of 16 loses the token that fills it",
    "hidden-limit": "a limit of new tokens that nobody set ends answers after 256",
    "stream-takes-back": "the detokenizer sends what it is not sure of, and takes it back",
    "lost-token-at-stride": "streams drop the token at each stream interval (speculation over a boundary)"
    " (vllm-project/vllm#52469)",
    "stream-never-ends": "no [DONE], and the connection stays open",
    "stream-without-done": "no [DONE], and the connection ends",
    "stream-one-chunk": "something buffers the stream: everything comes in one event at the end",
    # speculation
    "no-acceptance": "the draft's weights were not loaded: no draft is ever right (sgl-project/SpecForge#310)",
    "acceptance-zero": "the same (sgl-project/sglang#27829)",
    "no-speculation": "an unsupported combination switches speculation off without a word",
    "speculation-changes-text": "verification accepts what the model would not say",
    "speculation-drifts": "the same, not before the 150th token",
    "threshold-ignored": "drafts go on above the threshold",
    "threshold-sticks": "drafts do not begin again while the batch lives",
    "threshold-silent": "the server does not log its threshold",
    "stale-draft-kv": "the draft's KV rows of a phase above the threshold are missing: no draft is right after it",
    "drafts-dead-after-threshold": "after a phase above the threshold no draft is right any more, of no request",
    "lost-request-at-threshold": "the switch rebuilds the batch: of one more than the threshold one is forgotten",
    "slow-cliff": "no graph for batches without drafts: above the threshold a token takes 60 ms longer",
    # many requests
    "burst-drops-one": "a full batch loses the first request that has to queue, and answers the second with 500",
    "abort-leaks": "an aborted request keeps its slot of the batch (sgl-project/sglang#22273)",
    "abort-blocks": "an aborted request stays at the head of the queue: nothing is admitted any more",
    "spoiled-by-overlong": "a prompt that is refused spoils the numbers of later ones: one sign, and nothing else",
    "dirty-after-abort": "pages of an aborted request are given away before it stops writing: from then on every text "
    "is wrong from its 13th token on",
    "overlong-crashes": "a prompt that is too long reaches the scheduler and kills it (sgl-project/sglang#3910)",
    "memory-grows": "KV pages and host memory of a request are not given back (sgl-project/sglang#11970)",
    # the end
    "ignores-sigterm": "a shutdown that waits for a thread that never ends",
    "slow-stop": "no fault: a shutdown of three seconds",
    "leaves-a-child": "a helper process survives its parent",
    "leaves-a-daemon": "a helper process leaves its session, as daemons do, and survives",
    "leaves-shared-memory": "a segment of shared memory that nobody removes",
    "known-leak": "SGLang 0.5.13 to 0.5.23 leave their segment of loads behind",
}  # fmt: skip
_PORT = re.compile(r"loses-port-(\d+)")
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nAttributeError: no threshold\n'
MISSING_ATTRIBUTE = (
    "Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "scheduler.py", line 3117, in run_scheduler_process\n'
    '  File "eagle_worker_v2.py", line 512, in forward_batch_generation\n'
    "AttributeError: 'EAGLEWorkerV2' object has no attribute 'speculative_disable_batch_threshold'\n"
)
OUT_OF_BOUNDS = (
    "Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "scheduler.py", line 3117, in run_scheduler_process\n'
    "RuntimeError: index 4097 is out of bounds: 0 <= index < 4096\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults of one server."""

    names: frozenset[str] = frozenset()
    lost_ports: frozenset[int] = frozenset()

    def __contains__(self, name: str) -> bool:
        """Say whether a fault is switched on; asking for one that is not listed is a mistake of ours."""
        if name not in FAULTS:
            raise KeyError(name)
        return name in self.names

    def any_of(self, *names: str) -> bool:
        """Say whether one of these is switched on."""
        return any(name in self for name in names)


def chosen(variables: Mapping[str, str], *, speculative: bool) -> Faults:
    """Return the faults that the environment asks for.

    Raises ValueError for a name that is not known.
    """
    names = {name for name in variables.get("FAKE_FAULT", "").split(",") if name}
    ports = {int(match[1]) for name in names if (match := _PORT.fullmatch(name))}
    names = {name for name in names if not _PORT.fullmatch(name)}
    for name in sorted(names - FAULTS.keys()):
        close = get_close_matches(name, FAULTS, n=1)
        raise ValueError(f"there is no fault {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
    if variables.get("FAKE_SPARE_CONTROL") == "1" and not speculative:
        names = set()
    return Faults(names=frozenset(names), lost_ports=frozenset(ports))
