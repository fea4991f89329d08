"""What a fit says besides the mix: bounds, the test, sets of labels, expected accuracy, and the checks.

All of it follows from held-out scores and the estimate; nothing here trains a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from osls._core.arrays import Bools, Floats, with_novel
from osls._core.copies import SharedRows
from osls._core.parameters import Between
from osls._core.progress import History
from osls.inference.diagnostics import Diagnostics, diagnose
from osls.inference.expected_accuracy import ExpectedAccuracy, expected_accuracy
from osls.inference.novelty import NoveltyTest
from osls.inference.prediction_sets import PredictionSets
from osls.shift.joint import joint_range
from osls.shift.scores import HeldOutScores
from osls.theory import bbe_contradiction, bbe_interval


@dataclass(frozen=True)
class Estimate:
    """The mix that a fit reports.

    Attributes
    ----------
    marginal : array of shape (k,)
        The mix among the known classes.
    novel_share : float
        The share of the novel class.
    interval : array of shape (k + 1, 2)
        Intervals of all shares.
    level : float
        Their level, which bounds and expected accuracies share.
    test : NoveltyTest, optional
        The test of "nothing is novel", if one was made.
    """

    marginal: Floats
    novel_share: float
    interval: Floats
    level: float
    test: NoveltyTest | None = None

    @property
    def mix(self) -> Floats:
        """Shares of all k + 1 classes."""
        return with_novel(self.marginal, self.novel_share)


class Findings:
    """What a fitted model says besides the mix; :class:`osls.PULSE` says what each attribute is."""

    novel_bound_: tuple[float, float]
    marginal_bound_: Floats
    novelty_pvalue_: float
    detectable_share_: float
    diagnostics_: Diagnostics
    expected_accuracy_: ExpectedAccuracy
    source_expected_accuracy_: ExpectedAccuracy
    _sets: PredictionSets

    def predict_set(self, X: Any, level: float = 0.9) -> Bools:
        """Sets of classes that hold the true one: for a known class with a probability of at least ``level``.

        Holds for each known class, whatever its share now, as long as it looks as it did in the source
        (label-conditional conformal prediction). For the novel class there is no such guarantee: it stands in
        the set of a row that the model finds as novel as the surest ``level`` of its novel rows. An empty set
        means that nothing fits.

        Parameters
        ----------
        X : like the ``X`` of ``fit``
        level : float, default=0.9

        Returns
        -------
        array of bool, of shape (rows, k + 1)
            Whether each of ``classes_`` belongs to the set; ``model.classes_[sets[i]]`` are its members.

        Examples
        --------
        >>> import numpy as np
        >>> from osls import PULSE
        >>> rng = np.random.default_rng(0)
        >>> y = np.repeat(["a", "b"], 100)
        >>> X = rng.normal(size=(200, 2)) + 6 * (y == "b")[:, None]
        >>> X_target = np.vstack([X + 0.01, rng.normal(size=(80, 2)) - 8])
        >>> model = PULSE(source_classifier="trees", discriminator="trees", random_state=0)
        >>> model = model.fit(X, y, X_target=X_target)
        >>> model.classes_[model.predict_set([[6.0, 6.0]])[0]]
        array(['b'], dtype='<U5')
        """
        if complaint := Between(0, 1).complaint(level):
            raise ValueError(f"level {complaint}")
        check_is_fitted(self)
        if not hasattr(self, "_sets"):
            raise ValueError(
                "this model has no prediction sets: they are learnt with a target, and absorbed classes have "
                "none. Use those of a model that was fitted with X_target."
            )
        proba: Floats = self.predict_proba(X)  # type: ignore[attr-defined]
        return self._sets.of(proba, level)


def find_all(
    scores: HeldOutScores,
    estimate: Estimate,
    source_proba: Floats,
    target_proba: Floats,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return all but the checks, by the name of the attribute of :class:`osls.PULSE` that holds it.

    ``source_proba`` and ``target_proba`` are the final answers, of k + 1 classes, for the held-out source
    rows of ``scores`` and for the whole target.
    """
    found = share_bounds(scores, estimate.marginal, estimate.level)
    found["_sets"] = PredictionSets.learn(scores.y, source_proba, target_proba, scores.weight)
    found["expected_accuracy_"] = _accuracy(scores, estimate, source_proba, target_proba, rng)
    found["source_expected_accuracy_"] = _accuracy(
        scores, estimate, scores.class_source, scores.class_target, rng
    )
    if estimate.test is not None:
        found["novelty_pvalue_"] = estimate.test.pvalue
        found["detectable_share_"] = estimate.test.detectable_share
    return found


def check_all(
    scores: HeldOutScores,
    estimate: Estimate,
    classes: Sequence[Any],
    history: History,
    shared: SharedRows | None,
) -> Diagnostics:
    """Check the assumptions behind the estimate."""
    # The first round moves rows from where another model had them, which says nothing of settling.
    changed = [entry["changed"] for entry in history if entry.get("round", 1) > 1]
    return diagnose(
        scores,
        estimate.mix,
        estimate.interval,
        class_names=classes,
        changed=changed[-1] if changed else None,
        shared=shared,
        contradiction=_contradiction(scores, estimate),
    )


def share_bounds(scores: HeldOutScores, marginal: Floats, level: float) -> dict[str, Any]:
    """Return finite-sample bounds by the name of the attribute of :class:`osls.PULSE` that holds them."""
    source, target = scores.domain(marginal)
    known = bbe_interval(source, target, 1 - level, positive_weight=scores.weights(marginal))
    bounds: dict[str, Any] = {"novel_bound_": (1 - known.high, 1 - known.low)}
    if scores.domain_source.ndim == 2:
        bounds["marginal_bound_"] = joint_range(
            scores.domain_source, scores.y, scores.domain_target, scores.weight, level=level
        )
    return bounds


def _contradiction(scores: HeldOutScores, estimate: Estimate) -> float:
    """By how much the ends of the novel share's bound contradict each other."""
    source, target = scores.domain(estimate.marginal)
    weight = scores.weights(estimate.marginal)
    return bbe_contradiction(source, target, 1 - estimate.level, positive_weight=weight)


def _accuracy(
    scores: HeldOutScores, estimate: Estimate, source: Floats, target: Floats, rng: np.random.Generator
) -> ExpectedAccuracy:
    """Expected accuracy of the most probable classes."""
    return expected_accuracy(
        scores.y,
        source.argmax(axis=1),
        target.argmax(axis=1),
        estimate.mix,
        estimate.interval,
        level=estimate.level,
        rng=rng,
        weight=scores.weight,
    )
