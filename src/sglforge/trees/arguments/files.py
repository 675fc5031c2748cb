"""Which files of a tree decide about the options of its server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from sglforge.base.files import digest, sha256_file
from sglforge.base.ids import Sha256
from sglforge.errors import RenderError
from sglforge.trees.layout import package_root

SERVER_ARGS = "sglang.srt.server_args"
LONGEST_BYTES = 8 * 1024**2

_CHOICES = (
    "sglang/srt/function_call/function_call_parser.py",
    "sglang/srt/function_call/parser_names.py",
    "sglang/srt/parser/reasoning_parser.py",
    "sglang/srt/parser/reasoning_parser_names.py",
    "sglang/srt/model_executor/cuda_graph_config.py",
    "sglang/jit_kernel/kv_canary/consts.py",
    "sglang/kernels/ops/kv_canary/consts.py",
)
"""Modules outside the argument groups that choices come from, as of 0.5.9 to 0.5.23."""
_READ_ONLY = ("sglang/srt/utils/common.py",)
"""Modules that constants are read from, too heavy to be run."""
_RESOLUTION = ("overrides", "model_override_base", "pipeline", "resolution_hooks", "prefill_buffer_ceiling")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFiles:
    """The modules that the options depend on, by dotted name: all that are read, and those that may be run.

    ``needed`` must run; ``choices`` may fail, then the choices that come from them are not known.
    """

    tree: Path
    needed: Mapping[str, Path]
    choices: Mapping[str, Path]
    read_only: Mapping[str, Path]

    @property
    def all(self) -> Mapping[str, Path]:
        """Every module that is read."""
        return {**self.read_only, **self.choices, **self.needed}

    def digest(self) -> Sha256:
        """Return one hash over the names and contents of all files: the same files give the same options."""
        return digest({name: sha256_file(path) for name, path in self.all.items()})


def schema_files(tree: Path) -> SchemaFiles:
    """Return the files of a tree: an unpacked wheel or source archive, a checkout, or ``site-packages``.

    Raises RenderError ``arguments-missing`` when the tree has no ``server_args.py``.
    """
    root = tree / package_root(tree)
    needed = _modules(root, _needed(root))
    if SERVER_ARGS not in needed:
        raise RenderError(
            code="arguments-missing",
            message=f"{tree} holds no sglang/srt/server_args.py, so that nothing says which options its server has",
            hint="name an unpacked wheel, a source archive or a checkout of SGLang 0.5.9 or newer",
        )
    return SchemaFiles(
        tree=tree,
        needed=needed,
        choices=_modules(root, map(Path, _CHOICES)),
        read_only=_modules(root, map(Path, _READ_ONLY)),
    )


def _needed(root: Path) -> Iterator[Path]:
    yield Path("sglang/srt/server_args.py")
    groups = root / "sglang/srt/arg_groups"
    for path in sorted(groups.rglob("*.py")):
        # What turns given options into a configuration is not asked: it needs models, devices and torch.
        resolves = path.stem.endswith("_hook") or path.stem in _RESOLUTION or "model_overrides" in path.parts
        if not resolves:
            yield path.relative_to(root)


def _modules(root: Path, files: Iterable[Path]) -> Mapping[str, Path]:
    """Return the plain files among these by their module names; none of absurd size."""
    found = {}
    for file in files:
        path = root / file
        if path.is_file() and path.stat().st_size <= LONGEST_BYTES:
            parts = file.parent.parts if file.stem == "__init__" else (*file.parent.parts, file.stem)
            found[".".join(parts)] = path
    return MappingProxyType(found)
