"""Cheap argument checks: a wrong call is an error here, not a wrong token later."""

from collections.abc import Sequence

from torch import Tensor


def require(condition: bool, message: str) -> None:
    """Raise ``ValueError`` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ValueError(message)


def require_shape(name: str, tensor: Tensor, shape: Sequence[int | None]) -> None:
    """Check a tensor's shape.

    Args:
        name: how the argument is called in the error.
        tensor: the argument.
        shape: the size of each dimension, ``None`` where any size will do.

    Raises:
        ValueError: when the rank or one size differs.
    """
    actual = tuple(tensor.shape)
    fits = len(actual) == len(shape) and all(w is None or w == a for w, a in zip(shape, actual, strict=True))
    if not fits:
        wanted = "[" + ", ".join("*" if w is None else str(w) for w in shape) + "]"
        raise ValueError(f"{name} has shape {list(actual)}, expected {wanted}")


def require_numel(name: str, tensor: Tensor, at_least: int) -> None:
    """Check that a flat buffer holds at least so many elements; raise ``ValueError`` if not."""
    require(tensor.numel() >= at_least, f"{name} has {tensor.numel()} elements, expected at least {at_least}")


def require_range(name: str, tensor: Tensor, low: int, high: int) -> None:
    """Check that every value lies in ``[low, high]``; raise ``ValueError`` if not.

    Torch wraps negative indices instead of refusing them, so indices are checked before use.
    """
    if tensor.numel():
        smallest, largest = int(tensor.min()), int(tensor.max())
        require(
            low <= smallest and largest <= high,
            f"{name} has values in [{smallest}, {largest}], expected [{low}, {high}]",
        )
