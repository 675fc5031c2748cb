"""Say in an unpacked wheel that it is for one platform: it was pure Python, and machine code was added."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

from sglforge.errors import BuildError

_TAG = re.compile(r"^(Tag:[ \t]*[^-\s]+-[^-\s]+)-any[ \t]*$", re.MULTILINE)
_PURE = re.compile(r"^Root-Is-Purelib:.*$", re.MULTILINE)


def own_platform() -> str:
    """Return the platform tag of this machine, without a promise about its C library: ``linux_x86_64``."""
    return re.sub(r"[-.]", "_", sysconfig.get_platform())


def for_platform(tree: Path, platform: str) -> None:
    """Change the WHEEL file of an unpacked wheel: tags for any platform are for one, and it is no pure library.

    Raises BuildError ``not-a-wheel-tree`` where there is not exactly one such file.
    """
    files = list(tree.glob("*.dist-info/WHEEL"))
    if len(files) != 1:
        raise BuildError(
            code="not-a-wheel-tree",
            message=f"{tree.name} has {len(files)} WHEEL files, one is expected",
            hint="the wheel that was taken apart is malformed, or a patch broke it",
        )
    text = files[0].read_text(encoding="utf-8")
    text = _PURE.sub("Root-Is-Purelib: false", _TAG.sub(rf"\g<1>-{platform}", text))
    files[0].write_text(text, encoding="utf-8")
