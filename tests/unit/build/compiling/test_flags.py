"""What a compiler's words say, and what becomes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglforge.build.compiling import flags

TEMPORARY = "--objdir-as-tempdir"


@pytest.mark.parametrize(
    ("words", "rewritten"),
    [
        (
            "nvcc --generate-dependencies-with-compile --dependency-output x.d -c x.cu -o x.o",
            f"nvcc -MD -MF x.d -c x.cu -o x.o {TEMPORARY}",
        ),
        (
            "nvcc --dependency-output=x.d --generate-dependencies-with-compile -c x.cu -o x.o",
            f"nvcc -MF x.d -MD -c x.cu -o x.o {TEMPORARY}",
        ),
        (
            "/opt/bin/nvcc --generate-nonsystem-dependencies-with-compile -MF x.d -c x.cu --output-file=x.o",
            f"/opt/bin/nvcc -MD -MF x.d -c x.cu --output-file=x.o {TEMPORARY}",
        ),
        ("nvcc --threads=4 -c x.cu", f"nvcc -c x.cu {TEMPORARY}"),
        ("nvcc --threads 4 -t 8 -t=2 -t3 -c x.cu", f"nvcc -c x.cu {TEMPORARY}"),
        (f"nvcc {TEMPORARY} -c x.cu", f"nvcc {TEMPORARY} -c x.cu"),
        ("nvcc --dependency-target-name x.o -c x.cu", f"nvcc -MT x.o -c x.cu {TEMPORARY}"),
        ("g++ -MMD -MF x.d -t -c x.cc -ox.o", "g++ -MD -MF x.d -t -c x.cc -o x.o"),
    ],
)
def test_words_that_a_cache_understands(words: str, rewritten: str) -> None:
    assert flags.read(words.split()).words == rewritten.split()


@pytest.mark.parametrize(
    "words",
    [
        "nvcc x.o y.o -o x.so -shared -t 4",
        "nvcc --version",
        "nvcc",
        "nvcc -c x.cu y.cu",
        "nvcc -E -c x.cu",
        "nvcc --dryrun -c x.cu",
        "nvcc -c x.cu -odir out",
        "nvcc -optf words -c x.cu",
        "nvcc --options-file=words -c x.cu",
        "g++ @words -c x.cc",
        "g++ -M -c x.cc",
        "g++ -S -c x.cc",
        "ld x.o",
    ],
)
def test_what_is_no_single_object_keeps_its_words(words: str) -> None:
    call = flags.read(words.split())
    assert (call.words, call.compiles) == (words.split(), False)


@pytest.mark.parametrize(
    ("words", "output", "source", "asked"),
    [
        ("nvcc -c src/x.cu", "x.o", "src/x.cu", False),
        ("nvcc -x cu -I i -isystem s -Xcompiler -fPIC -MD -c s/x.cu -o out/x.cuda.o", "out/x.cuda.o", "s/x.cu", True),
        ("nvcc -gencode arch=compute_120f,code=sm_120f -include pre.h -D A -dc x.cu -o=x.o", "x.o", "x.cu", False),
        ("g++ -MMD -MF x.d -c x.cc -o x.o", "x.o", "x.cc", True),
        ("g++ -c x.y.cc", "x.y.o", "x.y.cc", False),
        ("nvcc --output-file x.o --compile x.cu", "x.o", "x.cu", False),
    ],
)  # fmt: skip
def test_what_is_compiled(words: str, output: str, source: str, *, asked: bool) -> None:
    call = flags.read(words.split())
    assert (call.compiles, call.output, call.source, call.dependencies) == (True, output, source, asked)


def test_folders_for_headers_are_known_in_every_spelling() -> None:
    words = (
        "nvcc -Ia -I b -isystem c -isystemd -isystem=e --include-path f --include-path=g -iquote h -idirafteri -c x.cu"
    )
    assert flags.read(words.split()).includes == ("a", "b", "c", "d", "e", "f", "g", "h", "i")


def test_the_host_compiler_makes_names_from_the_unit_and_nvcc_from_nothing() -> None:
    assert flags.seeded(flags.read(["g++", "-c", "x.cc"]), "m/x.o")[-1] == "-frandom-seed=m/x.o"
    given_before = ["g++", "-frandom-seed=1", "-c", "x.cc"]
    assert flags.seeded(flags.read(given_before), "m/x.o") == given_before
    assert "-frandom-seed" not in " ".join(flags.seeded(flags.read(["nvcc", "-c", "x.cu"]), "m/x.o"))


# fmt: off
WORDS = st.lists(
    st.sampled_from([
        "-c", "-dc", "-MD", "-MMD", "-MF", "x.d", "-o", "x.o", "-ox.o", "--output-file=x.o", "-t", "4",
        "--threads=2", "-t4", "-I", "inc", "-Iinc", "-O3", "x.cu", "y.cu", "-E", "@w", "-x", "cu",
        "--dependency-output", "--dependency-output=x.d", "--generate-dependencies-with-compile",
        "-Xcompiler", "-odir", "-MT", "--",
    ]),
    max_size=12,
)
# fmt: on


@given(program=st.sampled_from(["nvcc", "g++", "/x/nvcc"]), words=WORDS)
def test_any_words_are_read_and_rewritten_once(program: str, words: list[str]) -> None:
    first = flags.read([program, *words])
    again = flags.read(first.words)
    assert again.words == first.words
    assert (again.compiles, again.output, again.source) == (first.compiles, first.output, first.source)
    if not first.compiles:
        assert first.words == [program, *words]
