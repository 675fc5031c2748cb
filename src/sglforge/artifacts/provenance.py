"""Say where a wheel comes from, in words that do not promise more than was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

SCHEMA = 1

SourceKind = Literal["wheel", "sdist", "path"]

KINDS: Mapping[SourceKind, str] = {
    "wheel": "re-packed wheel",
    "sdist": "source build (sdist)",
    "path": "source build (path)",
}


def summary(
    *,
    kind: SourceKind,
    package: str,
    source: Mapping[str, str],
    series: str | None,
    tree_id: str | None,
    topics: Sequence[Mapping[str, object]],
    excluded: Mapping[str, str],
    build_key: str,
) -> dict[str, object]:
    """Return what goes into the wheel: all that decides its content, and nothing that changes by itself.

    Args:
        kind: The kind of the source; it gives the words of :data:`KINDS`.
        package: The package's name in the recipes.
        source: Name and version, file name and sha256 of the archive, or path and digest of the folder.
        series: The digest of the patch series, None without one.
        tree_id: The git tree id of the patched tree, None without a series.
        topics: The outcome of each topic of the series.
        excluded: Globs that were left out, with their reasons.
        build_key: The key that the wheel is stored under.
    """
    return {
        "schema": SCHEMA,
        "kind": KINDS[kind],
        "package": package,
        "source": dict(source),
        "patches": {"series": series, "tree-id": tree_id, "topics": [dict(topic) for topic in topics]},
        "excluded": dict(excluded),
        "build-key": build_key,
    }


def document(
    in_wheel: Mapping[str, object],
    *,
    wheel: Mapping[str, object],
    key_parts: Mapping[str, str],
    build_requires: Sequence[str],
    python: str,
    started: str,
    seconds: float,
    builder: str,
    resources: Mapping[str, float] | None = None,
    sandbox: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Return the document that lies beside a wheel in the store.

    Args:
        in_wheel: What :func:`summary` returned.
        wheel: Name, size in bytes and sha256 of the wheel.
        key_parts: What the build key was computed from, toolchain included.
        build_requires: The pinned build environment, ``name==version``.
        python: The Python that it was built with and for.
        started: When the build began (UTC, ISO 8601).
        seconds: How long it took.
        builder: Name and version of what built it.
        resources: ``seconds`` and ``cpu_seconds`` of all processes of the build, ``peak_rss_mib`` of the largest;
            None where nothing of the package ran (a re-packed wheel).
        sandbox: What these processes were kept from, ``network``, ``writes``, ``processes`` and ``why`` not; None
            likewise.
    """
    return {
        **in_wheel,
        "wheel": dict(wheel),
        "key-parts": dict(key_parts),
        "build-requires": list(build_requires),
        "python": python,
        "started": started,
        "seconds": round(seconds, 3),
        "builder": builder,
        "resources": resources and dict(resources),
        "sandbox": sandbox and dict(sandbox),
    }
