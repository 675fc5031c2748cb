"""The tests of the tiny models need torch and transformers of a built environment: `nox -s kernels` provides them."""

import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

MODELS = Path(__file__).resolve().parents[3] / "models"

for _module in ("torch", "transformers", "safetensors"):
    if importlib.util.find_spec(_module) is None:
        raise pytest.UsageError(f"tests/unit/models needs {_module}, which cannot be imported: run nox -s kernels")

# transformers imports it where it is installed. Its SWIG types warn while they are made, and a process in which that
# warning was turned into an error crashes at its end.
if importlib.util.find_spec("sentencepiece") is not None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("sentencepiece")

# Not an installed package: it belongs to models/make.py, and is imported the way that script does it.
sys.path.insert(0, str(MODELS))
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture
def shipped() -> Path:
    """The directory that holds the shipped models."""
    return MODELS


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Keep torch to one thread: the tensors are tiny, and more threads only wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
