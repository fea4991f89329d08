"""Beyond one process: scoring on a Dask cluster, and what training needs to know under torchrun.

Scoring needs ``pip install 'osls[dask]'``. Training needs nothing: start the same script with ``torchrun
--nproc_per_node N script.py`` and pass an integer ``random_state``; see :mod:`osls.distributed.ddp`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osls.distributed.ddp import is_main
    from osls.distributed.mix import estimate_mix
    from osls.distributed.scoring import Scored, score

_HOME = {"Scored": "scoring", "estimate_mix": "mix", "is_main": "ddp", "score": "scoring"}

__all__ = ["Scored", "estimate_mix", "is_main", "score"]


def __getattr__(name: str) -> Any:
    # The training core imports `ddp` from here and must not wait for Dask.
    if name in _HOME:
        return getattr(import_module(f"osls.distributed.{_HOME[name]}"), name)
    raise AttributeError(f"module 'osls.distributed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
