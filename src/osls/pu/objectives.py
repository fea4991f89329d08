"""PU objectives on networks: one cross-fitted training loop for all of them.

:func:`osls.pu.cvir.refit` turns CVIR into weighted classification, which any learner can do. The other
objectives are functions of a batch of logits and need gradient descent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor, nn

from osls._core.arrays import Floats, Ints
from osls._core.progress import History
from osls.pu import losses
from osls.pu.cvir import Discriminator, PUProblem
from osls.pu.selection import unbiased_risk
from osls.training.learners import NetworkLearner
from osls.training.sampling import EpochSampler, assign_folds
from osls.training.trainer import Trainer, seeded

NETWORK_OBJECTIVES = tuple(name for name in losses.OBJECTIVES if name != "cvir")

_SNAPSHOTS = 10


def find_objective(name: str, *, penalty: float = 1.0) -> losses.Loss:
    """Return the loss of a batch by a name in ``NETWORK_OBJECTIVES``; ``penalty`` is "cvir-penalty"'s."""
    if name not in NETWORK_OBJECTIVES:
        choices = ", ".join(NETWORK_OBJECTIVES)
        raise ValueError(f"unknown objective {name!r} for networks; choose one of {choices}.")
    if name == "cvir-penalty":
        return losses.Objective(partial(losses.cvir_with_penalty, penalty=penalty), keeps=True).on_batch
    return losses.OBJECTIVES[name].on_batch


def train_objective(
    learner: NetworkLearner,
    problem: PUProblem,
    objective: str | losses.Loss,
    alpha: float,
    *,
    n_folds: int,
    rng: np.random.Generator,
    history: History,
    penalty: float = 1.0,
) -> Discriminator:
    """Train a stack of networks on a PU loss, one network per fold, and score every row out of fold.

    Of ten snapshots, the one with the least unbiased error rate on the rows held out from each network is
    returned: these objectives overfit late in training. CVIR ranks the rows by the current network, so
    "cvir-penalty" first trains domain discrimination for a quarter of the steps, as in Algorithm 3.

    Parameters
    ----------
    learner : NetworkLearner
        Networks bound to the pooled rows (positives, then unlabelled).
    problem : PUProblem
        The positives' strata and weights, and the number of unlabelled rows.
    objective : str or callable
        A name in ``NETWORK_OBJECTIVES``, or a function (positive logits, unlabelled logits, alpha) -> loss
        that averages over the last axis.
    alpha : float
        Share of positives among the unlabelled rows.
    n_folds : int
        Networks to train.
    rng : numpy Generator
        Source of folds and seeds.
    history : list
        One record per snapshot is appended to it.
    penalty : float, default=1.0
        Weight of the extra loss of "cvir-penalty".

    Returns
    -------
    Discriminator
        As :func:`osls.pu.cvir.refit` returns it.
    """
    loss = find_objective(objective, penalty=penalty) if isinstance(objective, str) else objective
    name = objective if isinstance(objective, str) else getattr(objective, "__name__", "custom")
    n, m = problem.n_source, problem.n_target
    strata = np.append(problem.y_source, np.full(m, problem.y_source.max() + 1))
    fold = assign_folds(strata, n_folds, rng, problem.copy_of)
    schedule = learner.schedule.over(max(int(np.sum(side != 0)) for side in (fold[:n], fold[n:])))
    with seeded(int(rng.integers(2**31))) as generator:
        networks = learner.new_networks(n_folds, 1)
        predictor = learner.predictor(networks, n_folds)
        trainer = Trainer(networks, schedule)
        next_batch = _batches(problem, fold, schedule.batch_size, generator)
        best = _Best(networks)

        steps = schedule.steps
        warm = steps // 4 if name == "cvir-penalty" else 0

        def loss_of_next_batch() -> Tensor:
            # One forward pass for both sides: separate batch statistics would hide their difference.
            logits = networks(learner.rows[next_batch().to(learner.device)])[:, :, 0]
            half = logits.shape[1] // 2
            now = loss if trainer.steps_done >= warm else find_objective("pvu")
            # The members share no parameters, so the sum of their losses trains each independently.
            return now(logits[:, :half], logits[:, half:], alpha).sum()

        # Evenly spaced, as far as the number of steps allows; fewer than ten steps give fewer snapshots.
        stops = np.unique(np.linspace(warm, steps, _SNAPSHOTS + 1).astype(int))[1:].tolist()
        trainer.run(loss_of_next_batch, warm)
        for mean_loss, stop in zip(trainer.epochs(loss_of_next_batch, stops), stops, strict=True):
            learner.advance(1 / _SNAPSHOTS)
            logits = predictor.held_out_logits(learner.rows, fold)[:, 0]
            risk = unbiased_risk(logits[:n], logits[n:], alpha, positive_weight=problem.source_weight)
            best.offer(risk, logits)
            history.append({"step": name, "steps": stop, "loss": mean_loss / n_folds, "risk": risk})
        networks.load_state_dict(best.state)
    known = expit(best.logits.astype(np.float64))
    return Discriminator(known[n:], predictor, 1 - alpha, known[:n])


class _Best:
    """The snapshot of least risk; in a tie the latest, whose predictions are more confident."""

    def __init__(self, networks: nn.Module):
        self._networks = networks
        self._risk = np.inf
        self.state: dict[str, Tensor] = {}
        self.logits: Floats = np.empty(0)

    def offer(self, risk: float, logits: Floats) -> None:
        if risk <= self._risk:
            self._risk, self.logits = risk, logits
            self.state = {name: value.clone() for name, value in self._networks.state_dict().items()}


def _batches(problem: PUProblem, fold: Ints, size: int, generator: torch.Generator) -> Callable[[], Tensor]:
    """Return a function that draws row numbers, (members, 2 size): positives, then unlabelled rows.

    No member gets rows of its own held-out fold.
    """
    positive = np.append(problem.source_weight, np.zeros(problem.n_target))
    unlabeled = np.append(np.zeros(problem.n_source), np.ones(problem.n_target))
    samplers = [
        [EpochSampler(np.where(fold == f, 0.0, side), generator) for side in (positive, unlabeled)]
        for f in range(int(fold.max()) + 1)
    ]

    def next_batch() -> Tensor:
        return torch.stack([torch.cat([side.next(size) for side in member]) for member in samplers])

    return next_batch
