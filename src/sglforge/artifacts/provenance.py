"""Say where a wheel comes from, in words that do not promise more than was done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

SCHEMA = 1

SourceKind = Literal["wheel", "sdist", "path", "git"]

KINDS: Mapping[SourceKind, str] = {
    "wheel": "re-packed wheel",
    "sdist": "source build (sdist)",
    "path": "source build (path)",
    "git": "source build (git)",
}


def summary(
    *,
    kind: SourceKind,
    package: str,
    source: Mapping[str, object],
    series: str | None,
    tree_id: str | None,
    topics: Sequence[Mapping[str, object]],
    excluded: Iterable[str],
    build_key: str,
) -> dict[str, object]:
    """Return what goes into the wheel: what its build key was made from, and nothing else.

    Whatever else it said (descriptions, reasons, topics that are not for this version) could change while the key
    stays, and then one key would stand for two wheels. :func:`document` says it beside the wheel.

    Args:
        kind: The kind of the source; it gives the words of :data:`KINDS`.
        package: The package's name in the recipes.
        source: Name and version, file name and sha256 of the archive; path and digest of the folder; or URL, commit,
            paths with their tree ids.
        series: The digest of the patch series, None without one.
        tree_id: The git tree id of the patched tree, None without a series.
        topics: The outcome of each topic of the series; of those that were applied, what they touched is told.
        excluded: Globs of files that were left out.
        build_key: The key that the wheel is stored under.
    """
    return {
        "schema": SCHEMA,
        "kind": KINDS[kind],
        "package": package,
        "source": dict(source),
        "patches": {
            "series": series,
            "tree-id": tree_id,
            "topics": [
                {name: topic[name] for name in ("name", "state", "files", "evidence")}
                for topic in topics
                if topic["state"] == "applied"
            ],
        },
        "excluded": sorted(excluded),
        "build-key": build_key,
    }


def document(
    in_wheel: Mapping[str, object],
    *,
    wheel: Mapping[str, object],
    topics: Sequence[Mapping[str, object]],
    excluded: Mapping[str, str],
    key_parts: Mapping[str, object],
    build_requires: Sequence[str],
    python: str,
    started: str,
    seconds: float,
    builder: str,
    compiled: Mapping[str, object] | None = None,
    resources: Mapping[str, float] | None = None,
    sandbox: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Return the document that lies beside a wheel in the store.

    Args:
        in_wheel: What :func:`summary` returned.
        wheel: Name, size in bytes and sha256 of the wheel.
        topics: The outcome of each topic of the series.
        excluded: Globs of files that were left out, with their reasons.
        key_parts: What the build key was computed from: its digest is the key.
        build_requires: The pinned build environment, ``name==version``.
        python: The Python that it was built with and for.
        started: When the build began (UTC, ISO 8601).
        seconds: How long it took.
        builder: Name and version of what built it.
        compiled: What this build compiled of its modules, and what became of the compilers' units; None without any.
        resources: ``seconds`` and ``cpu_seconds`` of all processes of the build, ``peak_rss_mib`` of the largest;
            None where nothing of the package ran (a re-packed wheel).
        sandbox: What these processes were kept from, ``network``, ``writes``, ``processes`` and ``why`` not; None
            likewise.
    """
    patches = in_wheel["patches"]
    return {
        **in_wheel,
        "patches": {**(patches if isinstance(patches, dict) else {}), "topics": [dict(topic) for topic in topics]},
        "excluded": dict(excluded),
        "wheel": dict(wheel),
        "key-parts": dict(key_parts),
        "build-requires": list(build_requires),
        "python": python,
        "started": started,
        "seconds": round(seconds, 3),
        "builder": builder,
        **({} if compiled is None else {"compiled": dict(compiled)}),
        "resources": resources and dict(resources),
        "sandbox": sandbox and dict(sandbox),
    }
