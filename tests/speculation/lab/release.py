"""Which SGLang is installed."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version


def _release() -> tuple[int, ...]:
    """Return the numbers of the installed release; those of the imported one where it is not a distribution."""
    try:
        text = version("sglang")
    except PackageNotFoundError:
        import sglang

        text = sglang.__version__
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])


RELEASE = _release()
"""Major, minor and patch number."""
