"""Find the run that a smoke test is compared with, and say what has changed since then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sglforge.base.workspace import Workspace
from sglforge.errors import ConfigError
from sglforge.pipeline.recorded import FILE, LATEST, read_transcript, transcript_files
from sglforge.smoke import transcript as transcripts
from sglforge.smoke.afterwards import Baseline
from sglforge.smoke.compare import Comparison, bounds
from sglforge.smoke.measure import Speed
from sglforge.smoke.transcript import Transcript

_SHOWN = 5


def baseline(word: str, workspace: Workspace, profile: str) -> Baseline:
    """Return the smoke test that a word names: a transcript, a run's folder, a run's id, or ``latest``.

    ``latest`` is the last smoke test of the same profile (or address).

    Raises ConfigError ``baseline-not-found``, and what `read_transcript` and `transcript_of` raise.
    """
    if word == LATEST:
        return _latest(workspace, profile)
    for path in (Path(word), workspace.runs / word):
        file = path / FILE if path.is_dir() else path
        if file.is_file():
            return Baseline(where=_name(file), transcript=_read(file))
    raise _not_found(f"there is no transcript, folder of a run or run called {word!r}", workspace)


def _latest(workspace: Workspace, profile: str) -> Baseline:
    for file in reversed(transcript_files(workspace)):
        try:
            transcript = _read(file)
        except ConfigError:
            continue
        if transcript.profile == profile:
            return Baseline(where=_name(file), transcript=transcript)
    raise _not_found(f"no smoke test of {profile} has left a transcript", workspace)


def _read(file: Path) -> Transcript:
    document = read_transcript(file)
    if not transcripts.is_ours(document):
        raise ConfigError(
            code="transcript-invalid",
            message="a transcript that somebody else recorded is no baseline: too little is known of its server",
            where=str(file),
            hint="name a run of nox -s smoke",
        )
    return transcripts.transcript_of(document)


def _name(file: Path) -> str:
    """Return what to call a transcript: the run that wrote it, else its path."""
    return file.resolve().parent.name if file.name == FILE else str(file)


def _not_found(why: str, workspace: Workspace) -> ConfigError:
    runs = [file.parent.name for file in transcript_files(workspace)]
    return ConfigError(
        code="baseline-not-found",
        message=f"--baseline: {why}",
        hint=f"the last runs of smoke are {', '.join(runs[-3:])}"
        if runs
        else f"no run of smoke lies in {workspace.runs}",
    )


def speed_lines(speed: Speed | None) -> Iterator[str]:
    """Yield the measured speeds, one a line; or why there are none, if they were wanted."""
    if speed and speed.missing:
        yield f"not measured  {speed.missing}"
    for name, figure in (speed.figures if speed else {}).items():
        yield f"measured      {name}: {bounds(figure)} tokens per second"


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Yield what has changed, for people."""
    yield f"compared with {comparison.where}"
    yield f"  not the same: {'; '.join(comparison.differs) or 'nothing that is known'}"
    verdicts = [f"{one.probe} {one.before} -> {one.after}" for one in comparison.verdicts]
    yield f"  verdicts      {', '.join(verdicts) or 'the same'}"
    changed = comparison.texts
    yield f"  texts         {comparison.same_texts} the same, {len(changed)} changed"
    for text in changed[:_SHOWN]:
        how = " (two tokens equally likely)" if text.how == "tie" else ""
        yield f"    {text.probe} {text.request} ({text.server} server): {text.difference}{how}"
    if len(changed) > _SHOWN:
        yield f"    and {len(changed) - _SHOWN} more, see --json"
    yield from _speeds(comparison)


def _speeds(comparison: Comparison) -> Iterator[str]:
    if comparison.no_speed:
        yield f"  speed         not comparable: {comparison.no_speed}"
    for one in comparison.speed:
        if one.before and one.after:
            yield f"  {one.word:<13} {one.name}: {bounds(one.before)} -> {bounds(one.after)} tokens per second"
    seconds = [(name, before, after) for name, (before, after) in comparison.seconds.items() if before and after]
    if seconds:
        yield "  seconds, measured once, so not judged:"
    for name, before, after in seconds:
        yield f"    {name:<17} {before:.1f} -> {after:.1f}"
