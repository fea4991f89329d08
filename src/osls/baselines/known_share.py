"""The share of known rows in the target, for methods that must be told it before they can train."""

from __future__ import annotations

import numpy as np
from sklearn.base import clone

from osls._core.validation import check_folds, stack_rows
from osls.base import Task
from osls.mixture import BBE, MixtureEstimator
from osls.training.choose import LearnerSpec, choose_learner
from osls.training.sampling import assign_folds


def known_share(
    task: Task,
    *,
    novel_share: float | None,
    mixture: MixtureEstimator | None,
    discriminator: LearnerSpec,
    n_folds: int,
    n_jobs: int | None = None,
) -> float:
    """Return one minus ``novel_share`` if that is given; otherwise an estimate.

    A discriminator of source and target is cross-fitted, and the mixture estimator reads the share from its
    out-of-fold outputs. So a known class that became more frequent looks novel in part.
    """
    n, m = len(task.y), task.X_target.shape[0]
    folds = check_folds(task.y, task.classes, n_folds, m)
    if novel_share is not None:
        return 1 - novel_share
    pool = stack_rows(task.X, task.X_target)
    learner = choose_learner(discriminator, pool, max_steps=None, device="auto", n_jobs=n_jobs)
    fold = assign_folds(np.concatenate([task.y, np.full(m, task.k)]), folds, task.rng, task.copy_of)
    seed = int(task.rng.integers(2**31))
    scores = learner.cross_fit(np.repeat([1, 0], [n, m]), np.ones(n + m), fold, 2, seed).scores[:, 1]
    estimator = BBE() if mixture is None else clone(mixture)
    alpha = float(estimator.fit(scores[:n], scores[n:]).alpha_)
    task.history.append({"step": "known share", "alpha": alpha})
    return alpha
