"""Networks of a study: body, starting weights and schedule, as one object that the adapters take."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from safetensors.torch import save_file
from torch import nn

from osls._core.arrays import AnyArray, Floats
from osls._core.writing import draft_of
from osls.app.bench.config import Strict
from osls.datasets.loading import cache_folder, find_file
from osls.training.contrastive import pretrain
from osls.training.nets.fast_convnet import FastConvFeatures
from osls.training.nets.features import MLPFeatures, TextCNNFeatures
from osls.training.nets.resnet import ResNet9Features, ResNetFeatures, load_weights
from osls.training.trainer import Schedule, as_tensor, seeded

_FOR_IMAGES = ("fast-convnet", "resnet9", "resnet18", "resnet50")
# Keys of a network that only some bodies use.
_ONLY_FOR = {
    "stem": ("resnet18", "resnet50"),
    "augment": _FOR_IMAGES,
    "half": _FOR_IMAGES,
    "weights": _FOR_IMAGES,
    "dropout": ("mlp",),
    "vectors": ("text-cnn",),
    "frozen": ("text-cnn",),
    "words": ("text-cnn",),
}


class ScheduleSpec(Strict):
    """How a network is trained, in epochs; ``decay`` names the course of the learning rate."""

    epochs: float = Field(gt=0)
    batch_size: int = Field(gt=0)
    learning_rate: float = Field(gt=0)
    optimizer: Literal["adamw", "adam", "sgd"] = "sgd"
    weight_decay: float = Field(default=0.0, ge=0)
    decay: Literal["none", "steps", "one-cycle"] = "none"
    decay_every: float | None = Field(default=None, gt=0)
    decay_by: float = Field(default=0.1, gt=0, le=1)


class PretrainSpec(Strict):
    """Contrastive pre-training on the source and target images of the problem, without labels (SimCLR)."""

    epochs: float = Field(default=100, gt=0)
    batch_size: int = Field(default=256, gt=1)
    learning_rate: float = Field(default=2e-3, gt=0)
    temperature: float = Field(default=0.5, gt=0)


class NetworkSpec(Strict):
    """A body, what it starts from, and its schedule (the adapters' own without one).

    ``augment`` (crop and flip), ``half`` (compute in bfloat16), ``weights`` (a file) and ``pretrain`` are for
    the four networks of images, ``stem`` for ResNet-18 and -50, ``dropout`` for the MLP, ``vectors`` (a GloVe
    file, or "random"), ``frozen`` (the vectors are not trained) and ``words`` (how many of a text are read)
    for texts. A key that the body has no use for is refused.
    """

    body: Literal["fast-convnet", "resnet9", "resnet18", "resnet50", "text-cnn", "mlp"]
    stem: Literal["small", "large"] = "large"
    width: int = Field(default=64, gt=0)
    augment: bool = True
    half: bool = False
    dropout: float = Field(default=0.2, ge=0, lt=1)
    weights: str | None = None
    pretrain: PretrainSpec | None = None
    vectors: str = "glove.6B.100d.txt"
    frozen: bool = False
    # With fewer than 149 nothing is left after its three convolutions.
    words: int = Field(default=1_000, ge=149)
    schedule: ScheduleSpec | None = None

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        if self.pretrain is not None and (self.weights is not None or self.body not in _FOR_IMAGES):
            raise ValueError("pretrain is for networks of images that start from no weights of their own.")
        return self

    @model_validator(mode="after")
    def _no_idle_keys(self) -> Self:
        for key in sorted(self.model_fields_set & _ONLY_FOR.keys()):
            if self.body not in _ONLY_FOR[key] and getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key}: the network {self.body!r} has no use for it; leave it out.")
        return self


_CIFAR = ScheduleSpec(
    epochs=200, batch_size=200, learning_rate=0.1, weight_decay=5e-4, decay="steps", decay_every=70
)
_MEDICAL = ScheduleSpec(
    epochs=80,
    batch_size=32,
    learning_rate=1e-4,
    weight_decay=5e-4,
    decay="steps",
    decay_every=1,
    decay_by=0.96,
)
_ADAM = ScheduleSpec(epochs=120, batch_size=200, learning_rate=1e-4, optimizer="adam")

# The paper's, section "Details on the Experimental Setup". The epochs of the medical sets are not in the
# text; 80 is what the authors' script runs.
NETWORKS: dict[str, NetworkSpec] = {
    "resnet18-small-images": NetworkSpec(body="resnet18", stem="small", schedule=_CIFAR),
    "resnet18-large-images": NetworkSpec(
        body="resnet18", stem="large", schedule=_CIFAR.model_copy(update={"batch_size": 32})
    ),
    "resnet50-medical": NetworkSpec(
        body="resnet50", stem="large", weights="resnet50-imagenet.pth", schedule=_MEDICAL
    ),
    "resnet50-faces": NetworkSpec(body="resnet50", stem="large", schedule=_MEDICAL),
    "text-cnn": NetworkSpec(body="text-cnn", schedule=_ADAM),
    "mlp-64-64": NetworkSpec(body="mlp", width=64, schedule=_ADAM.model_copy(update={"epochs": 40})),
}

# Which of them the paper uses for which data set.
PAPER_NETWORKS = {
    "cifar10": "resnet18-small-images",
    "cifar100": "resnet18-small-images",
    "entity30": "resnet18-large-images",
    "newsgroups": "text-cnn",
    "tabula-muris": "mlp-64-64",
    "breakhis": "resnet50-medical",
    "dermnet": "resnet50-medical",
    # The paper does not name the network of its faces; the authors' code has a ResNet-50.
    "utkface": "resnet50-faces",
}

# "For OSDA methods, we use default method specific hyperparameters": the rates of SGD in the authors'
# scripts. Only UAN's decays, as the source classifier's does.
_OPEN_SET_RATES = {
    "backprop-oda": 1e-3,
    "sta": 1e-3,
    "sta-original": 1e-3,
    "uan": 1e-3,
    "cmu": 1e-2,
    "dance": 1e-2,
}


def as_in_paper(spec: NetworkSpec, method: str) -> NetworkSpec:
    """Return the network as the paper trains it for a method: open set methods have rates of their own.

    Those are of the networks that SGD trains from scratch. Adam and fine-tuning keep their rate.
    """
    schedule, rate = spec.schedule, _OPEN_SET_RATES.get(method)
    if rate is None or schedule is None or schedule.optimizer != "sgd" or schedule.learning_rate < rate:
        return spec
    change: dict[str, Any] = {"learning_rate": rate}
    if method != "uan":
        change |= {"decay": "none", "decay_every": None}
    return spec.model_copy(update={"schedule": schedule.model_copy(update=change)})


class HalfPrecision(nn.Module):
    """A body that computes in bfloat16; its weights and features are in single precision.

    On a CPU with instructions for it (AVX512-BF16 or AMX) a training step of the fast convnet takes .6 of the
    time. On a CPU without, it takes many times as long.

    Examples
    --------
    >>> import torch
    >>> from osls.app.bench.network_plans import HalfPrecision
    >>> from osls.training.nets.fast_convnet import FastConvFeatures
    >>> body = HalfPrecision(FastConvFeatures(3, width=4))
    >>> body(torch.rand(2, 3, 32, 32)).dtype, body.out_features
    (torch.float32, 16)
    """

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body
        self.out_features = body.out_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            out: torch.Tensor = self.body(x)
        return out.float()


@dataclass(frozen=True)
class NetworkPlan:
    """A network factory with a schedule of its own; both forms that the adapters ask for.

    Called with (input_shape, n_outputs) it returns a network with a linear head, as
    ``PULSE(discriminator=...)`` wants it; with (input_shape) alone the body with ``out_features``, as
    ``BackpropODA(network=...)`` does. :func:`osls.training.trainer.schedule_for` finds :meth:`schedule` and
    :func:`osls.training.predictors.encoder_for` finds ``verbatim``.
    """

    spec: NetworkSpec
    vectors: Floats | None = None

    @property
    def verbatim(self) -> bool:
        """Word numbers must reach the network as they are."""
        return self.spec.body == "text-cnn"

    def __call__(self, input_shape: tuple[int, ...], n_outputs: int | None = None) -> Any:
        body = self._body(input_shape)
        if n_outputs is None:
            return body
        return nn.Sequential(body, nn.Linear(int(body.out_features), n_outputs))

    def _body(self, input_shape: tuple[int, ...]) -> Any:
        spec = self.spec
        # 4 pixels of CIFAR's 32, 16 of 224: the margins of the authors' crops.
        shift = 0 if not spec.augment else 4 if spec.stem == "small" else input_shape[-1] // 14
        makers: dict[str, Callable[[], Any]] = {
            "fast-convnet": lambda: FastConvFeatures(input_shape[0], spec.width, spec.augment),
            "resnet9": lambda: ResNet9Features(input_shape[0], spec.width, spec.augment),
            "resnet18": lambda: ResNetFeatures(18, input_shape[0], spec.stem, spec.width, shift),
            "resnet50": lambda: ResNetFeatures(50, input_shape[0], spec.stem, spec.width, shift),
            "mlp": lambda: MLPFeatures(input_shape[0], spec.width, spec.dropout),
            "text-cnn": lambda: TextCNNFeatures(self._word_vectors(), spec.frozen),
        }
        if spec.body in _FOR_IMAGES and len(input_shape) != 3:
            raise ValueError(f"the network {spec.body!r} is for images; rows have the shape {input_shape}.")
        body = makers[spec.body]()
        if spec.weights is not None:
            load_weights(body, _weights_file(spec.weights))
        return HalfPrecision(body) if spec.half else body

    def _word_vectors(self) -> torch.Tensor:
        if self.vectors is None:
            raise ValueError("the network 'text-cnn' needs the vectors of its words.")
        return torch.as_tensor(self.vectors)

    def schedule(self, n_rows: int, steps: int | None) -> Schedule:
        """Return the training schedule for so many rows; ``steps`` overrules the epochs."""
        spec = self.spec.schedule
        if spec is None:
            return Schedule.for_rows(n_rows, steps=steps)
        return Schedule(
            steps=steps or 1,
            batch_size=spec.batch_size,
            learning_rate=spec.learning_rate,
            weight_decay=spec.weight_decay,
            decay=spec.decay == "one-cycle",
            optimizer=spec.optimizer,
            gamma=spec.decay_by,
            epochs=None if steps else spec.epochs,
            decay_epochs=spec.decay_every if spec.decay == "steps" else None,
        ).over(n_rows)


def _weights_file(source: str) -> Path:
    path = find_file(source)
    if path is not None:
        return path
    raise FileNotFoundError(
        f"the weights {Path(source).name} are not there: put a file of that name (for ImageNet's, "
        "torchvision's state dict of the network) into the folder that OSLS_DATA names, or give the data set "
        "a network without weights."
    )


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
        _pretrain(path, NetworkPlan(plain), options, X)
    return spec.model_copy(update={"pretrain": None, "weights": str(path)})


def _pretrain(path: Path, plan: NetworkPlan, options: PretrainSpec, X: AnyArray) -> None:
    with seeded(0):
        body = plan(tuple(as_tensor(X[:1], torch.device("cpu")).shape[1:]))
    pretrain(body, X, **options.model_dump())
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(path) as draft:
        save_file({key: value.contiguous() for key, value in body.state_dict().items()}, draft)
