"""Array types for signatures, and small statistics that several subpackages need."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]
AnyArray = NDArray[Any]
RandomState = int | np.random.RandomState | None


def effective_size(weight: Floats) -> float:
    """Effective sample size: how many rows of equal weight are as informative as these weighted rows."""
    return float(weight.sum() ** 2 / np.square(weight).sum())


def dkw_radius(n: float, delta: float) -> float:
    r"""Half-width of a confidence band around the shares of n draws: :math:`\sqrt{\log(4/\delta) / (2n)}`.

    The band of Dvoretzky, Kiefer and Wolfowitz, with the paper's log(4/delta): four one-sided bands, above
    and below for two samples, hold together with probability 1 - delta.
    """
    if not n > 0:
        raise ValueError(f"n must be positive; got {n}.")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie in (0, 1); got {delta}.")
    return float(np.sqrt(np.log(4 / delta) / (2 * n)))


def with_novel(known_marginal: Floats, novel_share: float) -> Floats:
    """Shares of all k + 1 classes, from the mix among the known ones and the novel share."""
    return np.append((1 - novel_share) * known_marginal, novel_share)


def keep_as_novel(known_score: Floats, novel_share: float, *, least: int = 1) -> Bools:
    """Mark the ``novel_share`` of the rows that look least like the known classes: CVIR's keep rule.

    Ranking by the loss of calling a row novel is the same as ranking by its score. At least one row is kept:
    with an empty set the next round would learn that nothing is novel, and could never correct that.
    """
    count = int(np.clip(round(novel_share * len(known_score)), least, len(known_score)))
    kept = np.zeros(len(known_score), dtype=bool)
    kept[np.argsort(known_score, kind="stable")[:count]] = True
    return kept
