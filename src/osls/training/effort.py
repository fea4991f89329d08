"""How much work a cross-fitted fit may be: the settings behind ``effort``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

# From so many rows of source and target on, three folds train on enough rows, and from so many on two.
_THREE_FOLDS, _TWO_FOLDS = 200_000, 1_000_000
# With more rows the joint model's seed and folds matter less than its time.
_ONE_DIVISION = 50_000


class Plan(NamedTuple):
    """How often a fit does what: folds, rounds of CVIR, bootstrap replicates, divisions into folds."""

    n_folds: int
    rounds: int
    replicates: int
    divisions: int = 1


@dataclass(frozen=True)
class Effort:
    """What a fit spends.

    Attributes
    ----------
    n_folds, rounds, n_bootstrap : int
        Folds, largest number of CVIR refits, bootstrap replicates.
    divisions : int
        How many divisions into folds the joint model's networks are averaged over, up to 50,000 rows. On 20
        draws each of digits, satimage, letter and drybean, which are in no table, the mean of two makes the
        error of the novel share smaller by .0018 +- .0007 (of .0138).
    trees : int
        Size of a forest that stands alone.
    blended_trees : two of int
        Size of a forest beside a network: of one that answers, and of one whose scores are only ranked.
    networks : bool
        Whether a network is blended with the trees; without it the trees are alone.
    epochs, width : int
        How long an MLP is trained, and how wide it is from 4,000 rows on.
    warm : bool
        Whether the networks of the refits go on from those of the joint model.
    """

    n_folds: int = 5
    rounds: int = 2
    n_bootstrap: int = 200
    divisions: int = 2
    trees: int = 100
    blended_trees: tuple[int, int] = (80, 40)
    networks: bool = True
    epochs: int = 8
    width: int = 192
    warm: bool = True

    def folds_for(self, n_rows: int) -> int:
        """Return the number of folds for a source and a target of ``n_rows`` rows together."""
        if n_rows < _THREE_FOLDS:
            return self.n_folds
        return min(self.n_folds, 3 if n_rows < _TWO_FOLDS else 2)

    def divisions_for(self, n_rows: int) -> int:
        """Return the number of divisions into folds for as many rows."""
        return self.divisions if n_rows <= _ONE_DIVISION else 1


EFFORTS = {
    "balanced": Effort(),
    "quick": Effort(n_folds=3, rounds=1, n_bootstrap=50, divisions=1, trees=50, networks=False),
    "best": Effort(rounds=3, trees=200, blended_trees=(200, 200), epochs=16, width=256),
}
