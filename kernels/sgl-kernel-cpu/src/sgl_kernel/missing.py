"""Stand-ins for kernels that exist elsewhere but not in this package."""

from typing import NoReturn


class MissingKernelError(NotImplementedError):
    """Say that SGLang called a kernel which this package does not provide."""


class MissingKernel:
    """Import like a kernel, raise :class:`MissingKernelError` when called.

    SGLang imports many kernels at module top that a given model never runs, so the import has to
    succeed; a call must not, because a silent no-op would be a wrong answer.
    """

    __slots__ = ("qualified_name",)

    def __init__(self, qualified_name: str) -> None:
        """Remember the name that was asked for, for example ``sgl_kernel.merge_state_v2``."""
        self.qualified_name = qualified_name

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        """Raise, naming the function and this package."""
        raise MissingKernelError(
            f"{self.qualified_name} was called, but the package sglforge-sgl-kernel-cpu does not provide it. "
            "It has the kernels that dense unquantised models need on SGLang's CPU engine, with and without "
            "speculative decoding; this model, quantisation or option needs another build of sgl_kernel."
        )

    def __repr__(self) -> str:
        """Show what is missing."""
        return f"<missing kernel {self.qualified_name}>"


def missing_kernel(module: str, name: str) -> MissingKernel:
    """Serve a module's ``__getattr__``.

    Args:
        module: the module that was asked, ``__name__`` of the caller.
        name: the attribute that it does not have.

    Raises:
        AttributeError: for a dunder name; the import system probes those (``__path__``, ``__wrapped__``).
    """
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return MissingKernel(f"{module}.{name}")
