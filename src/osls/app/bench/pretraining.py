"""Weights from contrastive pre-training, made once for all methods that start from them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from osls._core.arrays import AnyArray
from osls._core.writing import draft_of
from osls.app.bench.networks import NetworkPlan, NetworkSpec, PretrainSpec
from osls.datasets.loading import cache_folder

__all__ = ["pretrained"]


def pretrained(spec: NetworkSpec, options: PretrainSpec, X: AnyArray) -> NetworkSpec:
    """Return a network that starts from what the images X teach it, training it if need be.

    The weights are kept in the cache, in a file named after the network, the options and the images. Two
    processes that make it at once waste time and nothing else.
    """
    plain = spec.model_copy(update={"pretrain": None, "schedule": None})
    X = np.ascontiguousarray(X)
    name = hashlib.sha256(X.tobytes())
    name.update(json.dumps([plain.model_dump(), options.model_dump(), X.shape, str(X.dtype)]).encode())
    path = cache_folder() / "pretrained" / f"{name.hexdigest()[:32]}.safetensors"
    if not path.exists():
        _make(path, NetworkPlan(plain), options, X)
    return spec.model_copy(update={"pretrain": None, "weights": str(path)})


def _make(path: Path, plan: NetworkPlan, options: PretrainSpec, X: AnyArray) -> None:
    import torch
    from safetensors.torch import save_file

    from osls.training.contrastive import pretrain
    from osls.training.trainer import as_tensor, seeded

    with seeded(0):
        body = plan(tuple(as_tensor(X[:1], torch.device("cpu")).shape[1:]))
    pretrain(body, X, **options.model_dump())
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(path) as draft:
        save_file({key: value.contiguous() for key, value in body.state_dict().items()}, draft)
