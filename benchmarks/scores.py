"""Held-out scores of many problems, made once and kept: what the statistical studies look at.

Shares, intervals, the novelty test and the diagnostics of PULSE depend on a fit only through the out-of-fold
scores of its source classifier and (k+1)-way model. Studies of them therefore stop a fit there, and keep the
scores in a cache folder (``--cache``), not in the repository.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from osls import PULSE
from osls._core.validation import check_folds
from osls.app.bench.draws import draw_problem
from osls.base import Adaptation
from osls.datasets import OSLSProblem, change_looks, simulate_osls
from osls.inference.mix import MixFromScores
from osls.shift.joint import joint_range
from osls.shift.scores import HeldOutScores
from osls.theory import bbe_interval
from osls.training.learners import cross_fit_all
from osls.training.roles import calibrated_joint, class_work, joint_task
from osls.training.sampling import assign_folds

# Kinds that come in degrees, and how strong they are unless said otherwise.
STRENGTHS = {"leak": 0.2, "looks": 0.3, "label-noise": 0.2}


@dataclass(frozen=True)
class Case:
    """One problem: a draw of a data set, and what is done to its target."""

    data: str
    draw: int
    kind: str = "clean"
    rows: int | None = None
    model: str = "auto"

    @property
    def name(self) -> str:
        extra = ("" if self.rows is None else f"-{self.rows}") + (
            "" if self.model == "auto" else f"-{self.model}"
        )
        return f"{self.data}{extra}-{self.kind}-{self.draw}"


class ScoresOnly(PULSE):
    """PULSE up to the scores of steps 2 and 3."""

    def _adapt_by_cross_fitting(self, task: Any, advance: Any) -> Adaptation:
        m = task.X_target.shape[0]
        source_learner, learner = self._roles.both(task.pool, task.classes, advance)
        plan = self._roles.plan(len(task.y) + m)
        n_folds = check_folds(task.y, task.classes, plan.n_folds, m)
        fold = np.concatenate([assign_folds(task.y, n_folds, task.rng, task.copy_of), np.full(m, -1)])
        work = class_work(source_learner, task.y, task.row_weight, fold, task.k, task.rng)
        domains = joint_task(task.y, task.row_weight, m, n_folds, task.rng, task.copy_of, plan.divisions)
        classes, joint = cross_fit_all([work, (learner, domains)])
        f_s = self._calibrated(classes, task, fold)
        self.parts = {"y": task.y, "classes": f_s.scores, "joint": calibrated_joint(joint, domains)}
        self.copies = task.copies
        return Adaptation(task.source_marginal, 0.0, np.zeros((m, task.k + 1)))

    @property
    def scores(self) -> HeldOutScores:
        """The scores of both models."""
        y, classes, joint = self.parts["y"], self.parts["classes"], self.parts["joint"]
        n, parts = len(y), (classes, joint)
        sides = [side for part in parts for side in (part[:n], part[n:])]
        return HeldOutScores(y, *sides, copies=self.copies)


@dataclass(frozen=True)
class Answer:
    """What PULSE concludes from scores: shares and intervals of k + 1 classes, and the p-value.

    ``marginal`` is the mix among the known classes, also where nothing known was found.
    """

    marginal: np.ndarray
    mix: np.ndarray
    interval: np.ndarray
    bound: np.ndarray
    novel_bound: tuple[float, float]
    p_value: float


def answer(scores: HeldOutScores, *, seed: int, replicates: int = 100) -> Answer:
    """Go through steps 3 and 5 of PULSE from the scores on."""
    estimator = MixFromScores()
    marginal = estimator.known_marginal(scores)
    # As PULSE decides by default.
    p_value = estimator.test(scores, level=0.05).pvalue
    share = estimator.novel_share(scores, marginal) if p_value <= 0.05 else 0.0
    mix = np.append((1 - share) * marginal, share)
    rng = np.random.default_rng(seed)
    interval = estimator.interval(scores, mix, level=0.95, repeats=replicates, rng=rng)
    known = bbe_interval(*scores.domain(marginal), 0.05, positive_weight=scores.weights(marginal))
    bound = joint_range(scores.domain_source, scores.y, scores.domain_target)
    return Answer(marginal, mix, interval, bound, (1 - known.high, 1 - known.low), p_value)


def judge_intervals(answer: Answer, truth: np.ndarray) -> dict[str, float]:
    """Whether each interval of a draw holds the truth, and how wide it is."""

    def holds(interval: np.ndarray) -> np.ndarray:
        return (interval[..., 0] <= truth + 1e-9) & (truth <= interval[..., 1] + 1e-9)

    low, high = answer.novel_bound
    return {
        "error": float(answer.mix[-1] - truth[-1]),
        "covered": float(holds(answer.interval)[-1]),
        "width": float(np.diff(answer.interval[-1])[0]),
        "classes_covered": float(holds(answer.interval)[:-1].mean()),
        "bound_covered": float(low - 1e-9 <= truth[-1] <= high + 1e-9),
        "bound_width": high - low,
        "all_bounds_covered": float(holds(answer.bound).all()),
        "rejected": float(answer.p_value <= 0.05),
    }


def summarise(draws: list[dict[str, float]]) -> dict[str, float]:
    """Means over the draws, and the worst error."""
    row = {key: round(float(np.mean([draw[key] for draw in draws])), 4) for key in draws[0]}
    errors = np.array([draw["error"] for draw in draws])
    row["mean_abs_error"] = round(float(np.abs(errors).mean()), 4)
    row["worst_error"] = round(float(errors[np.argmax(np.abs(errors))]), 4)
    return row


def held_out_scores(case: Case, cache: Path) -> tuple[HeldOutScores, np.ndarray]:
    """Return the scores of a case and the true mix of its target, from the cache if they are there."""
    return scores_of(case.name, lambda: make_problem(case), case.model, case.draw, cache)


def scores_of(
    name: str, make: Callable[[], OSLSProblem], model: str, seed: int, cache: Path
) -> tuple[HeldOutScores, np.ndarray]:
    """The same of any problem, kept under its name and made only if it is not there."""
    path = cache / f"{name}.npz"
    if not path.exists():
        problem = make()
        fitted = ScoresOnly(random_state=seed, source_classifier=model, discriminator=model)
        fitted.fit(**problem.training_data())
        cache.mkdir(parents=True, exist_ok=True)
        parts = {key: value for key, value in vars(fitted.scores).items() if value is not None}
        parts["copies"] = np.concatenate(parts.get("copies", ([], []))).astype(int)
        parts = {key: _small(value) for key, value in parts.items()}
        part = path.with_suffix(".part.npz")
        np.savez(part, truth=problem.target_marginal, **parts)
        part.rename(path)
    with np.load(path) as file:
        parts = {key: file[key] for key in file.files}
    truth, copies, n = parts.pop("truth"), parts.pop("copies"), len(parts["y"])
    scores = HeldOutScores(
        **{key: value.astype(float) if value.dtype == np.float32 else value for key, value in parts.items()},
        copies=(copies[:n], copies[n:]) if len(copies) else None,
    )
    return scores, truth


def _small(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def make_problem(case: Case) -> OSLSProblem:
    """Draw the problem of a case, its target changed as the case's kind says."""
    if case.data == "gaussian":
        problem = _gaussian(case.draw, novel=case.kind != "none")
    elif case.data == "rings":
        problem = _rings(case.draw, novel=case.kind != "none")
    else:
        config: dict[str, Any] = {"name": case.data}
        if case.rows is not None:
            config["rows"] = case.rows
        if case.kind == "none":
            config["novel"] = 0
        problem = _as_table(draw_problem(config, draw=case.draw))
    return changed(problem, case.kind, case.draw)


def changed(problem: OSLSProblem, kind: str, seed: int, strength: float | None = None) -> OSLSProblem:
    """The same problem after what a kind of violation does to it."""
    degree = STRENGTHS.get(kind, 0.0) if strength is None else strength
    return {
        "clean": lambda p, r: p,
        "none": lambda p, r: p,
        "missing": _drop_class,
        "noise": _add_noise,
        "overlap": _overlap,
        "looks": lambda p, r: change_looks(p, degree, random_state=seed),
        "label-noise": lambda p, r: _mislabel(p, degree, r),
        "leak": lambda p, r: _leak(p, degree, r),
        "duplicates": _duplicate,
        "tiny": _shrink_class,
        "subpopulation": _drop_half_of_a_class,
        "half-inside": _hide_half,
    }[kind](problem, np.random.default_rng([seed, 1]))


def _gaussian(draw: int, *, novel: bool, rows: int = 1500, k: int = 3) -> OSLSProblem:
    """Four classes of unit variance in five dimensions, means at distance of about five."""
    rng = np.random.default_rng([draw, 2])
    means = rng.normal(size=(k + novel, 5))
    means *= 3.5 / np.linalg.norm(means, axis=1, keepdims=True)
    y = rng.integers(k + novel, size=rows)
    X = means[y] + rng.normal(size=(rows, 5))
    return simulate_osls(X, y, novel=[k] if novel else [], random_state=draw)


def _rings(draw: int, *, novel: bool, rows: int = 2000, k: int = 5) -> OSLSProblem:
    """Rings around each other in three dimensions, the thickness of each a seventh of the way to the next."""
    rng = np.random.default_rng([draw, 3])
    y = rng.integers(k + novel, size=rows)
    direction = rng.normal(size=(rows, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    X = direction * (1 + y + rng.normal(0, 0.15, size=rows))[:, None]
    return simulate_osls(X, y, novel=int(novel), random_state=draw)


def _as_table(problem: OSLSProblem) -> OSLSProblem:
    """Pictures as rows of pixels."""
    if np.ndim(problem.X_source) == 2:
        return problem
    names = ("X_source", "X_target", "X_test")
    return replace(
        problem, **{name: getattr(problem, name).reshape(len(getattr(problem, name)), -1) for name in names}
    )


def _retarget(problem: OSLSProblem, X: np.ndarray, y: np.ndarray) -> OSLSProblem:
    names = [*problem.classes.tolist(), problem.novel_label]
    marginal = np.array([np.mean(y == name) for name in names])
    return replace(problem, X_target=X, y_target=y, target_marginal=marginal)


def _drop_class(problem: OSLSProblem, rng: np.random.Generator) -> OSLSProblem:
    """One known class does not occur in the target."""
    keep = problem.y_target != rng.choice(problem.classes)
    return _retarget(problem, problem.X_target[keep], problem.y_target[keep])


def _add_noise(problem: OSLSProblem, rng: np.random.Generator) -> OSLSProblem:
    """Every feature of the target is measured with noise of half its spread."""
    spread = problem.X_source.std(axis=0)
    noise = rng.normal(size=problem.X_target.shape) * spread / 2
    return replace(problem, X_target=(problem.X_target + noise).astype(problem.X_target.dtype))


def _overlap(problem: OSLSProblem, rng: np.random.Generator) -> OSLSProblem:
    """The novel class reaches from where it was into one known class: each row somewhere on the way."""
    novel = np.flatnonzero(problem.y_target == problem.novel_label)
    seen = rng.choice(problem.classes)
    rows = rng.choice(np.flatnonzero(problem.y_source == seen), len(novel))
    way = rng.random((len(novel), 1))
    X = problem.X_target.copy()
    X[novel] = (1 - way) * X[novel] + way * problem.X_source[rows]
    return replace(problem, X_target=X)


def _mislabel(problem: OSLSProblem, share: float, rng: np.random.Generator) -> OSLSProblem:
    """A share of the source rows has the label of another class, each of them as likely."""
    y, k = problem.y_source.copy(), len(problem.classes)
    wrong = np.flatnonzero(rng.random(len(y)) < share)
    number = np.searchsorted(problem.classes, y[wrong])
    y[wrong] = problem.classes[(number + rng.integers(1, k, size=len(wrong))) % k]
    return replace(problem, y_source=y)


def _leak(problem: OSLSProblem, share: float, rng: np.random.Generator) -> OSLSProblem:
    """A share of the target's rows are copies of source rows."""
    m = len(problem.y_target)
    rows = rng.choice(len(problem.y_source), round(m * share / (1 - share)))
    X = np.concatenate([problem.X_target, problem.X_source[rows]])
    return _retarget(problem, X, np.concatenate([problem.y_target, problem.y_source[rows]]))


def _duplicate(problem: OSLSProblem, rng: np.random.Generator) -> OSLSProblem:
    """Every row stands in the target twice: as many rows, half as much information."""
    twice = np.repeat(np.arange(len(problem.y_target)), 2)
    return _retarget(problem, problem.X_target[twice], problem.y_target[twice])


def _shrink_class(problem: OSLSProblem, rng: np.random.Generator) -> OSLSProblem:
    """One known class has eight labelled rows."""
    rare = np.flatnonzero(problem.y_source == rng.choice(problem.classes))
    keep = np.setdiff1d(np.arange(len(problem.y_source)), rare[8:])
    return replace(problem, X_source=problem.X_source[keep], y_source=problem.y_source[keep])


def _drop_half_of_a_class(problem: OSLSProblem, rng: np.random.Generator) -> OSLSProblem:
    """In the target only one half of the largest known class occurs, the half on one side of a direction."""
    label = problem.classes[int(np.argmax(problem.target_marginal[:-1]))]
    members = problem.X_source[problem.y_source == label]
    direction = np.linalg.svd(members - members.mean(axis=0), full_matrices=False)[2][0]
    beyond = (problem.X_target - members.mean(axis=0)) @ direction > 0
    keep = ~(beyond & (problem.y_target == label))
    return _retarget(problem, problem.X_target[keep], problem.y_target[keep])


def _hide_half(problem: OSLSProblem, rng: np.random.Generator) -> OSLSProblem:
    """Half of the novel rows look exactly like a known class: fresh rows of it, called novel."""
    label = problem.classes[int(np.argmax(problem.target_marginal[:-1]))]
    y = problem.y_target.copy()
    members, novel = np.flatnonzero(y == label), np.flatnonzero(y == problem.novel_label)
    hidden = rng.choice(members, min(len(members) // 2, len(novel)), replace=False)
    y[hidden] = problem.novel_label
    keep = np.setdiff1d(np.arange(len(y)), rng.choice(novel, len(hidden), replace=False))
    return _retarget(problem, problem.X_target[keep], y[keep])
