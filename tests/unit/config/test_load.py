"""Catalogs load, and say what is wrong with them: file, line, what was meant."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sglforge.config.load import load_catalog
from sglforge.errors import ConfigError

from .conftest import Spoil, faults_of


def test_a_catalog_without_a_fault_loads(catalog: Path) -> None:
    loaded = load_catalog(catalog)
    assert list(loaded.packages) == ["engine"]
    assert loaded.target("cpu").default_stack == "first"
    assert loaded.stack("first").environments["cpu"].torch.version == "2.13.0"
    assert loaded.stack("first").packages["engine"].source.method == "pep517"
    assert loaded.profile("tiny").flags == {"device": "cpu", "disable-cuda-graph": True}


def test_a_typo_in_a_key_is_named_with_its_line(spoil: Spoil) -> None:
    assert spoil(("packages/engine.toml", "import-name", "import-names")) == [
        (
            "packages/engine.toml:1 missing-key: the file lacks the key `import-name` "
            "| import-name: module that the wheel provides"
        ),
        ("packages/engine.toml:3 unknown-key: unknown key `import-names` in the file | did you mean `import-name`?"),
    ]


def test_a_typo_in_a_nested_table_is_named_with_its_table(spoil: Spoil) -> None:
    assert spoil(("stacks/first.toml", "smoke-profile", "smoke-profil")) == [
        (
            "stacks/first.toml:14 unknown-key: unknown key `smoke-profil` in [environments.cpu] "
            "| did you mean `smoke-profile`?"
        )
    ]


def test_a_typo_in_an_inline_table_is_found(spoil: Spoil) -> None:
    faults = spoil(("stacks/first.toml", 'path = "kernels', 'pth = "kernels'))
    assert faults == [
        (
            "stacks/first.toml:5 missing-key: [packages.engine.source] lacks the key `path` "
            "| path: the folder, relative to the catalog's root"
        ),
        ("stacks/first.toml:5 unknown-key: unknown key `pth` in [packages.engine.source] | did you mean `path`?"),
    ]


def test_snake_case_is_a_typo_too(spoil: Spoil) -> None:
    faults = spoil(("targets/cpu.toml", "min-cores", "min_cores"))
    assert faults == ["targets/cpu.toml:5 unknown-key: unknown key `min_cores` in the file | did you mean `min-cores`?"]


@pytest.mark.parametrize(
    ("file", "old", "new", "fault"),
    [
        (
            "targets/cpu.toml",
            "min-cores = 2",
            'min-cores = "2"',
            (
                "targets/cpu.toml:5 wrong-type: `min-cores` must be a whole number, this is the text '2' "
                "| fewest usable cores"
            ),
        ),
        (
            "targets/cpu.toml",
            "min-cores = 2",
            "min-cores = 0",
            (
                "targets/cpu.toml:5 invalid-value: `min-cores`: input should be "
                "greater than or equal to 1, this is 0 "
                "| fewest usable cores"
            ),
        ),
        (
            "targets/cpu.toml",
            'kind = "cpu"',
            'kind = "cuba"',
            "targets/cpu.toml:3 invalid-value: `kind`: 'cuba' is none of cpu, cuda | did you mean `cuda`?",
        ),
        (
            "profiles/tiny.toml",
            'device = "cpu"',
            "device = 2026-01-01",
            (
                "profiles/tiny.toml:8 wrong-type: `flags.device` must be text or a "
                "whole number or a number or "
                "true or false or an array, this is a date | "
            ),
        ),
        (
            "profiles/tiny.toml",
            "port = 30000",
            "port = true",
            (
                "profiles/tiny.toml:5 wrong-type: `port` must be a whole number, this is true "
                "| port that the server listens on"
            ),
        ),
        (
            "stacks/first.toml",
            'kind = "path", path = "kernels/engine"',
            'kind = "whel", project = "engine", version = "1"',
            (
                "stacks/first.toml:5 invalid-value: `packages.engine.source`: 'whel' "
                "is none of git, path, sdist, wheel "
                "| did you mean `wheel`?"
            ),
        ),
        (
            "stacks/first.toml",
            'kind = "path", path',
            "path",
            (
                "stacks/first.toml:5 invalid-value: `packages.engine.source`: lacks the key `kind` "
                "| kind is one of git, path, sdist, wheel"
            ),
        ),
        (
            "stacks/first.toml",
            '{ kind = "path", path = "kernels/engine" }',
            '"kernels/engine"',
            (
                "stacks/first.toml:5 wrong-type: `packages.engine.source` must be a table, this is the text "
                "'kernels/engine' | where the package comes from"
            ),
        ),
        (
            "stacks/first.toml",
            '["3.11", "3.12"]',
            '["3.11", "312"]',
            (
                "stacks/first.toml:9 invalid-value: `environments.cpu.pythons[1]`: "
                "'312' is not a Python minor such as "
                "3.12 | "
            ),
        ),
        (
            "stacks/first.toml",
            '["3.11", "3.12"]',
            '["3.11", "3.11"]',
            (
                "stacks/first.toml:9 invalid-value: `pythons` of environment `cpu` names a Python twice "
                "| name each Python minor once, the preferred one first"
            ),
        ),
        (
            "stacks/first.toml",
            "[packages.engine]",
            "[packages.Engine_1]",
            (
                "stacks/first.toml:4 invalid-value: name 'Engine_1' is not lower-case "
                "letters and digits, with single "
                "hyphens or dots between them | "
            ),
        ),
        (
            "stacks/first.toml",
            "kernels/engine",
            "../engine",
            (
                "stacks/first.toml:5 invalid-value: `packages.engine.source.path`: "
                "'../engine' is not a relative path "
                "whose parts begin with a letter, a digit or _ | the folder, relative to the catalog's root"
            ),
        ),
        (
            "stacks/first.toml",
            '{ kind = "path", path = "kernels/engine" }',
            '{ kind = "git", url = "/x", ref = "y", subdirectory = "a/bc", source-paths = ["a/b", "a/bc/d"] }',
            (
                "stacks/first.toml:5 invalid-value: the build does not see its own folder: `subdirectory` a/bc lies in "
                'none of `source-paths` | add "a/bc" to `source-paths`'
            ),
        ),
        (
            "stacks/first.toml",
            '{ kind = "path", path = "kernels/engine" }',
            '{ kind = "git", url = "../engine", ref = "main" }',
            (
                "stacks/first.toml:5 invalid-value: `packages.engine.source.url`: '../engine' is not what `git clone` "
                "takes, without spaces; a folder by its whole path | what `git clone` takes"
            ),
        ),
        (
            "stacks/first.toml",
            '"numpy"',
            '"numpy=>1"',
            (
                "stacks/first.toml:10 bad-requirement: 'numpy=>1' is not a requirement: "
                "Expected semicolon (after name with no version specifier) or end | "
                'write it as PEP 508 says: "name", '
                '"name==1.2" or "name[extra]>=1,<2"'
            ),
        ),
        (
            "stacks/first.toml",
            '"numpy"',
            '"torch>=2"',
            (
                "stacks/first.toml:10 invalid-value: torch among the requirements: it "
                "is installed first and never "
                "resolved | say its version and variant in the environment's `torch`"
            ),
        ),
        (
            "profiles/tiny.toml",
            '\'{"type"',
            "'{type",
            (
                "profiles/tiny.toml:14 invalid-value: `smoke.json-schema`: it is not JSON: "
                "Expecting property name enclosed "
                "in double quotes: line 1 column 2 (char 1) | JSON schema, as JSON text"
            ),
        ),
        (
            "targets/cpu.toml",
            'kind = "cpu"',
            'kind = "cuda"',
            (
                "targets/cpu.toml:1 missing-key: a target of kind cuda lacks the key `arch-list` "
                '| arch-list: GPU architectures, as the compiler spells them: ["12.0f"]'
            ),
        ),
        (
            "packages/engine.toml",
            'build-requires = ["hatchling"]',
            "",
            (
                "packages/engine.toml:1 missing-key: stack `first` builds it from source, the recipe lacks "
                "`build-requires` | build-requires: requirements of the build "
                'environment, such as ["hatchling"]'
            ),
        ),
    ],
)
def test_a_wrong_value_says_what_is_wanted(spoil: Spoil, file: str, old: str, new: str, fault: str) -> None:
    assert spoil((file, old, new)) == [fault]


@pytest.mark.parametrize(
    ("file", "old", "new", "fault"),
    [
        (
            "stacks/first.toml",
            "[packages.engine]",
            "[packages.engin]",
            "stacks/first.toml:4 unknown-package: there is no package `engin` | did you mean `engine`?",
        ),
        (
            "stacks/first.toml",
            "[environments.cpu]",
            "[environments.gpu]",
            "stacks/first.toml:7 unknown-target: there is no target `gpu` | did you mean `cpu`?",
        ),
        (
            "stacks/first.toml",
            'smoke-profile = "tiny"',
            'smoke-profile = "huge"',
            "stacks/first.toml:14 unknown-profile: there is no profile `huge` | known: tiny",
        ),
        (
            "targets/cpu.toml",
            'default-stack = "first"',
            'default-stack = "firsts"',
            "targets/cpu.toml:4 unknown-stack: there is no stack `firsts` | did you mean `first`?",
        ),
        (
            "profiles/tiny.toml",
            'target = "cpu"',
            'target = "cpus"',
            "profiles/tiny.toml:3 unknown-target: there is no target `cpus` | did you mean `cpu`?",
        ),
        (
            "stacks/first.toml",
            "kernels/engine",
            "kernels/engines",
            (
                "stacks/first.toml:5 folder-missing: there is no folder kernels/engines in the catalog "
                "| did you mean `engine`?"
            ),
        ),
    ],
)
def test_a_name_that_leads_nowhere_is_named(spoil: Spoil, file: str, old: str, new: str, fault: str) -> None:
    assert fault in spoil((file, old, new))


def test_a_smoke_profile_for_another_target_is_refused(catalog: Path) -> None:
    other = catalog / "recipes/targets/other.toml"
    other.write_text('name = "other"\ndescription = "Other."\nkind = "cpu"\n')
    profile = catalog / "recipes/profiles/tiny.toml"
    profile.write_text(profile.read_text().replace('target = "cpu"', 'target = "other"'))
    assert faults_of(catalog) == [
        (
            "stacks/first.toml:14 invalid-value: profile `tiny` is for target `other`, not for `cpu` "
            "| name a profile whose target is `cpu`"
        )
    ]


def test_a_duplicate_name_names_both_files(catalog: Path) -> None:
    shutil.copy(catalog / "recipes/targets/cpu.toml", catalog / "recipes/targets/later.toml")
    assert faults_of(catalog) == [
        (
            "targets/later.toml:1 duplicate-name: target `cpu` is already written in cpu.toml "
            "| call this one `later`, as its file is called"
        )
    ]


def test_a_name_is_that_of_its_file(catalog: Path) -> None:
    folder = catalog / "recipes/packages"
    (folder / "engine.toml").rename(folder / "motor.toml")
    assert faults_of(catalog) == [
        (
            "packages/motor.toml:1 name-differs-from-file: package `engine` is written in motor.toml "
            "| rename the file to engine.toml, or the package to `motor`"
        )
    ]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('name = "cpu"\nkind = \n', 2, "Invalid value"),
        ('name = "cpu"\nname = "gpu"\n', 2, "Cannot overwrite a value"),
        ('name = "cpu\n', 1, "Illegal character"),
        ("[a]\nb = 1\n[a]\n", 3, "Cannot declare ('a',) twice"),
    ],
)
def test_what_is_no_toml_is_named_with_its_line(catalog: Path, text: str, line: int, words: str) -> None:
    (catalog / "recipes/targets/cpu.toml").write_text(text)
    (fault,) = faults_of(catalog)
    assert fault.startswith(f"targets/cpu.toml:{line} toml-syntax: not valid TOML: {words}")


def test_bytes_that_are_no_text_are_named(catalog: Path) -> None:
    (catalog / "recipes/targets/cpu.toml").write_bytes(b'name = "\xff"\n')
    (fault,) = faults_of(catalog)
    assert fault.startswith("targets/cpu.toml toml-unreadable: cannot read cpu.toml")


def test_all_faults_of_all_files_are_found_at_once(spoil: Spoil) -> None:
    faults = spoil(
        ("packages/engine.toml", "import-name", "import-names"),
        ("targets/cpu.toml", "min-cores = 2", "min-cores = 2.5"),
        ("stacks/first.toml", '"numpy"', '"num py"'),
        ("profiles/tiny.toml", "port = 30000", "port = 99999"),
        ("profiles/tiny.toml", "[flags]", "[flag]"),
    )
    assert [fault.split(": ")[0] for fault in faults] == [
        "packages/engine.toml:1 missing-key",
        "packages/engine.toml:3 unknown-key",
        "targets/cpu.toml:5 wrong-type",
        "profiles/tiny.toml:5 invalid-value",
        "profiles/tiny.toml:7 unknown-key",
        "stacks/first.toml:10 bad-requirement",
    ]


def test_a_broken_file_does_not_make_others_wrong(catalog: Path) -> None:
    for name in ("packages/engine.toml", "targets/cpu.toml", "profiles/tiny.toml"):
        (catalog / "recipes" / name).write_text("oops")
    assert [fault.split(" ")[1] for fault in faults_of(catalog)] == ["toml-syntax:"] * 3


def test_a_folder_without_recipes_is_no_catalog(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_catalog(tmp_path)
    assert caught.value.code == "catalog-missing"
    assert str(tmp_path) in caught.value.message


@pytest.mark.parametrize("kind", ["stack", "target", "profile"])
def test_an_unknown_name_lists_what_there_is(catalog: Path, kind: str) -> None:
    loaded = load_catalog(catalog)
    known = {"stack": "first", "target": "cpu", "profile": "tiny"}[kind]
    with pytest.raises(ConfigError) as caught:
        getattr(loaded, kind)(f"{known}s")
    assert caught.value.code == f"unknown-{kind}"
    assert caught.value.exit_code == 2
    assert caught.value.hint == f"did you mean `{known}`?"
    assert caught.value.context == {"known": known}
    with pytest.raises(ConfigError) as caught:
        getattr(loaded, kind)("something-else")
    assert caught.value.hint == f"known: {known}"
