"""Adapt a classifier when the class mix changes and something new appears (open set label shift)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osls import (
        baselines,
        datasets,
        identifiability,
        inference,
        metrics,
        mixture,
        monitor,
        pu,
        shift,
        streaming,
        testing,
        theory,
    )
    from osls.app.adapt import adapt
    from osls.inference.discovery import discover
    from osls.persist import load
    from osls.pulse import PULSE

__version__ = "0.1.0"
__all__ = [
    "PULSE",
    "__version__",
    "adapt",
    "baselines",
    "datasets",
    "discover",
    "identifiability",
    "inference",
    "load",
    "metrics",
    "mixture",
    "monitor",
    "pu",
    "shift",
    "streaming",
    "testing",
    "theory",
]

_HOMES = {
    "PULSE": "osls.pulse",
    "adapt": "osls.app.adapt",
    "discover": "osls.inference.discovery",
    "load": "osls.persist",
}


def __getattr__(name: str) -> Any:
    # Names resolve on first use, so that `import osls` and `osls --help` do not wait for torch.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"osls.{name}")
    raise AttributeError(f"module 'osls' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
