"""Where sglforge keeps what it makes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The folder that holds sources, store, environments and run records; nothing else is written to."""

    root: Path

    @property
    def sources(self) -> Path:
        """Fetched archives: ``sources/<sha256>/<file name>``."""
        return self.root / "sources"

    @property
    def store(self) -> Path:
        """Built wheels: ``store/entries/<build key>.json`` and ``store/objects/<sha256>/<wheel name>``."""
        return self.root / "store"

    @property
    def modules(self) -> Path:
        """Modules that were compiled ahead of time: ``modules/<key>/<digest of what was read>/``."""
        return self.root / "modules"

    @property
    def history(self) -> Path:
        """The last build of each package: ``history/<target>/<Python minor>/<package>.json``."""
        return self.root / "history"

    @property
    def environments(self) -> Path:
        """Environments: ``environments/<environment key>/`` and links by name."""
        return self.root / "environments"

    @property
    def toolkits(self) -> Path:
        """CUDA toolkits: ``toolkits/<fingerprint>/cuda/``, and what is known of those of the machine."""
        return self.root / "toolkits"

    @property
    def remembered(self) -> Path:
        """What the last builds with nothing to do rested on and said: ``remembered.json``."""
        return self.root / "remembered.json"

    @property
    def runs(self) -> Path:
        """Run records: ``runs/<id>/``."""
        return self.root / "runs"

    @property
    def verdicts(self) -> Path:
        """Stored smoke verdicts: ``verdicts/<digest of receipt, profile, host>.json``."""
        return self.root / "verdicts"

    @property
    def noise(self) -> Path:
        """By how much equal scores differed: ``noise/<sha256 of the receipt>.json``."""
        return self.root / "noise"

    @property
    def trees(self) -> Path:
        """Unpacked archives that are only read: ``trees/<sha256 of the archive>/``."""
        return self.root / "trees"

    @property
    def arguments(self) -> Path:
        """Options of servers by what they were read from: ``arguments/<digest>.json``."""
        return self.root / "arguments"

    @property
    def edits(self) -> Path:
        """Work trees of topics that are being edited: ``edits/<package>/<topic>/``, git repositories."""
        return self.root / "edits"

    @property
    def compiling(self) -> Path:
        """What compilers share: ``ledger/`` of those that run, ``cache/<package>/``, ``peaks/<target>/``."""
        return self.root / "compiling"

    @property
    def locks(self) -> Path:
        """Lock files that keep two runs apart."""
        return self.root / "locks"

    @property
    def scratch(self) -> Path:
        """Working folders of steps that run now; emptied by the run that made them."""
        return self.root / "scratch"


def locate(explicit: Path | None) -> Workspace:
    """Return the given folder, else ``$SGLFORGE_HOME``, else the platform's user data folder."""
    if explicit is not None:
        return Workspace(root=explicit.expanduser().absolute())
    if configured := os.environ.get("SGLFORGE_HOME"):
        return Workspace(root=Path(configured).expanduser().absolute())
    import platformdirs

    return Workspace(root=platformdirs.user_data_path("sglforge"))
