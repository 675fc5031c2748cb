"""The only layer that calls stages one after the other: one flat function per verb."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from sglforge.base.console import Console
from sglforge.pipeline.request import Outcome, Request

Verb = Callable[[Request, Console], Outcome]

# The module of each verb; imported when the verb is called, so that `explain` does not load a builder.
MODULES = {
    "doctor": "machine",
    "plan": "machine",
    "explain": "pages",
    "lock": "locking",
    "fetch": "sources",
    "patch": "sources",
    "drift": "drifting",
    "build": "unchanged",
    "rebuild": "rebuilding",
    "check": "checking",
    "install": "building",
    "verify": "building",
    "render": "serving",
    "smoke": "smoking",
    "tune": "tuning",
    "store": "storing",
}


def verb(name: str) -> Verb:
    """Return the function of a verb."""
    module = import_module(f"{__name__}.{MODULES[name]}")
    function: Verb = getattr(module, name)
    return function
