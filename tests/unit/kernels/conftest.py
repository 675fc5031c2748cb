"""The tests of the CPU kernels need torch and the kernels' own package; `nox -s kernels` provides both."""

import importlib.util
from collections.abc import Iterator

import pytest
from hypothesis import settings

for _module, _what in (("torch", "a CPU build of torch"), ("sgl_kernel", "kernels/sgl-kernel-cpu")):
    if importlib.util.find_spec(_module) is None:
        raise pytest.UsageError(f"tests/unit/kernels needs {_what} ({_module} cannot be imported): run nox -s kernels")

# The first torch operation of a process takes seconds on a busy machine; speed is not what is tested here.
settings.register_profile("kernels", deadline=None)
settings.load_profile("kernels")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Keep torch to one thread: the tensors are tiny, and more threads only wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
