"""How long a server may take to start: worked out from its weights, longer while it gets on, shorter if it is stuck."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sglforge.config.model import Profile, Target
from sglforge.launch.options import server_options
from sglforge.smoke.activity import Activity

# Python, torch and SGLang are imported by every process of the server; a busy disk makes that minutes.
BASE_S = 180.0
# Slower than a hard disk; a file system over a network may still be slower, and then progress extends the wait.
READ_FLOOR_BYTES_PER_S = 100e6
# Weights of a hub id are perhaps not there yet: a download of unknown size.
UNKNOWN_WEIGHTS_S = 3600.0
GRAPHS_S = 300.0
# A first start compiles kernels: DeepGEMM alone says that it takes 10 to 20 minutes.
JIT_S = {"cpu": 60.0, "cuda": 1200.0}
# Whoever gets on gets this much longer, up to so many times the wait.
EXTENSION_S = 180.0
CAP_FACTOR = 3.0
STUCK_S = 300.0

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_NO_GRAPHS = "disable-cuda-graph"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Deadlines in seconds: from the start to the first token, for one request, from SIGTERM to the end.

    A server that gets on may take up to ``cap_s`` instead of ``start_s``. One that says nothing, computes nothing and
    reads nothing for ``stuck_s`` seconds is not waited for; None waits in any case. ``because`` says where ``start_s``
    comes from.
    """

    start_s: float
    request_s: float
    stop_s: float
    cap_s: float | None = None
    stuck_s: float | None = None
    because: str = "start-timeout-s of the profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How long a server may take to start, in seconds, and why."""

    seconds: float
    because: str


def patience(
    profile: Profile, target: Target, *, catalog_root: Path, stop_s: float, speculation: bool = True
) -> Patience:
    """Return how long to wait for the server of a profile.

    ``start-timeout-s`` in the profile is exact: neither progress nor silence changes it. Without it the wait is
    `allowance`, extended by progress up to three times as much.

    Args:
        profile: What is launched.
        target: What it runs on.
        catalog_root: The folder that ``catalog:`` values are relative to.
        stop_s: Seconds from SIGTERM to the end.
        speculation: False for a server without its draft.

    Raises RenderError for options that cannot be rendered.
    """
    if profile.start_timeout_s is not None:
        return Patience(start_s=profile.start_timeout_s, request_s=profile.request_timeout_s, stop_s=stop_s)
    allowed = allowance(profile, target, catalog_root=catalog_root, speculation=speculation)
    return Patience(
        start_s=allowed.seconds,
        request_s=profile.request_timeout_s,
        stop_s=stop_s,
        cap_s=CAP_FACTOR * allowed.seconds,
        stuck_s=STUCK_S,
        because=allowed.because,
    )


def allowance(profile: Profile, target: Target, *, catalog_root: Path, speculation: bool = True) -> Allowance:
    """Return 180 s, the time to read the weights at 100 MB/s, and what graphs and JIT compiling take on the target.

    Graphs: 300 s on a GPU, unless the profile sets ``disable-cuda-graph``. JIT: 1200 s on a GPU, 60 s on the CPU.
    Weights of a hub id: 3600 s.
    """
    models = [profile.model]
    if speculation and profile.speculation and profile.speculation.draft_model:
        models.append(profile.speculation.draft_model)
    folders = server_options(profile, catalog_root=catalog_root, speculation=speculation).model_folders
    size = sum(weight_bytes(folder) for folder in folders)
    parts = [("imports", BASE_S)]
    if size:
        parts.append((f"{_bytes(size)} of weights at 100 MB/s", size / READ_FLOOR_BYTES_PER_S))
    if len(folders) < len(models):
        parts.append(("weights of unknown size", UNKNOWN_WEIGHTS_S))
    if target.kind == "cuda" and profile.flags.get(_NO_GRAPHS) is not True:
        parts.append(("graphs", GRAPHS_S))
    parts.append(("JIT compiling", JIT_S[target.kind]))
    return Allowance(
        seconds=sum(seconds for _, seconds in parts),
        because=" + ".join(f"{seconds:.0f} s for {what}" for what, seconds in parts),
    )


def weight_bytes(folder: Path) -> int:
    """Return the size of a folder's weights in bytes.

    Of several forms of the same weights SGLang loads one, safetensors if they are there.
    """
    sizes: dict[str, int] = {}
    try:
        for path in folder.iterdir():
            if path.suffix in _WEIGHTS and path.is_file():
                sizes[path.suffix] = sizes.get(path.suffix, 0) + path.stat().st_size
    except OSError:
        return 0  # the launch script refuses a missing folder, in better words
    return sizes.get(".safetensors") or max(sizes.values(), default=0)


@dataclass(slots=True, kw_only=True)
class Deadline:
    """When to stop waiting for one server; ``clock`` counts seconds."""

    patience: Patience
    members: Callable[[], Sequence[int]]
    clock: Callable[[], float] = time.monotonic
    activity: Activity = field(init=False)
    _start: float = field(init=False)

    def __post_init__(self) -> None:
        """Count from now."""
        self._start = self.clock()
        self.activity = Activity(members=self.members, clock=self.clock)

    @property
    def waited(self) -> float:
        """Seconds since the start."""
        return self.clock() - self._start

    def left(self, progress: float) -> float:
        """Return the seconds that are left, given when the log last showed progress."""
        wait = self.patience
        end = self._start + wait.start_s
        if wait.cap_s is not None:
            advanced = max(progress, self.activity.compiled or progress)
            end = max(end, min(advanced + EXTENSION_S, self._start + wait.cap_s))
        return end - self.clock()

    def stuck_since(self, news: float) -> float | None:
        """Return for how many seconds the server has done nothing at all, None while that is short.

        ``news`` is when its log last said something.
        """
        limit = self.patience.stuck_s
        idle = self.clock() - max(news, self.activity.busy)
        return idle if limit is not None and idle >= limit else None


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
