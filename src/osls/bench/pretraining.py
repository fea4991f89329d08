"""Weights from contrastive pre-training, made once for all methods that start from them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from osls._typing import AnyArray
from osls.datasets.folders import cache_folder

__all__ = ["pretrained_weights"]


def pretrained_weights(
    make: Callable[[tuple[int, ...]], Any], options: Mapping[str, Any], X: AnyArray
) -> Path:
    """Return the file of a body's weights after contrastive pre-training on X, training it if need be.

    The name of the file is made of the network, the options and the images. It is written whole or not at
    all: two processes that make it at once waste time and nothing else.
    """
    import torch
    from safetensors.torch import save_file

    from osls.training.contrastive import pretrain
    from osls.training.core import as_tensor, seeded

    X = np.ascontiguousarray(X)
    name = hashlib.sha256(X.tobytes())
    name.update(json.dumps([repr(make), dict(options), X.shape, str(X.dtype)], sort_keys=True).encode())
    path = cache_folder() / "pretrained" / f"{name.hexdigest()[:32]}.safetensors"
    if path.exists():
        return path
    with seeded(0):
        body = make(tuple(as_tensor(X[:1], torch.device("cpu")).shape[1:]))
    pretrain(body, X, **options)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.stem}.{os.getpid()}.draft")
    save_file({key: value.contiguous() for key, value in body.state_dict().items()}, draft)
    draft.replace(path)
    return path
