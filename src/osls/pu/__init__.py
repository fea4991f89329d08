"""Telling positives from negatives when only positives are labelled."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osls.pu.classifier import PUClassifier
    from osls.pu.losses import cvir_with_penalty, nnpu, pvu, upu
    from osls.pu.selection import pu_auc, unbiased_risk

# The loss `cvir` is not exported: osls.pu.cvir is the module with the algorithm.
_HOME = {
    "PUClassifier": "classifier",
    "cvir_with_penalty": "losses",
    "nnpu": "losses",
    "pu_auc": "selection",
    "pvu": "losses",
    "unbiased_risk": "selection",
    "upu": "losses",
}
__all__ = ["PUClassifier", "cvir_with_penalty", "nnpu", "pu_auc", "pvu", "unbiased_risk", "upu"]


def __getattr__(name: str) -> Any:
    # Names resolve on first use, so that importing the package does not wait for torch.
    if name in _HOME:
        return getattr(import_module(f"osls.pu.{_HOME[name]}"), name)
    raise AttributeError(f"module 'osls.pu' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
