"""Run the two things that there are to do with the models: make them anew, or check them."""

from __future__ import annotations

import argparse
import json
import platform
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tinymodels import checkpoint, training
from tinymodels.corpus import documents
from tinymodels.judge import judge
from tinymodels.network import EAGLE, EAGLE3, SHAPE, Params
from tinymodels.tokenizer import write_tokenizer

SEED = 20_250
MODELS = Path(__file__).resolve().parents[1]


def say(line: str) -> None:
    """Tell the progress on stderr."""
    print(line, file=sys.stderr, flush=True)


def encode(texts: list[str]) -> list[list[int]]:
    """Turn the corpus into token ids, with the tokenizer files that are shipped."""
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as directory:
        write_tokenizer(Path(directory), max_length=SHAPE.max_position_embeddings)
        tokenizer = AutoTokenizer.from_pretrained(directory)
        return [tokenizer.encode(text) for text in texts]


def train(root: Path) -> None:
    """Train all four models and write their directories below root."""
    corpus = encode(documents())

    def run(name: str, params: Params, phases: tuple[training.Phase, ...], loss: training.Loss) -> Params:
        packer = training.Packer(documents=corpus, random=random.Random(SEED))
        training.fit(params, phases, packer, loss, lambda line: say(f"{name}: {line}"))
        return checkpoint.round_params(params)

    params = training.target_params(SEED)
    target = run(checkpoint.TARGET, params, training.TARGET_PHASES, training.target_loss(params))
    checkpoint.write_target(root, target)

    # Everything that the target was taught to say, and no more, so that draft ids are not target ids.
    vocabulary = torch.tensor(sorted({token for document in corpus for token in document}))
    params = training.eagle_params(SEED + 1)
    everything = torch.arange(SHAPE.vocab_size)
    loss = training.draft_loss(EAGLE, params, target, everything)
    checkpoint.write_draft(root, "tiny-eagle", run("tiny-eagle", params, training.DRAFT_PHASES, loss))

    params = training.eagle3_params(SEED + 2, draft_vocab_size=len(vocabulary))
    loss = training.draft_loss(EAGLE3, params, target, vocabulary)
    trained = run("tiny-eagle3", params, training.DRAFT_PHASES, loss)
    trained["d2t"] = vocabulary - torch.arange(len(vocabulary))
    checkpoint.write_draft(root, "tiny-eagle3", trained)

    params = training.eagle_params(SEED + 3)
    loss = training.mismatch_loss(EAGLE, params, target)
    trained = run("tiny-eagle-mismatched", params, training.MISMATCHED_PHASES, loss)
    checkpoint.write_draft(root, "tiny-eagle-mismatched", trained)


def make(out: Path) -> tuple[dict[str, Any], list[str]]:
    """Train and judge in a directory of its own; replace what is in out only if nothing is wrong."""
    out.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(dir=out, prefix=".new-") as directory:
        root = Path(directory)
        train(root)
        training_s = time.monotonic() - began_s
        figures, faults = judge(root)
        say(f"trained in {training_s:.0f} s, judged in {time.monotonic() - began_s - training_s:.0f} s")
        if not faults:
            versions = {"python": platform.python_version(), "torch": torch.__version__, "seed": SEED}
            checkpoint.seal(root, made_with=versions, judgement=figures)
            for name in (checkpoint.TARGET, *checkpoint.DRAFTS):
                shutil.rmtree(out / name, ignore_errors=True)
                (root / name).replace(out / name)
            (root / checkpoint.MANIFEST).replace(out / checkpoint.MANIFEST)
    return figures, faults


def check(out: Path) -> tuple[dict[str, Any], list[str]]:
    """Judge the models in out, and compare every file with the manifest."""
    broken = checkpoint.broken_seals(out)
    figures, faults = judge(out)
    return figures, [*(f"{name} is not what the manifest says" for name in broken), *faults]


def main() -> int:
    """Make or check, print the figures as JSON, and return 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="make.py", description="Make the tiny models anew, or check them.")
    parser.add_argument("--out", type=Path, default=MODELS, metavar="DIR", help="directory of the models")
    parser.add_argument("--check", action="store_true", help="train nothing, judge what is there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    figures, faults = (check if arguments.check else make)(arguments.out)
    print(json.dumps(figures, indent=2))
    for fault in faults:
        say(fault)
    return 1 if faults else 0
