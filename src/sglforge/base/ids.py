"""Names for strings that must not be mixed up."""

from typing import NewType

Sha256 = NewType("Sha256", str)
"""64 lower-case hexadecimal digits."""

TreeId = NewType("TreeId", str)
"""A git tree id (40 hexadecimal digits), as ``git write-tree`` prints it."""

BuildKey = NewType("BuildKey", str)
"""64 hexadecimal digits over everything that decides what a build produces."""
