"""The results of training: encoders of rows, and predictors of class probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from osls._core.arrays import AnyArray, Floats, Ints
from osls._core.saving import saveable
from osls.shift.calibration import Calibrator, pool
from osls.training.packed import FEW_ROWS, packed
from osls.training.trainer import as_tensor, score_rows, scoring_chunk

# Sparse input wider than this is compressed by a truncated SVD before a network sees it.
MAX_DENSE_COLUMNS = 1024
_COMPONENTS = 256
CLIP = 8.0
_PIECE = 4096
# Number of rows from which the trimmed mean and standard deviation of a column are computed.
_SAMPLED = 20_000
# A column whose mean is this many times its standard deviation loses precision in float32.
_FAR = 1e3
_HUGE = 1e30


class _Encoding:
    """A map of rows that is saved as what was fitted, by the names of the attributes."""

    row_shape: tuple[int, ...]
    fitted: ClassVar[tuple[str, ...]] = ("row_shape", "mean", "scale")

    def get_state(self) -> dict[str, Any]:
        """Return what was fitted, by name."""
        return {name: getattr(self, name) for name in self.fitted}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the encoder as it was when :meth:`get_state` was called."""
        encoder = cls.__new__(cls)
        for name in cls.fitted:
            setattr(encoder, name, state[name])
        return encoder


@saveable
class Encoder(_Encoding):
    """Standardise the columns of tables (dense or CSR) and scale the pixels of images.

    Fitted on source and target rows together, without labels.

    Parameters
    ----------
    X : array or CSR matrix
        The rows.
    common : bool, default=False
        Divide columns that are in one unit (pixels, components of an encoder) by one number instead of each
        by its own. A linear model of many columns would otherwise learn from those that hardly vary.
    """

    fitted: ClassVar[tuple[str, ...]] = ("svd", "row_shape", "mean", "scale")

    def __init__(self, X: AnyArray, *, common: bool = False):
        self.svd: TruncatedSVD | None = None
        if sparse.issparse(X) and X.shape[1] > MAX_DENSE_COLUMNS:
            components = min(_COMPONENTS, min(X.shape) - 1)
            self.svd = TruncatedSVD(components, random_state=0).fit(X)
        dense = self._dense(X)
        # Shape of one encoded row.
        self.row_shape = dense.shape[1:]
        self.mean, self.scale = centre_and_scale(dense)
        if dense.ndim == 2:
            least = _least_scale(self.scale)
            if least and common:
                self.scale = np.full_like(self.scale, 20 * least)
            self.scale = np.maximum(self.scale, least)

    def __call__(self, X: AnyArray) -> AnyArray:
        dense = self._dense(X)
        encoded = np.empty(dense.shape, dtype=np.float32)
        # In chunks of double precision: the difference to the mean must be computed before float32.
        for start in range(0, len(dense), _PIECE):
            piece = (dense[start : start + _PIECE] - self.mean) / self.scale
            encoded[start : start + _PIECE] = np.clip(piece, -CLIP, CLIP)
        return encoded

    def _dense(self, X: Any) -> AnyArray:
        if self.svd is not None:
            X = self.svd.transform(X)
        elif sparse.issparse(X):
            X = X.toarray()
        return np.asarray(X)


def as_table(encoder: Encoder, X: AnyArray) -> Floats:
    """Return encoded rows in double precision, those of images with one column for each pixel."""
    encoded = encoder(X)
    return encoded.reshape(len(encoded), -1).astype(np.float64)


def centre_and_scale(dense: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return what to subtract from each column, and what to divide it by, in double precision.

    These are mean and standard deviation. If outliers make the standard deviation more than ten times that of
    the middle 99 % of a column, those of the middle are used. Images have one of each for all pixels.
    """
    axes = 0 if dense.ndim == 2 else (0, 1, 2, 3)
    mean = dense.mean(axis=axes, dtype=np.float64)
    std = _spread(dense, mean, axes)
    if dense.ndim == 2:
        middle = np.sort(dense[:: 1 + len(dense) // _SAMPLED], axis=0)
        cut = len(middle) // 200
        middle = middle[cut : len(middle) - cut].astype(np.float64)
        middle_mean, middle_std = middle.mean(axis=0), middle.std(axis=0)
        outliers = (std > 10 * middle_std) & (middle_std > 0)
        mean, std = np.where(outliers, middle_mean, mean), np.where(outliers, middle_std, std)
    # A smaller standard deviation is the rounding error of a constant column.
    least = 16 * np.finfo(dense.dtype if dense.dtype.kind == "f" else np.float64).eps * np.abs(mean)
    return mean, np.where(std > least, std, 1.0)


def _least_scale(scale: AnyArray) -> float:
    """Return what no column is divided by less than, if the columns are in one unit; else 0.

    Of pixels, components or gene expressions, a column that hardly varies beside the others must not be
    amplified to unit noise. Columns are taken to be in one unit if there are many and most vary alike.
    """
    middle = float(np.median(scale))
    alike = len(scale) >= 32 and float(np.quantile(scale, 0.9)) < 10 * middle
    return 0.05 * middle if alike else 0.0


def _spread(dense: AnyArray, mean: AnyArray, axes: int | tuple[int, ...]) -> AnyArray:
    """Return the standard deviation along the axes, in chunks, because it needs double precision."""
    pieces = np.array_split(dense, 1 + len(dense) // _PIECE)
    total = sum(np.square(piece - mean).sum(axis=axes) for piece in pieces)
    return np.asarray(np.sqrt(total / (dense.size / np.size(mean))))


@saveable
class Offsets(_Encoding):
    """Convert columns to float32 without losing precision: columns far from zero are centred and scaled.

    For models that convert to float32 themselves, such as trees. Other columns keep their values.
    """

    def __init__(self, X: AnyArray):
        self.row_shape = X.shape[1:]
        columns = X.shape[1]
        self.mean, self.scale = np.zeros(columns), np.ones(columns)
        if X.ndim == 2 and not sparse.issparse(X):
            present = filled(X)
            mean, scale = centre_and_scale(present)
            largest = np.abs(present).max(axis=0, initial=0.0)
            far = (np.abs(mean) > _FAR * scale) | (largest > _HUGE) | ((largest > 0) & (largest < 1 / _HUGE))
            self.mean, self.scale = np.where(far, mean, 0.0), np.where(far, scale, 1.0)

    def __call__(self, X: AnyArray) -> AnyArray:
        if sparse.issparse(X) or not (self.mean.any() or (self.scale != 1).any()):
            return X.astype(np.float32, copy=False)
        return ((X - self.mean) / self.scale).astype(np.float32)


def filled(X: AnyArray) -> AnyArray:
    """Return the rows with the mean of the column where a value is missing."""
    missing = np.isnan(X)
    if not missing.any():
        return X
    total = np.where(missing, 0.0, X).sum(axis=0)
    return np.where(missing, total / np.maximum((~missing).sum(axis=0), 1), X)


@saveable
class Verbatim(Encoder):
    """Leaves rows unchanged: for example token ids, which the network looks up."""

    fitted = ("row_shape",)

    def __init__(self, X: AnyArray) -> None:
        self.row_shape = X.shape[1:]

    def __call__(self, X: Any) -> AnyArray:
        rows = X.toarray() if sparse.issparse(X) else np.asarray(X)
        return rows.astype(np.float32, copy=False)


def encoder_for(factory: Any, X: AnyArray) -> Encoder:
    """Return the usual encoder of the rows, or Verbatim for a network factory with ``verbatim = True``."""
    return Verbatim(X) if getattr(factory, "verbatim", False) else Encoder(X)


class Predictor(Protocol):
    """Anything with scikit-learn's ``predict_proba`` on rows that are validated already."""

    def predict_proba(self, X: AnyArray) -> Floats: ...


@saveable
@dataclass(frozen=True)
class Constant:
    """The same probabilities for every row."""

    proba: tuple[float, ...]

    def predict_proba(self, X: AnyArray) -> Floats:
        return np.tile(self.proba, (X.shape[0], 1))


@dataclass(frozen=True)
class Networks:
    """The mean over a stack of networks; a single output is the logit of the last of two classes."""

    encoder: Encoder
    networks: nn.Module
    members: int
    device: torch.device

    def logits(self, rows: Tensor) -> Floats:
        """Logits of rows on the device by every member, (members, n, outputs)."""
        self.networks.eval()
        by_row = score_rows(
            lambda chunk: self.networks(chunk.expand(self.members, *chunk.shape)).transpose(0, 1), rows
        )
        return by_row.swapaxes(0, 1)

    def held_out_logits(self, rows: Tensor, fold: Ints) -> Floats:
        """Logits of each row by the member that its fold names, (n, outputs); nan without a fold (-1)."""
        self.networks.eval()
        own = [torch.from_numpy(np.flatnonzero(fold == f)) for f in range(self.members)]
        # All members score in one call, each its own rows; shorter lists are padded with row 0.
        table = pad_sequence(own, batch_first=True).to(self.device)
        by_member = score_rows(lambda piece: self.networks(rows[piece.T]).transpose(0, 1), table.T)
        logits = np.full((len(fold), by_member.shape[2]), np.nan, dtype=np.float32)
        for f, rows_of_member in enumerate(own):
            logits[rows_of_member] = by_member[: len(rows_of_member), f]
        return logits

    def predict_proba(self, X: AnyArray) -> Floats:
        # In chunks, written straight into the result, so that no large temporary arrays are needed.
        size = scoring_chunk(self.device)
        first = self._mean_proba_of(X[:size])
        proba = np.empty((X.shape[0], first.shape[1]), dtype=first.dtype)
        proba[:size] = first
        for i in range(size, X.shape[0], size):
            proba[i : i + size] = self._mean_proba_of(X[i : i + size])
        return proba

    def _mean_proba_of(self, X: AnyArray) -> Floats:
        return self.mean_proba(as_tensor(self.encoder(X), self.device))

    def mean_proba(self, rows: Tensor) -> Floats:
        """Probabilities of a few rows on the device, the mean over all members."""
        self.networks.eval()
        with torch.inference_mode():
            logits = self.networks(rows.expand(self.members, *rows.shape))
            if logits.shape[2] == 1:
                logits = torch.cat([-logits / 2, logits / 2], dim=2)
            # With the class axis first, torch vectorises the softmax over the rows.
            proba = logits.permute(2, 0, 1).contiguous().softmax(dim=0).mean(dim=1)
        return np.asarray(proba.T.cpu().numpy())


@saveable
@dataclass(frozen=True)
class SklearnModels:
    """The mean over scikit-learn classifiers, with zeros for classes that a classifier has not seen."""

    models: Sequence[Any]
    n_classes: int
    encoder: Encoder | Offsets | None = None

    def predict_proba(self, X: AnyArray) -> Floats:
        return self.of_encoded(X if self.encoder is None else self.encoder(X))

    def of_encoded(self, X: AnyArray) -> Floats:
        """Return probabilities of rows that are encoded already."""
        proba = np.zeros((X.shape[0], self.n_classes))
        few = X.shape[0] <= FEW_ROWS and isinstance(X, np.ndarray) and X.dtype == np.float32
        forest = packed(self.models) if few and not np.isnan(X).any() else None
        if forest is not None:
            proba[:, self.models[0].classes_.astype(np.int64)] = forest.predict_proba(X)
            return proba
        for model in self.models:
            proba[:, model.classes_.astype(np.int64)] += model.predict_proba(X)
        return proba / len(self.models)


@saveable
@dataclass(frozen=True)
class Blended:
    """A weighted mean of two predictors."""

    first: Predictor
    second: Predictor
    share: float

    def predict_proba(self, X: AnyArray) -> Floats:
        # Skip a predictor of weight zero.
        if self.share == 1:
            return self.first.predict_proba(X)
        if self.share == 0:
            return self.second.predict_proba(X)
        return self.share * self.first.predict_proba(X) + (1 - self.share) * self.second.predict_proba(X)


@saveable
@dataclass(frozen=True)
class Pooled:
    """Two predictors as one: the product of powers of their probabilities."""

    first: Predictor
    second: Predictor
    exponents: tuple[float, float]

    def predict_proba(self, X: AnyArray) -> Floats:
        return pool(self.first.predict_proba(X), self.second.predict_proba(X), self.exponents)


@saveable
@dataclass(frozen=True)
class FittedClassifier:
    """A classifier that the user fitted; its columns are reordered and renormalised."""

    estimator: Any
    order: Sequence[int]

    def predict_proba(self, X: AnyArray) -> Floats:
        proba = self.estimator.predict_proba(X)[:, list(self.order)]
        return np.asarray(proba / np.maximum(proba.sum(axis=1, keepdims=True), 1e-12))


@saveable
@dataclass(frozen=True)
class Calibrated:
    """A classifier with its probabilities calibrated."""

    predictor: Predictor
    calibrator: Calibrator

    def predict_proba(self, X: AnyArray) -> Floats:
        return self.calibrator(self.predictor.predict_proba(X))


@saveable
@dataclass(frozen=True)
class Shifted:
    """A classifier of two classes whose odds of the second are multiplied."""

    predictor: Predictor
    odds: float

    def predict_proba(self, X: AnyArray) -> Floats:
        weighted = self.predictor.predict_proba(X) * [1.0, self.odds]
        return np.asarray(weighted / weighted.sum(axis=1, keepdims=True))
