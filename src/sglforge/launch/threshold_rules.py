"""What a profile must and must not say for its speculation threshold to be obeyed.

Upstream only warns where adaptive speculation cannot run, and serves with drafts at every batch size; here each such
case is an error with a name of its own (facts: adaptive_unsupported_reason in adaptive_spec_params.py of 0.5.14 to
0.5.23; the patched releases refuse the same at start, and a server that dies there has loaded its model in vain).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sglforge.config.model import Profile, Speculation
from sglforge.errors import Finding, Severity

Flag = str | int | float | bool | list[str]
Flags = Mapping[str, Flag]

DEFAULT_MAX_RUNNING = 48
"""What SGLang 0.5.9 to 0.5.23 set max-running-requests to when they speculate and nobody sets it."""

_OVERLAP_VARIABLE = "SGLANG_ENABLE_SPEC_V2"
_TRUE = frozenset({"1", "true", "yes", "y"})
_CLASHES = {
    "enable-dp-attention": ("threshold-with-dp-attention", "each rank would decide by a batch of its own"),
    "enable-multi-layer-eagle": ("threshold-with-multi-layer-eagle", "its worker knows no threshold"),
    "enable-two-batch-overlap": ("threshold-with-two-batch-overlap", "its halves of a batch cannot be switched"),
    "enable-pdmux": ("threshold-with-pdmux", "its attention backends are not switched along"),
}
_OWN_CONFIGURATION = ("speculative-adaptive", "speculative-adaptive-config", "speculative-disable-batch-threshold")


def broken_rules(profile: Profile, speculation: Speculation, *, adaptive: bool, overlapped: bool) -> Iterator[Finding]:
    """Yield a finding for each rule that a profile with a threshold breaks.

    Args:
        profile: What is launched.
        speculation: Its section, with a threshold.
        adaptive: Whether upstream's adaptive speculation does it, or the patch.
        overlapped: Whether this release speculates with its overlapped worker by itself (from 0.5.11 on).
    """
    yield from _algorithm(profile, speculation, adaptive=adaptive)
    yield from _requests(profile, speculation)
    yield from _clashes(profile)
    if adaptive:
        yield from _graphs(profile, speculation)
    if not overlapped and profile.environment.get(_OVERLAP_VARIABLE, "").lower() not in _TRUE:
        yield _broken(
            code="threshold-needs-spec-v2",
            profile=profile,
            message=f"only the overlapped worker knows a threshold, and {_OVERLAP_VARIABLE} does not ask for it",
            hint=f'set environment.{_OVERLAP_VARIABLE} to "1"',
        )


def captured_sizes(flags: Flags) -> tuple[frozenset[int], int | None] | None:
    """Return the batch sizes that CUDA graphs are captured for, as far as the flags tell, and the largest if they do.

    None means that there are no graphs. The default sizes are those of speculative decoding (cuda_graph_hook.py of
    0.5.19 to 0.5.23, server_args.py of 0.5.14 to 0.5.18).
    """
    if (
        flags.get("device") == "cpu"
        or flags.get("disable-cuda-graph") is True
        or flags.get("disable-decode-cuda-graph") is True
        or flags.get("cuda-graph-backend-decode") == "disabled"
    ):
        return None
    explicit = flags.get("cuda-graph-bs-decode", flags.get("cuda-graph-bs"))
    if isinstance(explicit, list):
        sizes = frozenset(int(size) for size in explicit if size.isdecimal())
        return sizes, max(sizes, default=0)
    largest = _whole(flags.get("cuda-graph-max-bs-decode", flags.get("cuda-graph-max-bs")))
    default = {*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, 8192, 16)}
    if largest is None:
        return frozenset(default), None
    return frozenset({size for size in default if size <= largest} | {largest}), largest


def _algorithm(profile: Profile, speculation: Speculation, *, adaptive: bool) -> Iterator[Finding]:
    able = ("EAGLE", "EAGLE3") if adaptive else ("EAGLE", "EAGLE3", "STANDALONE")
    if speculation.algorithm not in able:
        yield _broken(
            code="threshold-needs-eagle",
            profile=profile,
            message=f"a threshold works with {', '.join(able)} here, not with {speculation.algorithm}",
            hint=f"set speculation.algorithm to {able[0]}, or take the threshold out",
        )
    if speculation.eagle_topk != 1:
        yield _broken(
            code="threshold-needs-topk-1",
            profile=profile,
            message=f"a threshold works with one branch of drafts, eagle-topk is {speculation.eagle_topk}",
            hint="set speculation.eagle-topk to 1 and num-draft-tokens to num-steps + 1",
        )


def _requests(profile: Profile, speculation: Speculation) -> Iterator[Finding]:
    limit, above = _whole(profile.flags.get("max-running-requests")), speculation.disable_above_batch or 0
    if limit is None or limit <= above:
        is_now = f"is not set: the server takes {DEFAULT_MAX_RUNNING}" if limit is None else f"is {limit}"
        yield _broken(
            code="threshold-never-reached",
            profile=profile,
            message=f"a threshold of {above} needs batches of {above + 1} requests, and max-running-requests {is_now}",
            hint="set flags.max-running-requests to what the server is meant to run at once, above the threshold",
        )


def _clashes(profile: Profile) -> Iterator[Finding]:
    for flag, (code, why) in _CLASHES.items():
        if profile.flags.get(flag) is True:
            message = f"a threshold does not work with {flag}: {why}"
            yield _broken(code=code, profile=profile, message=message, hint=f"take flags.{flag} out")
    for flag in _OWN_CONFIGURATION:
        if profile.flags.get(flag):
            yield _broken(
                code="option-owned-by-profile",
                profile=profile,
                message=f"--{flag} is written by the profile's own key speculation.disable-above-batch",
                hint=f"take flags.{flag} out",
            )


def _graphs(profile: Profile, speculation: Speculation) -> Iterator[Finding]:
    above, captured = speculation.disable_above_batch or 0, captured_sizes(profile.flags)
    if captured is None:
        return
    sizes, largest = captured
    if above in sizes or (largest is not None and above >= largest):
        return
    smaller = max((size for size in sizes if size < above), default=0)
    yield _broken(
        code="threshold-not-captured",
        profile=profile,
        message=f"{above} is no batch size that CUDA graphs are captured for: batches are padded to the next one, so "
        f"drafts stop above {smaller} already",
        hint=f"set the threshold to {smaller}, or list {above} in flags.cuda-graph-bs-decode",
    )


def _whole(value: Flag | None) -> int | None:
    """Return a flag's value as the whole number that the server reads, or None where it is none."""
    if isinstance(value, str):
        return int(value) if value.isdecimal() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _broken(*, code: str, profile: Profile, message: str, hint: str) -> Finding:
    return Finding(
        code=code,
        severity=Severity.ERROR,
        subject=f"profile {profile.name}",
        message=f"profile {profile.name}: {message}",
        hint=hint,
    )
