"""The parts of a build key: a value that people can read, and the key is its digest.

Whatever decides what a build makes, or how it is checked, is in it; nothing else is. Both are proven field by field
in `tests/unit/keys`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sglforge.base.files import digest
from sglforge.base.ids import BuildKey, Sha256
from sglforge.config.lockfile import LockedArchive, LockedGit, LockedPython, LockedRequirement, LockedSource
from sglforge.config.model import GitSource, PackageRecipe, PathSource, Source, Target
from sglforge.config.variables import filled

KEY_FORMAT = 3
"""Counted up when the engine makes something else of the same parts."""
SHORT = 8
"""How many digits of an id are shown to people, and stand in the label of a wheel."""

Parts = Mapping[str, object]


def key_of(parts: Parts) -> BuildKey:
    """Return the build key of parts."""
    return BuildKey(digest(parts))


def parts_of(
    *,
    recipe: PackageRecipe,
    target: Target,
    python: LockedPython,
    source: Parts,
    method: str,
    topics: Mapping[str, Sha256],
    build_requires: Sequence[LockedRequirement],
    toolchain: Mapping[str, str],
    environment: Mapping[str, str],
    depends: Mapping[str, BuildKey],
    modules: Parts | None = None,
) -> dict[str, object]:
    """Return everything that decides what the build of a package makes.

    Args:
        recipe: How it is built. Its description, what it waits for and the reasons of its globs decide nothing; its
            build requirements do through what the lock pins of them.
        target: What it is built for.
        python: The locked environment; the torch of its wheels is the torch that is built against.
        source: What :func:`source_parts` returned.
        method: How the source is built.
        topics: The digests of the patch topics that are applied, in their order.
        build_requires: The pinned build environment.
        toolchain: The toolchain's parts by their names in recipes.
        environment: What :func:`variables` returned.
        depends: The keys of the packages that are installed in the build environment.
        modules: What decides of the modules that are compiled into the wheel, None without any.
    """
    return {
        "format": KEY_FORMAT,
        "package": recipe.name,
        "recipe": {"method": method, "import-name": recipe.import_name, "exclude": sorted(recipe.exclude)},
        "source": dict(source),
        "patches": {"order": list(topics), "topics": dict(topics)},
        "target": {"name": target.name, "arch-list": list(target.arch_list), **_cuda(target, python)},
        "build-requires": {
            pinned.name: {"version": pinned.version, "files": digest(sorted(file.sha256 for file in pinned.files))}
            for pinned in build_requires
        },
        "toolchain": {name: toolchain[name] for name in recipe.toolchain},
        "environment": dict(environment),
        "depends": dict(depends),
        **({"modules": dict(modules)} if modules else {}),
    }


def source_parts(source: Source, locked: LockedSource | None, content: Sha256 | None) -> dict[str, object]:
    """Return what a build sees of its source.

    Of a git repository that is the trees and blobs of the locked paths; commit, ref and address are not in it.
    A repository that the lock has no commit of is what the stack says about it.

    Args:
        source: The stack's source.
        locked: What the lock pins; None for a folder, and for a repository that is not pinned.
        content: The sha256 of the archive, or the digest of the folder; None where nobody looked.
    """
    match source, locked:
        case GitSource(), LockedGit():
            return {"kind": "git", **locked.seen_by_build(source.subdirectory)}
        case PathSource(), _:
            return {"kind": "path", "path": source.path, "digest": content}
        case _, LockedArchive():
            names = [file.name for file in locked.files if file.sha256 == content]
            return {
                "kind": locked.kind,
                "project": locked.project,
                "version": locked.version,
                "file": names[0] if names else None,
                "sha256": content,
            }
        case _:
            return {"pinned": False, **source.model_dump(mode="json", by_alias=True)}


def variables(
    recipe: PackageRecipe, *, method: str, version: str | None, compilers: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that a build gets of its recipe and, where that names a host compiler, of the user.

    What the recipe says goes before what the user has; a wheel that is only re-packed runs nothing.

    Args:
        recipe: How the package is built.
        method: How the source is built.
        version: What ``{version}`` stands for; None leaves it as it is.
        compilers: ``CC`` and ``CXX`` of the user, where they are set.
    """
    if method == "repack":
        return {}
    chosen = dict(compilers) if "host-compiler" in recipe.toolchain else {}
    written = {name: filled(text, version=version) for name, text in recipe.environment.items()}
    return dict(sorted({**chosen, **written}.items()))


def label(
    *,
    target: Target,
    python: LockedPython,
    source: Parts,
    topics: Mapping[str, Sha256],
    modules: str | None = None,
) -> str:
    """Return the local version of a wheel: ``cu130.sm120.t<tree>.p<patches>.<modules>``, without what there is none of.

    It is the same for every commit that leaves the source's paths and the patches alone. ``modules`` is the name of
    the set that is compiled into it, the other arguments are those of :func:`parts_of`.
    """
    words = [*_cuda(target, python).values(), target.name.replace("-", "."), f"t{_tree(source)[:SHORT]}"]
    words += [f"p{digest(list(topics.items()))[:SHORT]}"] if topics else []
    return ".".join([*words, modules.replace("-", ".")] if modules else words)


def _tree(source: Parts) -> str:
    """Return the id of what is built: of an archive, a folder, one git tree, or of several together."""
    match source:
        case {"sha256": str(content)} | {"digest": str(content)}:
            return content
        case {"paths": {**paths}, "submodules": {**submodules}} if len(paths) == 1 and not submodules:
            return str(*paths.values())
        case _:
            return digest(source)


def _cuda(target: Target, python: LockedPython) -> dict[str, str]:
    return {"cuda": python.torch.variant} if target.kind == "cuda" else {}
