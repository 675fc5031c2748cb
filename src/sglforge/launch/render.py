"""Render a profile to a bash script that starts its server in the foreground."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sglforge.base import files
from sglforge.base.ids import Sha256
from sglforge.config.model import Profile
from sglforge.launch.options import server_options
from sglforge.launch.rules import load_rules
from sglforge.launch.ruling import HeldRule, hold_to
from sglforge.launch.threshold import ConfigFile, ServedTree, Threshold, threshold
from sglforge.launch.values import printable, variables
from sglforge.launch.written import TEMPLATE, templates_path
from sglforge.provision.receipt import RECEIPT

if TYPE_CHECKING:
    from jinja2 import Template

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - recognised, not bound


class ScriptExit(IntEnum):
    """How the script ends before the server runs; no shell, Python or SGLang uses these numbers."""

    ENVIRONMENT_MISSING = 81
    ENVIRONMENT_CHANGED = 82
    MODEL_MISSING = 83
    PORT_TAKEN = 84
    CONFIG_CHANGED = 85


class ServingEnvironment(Protocol):
    """What a script must know of an environment; `provision.receipt.Environment` is one."""

    @property
    def path(self) -> Path:
        """The folder with the receipt."""

    @property
    def name(self) -> str:
        """The name that people know it by."""

    @property
    def python(self) -> Path:
        """The interpreter."""

    @property
    def receipt_sha256(self) -> Sha256:
        """The hash of the receipt: what the environment was when the script was rendered."""

    @property
    def sglang_version(self) -> str | None:
        """The version of its SGLang, as upstream counts."""


class Comment(str):
    """A line of a comment: printed as it is, not quoted; it holds no line break."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchScript:
    """A rendered script; ``argv``, ``env`` and ``rules`` say what it ends up running, for those who judge it.

    ``configs`` are the files that its server reads.
    """

    name: str
    text: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    rules: tuple[HeldRule, ...] = ()
    configs: tuple[ConfigFile, ...] = ()

    def write(self, folder: Path) -> Path:
        """Write the script and its files, and return the script's path."""
        for config in self.configs:
            files.write_text(config.path, config.text)
        files.write_text(folder / self.name, self.text, mode=0o755)
        return folder / self.name


def render_bash(
    profile: Profile,
    *,
    environment: ServingEnvironment,
    catalog_root: Path,
    port: int | None = None,
    speculation: bool = True,
    tree: ServedTree | None = None,
    folder: Path | None = None,
) -> LaunchScript:
    """Return the launch script of a profile: every value quoted, ``exec`` at the end, in the foreground.

    The rules of the profile's target that hold for the installed SGLang are applied and written down in it.

    Args:
        profile: What to launch.
        environment: Where SGLang is installed; the script refuses to start when its receipt has changed.
        catalog_root: The folder with ``templates/`` and ``recipes/``, and what ``catalog:`` values are relative to.
        port: The port to listen on; None takes the profile's.
        speculation: False leaves out everything speculative.
        tree: What is installed; needed only by a profile with a speculation threshold.
        folder: Where the script will lie, None if it is only printed.

    Raises RenderError for what cannot be rendered (see `server_options`, `variables`, `hold_to` and `threshold`) and
    ConfigError for rules that cannot be read.
    """
    ruling = hold_to(load_rules(catalog_root, profile.target), profile, environment.sglang_version)
    profile = ruling.profile
    limit = threshold(profile, tree, folder) if speculation else Threshold()
    options = server_options(profile, catalog_root=catalog_root, port=port, speculation=speculation, more=limit.words)
    # Output must reach the log when it is written, not when a buffer is full; the profile may say otherwise.
    env = {"PYTHONUNBUFFERED": "1", **variables(profile.environment)}
    # -P: a folder named sglang where the script is started must not be imported instead of the installed one.
    program = (str(environment.python), "-P", "-m", "sglang.launch_server")
    argv = (*program, *options.argv)
    for word in (profile.name, environment.name, str(environment.path), *argv):
        printable(word, "launch script")
    text = _template(catalog_root).render(
        comments=[Comment(line) for line in ruling.comments()],
        profile=profile.name,
        environment=environment.name,
        python=str(environment.python),
        receipt=str(environment.path / RECEIPT),
        receipt_sha256=environment.receipt_sha256,
        host=_ANY_ADDRESS.get(profile.host, profile.host),
        port=port or profile.port,
        model_folders=[str(folder) for folder in options.model_folders],
        configs=[(str(config.path), config.sha256) for config in limit.files],
        variables=[f"{name}={value}" for name, value in env.items()],
        variable_names=list(env),
        program=list(program),
        options=[list(words) for words in options.words],
        **{f"exit_{status.name.lower()}": status.value for status in ScriptExit},
    )
    suffix = "" if speculation or profile.speculation is None else "-control"
    return LaunchScript(
        name=f"{profile.name}{suffix}.sh", text=text, argv=argv, env=env, rules=ruling.held, configs=limit.files
    )


def _template(catalog_root: Path) -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    jinja = Environment(  # noqa: S701 - a shell script, not HTML: `_quoted` is the escape
        loader=FileSystemLoader(templates_path(catalog_root)),
        undefined=StrictUndefined,
        finalize=_quoted,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return jinja.get_template(TEMPLATE)


def _quoted(value: object) -> object:
    """Return what a template prints for a value: one quoted word, or one for each item of a list."""
    from jinja2 import Undefined

    if isinstance(value, Undefined):
        return value  # StrictUndefined raises with the name when it is printed
    if isinstance(value, Comment):
        return printable(value, "comment").replace("\n", " ")
    if isinstance(value, list):
        return " ".join(shlex.quote(str(item)) for item in value)
    return shlex.quote(str(value))
