"""The sections of an ELF file: which part of it a byte belongs to."""

from __future__ import annotations

import io
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section with its place in the file, in bytes; ``size`` is 0 where it takes no room there."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """All sections of a file, in their order."""

    all: tuple[Section, ...]

    def named(self, name: str) -> Section | None:
        """Return the first section of a name."""
        return next((section for section in self.all if section.name == name), None)

    def at(self, offset: int) -> Section | None:
        """Return the section that a byte of the file belongs to, None outside of all."""
        return next((one for one in self.all if one.offset <= offset < one.offset + one.size), None)


def read_sections(data: bytes) -> Sections | None:
    """Return the sections of an ELF file; None for any other file, and for one that is broken."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        return Sections(
            all=tuple(
                Section(
                    name=section.name,
                    offset=section["sh_offset"],
                    size=0 if section["sh_type"] == "SHT_NOBITS" else section["sh_size"],
                )
                for section in ELFFile(io.BytesIO(data)).iter_sections()
            )
        )
    except (ELFError, AttributeError, KeyError, TypeError, ValueError):  # it believes what a file says of itself
        return None
