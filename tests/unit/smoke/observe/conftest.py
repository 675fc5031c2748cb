"""Processes that load real shared objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from shared_objects import Load, start_loader

from sglforge.base import proc


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    services: list[proc.Service] = []

    def start(*libraries: Path, env: Mapping[str, str] | None = None) -> proc.Service:
        services.append(start_loader(tmp_path / f"loader.{len(services)}.log", libraries, env))
        return services[-1]

    yield start
    for service in services:
        service.stop(grace_s=0.0)
