"""All probes, in the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from sglforge.errors import ConfigError
from sglforge.smoke.probes.chat import CHAT, TOOL_CALL
from sglforge.smoke.probes.identity import IDENTITY
from sglforge.smoke.probes.jit import JIT_SILENCE
from sglforge.smoke.probes.lifecycle import ALIVE_AFTER, STARTED, STOPS_CLEAN
from sglforge.smoke.probes.load import ABORT, BURST, PARALLEL
from sglforge.smoke.probes.logits import LOGPROBS_FINITE
from sglforge.smoke.probes.long import DECODE_LONG, LONG_CONTEXT
from sglforge.smoke.probes.memory import MEMORY_STEADY
from sglforge.smoke.probes.model import Probe
from sglforge.smoke.probes.prefill import PREFILL_VS_DECODE
from sglforge.smoke.probes.prefix import PREFIX_HIT
from sglforge.smoke.probes.quality import DEGENERATE
from sglforge.smoke.probes.speculation import SPEC_GAIN, SPEC_PARITY
from sglforge.smoke.probes.streaming import STREAM
from sglforge.smoke.probes.text import DECODE_SINGLE, FACTS, GREEDY_REPEAT, JSON_SCHEMA
from sglforge.smoke.probes.threshold import THRESHOLD_WAVE

PROBES: tuple[Probe, ...] = (
    STARTED,
    IDENTITY,
    DECODE_SINGLE,
    GREEDY_REPEAT,
    FACTS,
    PARALLEL,
    STREAM,
    CHAT,
    TOOL_CALL,
    LOGPROBS_FINITE,
    PREFILL_VS_DECODE,
    PREFIX_HIT,
    DECODE_LONG,
    DEGENERATE,
    SPEC_GAIN,
    SPEC_PARITY,
    THRESHOLD_WAVE,
    BURST,
    ABORT,
    LONG_CONTEXT,
    MEMORY_STEADY,
    JSON_SCHEMA,
    ALIVE_AFTER,
    JIT_SILENCE,
    STOPS_CLEAN,
)


def select(names: Sequence[str] | None) -> tuple[Probe, ...]:
    """Return the probes of these names in running order; None means all.

    Raises ConfigError ``unknown-probe``.
    """
    if names is None:
        return PROBES
    known = {probe.name: probe for probe in PROBES}
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            raise ConfigError(
                code="unknown-probe",
                message=f"there is no probe {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""),
                hint=f"the probes are {', '.join(known)}",
            )
    return tuple(probe for probe in PROBES if probe.name in names)
