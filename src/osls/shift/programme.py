r"""The linear programme behind open set label shift.

Whatever is novel has non-negative density, so the known classes can explain at most what is there:

.. math:: \sum_j \pi_j\, p_j(b) \le p_t(b) \quad \text{for every region } b, \qquad \pi \ge 0, \quad
    \sum_j \pi_j \le 1 .

With one pure region a class (strong positivity) the mix that explains those regions fully is the truth.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from osls._typing import Floats

__all__ = ["largest_mix"]


def largest_mix(class_shares: Floats, target_shares: Floats, objective: Floats | None = None) -> Floats:
    """Maximise a linear function of the known classes' mix over all mixes that the target has room for.

    Parameters
    ----------
    class_shares : array of shape (regions, k)
        Share of each known class that falls into each region.
    target_shares : array of shape (regions,)
        Share of the target in each region, plus slack for sampling if any.
    objective : array of shape (k,), optional
        What to maximise; by default the target mass explained in the given regions. (The plain total
        would trade a class whose members stray into the others' regions for those others.)

    Returns
    -------
    array of shape (k,)
        The mix; zeros are always feasible.
    """
    k = class_shares.shape[1]
    if objective is None:
        objective = class_shares.sum(axis=0)
    solution = linprog(
        -objective,
        A_ub=np.vstack([class_shares, np.ones(k)]),
        b_ub=np.append(target_shares, 1.0),
        bounds=(0, 1),
    )
    if not solution.success:
        raise RuntimeError(f"the linear programme for the class mix failed: {solution.message}")
    return np.asarray(solution.x)
