"""The models of recipes, targets, stacks and profiles.

pydantic stays in this layer: strict, unknown keys forbidden, kebab-case in files. The descriptions are the
reference: the JSON schemas and the reference pages are generated from them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sglforge.config.json_schema import schema_text

NAME = r"^[a-z0-9]+(?:[.-][a-z0-9]+)*$"
SHA256 = r"^[0-9a-f]{64}$"
MINOR = r"^3\.[0-9]+$"
VERSION = r"^[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?(?:\.post[0-9]+)?(?:\.dev[0-9]+)?$"
MODULE = r"^[A-Za-z_][A-Za-z0-9_]*$"
GLIBC = r"^2\.[0-9]+$"
VARIANT = r"^[a-z0-9]+$"
CAPABILITY = r"^[0-9]+\.[0-9]$"
RELEASE = r"^[1-9][0-9]*\.[0-9]+$"
SYMBOL = r"^[A-Za-z_][A-Za-z0-9_]*$"
FILE = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*$"
LINE = r"^[^\x00-\x1f\x7f]+$"
FOLDER = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*$"
_PART = r"(?:\.\.[^/\\\x00-\x1f\x7f]+|\.?[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*)"
INNER_PATH = rf"^{_PART}(?:/{_PART})*$"
FOLDER_OR_ALL = rf"^(?:\.|{FOLDER.strip('^$')})$"
GIT_URL = r"^(?:/|[^-/:\x00-\x20\x7f][^/:\x00-\x20\x7f]*:)[^\x00-\x20\x7f]*$"
GIT_REF = r"^[A-Za-z0-9_][^\x00-\x20\x7f~^:?*\[\\]*$"
GIT_ID = r"^[0-9a-f]{40}(?:[0-9a-f]{24})?$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
QUALIFIED_NAME = r"^[A-Za-z_][A-Za-z0-9_]*(?:\.(?:<locals>\.)?[A-Za-z_][A-Za-z0-9_]*)*$"
DOTTED_NAME = r"^[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*$"

MODULE_GLOB = r"^[A-Za-z0-9_.*?\[\]!-]+$"
MODULE_PLACE = r"^(?:[A-Za-z0-9_-]+/)+(?:\{name\}/)?\{name\}\.so$"

PATTERNS = {
    MODULE_GLOB: "the name of a module, or a glob of names",
    MODULE_PLACE: "a path in the wheel whose file is `{name}.so`",
    NAME: "lower-case letters and digits, with single hyphens or dots between them",
    SHA256: "64 lower-case hexadecimal digits",
    MINOR: "a Python minor such as 3.12",
    VERSION: "an exact version such as 0.5.23 or 0.4.6.post1, without a local part",
    MODULE: "a Python module name",
    GLIBC: "a version of the GNU C library such as 2.34",
    VARIANT: "lower-case letters and digits, such as cpu or cu130",
    CAPABILITY: "a compute capability such as 12.0",
    QUALIFIED_NAME: "a qualified name such as Worker.__init__ or outer.<locals>.inner",
    DOTTED_NAME: "a dotted name such as self.draft_worker",
    RELEASE: "a release of CUDA such as 13.0",
    FILE: "the name of a file, without a folder",
    LINE: "one line of text",
    FOLDER_OR_ALL: "a relative path whose parts begin with a letter, a digit or _, or `.` for the whole repository",
    INNER_PATH: "a path inside the repository",
    GIT_URL: "what `git clone` takes, without spaces; a folder by its whole path",
    GIT_REF: "the name of a branch or tag, or the id of a commit",
    GIT_ID: "the id of a git object, in full",
    VARIABLE: "the name of an environment variable",
    FOLDER: "a relative path whose parts begin with a letter, a digit or _",
}
"""What each pattern means, in a person's words."""

Name = Annotated[str, Field(pattern=NAME, max_length=64)]
HexSha256 = Annotated[str, Field(pattern=SHA256)]
PythonMinor = Annotated[str, Field(pattern=MINOR)]
Version = Annotated[str, Field(pattern=VERSION)]
Folder = Annotated[str, Field(pattern=FOLDER)]
JsonSchema = Annotated[str, AfterValidator(schema_text)]
Timeout = Annotated[float, Field(gt=0, le=604_800)]

BuildMethod = Literal["repack", "pep517"]


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class FileModel(BaseModel):
    """The base of everything that is read from TOML."""

    # defer_build: a validator is made when its model is first read, not for every part of every model at import
    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=_kebab,
        populate_by_name=True,
        allow_inf_nan=False,
        defer_build=True,
    )


class WheelSource(FileModel):
    """A released wheel: taken apart, patched and packed again, never called a source build."""

    kind: Annotated[Literal["wheel"], Field(description="a released wheel")]
    project: Annotated[str, Field(description="project name on the package index", min_length=1)]
    version: Annotated[Version, Field(description="exact version")]

    @property
    def method(self) -> BuildMethod:
        """How a package is built from this kind of source."""
        return "repack"


class SdistSource(FileModel):
    """A released source archive, built through its PEP 517 backend."""

    kind: Annotated[Literal["sdist"], Field(description="a released source archive")]
    project: Annotated[str, Field(description="project name on the package index", min_length=1)]
    version: Annotated[Version, Field(description="exact version")]

    @property
    def method(self) -> BuildMethod:
        """How a package is built from this kind of source."""
        return "pep517"


class PathSource(FileModel):
    """A folder of the catalog, built through its PEP 517 backend."""

    kind: Annotated[Literal["path"], Field(description="a folder of the catalog")]
    path: Annotated[Folder, Field(description="the folder, relative to the catalog's root")]

    @property
    def method(self) -> BuildMethod:
        """How a package is built from this kind of source."""
        return "pep517"


class GitSource(FileModel):
    """A git repository at a ref."""

    kind: Annotated[Literal["git"], Field(description="a git repository")]
    url: Annotated[str, Field(description="what `git clone` takes", pattern=GIT_URL)]
    ref: Annotated[str, Field(description="branch, tag or commit; the lock pins the commit", pattern=GIT_REF)]
    subdirectory: Annotated[
        Folder | None, Field(description="folder that holds the package; left out: the repository's root")
    ] = None
    source_paths: Annotated[
        list[Folder], Field(description="files and folders that the build sees; nothing else decides the build key")
    ] = []
    version: Annotated[
        Version | None,
        Field(description="version that the package is built as; left out: worked out from the nearest tag `v*`"),
    ] = None

    @property
    def method(self) -> BuildMethod:
        """How a package is built from this kind of source."""
        return "pep517"


class CudaNeeds(FileModel):
    """What of a CUDA toolkit a build takes; a toolkit that lacks any of it is not used."""

    programs: Annotated[
        list[Annotated[str, Field(pattern=FILE)]],
        Field(description="programs in `bin` or `nvvm/bin`, as `cuobjdump`"),
    ] = []
    headers: Annotated[
        list[Annotated[str, Field(pattern=FOLDER)]],
        Field(description="files below `include` or `include/cccl`, as `cublas_v2.h`"),
    ] = []
    libraries: Annotated[
        list[Annotated[str, Field(pattern=FILE)]],
        Field(description="what is linked with `-l`: `cublas` is `lib64/libcublas.so` or `lib64/libcublas.a`"),
    ] = []
    stubs: Annotated[
        list[Annotated[str, Field(pattern=FILE)]],
        Field(description="libraries of the driver, for linking on machines without one: `cuda`, in `lib64/stubs`"),
    ] = []


Source = Annotated[WheelSource | SdistSource | PathSource | GitSource, Field(discriminator="kind")]


class CompileMemory(FileModel):
    """What the compilers of a package take, until it was measured here.

    A unit is one object file; its name is the object's path below the build's folder. `*` stands for anything.
    """

    default: Annotated[float, Field(description="GiB that a unit takes which no pattern fits", gt=0, le=4096)] = 4.0
    units: Annotated[
        dict[Annotated[str, Field(pattern=LINE)], Annotated[float, Field(gt=0, le=4096)]],
        Field(description="patterns of names of units, with the GiB that one takes; the first that fits counts"),
    ] = {}


class TorchPin(FileModel):
    """The torch of an environment: installed first, never replaced."""

    version: Annotated[Version, Field(description="exact version without its local part")]
    variant: Annotated[str, Field(description="local version that names the build: `cpu`, `cu130`", pattern=VARIANT)]


class ModuleSet(FileModel):
    """Compiled modules that go together."""

    description: Annotated[str, Field(description="one sentence: what the set is for")]
    names: Annotated[
        list[Annotated[str, Field(pattern=MODULE_GLOB)]],
        Field(description="names or globs of the modules, as the package itself calls them", min_length=1),
    ]
    claims: Annotated[
        dict[Annotated[str, Field(pattern=MODULE_GLOB)], list[Literal["fp4-convert", "omma", "qmma"]]],
        Field(description="by names or globs of modules: instructions that must be in their machine code"),
    ] = {}
    cpu_minutes: Annotated[
        float | None, Field(description="CPU minutes that its compilation took where it was measured", gt=0)
    ] = None


class Modules(FileModel):
    """Modules that a package compiles by itself when it runs, compiled ahead of time into its wheel."""

    driver: Annotated[
        Folder,
        Field(description="program of the catalog that has the package write the statements of its modules for ninja"),
    ]
    into: Annotated[
        str, Field(description="where a module goes in the wheel; `{name}` is its name", pattern=MODULE_PLACE)
    ]
    requires: Annotated[
        list[str],
        Field(description="PEP 508 requirements of the driver's environment, without torch; the lock pins them"),
    ]
    torch: Annotated[
        TorchPin,
        Field(description="the torch that the driver imports; modules must not be linked against it"),
    ]
    default_set: Annotated[Name, Field(description="set that is compiled where none is named")]
    sets: Annotated[dict[Name, ModuleSet], Field(description="sets of modules by name", min_length=1)]


class PackageRecipe(FileModel):
    """How one package is built (`recipes/packages/<name>.toml`).

    The kind of source that a stack names decides the way: a wheel is re-packed, everything else is built
    through its PEP 517 backend.
    """

    name: Annotated[Name, Field(description="name of the package, equal to the file's name")]
    description: Annotated[str, Field(description="one sentence: what the package is")]
    import_name: Annotated[str, Field(description="module that the wheel provides", pattern=MODULE)]
    build_requires: Annotated[
        list[str],
        Field(description="source builds: PEP 508 requirements of the build environment; the lock pins them"),
    ] = []
    exclude: Annotated[
        dict[str, str],
        Field(description="re-packed wheels: globs of files that are left out, each with its reason"),
    ] = {}
    toolchain: Annotated[
        list[Literal["python-abi", "glibc", "host-compiler", "nvcc", "torch"]],
        Field(description="parts of the toolchain that decide what is built; they enter the build key"),
    ] = []
    environment: Annotated[
        dict[Annotated[str, Field(pattern=VARIABLE)], str],
        Field(description="source builds: variables of the build; `{version}` stands for the source's version"),
    ] = {}
    depends: Annotated[
        list[Name],
        Field(description="packages of the stack that are built before and installed in the build environment"),
    ] = []
    memory: Annotated[
        CompileMemory, Field(description="what its compilers take, in GiB: so many run at once as fit")
    ] = CompileMemory()
    cuda: Annotated[
        CudaNeeds | None,
        Field(description="with `nvcc` in `toolchain`: what it takes of the CUDA toolkit beside what all builds take"),
    ] = None
    modules: Annotated[
        Modules | None, Field(description="source builds for GPUs: modules that are compiled ahead of time")
    ] = None
    refuses: Annotated[
        dict[Name, str],
        Field(description="distributions that no environment has beside this package, each with its reason"),
    ] = {}
    open_symbols: Annotated[
        dict[Annotated[str, Field(pattern=LINE)], Annotated[str, Field(pattern=LINE)]],
        Field(description="globs of symbols that may stay undefined in its libraries, each with the reason"),
    ] = {}
    waits_for: Annotated[
        str | None,
        Field(description="what must arrive before it can be built from source; planning works without"),
    ] = None


class Toolkit(FileModel):
    """A release of the CUDA toolkit (`recipes/toolkits/<name>.toml`).

    A toolkit of the machine is used where it is of this release and complete; elsewhere the one that the lock pins is
    installed into the workspace.
    """

    name: Annotated[Name, Field(description="name of the toolkit, equal to the file's name")]
    description: Annotated[str, Field(description="one sentence: what it is for")]
    release: Annotated[str, Field(description="release of its nvcc: `13.0`", pattern=RELEASE)]
    newest_gcc: Annotated[int, Field(description="newest major of gcc that its nvcc takes as host compiler", ge=1)]
    requires: Annotated[
        list[str],
        Field(description="PEP 508 requirements whose wheels make up the toolkit; the lock pins them", min_length=1),
    ]
    cuda: Annotated[CudaNeeds, Field(description="what every build takes, and what looks into binaries")]
    driver_symbols: Annotated[
        list[Annotated[str, Field(pattern=SYMBOL)]],
        Field(description="functions of the driver that must be in the stub libcuda", min_length=1),
    ]


class Target(FileModel):
    """What is built for and served on (`recipes/targets/<name>.toml`)."""

    name: Annotated[Name, Field(description="name of the target, equal to the file's name")]
    description: Annotated[str, Field(description="one sentence: which machines this is")]
    kind: Annotated[Literal["cpu", "cuda"], Field(description="what serves: the CPU, or NVIDIA GPUs")]
    default_stack: Annotated[Name | None, Field(description="stack that is used when none is named")] = None
    arch_list: Annotated[list[str], Field(description="GPU architectures, as the compiler spells them: `12.0f`")] = []
    toolkit: Annotated[Name | None, Field(description="CUDA toolkit that it is compiled with: `cuda-13.0`")] = None
    compute_capability: Annotated[
        Annotated[str, Field(pattern=CAPABILITY)] | None,
        Field(description="of the GPUs that it serves on: `12.0`"),
    ] = None
    min_cores: Annotated[int, Field(description="fewest usable cores", ge=1)] = 1
    min_memory_gib: Annotated[float, Field(description="least memory that a build and smoke need, in GiB", gt=0)] = 1.0
    min_disk_gib: Annotated[float, Field(description="least free disk for the workspace, in GiB", gt=0)] = 1.0
    min_glibc: Annotated[
        Annotated[str, Field(pattern=GLIBC)] | None,
        Field(description="oldest GNU C library that the target's released wheels run on: `2.34`"),
    ] = None
    waits_for: Annotated[
        str | None, Field(description="what must arrive before it can be built; planning works without")
    ] = None


class StackPackage(FileModel):
    """One package of a stack: where its source comes from, and for which targets."""

    source: Annotated[Source, Field(description="where the package comes from")]
    targets: Annotated[list[Name], Field(description="targets that need it; empty: all")] = []


class StackEnvironment(FileModel):
    """What is installed beside the built packages on one target."""

    torch: Annotated[TorchPin, Field(description="the torch that everything stands on")]
    pythons: Annotated[
        list[PythonMinor],
        Field(description="Python minors that are locked, the preferred one first", min_length=1),
    ]
    requirements: Annotated[
        list[str], Field(description="PEP 508 requirements, without torch; the lock pins and hashes them")
    ] = []
    relaxed: Annotated[
        dict[str, str],
        Field(description="distributions that built packages ask for and do not get, each with its reason"),
    ] = {}
    smoke_profile: Annotated[Name | None, Field(description="profile that proves this environment")] = None


class Stack(FileModel):
    """Which sources go together (`recipes/stacks/<name>.toml`)."""

    name: Annotated[Name, Field(description="name of the stack, equal to the file's name")]
    description: Annotated[str, Field(description="one sentence: what this set is for")]
    packages: Annotated[
        dict[Name, StackPackage],
        Field(description="packages by the name of their recipe, in build order", min_length=1),
    ]
    environments: Annotated[dict[Name, StackEnvironment], Field(description="environments by target", min_length=1)]


class Speculation(FileModel):
    """Speculative decoding with a draft."""

    algorithm: Annotated[
        Literal["EAGLE", "EAGLE3", "STANDALONE", "NGRAM"], Field(description="SGLang's name of the algorithm")
    ]
    draft_model: Annotated[str | None, Field(description="hub id or folder, written as `model` is; NGRAM has none")] = (
        None
    )
    num_steps: Annotated[int, Field(description="draft steps before each verification", ge=1)] = 3
    eagle_topk: Annotated[int, Field(description="branches of the draft tree at each step", ge=1)] = 1
    num_draft_tokens: Annotated[int, Field(description="tokens that one verification sees", ge=1)] = 4
    disable_above_batch: Annotated[
        int | None,
        Field(description="decode without drafts while a batch holds more requests; left out: never", ge=1),
    ] = None


class FactProbe(FileModel):
    """A prompt and what its greedy continuation must contain."""

    prompt: Annotated[str, Field(description="text that the server continues", min_length=1)]
    contains: Annotated[str, Field(description="text that the continuation must contain", min_length=1)]


class ToolProbe(FileModel):
    """A question that the model answers by calling a tool."""

    prompt: Annotated[str, Field(description="what the user says", min_length=1)]
    name: Annotated[str, Field(description="name of the tool", pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: Annotated[str, Field(description="what the tool does, for the model")]
    parameters: Annotated[JsonSchema, Field(description="JSON schema of its arguments, as JSON text")]
    contains: Annotated[str, Field(description="text that the arguments of the call must contain", min_length=1)]


class SmokeExpectations(FileModel):
    """What smoke knows about a profile's model."""

    facts: Annotated[list[FactProbe], Field(description="questions that the model answers right")] = []
    chat: Annotated[list[FactProbe], Field(description="questions that the model answers right in a chat")] = []
    tool: Annotated[ToolProbe | None, Field(description="a question that it answers by calling a tool")] = None
    far: Annotated[
        FactProbe | None, Field(description="a question that it answers right behind thousands of other tokens, too")
    ] = None
    long_prompt: Annotated[
        str, Field(description="prompt of a greedy continuation of 200 and more tokens", min_length=1)
    ]
    json_prompt: Annotated[str, Field(description="prompt that is answered under the JSON schema", min_length=1)]
    json_schema: Annotated[JsonSchema, Field(description="JSON schema, as JSON text")]


Flags = dict[str, str | int | float | bool | list[str]]


def _flags(flags: Flags) -> Flags:
    """Refuse a limit of requests that no server starts with."""
    limit = flags.get("max-running-requests")
    if isinstance(limit, (int, float)) and not isinstance(limit, bool) and limit < 1:
        raise ValueError(f"max-running-requests must be 1 or more, this is {limit}")
    return flags


class Profile(FileModel):
    """How a model is launched (`recipes/profiles/<name>.toml`)."""

    name: Annotated[Name, Field(description="name of the profile, equal to the file's name")]
    description: Annotated[str, Field(description="one sentence: what is served")]
    target: Annotated[Name, Field(description="target that it runs on")]
    model: Annotated[
        str,
        Field(description="hub id or folder; `catalog:models/x` is a folder of the catalog", min_length=1),
    ]
    served_model_name: Annotated[str | None, Field(description="model name in the server's API")] = None
    host: Annotated[str, Field(description="address that the server listens on")] = "127.0.0.1"
    port: Annotated[int, Field(description="port that the server listens on", ge=1, le=65535)] = 30000
    flags: Annotated[
        Flags,
        AfterValidator(_flags),
        Field(description="server options without dashes; true is a bare option, false leaves it out"),
    ] = {}
    environment: Annotated[dict[str, str], Field(description="environment variables of the server")] = {}
    overridden_rules: Annotated[
        dict[Name, Annotated[str, Field(pattern=LINE)]],
        Field(description="rules of the target that this profile does not keep to, each with its reason"),
    ] = {}
    speculation: Annotated[Speculation | None, Field(description="speculative decoding; left out: none")] = None
    start_timeout_s: Annotated[
        Timeout | None,
        Field(description="longest wait until the server is ready, in seconds; left out: worked out from its weights"),
    ] = None
    request_timeout_s: Annotated[Timeout, Field(description="longest wait for one answer, in seconds")] = 60.0
    smoke: Annotated[SmokeExpectations | None, Field(description="what smoke asks this model")] = None
