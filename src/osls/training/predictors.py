"""What is left of a training: objects that turn rows into class probabilities, and can be pickled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from osls._core.arrays import AnyArray, Floats, Ints
from osls._core.saving import saveable
from osls.shift.calibration import scale
from osls.training.encoding import Encoder
from osls.training.trainer import as_tensor, score_rows, scoring_chunk

__all__ = ["Blended", "Constant", "FittedClassifier", "Networks", "Predictor", "SklearnModels", "Tempered"]


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
        # All members score in one call, each its own rows. Those with fewer get row 0 on top.
        table = pad_sequence(own, batch_first=True).to(self.device)
        by_member = score_rows(lambda piece: self.networks(rows[piece.T]).transpose(0, 1), table.T)
        logits = np.full((len(fold), by_member.shape[2]), np.nan, dtype=np.float32)
        for f, rows_of_member in enumerate(own):
            logits[rows_of_member] = by_member[: len(rows_of_member), f]
        return logits

    def predict_proba(self, X: AnyArray) -> Floats:
        # Piece by piece from the rows to the answer, which has its place: nothing large is kept between.
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
            # With the few classes first, torch works on many rows at a time.
            proba = logits.permute(2, 0, 1).contiguous().softmax(dim=0).mean(dim=1)
        return np.asarray(proba.T.cpu().numpy())


@saveable
@dataclass(frozen=True)
class SklearnModels:
    """The mean over scikit-learn classifiers, with a column also for classes that one has not seen."""

    models: Sequence[Any]
    n_classes: int

    def predict_proba(self, X: AnyArray) -> Floats:
        proba = np.zeros((X.shape[0], self.n_classes))
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
        # A family that the blend does not use is not asked.
        if self.share == 1:
            return self.first.predict_proba(X)
        if self.share == 0:
            return self.second.predict_proba(X)
        return self.share * self.first.predict_proba(X) + (1 - self.share) * self.second.predict_proba(X)


@saveable
@dataclass(frozen=True)
class FittedClassifier:
    """A classifier that the user fitted; its columns in our order, renormalised."""

    estimator: Any
    order: Sequence[int]

    def predict_proba(self, X: AnyArray) -> Floats:
        proba = self.estimator.predict_proba(X)[:, list(self.order)]
        return np.asarray(proba / np.maximum(proba.sum(axis=1, keepdims=True), 1e-12))


@saveable
@dataclass(frozen=True)
class Tempered:
    """A classifier with its probabilities sharpened or softened."""

    predictor: Predictor
    inverse_temperature: float

    def predict_proba(self, X: AnyArray) -> Floats:
        return scale(self.predictor.predict_proba(X), self.inverse_temperature)
