"""How far an estimated mix is off on problems nobody chose: what the bootstrap cannot see.

The bootstrap knows sampling noise. It does not know that the purest bin is not quite pure, that classes which
are hard to tell from each other also hide novel rows, or that another seed gives other folds. All of this was
measured once, on 208 random problems over sixteen data sets (benchmarks/problems.py; eight further data sets
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
# Logarithm of the scale of errors: constant, per log(bootstrap spread + floor), per error of the classifier.
_NOVEL_SCALE, _NOVEL_FLOOR = (0.4894, 1.3075, 1.8239), 0.01
_KNOWN_SCALE, _KNOWN_FLOOR = (0.8275, 1.3603, 0.0), 0.005
# Quantiles of (truth - estimate) / scale, every data set with the same weight: probability, novel, known.
_QUANTILES = np.array(
    [
        (0.005, -3.751, -3.778),
        (0.01, -3.398, -3.406),
        (0.025, -2.91, -2.595),
        (0.05, -2.57, -1.999),
        (0.1, -1.984, -1.334),
        (0.15, -1.554, -0.982),
        (0.2, -1.421, -0.657),
        (0.3, -0.886, -0.25),
        (0.4, -0.449, 0.0),
        (0.5, -0.075, 0.209),
        (0.6, 0.134, 0.472),
        (0.7, 0.392, 0.771),
        (0.8, 0.654, 1.09),
        (0.85, 0.909, 1.337),
        (0.9, 1.23, 1.669),
        (0.95, 1.617, 2.419),
        (0.975, 2.615, 2.943),
        (0.99, 2.819, 3.884),
        (0.995, 2.977, 4.305),
    ]
)
# An interval that starts at zero because nothing was found covers more than it has to: a tenth less will do.
_NARROWER = 0.9


def known_factor(accuracy: float, rows: float) -> float:
    """Factor by which an estimated share of known rows is too large on average: at most one.

    Parameters
    ----------
    accuracy : float
        Accuracy of the source classifier on held-out rows.
    rows : float
        Rows of the smaller side (effective rows of the re-weighted source).

    Examples
    --------
    >>> from osls.inference.calibrated import known_factor
    >>> [round(known_factor(accuracy, rows), 4) for accuracy, rows in ((1.0, 300), (0.8, 300), (0.8, 3000))]
    [1.0, 0.91, 0.991]
    """
    return 1 - _HIDDEN * (1 - accuracy) * min(1.0, _FEW_ROWS / rows)


def calibrated_interval(estimate: Floats, spread: Floats, accuracy: float, level: float) -> Floats:
    """Intervals for the shares of k + 1 classes, the novel one last, within [0, 1].

    Parameters
    ----------
    estimate, spread : arrays of shape (k + 1,)
        The mix, and the standard deviation of its bootstrap replicates.
    accuracy : float
        Accuracy of the source classifier on held-out rows.
    level : float
        Probability that an interval holds its share, over problems like those that were measured.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.calibrated import calibrated_interval
    >>> calibrated_interval(np.array([0.8, 0.2]), np.array([0.02, 0.02]), 0.95, 0.95).round(3)
    array([[0.761, 0.845],
           [0.152, 0.243]])
    """
    known = _ends(spread[:-1], accuracy, level, _KNOWN_SCALE, _KNOWN_FLOOR, _QUANTILES[:, 2])
    novel = _ends(spread[-1:], accuracy, level, _NOVEL_SCALE, _NOVEL_FLOOR, _NARROWER * _QUANTILES[:, 1])
    return np.asarray(np.clip(estimate[:, None] + np.vstack([known, novel]), 0.0, 1.0))


def _ends(
    spread: Floats,
    accuracy: float,
    level: float,
    scale: tuple[float, float, float],
    floor: float,
    quantiles: Floats,
) -> Floats:
    constant, per_spread, per_error = scale
    size = np.exp(constant + per_spread * np.log(spread + floor) + per_error * (1 - accuracy))
    low, high = np.interp([0.5 - level / 2, 0.5 + level / 2], _QUANTILES[:, 0], quantiles)
    return np.outer(size, [low, high])
