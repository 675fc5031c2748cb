"""Where servers of a profile are started: as it is written, and without speculation as its control."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.runrecord import RunRecord
from sglforge.config.model import Profile, Target
from sglforge.launch.render import LaunchScript, ServingEnvironment, render_bash
from sglforge.launch.threshold import ServedTree
from sglforge.smoke.deadline import patience
from sglforge.smoke.interview import Interview
from sglforge.smoke.server import Progress, Server, serving
from sglforge.smoke.site import Site
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Role

INFO_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What stays the same while servers of a profile are started and asked; ``step`` names their logs."""

    profile: Profile
    subject: Subject
    target: Target
    environment: ServingEnvironment
    catalog_root: Path
    tree: ServedTree | None
    record: RunRecord
    noise: float | None
    progress: Progress
    stop_grace_s: float
    step: str = "smoke"

    def log(self, role: Role) -> Path:
        """Return the file that gets all output of a server."""
        return self.record.log(self.step, role)

    def render(self, role: Role, port: int) -> LaunchScript:
        """Return the launch script of the profile's server, or of its control server; raises RenderError."""
        return render_bash(
            self.profile,
            environment=self.environment,
            catalog_root=self.catalog_root,
            port=port,
            speculation=role == "profile",
            tree=self.tree,
            folder=self.record.folder,
        )

    def serving(self, role: Role) -> AbstractContextManager[Server]:
        """Start a server and end it; raises SmokeError as `server.serving` does."""
        profile = self.profile
        return serving(
            lambda port: self.render(role, port),
            folder=self.record.folder,
            log=self.log(role),
            pinned_port=profile.port if "port" in profile.model_fields_set else None,
            patience=patience(
                profile,
                self.target,
                catalog_root=self.catalog_root,
                stop_s=self.stop_grace_s,
                speculation=role == "profile",
            ),
            progress=lambda note: self.progress(f"{role} server: {note}"),
        )

    def interview(self, role: Role, server: Server, subject: Subject) -> Interview:
        """Return the conversation with a server."""
        script = self.render(role, server.port)
        site = Site(
            members=server.service.members,
            environment=self.environment,
            variables=script.env,
            argv=script.argv,
            ask=lambda request: server.ask(request, timeout_s=INFO_TIMEOUT_S),
        )
        return Interview(
            subject=subject,
            role=role,
            server=server,
            timeout_s=self.profile.request_timeout_s,
            site=site,
            noise=self.noise,
            progress=self.progress,
        )
