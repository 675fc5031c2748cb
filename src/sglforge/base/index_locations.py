"""Where distributions and their files may come from."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class IndexLocations:
    """The package locations of this user, as pip's own configuration states them.

    URLs may carry credentials; the representation of this object shows none.

    Args:
        index_url: The main index; None means that nothing is configured and the client's own default holds.
        extra_index_urls: Further indexes (http, https or file), in order.
        find_links: Folders, files or pages that hold distributions, in order, as written.
        constraints: Constraint files that pip applies.
        ca_bundle: The certificate bundle for https.
        no_index: Whether indexes are ignored and only `find_links` counts.
        trusted_hosts: Hosts whose certificates are not checked.
    """

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    constraints: tuple[Path, ...] = ()
    ca_bundle: Path | None = None
    no_index: bool = False
    trusted_hosts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"IndexLocations({', '.join(f'{item.name}={self._shown(item.name)}' for item in fields(self))})"

    def _shown(self, name: str) -> str:
        from sglforge.base.download import redact

        value = getattr(self, name)
        match value:
            case str():
                return repr(redact(value))
            case tuple():
                return repr(tuple(redact(item) if isinstance(item, str) else item for item in value))
            case _:
                return repr(value)
