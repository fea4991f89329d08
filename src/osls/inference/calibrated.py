"""How far an estimated mix is off on problems nobody chose: what the bootstrap cannot see.

The bootstrap knows sampling noise. It does not know that the purest bin is not quite pure, that classes which
are hard to tell from each other also hide novel rows, or that another seed gives other folds. All of this was
measured once, on 976 random problems over sixteen data sets (benchmarks/calibrate.py; eight further data sets
were only looked at for the final table): how large errors are for a given bootstrap spread and accuracy, and
the quantiles of the errors so standardised. The numbers below are those, and nothing else.
"""

from __future__ import annotations

import numpy as np

from osls._core.arrays import Floats

# Known rows overcounted, per unit of the source classifier's error rate, with at most _FEW_ROWS rows; with
# more rows smaller and purer bins can be used, and the effect shrinks in proportion.
_HIDDEN = 0.45
_FEW_ROWS = 300
# Logarithm of the scale of errors: constant, per log(bootstrap spread + floor), per error rate of the
# classifier, for the novel share also per log(thousands of rows). That of the known classes is 1.15 times
# what it is on average, so that the worst of the sixteen data sets, left out, is covered in .92.
_NOVEL_SCALE, _NOVEL_FLOOR = (-1.2147, 0.8649, 3.4481, -0.2656), 0.01
_KNOWN_SCALE, _KNOWN_FLOOR = (0.1737, 1.2929, 3.5019), 0.005
# Quantiles of (truth - estimate) / scale, every data set with the same weight: probability, novel, known.
_QUANTILES = np.array(
    [
        (0.005, -3.541, -4.838),
        (0.01, -3.262, -4.080),
        (0.025, -2.651, -2.817),
        (0.05, -2.234, -2.033),
        (0.1, -1.756, -1.324),
        (0.15, -1.372, -0.937),
        (0.2, -1.104, -0.637),
        (0.3, -0.741, -0.254),
        (0.4, -0.438, -0.003),
        (0.5, -0.122, 0.196),
        (0.6, 0.194, 0.443),
        (0.7, 0.467, 0.718),
        (0.8, 0.841, 1.074),
        (0.85, 1.127, 1.341),
        (0.9, 1.459, 1.690),
        (0.95, 2.127, 2.284),
        (0.975, 2.724, 2.987),
        (0.99, 3.302, 4.338),
        (0.995, 3.643, 5.313),
    ]
)


def known_factor(accuracy: float, rows: float, hidden: float = _HIDDEN) -> float:
    """Factor by which an estimated share of known rows is too large on average: at most one.

    Parameters
    ----------
    accuracy : float
        Accuracy of the source classifier on held-out rows.
    rows : float
        Rows of the smaller side (effective rows of the re-weighted source).
    hidden : float
        Known rows overcounted, per unit of the error rate, with few rows.

    Examples
    --------
    >>> from osls.inference.calibrated import known_factor
    >>> [round(known_factor(accuracy, rows), 4) for accuracy, rows in ((1.0, 300), (0.8, 300), (0.8, 3000))]
    [1.0, 0.91, 0.991]
    """
    return 1 - hidden * (1 - accuracy) * min(1.0, _FEW_ROWS / rows)


def calibrated_interval(
    estimate: Floats, spread: Floats, accuracy: float, rows: float, level: float
) -> Floats:
    """Intervals for the shares of k + 1 classes, the novel one last, within [0, 1].

    Parameters
    ----------
    estimate, spread : arrays of shape (k + 1,)
        The mix, and the standard deviation of its bootstrap replicates.
    accuracy, rows : float
        As in :func:`known_factor`.
    level : float
        Probability that an interval holds its share, over problems like those that were measured.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.calibrated import calibrated_interval
    >>> calibrated_interval(np.array([0.8, 0.2]), np.array([0.02, 0.02]), 0.95, 1000, 0.95).round(3)
    array([[0.766, 0.836],
           [0.155, 0.246]])
    """
    known = _ends(_KNOWN_SCALE, _QUANTILES[:, 2], level, np.log(spread[:-1] + _KNOWN_FLOOR), 1 - accuracy)
    about = np.log(spread[-1:] + _NOVEL_FLOOR), 1 - accuracy, np.log(rows / 1000)
    novel = _ends(_NOVEL_SCALE, _QUANTILES[:, 1], level, *about)
    return np.asarray(np.clip(estimate[:, None] + np.vstack([known, novel]), 0.0, 1.0))


def _ends(
    scale: tuple[float, ...], quantiles: Floats, level: float, log_spread: Floats, *about: float
) -> Floats:
    """How far below and above the estimates the intervals end."""
    constant, per_spread, *others = scale
    size = np.exp(constant + per_spread * log_spread + np.dot(others, about))
    return np.outer(size, np.interp([0.5 - level / 2, 0.5 + level / 2], _QUANTILES[:, 0], quantiles))
