"""The folders of a build by name: where they lie, where its steps see them, and how keys call them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A folder: where it lies, where steps see it, and its name; what is in a ``pinned`` one never changes."""

    name: str
    real: Path
    seen: Path
    pinned: bool = False


class Roots:
    """Turns paths of steps into real ones, and into texts that are the same wherever a build happens."""

    def __init__(self, roots: Iterable[Root]) -> None:
        self._by_name = {root.name: root for root in roots}
        spelled = {str(path): root.name for root in self._by_name.values() for path in (root.real, root.seen)}
        words = sorted(spelled, key=len, reverse=True)
        self._spelled = spelled
        self._pattern = re.compile(rf"(?:{'|'.join(map(re.escape, words))})(?=[/\s\"':;,=]|$)")

    def neutral(self, text: str) -> str:
        """Return a text with every root in it under its name: ``-I/somewhere/tree/csrc`` is ``-I@tree/csrc``."""
        return self._pattern.sub(lambda found: f"@{self._spelled[found[0]]}", text)

    def name(self, path: str) -> str:
        """Return a path's own name, without ``..`` and double slashes: ``@tree/csrc/page.cu``, ``/usr/include/x.h``."""
        return self.neutral(os.path.normpath(path))

    def shown(self, path: str) -> str:
        """Return what a person is shown of a path: in the wheel's tree, where it is there."""
        return self.name(path).removeprefix("@tree/").removeprefix("@")

    def real(self, name: str) -> Path:
        """Return where the path of that name lies."""
        if name.startswith("@"):
            root, _, rest = name[1:].partition("/")
            if found := self._by_name.get(root):
                return found.real / rest
        return Path(name)

    def pinned(self, name: str) -> bool:
        """Say whether a path lies in a folder that is known by something else than its content."""
        root = self._by_name.get(name[1:].partition("/")[0]) if name.startswith("@") else None
        return root is not None and root.pinned
