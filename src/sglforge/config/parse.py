"""Turn a TOML file into a model, or into every fault that it has, each with its line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from sglforge.base import toml
from sglforge.base.toml import Document
from sglforge.config.model import FileModel
from sglforge.errors import ConfigError, Finding

M = TypeVar("M", bound=FileModel)


def load_model(path: Path, model: type[M]) -> tuple[M, Document]:
    """Read a TOML file as a model.

    Raises ConfigError ``toml-unreadable`` or ``toml-syntax`` when it is no TOML file, else ``config-invalid``
    with a finding for every fault.
    """
    document = toml.load(path)
    return validate(document, model), document


def validate(document: Document, model: type[M]) -> M:
    """Return the model of a parsed document.

    Raises ConfigError ``config-invalid`` with a finding for every fault.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(document.data, by_alias=True, by_name=False)
    except ValidationError as error:
        from sglforge.config.faults import findings

        found = tuple(findings(error.errors(include_url=False), document, model))
        raise invalid(found) from None


def invalid(findings: Sequence[Finding]) -> ConfigError:
    """Return the error that stands for all faults of what people wrote."""
    count = len(findings)
    return ConfigError(
        code="config-invalid",
        message="one fault in what was configured" if count == 1 else f"{count} faults in what was configured",
        where=findings[0].where,
        hint=findings[0].hint if count == 1 else "correct each of them; all faults are listed",
        findings=tuple(findings),
    )
