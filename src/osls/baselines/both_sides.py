"""Cross-fitted networks whose loss looks at a batch of the source and a batch of the target together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from osls._core.arrays import Floats, Ints
from osls._core.validation import check_folds
from osls.base import Task
from osls.training.learners import NetworkLearner
from osls.training.predictors import Networks
from osls.training.sampling import EpochSampler, assign_folds
from osls.training.trainer import Trainer, seeded

# Source logits (members, rows, outputs), their classes (members, rows), target logits -> the members' sum.
TwoSidedLoss = Callable[[Tensor, Tensor, Tensor], Tensor]


def fold_of_both(task: Task, n_folds: int) -> Ints:
    """Assign source and target rows to folds, by class and side."""
    m = task.X_target.shape[0]
    folds = check_folds(task.y, task.classes, n_folds, m)
    return assign_folds(np.concatenate([task.y, np.full(m, task.k)]), folds, task.rng, task.copy_of)


def train_on_both(
    learner: NetworkLearner,
    task: Task,
    fold: Ints,
    n_outputs: int,
    loss: TwoSidedLoss,
    *,
    balanced: bool = False,
) -> tuple[Networks, Floats]:
    """Train a network for each fold; return them and the out-of-fold logits of all rows.

    ``balanced`` draws the rows of every class equally often.
    """
    n, members = len(task.y), int(fold.max()) + 1
    source = np.zeros(len(fold))
    source[:n] = 1 / np.bincount(task.y)[task.y] if balanced else 1.0
    target = (np.arange(len(fold)) >= n).astype(float)
    trained = max(int(np.sum(side != 0)) for side in (fold[:n], fold[n:]))
    schedule, y = learner.schedule.over(trained), torch.from_numpy(task.y).to(learner.device)
    size = schedule.batch_size
    with seeded(int(task.rng.integers(2**31))) as generator:
        networks = learner.new_networks(members, n_outputs)
        trainer = Trainer(networks, schedule)
        samplers = [
            EpochSampler(np.where(fold == f, 0.0, side), generator)
            for f in range(members)
            for side in (source, target)
        ]

        def loss_of_next_batch() -> Tensor:
            drawn = torch.cat([sampler.next(size) for sampler in samplers]).view(members, 2 * size)
            rows = drawn.to(learner.device)
            # One forward pass for both sides: separate batch statistics would hide their difference.
            logits = networks(learner.rows[rows])
            return loss(logits[:, :size], y[rows[:, :size]], logits[:, size:])

        ends = schedule.ends(schedule.epoch(trained))
        for epoch, mean_loss in enumerate(trainer.epochs(loss_of_next_batch, ends), start=1):
            task.history.append({"step": "epoch", "epoch": epoch, "loss": mean_loss})
    predictor = learner.predictor(networks, members)
    return predictor, predictor.held_out_logits(learner.rows, fold)
