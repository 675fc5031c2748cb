"""What the log of a starting server says; the lines are in our own words but for what the table looks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglforge.smoke.startlog import WORDINGS, StartLog, Step, step_of


def bar(title: str, done: int, total: int) -> str:
    """Return a bar as tqdm draws it."""
    share = done * 100 // total
    return (
        f"{title}: {share:3d}%|{'█' * (share // 10)}{' ' * (10 - share // 10)}| {done}/{total} [00:01<00:09,  1.0it/s]"
    )


def counted(name: str, done: int, total: int, unit: str) -> Step:
    return Step(name=name, done=done, total=total, percent=done * 100 // total, unit=unit)


LINES: list[tuple[str, Step | None]] = [
    ("sglforge: starting profile p in environment e on 127.0.0.1:1", Step(name="importing SGLang")),
    ("[x] server_args={'model_path': 'm'}", Step(name="starting its processes")),
    ("[x] Init torch distributed begin.", Step(name="joining the ranks")),
    ("[x TP1] Init parallel begin.", Step(name="joining the ranks")),
    (bar("Fetching 5 files", 1, 5), counted("downloading the model", 1, 5, "files")),
    ("model-00001.safetensors:  12%|█    | 1.2G/9.9G [00:01<00:09]", Step(name="downloading the model", percent=12)),
    ("[x] Load weight begin. avail mem=1.00 GB", Step(name="loading weights")),
    (
        "Multi-thread loading shards:  50% Completed | 7/14 [00:00<?, ?it/s]",
        counted("loading weights", 7, 14, "shards"),
    ),
    (
        "Loading safetensors checkpoint shards:   7% Completed | 1/14 [00:00<?, ?it/s]",
        counted("loading weights", 1, 14, "shards"),
    ),
    (
        "Loading pt checkpoint shards: 100% Completed | 2/2 [00:00<?, ?it/s]",
        counted("loading weights", 2, 2, "shards"),
    ),
    (bar("quant weights to fp8 ue8m0", 1, 4), counted("converting weights to fp8", 1, 4, "tensors")),
    ("[x] Load weight end. elapsed=0.01 s", Step(name="allocating the KV cache")),
    ("[x] KV Cache is allocated. dtype: d, #tokens: 4096, K size: 1", Step(name="KV cache of 4096 tokens is there")),
    ("[x] KV Cache is allocated. #tokens: 10, K size: 1.00 GB", Step(name="KV cache of 10 tokens is there")),
    ("[x] Memory pool end. avail mem=1 GB", Step(name="preparing attention")),
    (
        "[x] Try DeepGEMM JIT Compiling for <GEMM_NT_F8F8BF16> N=512, K=128, num_groups=1 with all",
        Step(name="compiling DeepGEMM kernels (GEMM_NT_F8F8BF16, N 512, K 128)"),
    ),
    (bar("DeepGEMM warmup", 3, 8), counted("compiling DeepGEMM kernels", 3, 8, "shapes")),
    ("[x] Entering DeepGEMM JIT Pre-Compile session.", Step(name="compiling DeepGEMM kernels")),
    ("[x] PP-parallel DeepGEMM warmup start (pp_rank=0", Step(name="compiling DeepGEMM kernels")),
    ("[x] Running FlashInfer autotune...", Step(name="tuning FlashInfer kernels")),
    ("[x] FlashInfer autotune completed.", Step(name="preparing graphs")),
    ("flashinfer.jit: Loading JIT ops: norm", Step(name="loading or compiling FlashInfer module norm")),
    ("flashinfer.jit: Finished loading JIT ops: norm", Step(name="FlashInfer module norm is there")),
    (
        "[3/7] /usr/bin/nvcc -c a.cu -o a.o",
        Step(name="compiling kernels", done=3, total=7, unit="files"),
    ),
    (bar("Compiling num tokens (num_tokens=8)", 1, 9), counted("compiling graphs", 1, 9, "sizes")),
    (
        bar("Capturing batches (bs=8 avail_mem=1.00 GB)", 1, 4),
        counted("capturing graphs", 1, 4, "batch sizes"),
    ),
    (bar("Capturing num tokens (num_tokens=8 avail_mem=1.00 GB)", 1, 4), counted("capturing graphs", 1, 4, "sizes")),
    (
        bar("Capturing prefill shape (num_tokens=8 avail_mem=1.00 GB)", 1, 4),
        counted("capturing graphs", 1, 4, "sizes"),
    ),
    (bar("[BCG] Capturing (num_tokens=8 avail_mem=1.00 GB)", 1, 4), counted("capturing graphs", 1, 4, "sizes")),
    ("[x] Capture cuda graph begin. This can take", Step(name="capturing graphs")),
    ("[x] Capture target decode CUDA graph begin. backend=full", Step(name="capturing target decode graphs")),
    ("[x] Capture draft extend CUDA graph begin. step=1, ", Step(name="capturing draft extend graphs")),
    ("[x] Capture Frozen-KV MTP draft cuda graph begin.", Step(name="capturing Frozen-KV MTP draft graphs")),
    ("[x] Capture cuda graph bs [1, 2, 4]", Step(name="capturing graphs")),
    ("[x] Capture cpu graph bs [1, 2, 4]", Step(name="capturing graphs")),
    ("[x] Capture draft cuda graph end. Time elapsed: 1 s", Step(name="preparing the next graphs")),
    (bar("Profiling prefill latency for dynamic chunking", 1, 128), counted("measuring prefill", 1, 128, "sizes")),
    ("[x] max_total_num_tokens=4096, chunked", Step(name="starting its HTTP routes")),
    (bar("Warmup prefill shapes (up to 32K)", 1, 4), counted("warming up", 1, 4, "sizes")),
    ("[x] Start of pd disaggregation warmup ...", Step(name="warming up for disaggregation")),
    ("[x] INFO:     Application startup complete.", Step(name="warming up")),
    ("[x] The server is fired up and ready to roll!", Step(name="up")),
    (
        "[x] port 9 is in use. Waiting for 15 seconds for it",
        Step(name="waiting for port 9, which somebody else holds"),
    ),
    ('[x] INFO:     127.0.0.1:4 - "GET /model_info HTTP/1.1" 200 OK', None),
    ("Capture cuda graph failed: out of memory", None),
    ("  0%|          | 0/4 [00:00<?, ?it/s]", None),
    ("", None),
]


@pytest.mark.parametrize(("line", "step"), LINES, ids=[line[:40] for line, _ in LINES])
def test_a_line_tells_what_the_server_does(line: str, step: Step | None) -> None:
    assert step_of(line) == step


def test_every_wording_has_a_line_above() -> None:
    unused = [
        wording.pattern.pattern
        for wording in WORDINGS
        if not any(wording.pattern.search(line) for line, step in LINES if step)
    ]
    assert unused == []


@dataclass(kw_only=True)
class Follower:
    """A log that grows while time goes by."""

    path: Path
    now: float = 0.0
    log: StartLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = StartLog(path=self.path, clock=lambda: self.now)

    def after(self, seconds: float, text: str) -> str:
        self.now += seconds
        with self.path.open("a") as stream:
            stream.write(text)
        return self.log.update()


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(path=tmp_path / "log")


def test_without_a_log_the_server_is_starting(follower: Follower) -> None:
    assert follower.log.update() == "starting"


def test_lines_that_come_in_pieces_are_put_together(follower: Follower) -> None:
    assert follower.after(1, "Load wei") == "starting"
    assert follower.after(1, "ght begin.\nLoad weight e") == "loading weights"
    assert follower.after(1, "nd.\n") == "allocating the KV cache"


def test_the_newest_bar_counts_before_its_line_ends(follower: Follower) -> None:
    follower.after(0, "Load weight begin.\n")
    assert follower.after(1, "\r" + bar("Loading pt checkpoint shards", 1, 4)) == "loading weights, 1 of 4 shards"
    assert follower.after(1, "\r" + bar("Loading pt checkpoint shards", 2, 4)[:-24]).startswith("loading weights, 1 of")


def test_an_estimate_needs_a_total_and_something_done_meanwhile(follower: Follower) -> None:
    title = "Capturing batches (bs=8 avail_mem=1.00 GB)"
    assert "left" not in follower.after(0, "\r" + bar(title, 0, 10))
    assert follower.after(5, "\r" + bar(title, 2, 10)) == "capturing graphs, 2 of 10 batch sizes, about 20 s left"
    assert follower.after(5, "\r" + bar(title, 10, 10) + "\n") == "capturing graphs, 10 of 10 batch sizes"
    assert "left" not in follower.after(5, "Load weight begin.\n")
    assert "left" not in follower.after(5, "x.safetensors:  10%|#    | 1G/10G [00:01<\n")


def test_silence_says_what_is_waited_for(follower: Follower) -> None:
    follower.after(0, "Load weight begin.\n")
    assert follower.after(9, "") == "loading weights"
    assert follower.after(26, "") == "waits since 35 s for this: loading weights; its log says nothing new"
    follower.after(1, '"GET /model_info HTTP/1.1" 503\n')
    assert follower.log.news == 0.0
    assert follower.after(1, "something else\n") == "loading weights"
    assert (follower.log.news, follower.log.progress) == (37.0, 0.0)


def test_ranks_that_print_in_turn_do_not_get_on_by_it(follower: Follower) -> None:
    for _ in range(3):
        follower.after(1, "TP0] Init torch distributed begin.\n")
        follower.after(1, "TP1] Load weight begin.\n")
    assert follower.log.progress == 2.0
    follower.after(1, bar("Loading pt checkpoint shards", 1, 4) + "\n")
    assert follower.log.progress == 7.0
    assert follower.after(1, "TP3] Load weight begin.\n") == "loading weights, 1 of 4 shards"
    assert follower.log.progress == 7.0


def test_a_second_bar_of_the_same_kind_is_progress(follower: Follower) -> None:
    title = "Multi-thread loading shards"
    for done in (0, 1, 2, 0, 1, 2):
        follower.after(1, "\r" + bar(title, done, 2))
    assert follower.log.progress == 6.0
    follower.after(1, "\r" + bar(title, 2, 2))
    assert follower.log.progress == 6.0


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_it_does_not_matter_in_which_pieces_a_log_comes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    lines = data.draw(st.lists(st.sampled_from([line for line, _ in LINES]), max_size=12))
    ends = data.draw(st.lists(st.sampled_from(["\n", "\r"]), min_size=len(lines), max_size=len(lines)))
    content = "".join(line + end for line, end in zip(lines, ends, strict=True)).encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(content)), max_size=8)))
    folder = tmp_path_factory.mktemp("log")
    (folder / "whole").write_bytes(content)
    whole, pieces = (StartLog(path=folder / name, clock=lambda: 0.0) for name in ("whole", "pieces"))
    whole.update()
    with (folder / "pieces").open("ab", buffering=0) as stream:
        for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
            stream.write(content[start:end])
            pieces.update()
    assert pieces.step == whole.step


def test_a_long_line_and_broken_text_are_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe" * 50_000 + b"\nLoad weight begin. \xe2\x96")
    assert StartLog(path=path).update() == "loading weights"


def test_every_pattern_stays_fast_on_a_hostile_line() -> None:
    for hostile in ("Capturing batches (" * 40, "Fetching 1 files: " + " " * 300, "[1/1] " + "c" * 390):
        assert step_of(hostile) is None
