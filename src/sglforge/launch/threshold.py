"""The speculation threshold: one setting of a profile, and what the served SGLang understands of it.

Before 0.5.13 it is an option that the patch topic `speculation-threshold` adds; from 0.5.14 on a configuration for
upstream's adaptive speculation, whose only choice above the threshold is not to draft (0 steps).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.ids import Sha256
from sglforge.config.model import Profile, Speculation
from sglforge.errors import RenderError
from sglforge.launch.threshold_rules import broken_rules

KEY = "speculation.disable-above-batch"
PATCHED_OPTION = "--speculative-disable-batch-threshold"
ADAPTIVE_OPTION = "--speculative-adaptive"
CONFIG_OPTION = "--speculative-adaptive-config"

_OVERLAPPED_FROM = "0.5.11.dev0"
_UNSUPPORTED_FROM = "0.5.13.dev0"
_ADAPTIVE_FROM = "0.5.14.dev0"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTree:
    """What is installed: the version of SGLang, and the options of its server, dashes included."""

    version: str
    options: Container[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A file that a server reads and that belongs to its launch script."""

    path: Path
    text: str

    @property
    def sha256(self) -> Sha256:
        """The hash of its content."""
        return Sha256(hashlib.sha256(self.text.encode()).hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A threshold as the server takes it: one tuple of words for each option, and the files that they name."""

    words: tuple[tuple[str, ...], ...] = ()
    files: tuple[ConfigFile, ...] = ()


def threshold(profile: Profile, tree: ServedTree | None, folder: Path | None) -> Threshold:
    """Return how the server is told the threshold of a profile; no words where the profile sets none.

    Args:
        profile: What is launched.
        tree: What is installed; a profile with a threshold needs it.
        folder: Where the launch script will lie, None if it is only printed.

    Raises RenderError ``threshold-unsupported``, ``threshold-patch-missing``, ``folder-needed`` and the names of the
    rules that the profile breaks.
    """
    speculation = profile.speculation
    if speculation is None or speculation.disable_above_batch is None:
        return Threshold()
    if tree is None:
        raise LookupError(f"{KEY} cannot be rendered without the tree that is served")
    adaptive, overlapped = (_is_from(first, tree) for first in (_ADAPTIVE_FROM, _OVERLAPPED_FROM))
    _require_option(profile, tree, adaptive=adaptive)
    findings = tuple(broken_rules(profile, speculation, adaptive=adaptive, overlapped=overlapped))
    if findings:
        one = findings[0]
        many = f"profile {profile.name}: {KEY} cannot work, {len(findings)} rules are broken"
        raise RenderError(
            code=one.code, message=many if findings[1:] else one.message, hint=one.hint, findings=findings
        )
    if not adaptive:
        return Threshold(words=((PATCHED_OPTION, str(speculation.disable_above_batch)),))
    if folder is None:
        raise RenderError(
            code="folder-needed",
            message=f"profile {profile.name}: its script needs a configuration file beside it, and no folder is named",
            hint=f"nox -s render -- {profile.name} -o FOLDER",
        )
    config = ConfigFile(path=folder.absolute() / f"{profile.name}.adaptive.json", text=adaptive_config(speculation))
    return Threshold(words=((ADAPTIVE_OPTION,), (CONFIG_OPTION, str(config.path))), files=(config,))


def adaptive_config(speculation: Speculation) -> str:
    """Return the configuration: the profile's steps up to the threshold, none above it."""
    above = (speculation.disable_above_batch or 0) + 1
    slots = {"1": {"candidate_steps": [speculation.num_steps]}, str(above): {"candidate_steps": [0]}}
    return json.dumps(slots, indent=1) + "\n"


def _is_from(first: str, tree: ServedTree) -> bool:
    from packaging.version import Version

    return Version(Version(tree.version).public) >= Version(first)


def _require_option(profile: Profile, tree: ServedTree, *, adaptive: bool) -> None:
    """Refuse a release that has no threshold, or an installed one that misses the option for it."""
    if _is_from(_UNSUPPORTED_FROM, tree) and not adaptive:
        raise RenderError(
            code="threshold-unsupported",
            message=f"profile {profile.name}: SGLang {tree.version} cannot stop speculating above a batch size",
            hint=f"serve 0.5.12 or older, or 0.5.14 or newer; or take {KEY} out of the profile",
        )
    option = CONFIG_OPTION if adaptive else PATCHED_OPTION
    if option not in tree.options:
        raise RenderError(
            code="threshold-patch-missing",
            message=f"profile {profile.name}: the installed SGLang {tree.version} has no option {option}",
            hint="report this release: its adaptive speculation has changed"
            if adaptive
            else "list the topic speculation-threshold in patches/sglang/series.toml, then nox -s build",
        )
