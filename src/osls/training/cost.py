"""What a fit will cost, before it starts: seconds and memory, from a few timed steps on a sample of the rows.

The number of steps, trees, folds and rounds of a fit is known beforehand; what one of each costs on this
machine with these columns is measured. Nothing is known of rounds that end early, so that an estimate is
rather too long than too short.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from osls._core.arrays import AnyArray, Ints, with_novel
from osls._core.progress import no_progress
from osls._core.validation import stack_rows
from osls.inference.findings import Estimate, check_all, find_all
from osls.inference.mix import BOOTSTRAP_ROWS, MixFromScores
from osls.shift.scores import HeldOutScores
from osls.training.effort import Plan
from osls.training.learners import Blend, Learner, NetworkLearner, SklearnLearner, train_stack

__all__ = ["Cost", "estimate_cost"]

# Rows of the sample, networks' steps and trees that are timed.
_ROWS, _STEPS, _TREES = 2000, 8, 4
# Times that each is done; the shortest counts, as other work on the machine makes the others longer.
_REPEATS = 3
# Bootstrap replicates that are timed, and the level of intervals, which no time depends on.
_REPLICATES, _LEVEL = 3, 0.95
# Known against novel has two classes, and not all target rows.
_ROUND = 0.6
# Models beside a network are left out of the joint model (but for one fold) and the rounds if it has all the
# weight: about as often as not.
_BESIDE = 0.5
# A gradient step takes about three forward passes.
_PASSES_A_STEP = 3
# Bytes of a node of a tree beside its class counts, and of a score.
_NODE, _SCORE = 64, 8
# Arrays of scores of all classes that live at the same time.
_SCORES_KEPT = 8


@dataclass(frozen=True)
class Cost:
    """What a fit is expected to take.

    Attributes
    ----------
    seconds : float
        Time on this machine, with as many threads as now.
    memory : int
        Bytes beside those of the rows themselves.
    """

    seconds: float
    memory: int

    def __str__(self) -> str:
        if self.seconds < 90:
            length = f"{max(1, round(self.seconds))} s"
        else:
            minutes = self.seconds / 60
            length = f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"
        return f"{length} and {max(1, round(self.memory / 1e6)):,} MB"


class _Shape(NamedTuple):
    """The size of a problem, and the plan for it."""

    n: int
    m: int
    k: int
    plan: Plan

    @property
    def n_folds(self) -> int:
        return self.plan.n_folds

    @property
    def rounds(self) -> int:
        return self.plan.rounds

    @property
    def rows(self) -> int:
        return self.n + self.m

    @property
    def trained(self) -> float:
        """Share of the rows that a fold's model is trained on."""
        return 1 - 1 / self.plan.n_folds


def estimate_cost(
    X: AnyArray, y: AnyArray, X_target: AnyArray, plan: Plan, build: Callable[[AnyArray], Learner]
) -> Cost:
    """Estimate the cost of a cross-fitted fit; ``build`` makes the learner of the discriminator for a sample.

    That learner stands for the source classifier's as well.
    """
    n, m = X.shape[0], X_target.shape[0]
    rng = np.random.default_rng(0)
    classes, number = np.unique(np.asarray(y), return_inverse=True)
    source, target = _some(n, _ROWS * n // (n + m), rng), _some(m, _ROWS * m // (n + m), rng)
    labels = np.concatenate([number[source], np.full(len(target), len(classes))])
    shape = _Shape(n, m, len(classes), plan)
    learner = build(stack_rows(X[source], X_target[target]))
    seconds, memory = _of_inference(shape, rng), _of_rows(X, shape)
    beside = isinstance(learner, Blend)
    for each in (learner.first, learner.second) if isinstance(learner, Blend) else (learner,):
        if isinstance(each, NetworkLearner):
            more = _of_networks(each, labels, shape)
        elif isinstance(each, SklearnLearner):
            more = _of_models(each, labels, shape, _BESIDE if beside else 1.0)
        else:
            continue
        seconds, memory = seconds + more.seconds, memory + more.memory
    return Cost(seconds, memory)


def _some(total: int, count: int, rng: np.random.Generator) -> Ints:
    return np.sort(rng.permutation(total)[: max(min(total, 50), count)])


def _seconds(work: Callable[[], Any]) -> float:
    """Seconds that some work takes, at best."""
    taken = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def _of_networks(learner: NetworkLearner, labels: Ints, shape: _Shape) -> Cost:
    """The source classifier and the joint model take all steps, each round goes on for a part of them."""
    schedule = learner.schedule.over(round(shape.trained * shape.rows))
    networks = learner.new_networks(shape.n_folds, shape.k + 1, shape.rows)
    fold = np.arange(len(labels)) % shape.n_folds
    weight = np.ones(len(labels))

    def steps(count: int) -> float:
        few = replace(schedule, steps=count)
        folds = range(shape.n_folds)
        work = (learner.rows, labels, weight, fold, folds, networks, few, [count], None, 0, no_progress)
        return _seconds(lambda: train_stack(*work))

    # A training of one step has all that is set up once.
    step = max(steps(1 + _STEPS) - steps(1), 1e-6) / _STEPS
    others = shape.plan.divisions - 1 if learner.divides else 0
    trainings = 2 + others
    taken = 2 * schedule.steps + others * schedule.brief().steps + shape.rounds * schedule.continued().steps
    # Rows of the target are scored by the source classifiers of all folds, others by one network each.
    scored = (trainings + shape.rounds) * shape.rows / shape.n_folds + shape.m
    seconds = step * (taken + scored / schedule.batch_size / _PASSES_A_STEP)
    encoded = 4 * shape.rows * int(np.prod(learner.rows.shape[1:]))
    return Cost(seconds, encoded)


def _of_models(learner: SklearnLearner, labels: Ints, shape: _Shape, used: float) -> Cost:
    """Models of scikit-learn: from the time for the sample, by how it grows with the rows.

    ``used`` is how often they are expected to take part in the joint model and the rounds.
    """
    source = np.flatnonzero(labels < shape.k)
    classes = _Model.measure(learner.estimator, learner.X[source], labels[source])
    domains = _Model.measure(learner.light, learner.X, labels)
    n, rows = shape.trained * shape.n, shape.trained * shape.rows
    # Of the joint model one fold is always fitted.
    joint = used + (1 - used) / shape.n_folds
    rounds = used * shape.rounds
    fitted = classes.fitting(n) + (joint + _ROUND * rounds) * domains.fitting(rows)
    # Rows of the target are scored by the source classifiers of all folds, others by one model each.
    scored = classes.scoring * (shape.n + shape.n_folds * shape.m)
    scored += domains.scoring * (joint + rounds) * shape.rows
    # Those of the joint model are forgotten, those of a round replace those of the last.
    memory = shape.n_folds * (classes.size * n + domains.size * rows) + 4 * shape.rows * learner.X.shape[1]
    return Cost(shape.n_folds * fitted + scored, round(memory))


@dataclass(frozen=True)
class _Model:
    """What a model costs: seconds of a fit on a few rows and on so many, seconds and bytes a row."""

    least: float
    seconds: float
    rows: int
    scoring: float
    size: float

    @classmethod
    def measure(cls, estimator: Any, X: AnyArray, labels: Ints) -> _Model:
        trees = getattr(estimator, "n_estimators", None)
        small = clone(estimator)
        if trees is not None:
            small.set_params(n_estimators=_TREES)
        factor = 1.0 if trees is None else trees / _TREES
        few = np.unique(labels, return_index=True)[1]
        with warnings.catch_warnings():
            # A fit stops early on purpose, too; here only its time counts.
            warnings.simplefilter("ignore", ConvergenceWarning)
            least = _seconds(lambda: small.fit(X[few], labels[few]))
            seconds = max(_seconds(lambda: small.fit(X, labels)), least)
        scoring = _seconds(lambda: small.predict_proba(X)) / X.shape[0]
        parts = [part for part in np.ravel(getattr(small, "estimators_", [])) if hasattr(part, "tree_")]
        nodes = sum(part.tree_.node_count for part in parts) / X.shape[0]
        size = nodes * (_NODE + _SCORE * len(few))
        return cls(factor * least, factor * seconds, X.shape[0], factor * scoring, factor * size)

    def fitting(self, rows: float) -> float:
        """Seconds to fit on ``rows`` rows: sorting grows a little faster than they do."""
        growth = rows * np.log(max(rows, 2)) / (self.rows * np.log(self.rows))
        return float(self.least + (self.seconds - self.least) * growth)


def _of_inference(shape: _Shape, rng: np.random.Generator) -> float:
    """Seconds of all that follows from the scores, on invented ones: mix, test, intervals and checks."""
    thin = min(1.0, BOOTSTRAP_ROWS / shape.rows)
    scores = _invented(shape, max(shape.k, round(thin * shape.n)), max(2, round(thin * shape.m)), rng)
    mixing = MixFromScores()
    replicates = _seconds(lambda: mixing.replicates(scores, [], repeats=_REPLICATES, rng=rng))
    # Replicates are thinned; all else is done once, on all rows.
    return (
        shape.plan.replicates * replicates / _REPLICATES
        + _seconds(lambda: _infer(scores, mixing, rng)) / thin
    )


def _invented(shape: _Shape, n: int, m: int, rng: np.random.Generator) -> HeldOutScores:
    """Scores of n source and m target rows that follow the class, so that bins are found as in a real fit."""
    y = np.arange(n) % shape.k
    proba = (
        rng.dirichlet(np.ones(shape.k + 1), n + m)
        + 10 * np.eye(shape.k + 1)[np.concatenate([y, rng.integers(shape.k + 1, size=m)])]
    )
    proba /= proba.sum(axis=1, keepdims=True)
    classes = proba[:, : shape.k] / proba[:, : shape.k].sum(axis=1, keepdims=True)
    return HeldOutScores(y, classes[:n], classes[n:], proba[:n], proba[n:])


def _infer(scores: HeldOutScores, mixing: MixFromScores, rng: np.random.Generator) -> None:
    """Do once what a fit does with scores, but for the replicates."""
    marginal = mixing.known_marginal(scores)
    mix = with_novel(marginal, mixing.novel_share(scores, marginal))
    interval = mixing.interval(scores, mix, level=_LEVEL, repeats=2, rng=rng)
    estimate = Estimate(marginal, mix[-1], interval, _LEVEL, mixing.test(scores, 1 - _LEVEL))
    find_all(scores, estimate, scores.domain_source, scores.domain_target, rng)
    check_all(scores, estimate, list(range(len(marginal))), [], None)


def _of_rows(X: AnyArray, shape: _Shape) -> int:
    """Bytes of the pooled rows, as long as models are built, and of the scores."""
    scores = _SCORES_KEPT * _SCORE * shape.rows * (shape.k + 1)
    size = 12 * int(X.nnz) if sparse.issparse(X) else X.nbytes  # type: ignore[attr-defined]
    return round(scores + size * shape.rows / shape.n)
