"""The options of a server, read off a profile, as words of a command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from sglforge.config.model import Profile, Speculation
from sglforge.errors import RenderError
from sglforge.launch.values import printable

CATALOG_PREFIX = "catalog:"

# Options that a profile's own keys write; the second column is the key that owns them.
_OWNED: Mapping[str, str] = {
    "model-path": "model",
    "model": "model",
    "served-model-name": "served-model-name",
    "host": "host",
    "port": "port",
    "speculative-algorithm": "speculation.algorithm",
    "speculative-draft-model-path": "speculation.draft-model",
    "speculative-draft-model": "speculation.draft-model",
    "speculative-num-steps": "speculation.num-steps",
    "speculative-eagle-topk": "speculation.eagle-topk",
    "speculative-num-draft-tokens": "speculation.num-draft-tokens",
}
_OPTION_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_NUMBER = re.compile(r"-(\d+\.?\d*|\.\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The words after ``sglang.launch_server`` and the folders that must be there for them."""

    words: tuple[tuple[str, ...], ...]
    model_folders: tuple[Path, ...]

    @property
    def argv(self) -> tuple[str, ...]:
        """All words in one row."""
        return tuple(chain.from_iterable(self.words))


def server_options(
    profile: Profile,
    *,
    catalog_root: Path,
    port: int | None = None,
    speculation: bool = True,
    more: tuple[tuple[str, ...], ...] = (),
) -> ServerOptions:
    """Return the options of a profile, one tuple of words for each option.

    Args:
        profile: What to launch.
        catalog_root: The folder that ``catalog:`` values are relative to.
        port: The port to listen on; None takes the profile's.
        speculation: False leaves out every speculative option: the control server of smoke.
        more: Options that somebody else has worked out, one tuple of words for each.

    Raises RenderError ``option-name-invalid``, ``option-owned-by-profile``, ``option-value-invalid``,
    ``catalog-path-invalid`` and ``value-not-printable``.
    """
    model = _resolved(profile.model, "model", catalog_root)
    draft = profile.speculation.draft_model if profile.speculation and speculation else None
    draft = None if draft is None else _resolved(draft, "speculation.draft-model", catalog_root)
    words: list[tuple[str, ...]] = [
        ("--model-path", model),
        ("--host", profile.host),
        ("--port", str(port or profile.port)),
    ]
    if profile.served_model_name is not None:
        words.append(_scalar("served-model-name", profile.served_model_name))
    words += _flags(profile, catalog_root, speculation=speculation)
    if profile.speculation and speculation:
        words += _speculative(profile.speculation, draft)
    return ServerOptions(
        words=(*words, *more),
        model_folders=tuple(Path(path) for path in (model, draft) if path and Path(path).is_absolute()),
    )


def _flags(profile: Profile, catalog_root: Path, *, speculation: bool) -> Iterator[tuple[str, ...]]:
    for name, value in profile.flags.items():
        where = f"flags.{name}"
        if not _OPTION_NAME.fullmatch(name):
            raise RenderError(
                code="option-name-invalid",
                message=f"profile {profile.name}: {name!r} cannot be the name of a server option",
                hint="write the option without dashes in front, in lower case: max-running-requests = 8",
            )
        if owner := _OWNED.get(name):
            raise RenderError(
                code="option-owned-by-profile",
                message=f"profile {profile.name}: --{name} is written by the profile's own key {owner}",
                hint=f"set {owner} and take {name} out of [flags]",
            )
        if name.startswith("speculative-") and not speculation:
            continue
        if isinstance(value, bool):
            if value:
                yield (f"--{name}",)
        elif isinstance(value, list):
            yield _list(name, [_resolved(item, where, catalog_root) for item in value])
        elif isinstance(value, str):
            yield _scalar(name, _resolved(value, where, catalog_root))
        else:
            yield _scalar(name, str(value))


def _speculative(speculation: Speculation, draft: str | None) -> Iterator[tuple[str, ...]]:
    yield ("--speculative-algorithm", speculation.algorithm)
    if draft is not None:
        yield _scalar("speculative-draft-model-path", draft)
    if speculation.algorithm != "NGRAM":  # it drafts from the text itself, without steps and candidates
        yield ("--speculative-num-steps", str(speculation.num_steps))
        yield ("--speculative-eagle-topk", str(speculation.eagle_topk))
    yield ("--speculative-num-draft-tokens", str(speculation.num_draft_tokens))


def _scalar(name: str, value: str) -> tuple[str, ...]:
    """Return an option with one value; joined where the value would be read as an option of its own."""
    return (f"--{name}={value}",) if value.startswith("-") else (f"--{name}", value)


def _list(name: str, values: list[str]) -> tuple[str, ...]:
    for value in values:
        if value.startswith("-") and not _NUMBER.fullmatch(value):
            raise RenderError(
                code="option-value-invalid",
                message=f"flags.{name}: the server would read the item {value!r} as an option of its own",
                hint="a list item of an option cannot begin with a dash",
            )
    return (f"--{name}", *values)


def _resolved(value: str, key: str, catalog_root: Path) -> str:
    """Return a value with ``catalog:`` resolved; it must stay inside the catalog."""
    printable(value, key)
    if not value.startswith(CATALOG_PREFIX):
        return value
    root = catalog_root.absolute()
    relative = Path(value.removeprefix(CATALOG_PREFIX))
    if relative.is_absolute() or ".." in relative.parts or relative == Path():
        raise RenderError(
            code="catalog-path-invalid",
            message=f"{key}: {value!r} does not name anything inside the catalog",
            hint=f"write it relative to {root}: catalog:models/tiny",
        )
    return str(root / relative)
