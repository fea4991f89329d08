"""The keep rule of CVIR."""

from __future__ import annotations

import numpy as np

from osls._core.arrays import Bools, Floats

__all__ = ["keep_as_novel"]


def keep_as_novel(known_score: Floats, novel_share: float, *, least: int = 1) -> Bools:
    """Mark the ``novel_share`` of the rows that look least like the known classes; never none of them.

    Ranking by the loss of calling a row novel is ranking by its score. The floor matters: with an empty
    set the next round would learn that nothing is novel and could never change its mind.
    """
    count = int(np.clip(round(novel_share * len(known_score)), least, len(known_score)))
    kept = np.zeros(len(known_score), dtype=bool)
    kept[np.argsort(known_score, kind="stable")[:count]] = True
    return kept
