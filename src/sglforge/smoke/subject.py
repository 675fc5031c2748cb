"""What is probed, as far as a judge must know it; it is part of the transcript."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from sglforge.config.model import Profile, SmokeExpectations
from sglforge.errors import ConfigError
from sglforge.smoke.verdict import Scope

Api = Literal["sglang", "openai"]
"""``sglang`` has its own routes beside the OpenAI-compatible ones that every engine has."""

_MOST = 2**22
# Any model goes on from these, from the first one for long; nothing is known about what it says.
_ANY_LONG_PROMPT = "Every evening the keeper of the lighthouse climbed the stairs, and"
_ANY_PROMPTS = (
    "To bake a loaf of bread you need flour, water, salt and",
    "The train to the mountains leaves at seven in the morning because",
    "A list of animals that live in the forest:",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A server, on this kind of hardware, and what is known about its model.

    Attributes:
        scope: What a pass on its hardware can prove.
        api: Which routes it has.
        own: We started it: its processes can be looked at, and it has a control server where it speculates.
        model: The model's name in its API.
        dtype: What its model computes in, as the server or the profile says it; None where nobody does.
        speculates: Whether drafts are verified.
        steps: Drafts before each verification, None where it does not speculate or does not say.
        threshold: Requests at once above which it does not draft, None for no limit.
        max_running: Requests that it decodes at once, None where nobody says.
        longest_prompt: Tokens that a prompt may have, None where nobody says.
        caches_prefixes: Whether it keeps the KV rows of prompts for those that begin alike.
        expectations: What is known about its model.
    """

    scope: Scope
    api: Api = "sglang"
    own: bool = True
    model: str | None = None
    dtype: str | None = None
    speculates: bool = False
    steps: int | None = None
    threshold: int | None = None
    max_running: int | None = None
    longest_prompt: int | None = None
    caches_prefixes: bool = True
    expectations: SmokeExpectations | None = None

    @property
    def known(self) -> SmokeExpectations:
        """What is known about the model; only probes that need it may ask."""
        if self.expectations is None:
            raise LookupError("nothing is known about the model")
        return self.expectations

    @property
    def controlled(self) -> bool:
        """Whether a control server, the same without speculation, answers some of its requests too."""
        return self.own and self.speculates

    @property
    def exact(self) -> bool:
        """Whether equal requests have equal tokens here: kernels of a GPU round by who else is in the batch."""
        return self.scope == "cpu-logic"

    @property
    def long_prompt(self) -> str:
        """A prompt that the model goes on from for long."""
        return self.expectations.long_prompt if self.expectations else _ANY_LONG_PROMPT

    @property
    def prompts(self) -> tuple[str, ...]:
        """Different prompts, the long one first."""
        known = self.expectations
        return (self.long_prompt, *((fact.prompt for fact in known.facts) if known else _ANY_PROMPTS))

    def room_for(self, tokens: int) -> int:
        """Return how many of these tokens an answer may have when half of the context is left for its prompt."""
        return min(tokens, max(1, self.longest_prompt // 2)) if self.longest_prompt else tokens

    def informed(self, info: Mapping[str, object]) -> Subject:
        """Return the subject with what its server says of itself (``/server_info``) where nothing was known."""
        limit, prompt, dtype = (info.get(key) for key in ("max_running_requests", "max_req_input_len", "dtype"))
        return replace(
            self,
            max_running=self.max_running or _count(limit),
            longest_prompt=self.longest_prompt or _count(prompt),
            dtype=self.dtype if self.dtype not in {None, "auto"} else dtype if isinstance(dtype, str) else None,
            caches_prefixes=self.caches_prefixes and not info.get("disable_radix_cache"),
        )

    def to_json(self) -> dict[str, object]:
        """Return it as a part of the transcript."""
        known = self.expectations
        return {**asdict(self), "expectations": known.model_dump(mode="json", by_alias=True) if known else None}


def _count(value: object) -> int | None:
    """Return a number of requests or tokens, None for what can be none."""
    return value if type(value) is int and 0 < value <= _MOST else None


def of_profile(profile: Profile, scope: Scope) -> Subject:
    """Return the subject that the server of a profile is."""
    speculation, limit, dtype = profile.speculation, *(profile.flags.get(n) for n in ("max-running-requests", "dtype"))
    return Subject(
        scope=scope,
        model=profile.served_model_name or profile.model,
        dtype=dtype if isinstance(dtype, str) else None,
        speculates=speculation is not None,
        steps=speculation.num_steps if speculation else None,
        threshold=speculation.disable_above_batch if speculation else None,
        max_running=limit if isinstance(limit, int) else None,
        caches_prefixes=not profile.flags.get("disable-radix-cache"),
        expectations=profile.smoke,
    )


def subject_of(document: Mapping[str, object]) -> Subject:
    """Return the subject of a transcript.

    Raises ConfigError ``transcript-invalid``.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        subject: Subject = TypeAdapter(Subject).validate_python(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(
            code="transcript-invalid",
            message=f"its subject is no subject: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            hint="judge a transcript that smoke wrote, as it was written",
        ) from None
    return subject
