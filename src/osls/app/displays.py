"""Plots of a fit in the manner of scikit-learn's displays: ``MixDisplay.from_estimator(model)``.

They need matplotlib, which ``pip install 'osls[plot]'`` brings. ``ax_`` and ``figure_`` are what was
drawn on; ``plot(ax=...)`` draws it again, elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from osls._core.arrays import Floats
from osls._core.extras import require
from osls.app.answer import Answer
from osls.base import OpenSetAdapter
from osls.inference.diagnostics import Check, Diagnostics
from osls.monitor import Monitor

__all__ = ["MixDisplay", "NoveltyDisplay", "TimelineDisplay", "TrustDisplay"]

_BEFORE, _KNOWN, _NOVEL, _ALARM = "#8a96a5", "#3b7dd8", "#c2185b", "#d2691e"
_BINS = 40
_NAMES = 6


@dataclass(kw_only=True)
class _Display:
    """What was drawn on."""

    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    def _axes(self, ax: Any, height: float = 3.4) -> Any:
        if ax is None:
            _, ax = require("matplotlib.pyplot", extra="plot").subplots(figsize=(6.4, height))
        self.ax_, self.figure_ = ax, ax.figure
        return ax

    @staticmethod
    def _legend_above(ax: Any) -> None:
        """Put the legend where it hides nothing that is drawn."""
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)


def _check_model(estimator: object) -> None:
    if isinstance(estimator, Answer):
        raise TypeError("this is an answer of osls.adapt, not a fitted model; use from_answer.")


def _check_fitted(estimator: object) -> None:
    _check_model(estimator)
    if not hasattr(estimator, "target_proba_"):
        raise TypeError(f"this is {estimator!r}, not a fitted adapter; fit it with X_target first.")


def _check_answer(answer: object) -> None:
    if not isinstance(answer, Answer):
        given = type(answer).__name__
        raise TypeError(f"this is a {given}, not an answer of osls.adapt; use from_estimator.")


@dataclass
class MixDisplay(_Display):
    """The share of each class in the source and in the target, with intervals.

    Parameters
    ----------
    classes : sequence of str
        The known classes, then the novel one.
    before, now : arrays of shape (k + 1,)
        Their shares; NaN where that of the source is not known.
    interval : array of shape (k + 1, 2), optional
        Intervals of ``now``.

    Examples
    --------
    >>> from osls.app.displays import MixDisplay
    >>> display = MixDisplay(["cold", "flu", "novel"], [0.7, 0.3, 0.0], [0.2, 0.5, 0.3])
    >>> display.plot().ax_.get_xlabel()
    'share'
    """

    classes: Sequence[str]
    before: Floats
    now: Floats
    interval: Floats | None = None

    @classmethod
    def from_estimator(cls, estimator: OpenSetAdapter, *, ax: Any = None) -> Self:
        """Draw the mix that a fitted adapter found."""
        _check_fitted(estimator)
        known = estimator.target_marginal_[:-1] / max(1 - estimator.novel_prevalence_, 1e-12)
        weight = np.asarray(estimator.importance_weights_)
        # A class of weight zero says nothing of its share in the source.
        before = np.divide(known, weight, out=np.full(len(known), np.nan), where=weight > 0)
        interval = getattr(estimator, "marginal_interval_", None)
        names = [str(name) for name in estimator.classes_]
        return cls(names, np.append(before, 0.0), estimator.target_marginal_, interval).plot(ax)

    @classmethod
    def from_answer(cls, answer: Answer, *, ax: Any = None) -> Self:
        """Draw the mix of an answer of :func:`osls.adapt`."""
        _check_answer(answer)
        return cls(answer.classes, answer.source_share, answer.target_share, answer.interval).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw it, on ``ax`` if that is given."""
        places = np.arange(len(self.classes))
        now = np.asarray(self.now)
        ax = self._axes(ax, 1.2 + 0.45 * len(places))
        ax.barh(places - 0.2, self.before, height=0.36, color=_BEFORE, label="in the labels")
        colours = [_KNOWN] * (len(places) - 1) + [_NOVEL]
        ax.barh(places + 0.2, now, height=0.36, color=colours, label="in the new data")
        if self.interval is not None:
            reach = np.abs(np.asarray(self.interval).T - now)
            ax.errorbar(now, places + 0.2, xerr=reach, fmt="none", ecolor="black", capsize=3)
        ax.set(yticks=places, yticklabels=list(self.classes), xlabel="share", xlim=(0, None))
        ax.invert_yaxis()
        self._legend_above(ax)
        return self


@dataclass
class NoveltyDisplay(_Display):
    """How probable it is for each row that it is novel: target rows, and source rows if they are given.

    Parameters
    ----------
    target : array of shape (m,)
        Probabilities of the target rows, from models that did not see them.
    source : array of shape (n,), optional
        Probabilities of source rows. If the models were trained on them, they look better than new ones.
    threshold : float
        Rows to its right are called novel, whatever the other classes' probabilities are.
    """

    target: Floats
    source: Floats | None = None
    threshold: float = 0.5

    @classmethod
    def from_estimator(cls, estimator: OpenSetAdapter, X_source: Any = None, *, ax: Any = None) -> Self:
        """Draw the scores of the target of the fit, and of the rows ``X_source`` if they are given."""
        _check_fitted(estimator)
        source = None if X_source is None else estimator.novelty_score(X_source)
        return cls(estimator.target_proba_[:, -1], source).plot(ax)

    @classmethod
    def from_answer(cls, answer: Answer, *, ax: Any = None) -> Self:
        """Draw the scores of both sides of an answer of :func:`osls.adapt`."""
        _check_answer(answer)
        source = answer.adapted.predict_proba(answer.source_rows)[:, -1]  # type: ignore[attr-defined]
        return cls(answer.predictions["novel"].to_numpy(np.float64), source).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw it, on ``ax`` if that is given."""
        ax = self._axes(ax)
        shared = {"bins": _BINS, "range": (0, 1), "density": True, "histtype": "stepfilled", "alpha": 0.6}
        if self.source is not None:
            ax.hist(self.source, color=_BEFORE, label="source", **shared)
        ax.hist(self.target, color=_NOVEL, label="target", **shared)
        ax.axvline(self.threshold, color="black", ls=":", label="novel to the right")
        ax.set(xlabel="probability of the novel class", ylabel="density", yscale="log")
        ax.legend()
        return self


@dataclass
class TrustDisplay(_Display):
    """The checks of a fit: how far each value is from its limit, and on which side.

    Parameters
    ----------
    checks : sequence of Check
        As in ``model.diagnostics_.checks``.
    status : str
        The verdict.
    """

    checks: Sequence[Check]
    status: str

    @classmethod
    def from_estimator(cls, estimator: OpenSetAdapter, *, ax: Any = None) -> Self:
        """Draw the checks of a fitted adapter; only those with ``diagnostics_`` have any."""
        _check_model(estimator)
        return cls._of(getattr(estimator, "diagnostics_", None), ax)

    @classmethod
    def from_answer(cls, answer: Answer, *, ax: Any = None) -> Self:
        """Draw the checks of an answer of :func:`osls.adapt`."""
        _check_answer(answer)
        return cls._of(answer.diagnostics, ax)

    @classmethod
    def _of(cls, diagnostics: Diagnostics | None, ax: Any) -> Self:
        if diagnostics is None:
            raise ValueError("there are no diagnostics to draw; fit osls.PULSE, which makes them.")
        return cls(diagnostics.checks, diagnostics.verdict.status).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw it, on ``ax`` if that is given. Each value is divided by its limit."""
        ax = self._axes(ax, 1.2 + 0.35 * len(self.checks))
        places = np.arange(len(self.checks))
        # A hundred times a limit must not press those that are near theirs into one line.
        ax.set_xscale("symlog", linthresh=1)
        ax.xaxis.set_major_formatter("{x:g}")
        for place, check in zip(places, self.checks, strict=True):
            colour = _KNOWN if check.passed else _ALARM
            relative = check.value / check.limit if check.limit else check.value + 1
            ax.plot([1, relative], [place, place], color=colour, lw=2)
            ax.plot(relative, place, "o" if check.passed else "X", color=colour, ms=8)
        ax.axvline(1, color="black", ls=":")
        names = [check.name + ("" if check.passed else " (failed)") for check in self.checks]
        ax.set(yticks=places, yticklabels=names, xlabel="value, in units of its limit")
        ax.set_title(f"verdict: {self.status}", loc="left", fontsize="medium")
        ax.invert_yaxis()
        return self


@dataclass
class TimelineDisplay(_Display):
    """The share of a class over the batches of a monitor, with intervals; batches with an alarm stand out.

    Parameters
    ----------
    monitor : Monitor
        A monitor with at least one batch.
    class_index : int
        Which class; the last is the novel one.
    """

    monitor: Monitor
    class_index: int = -1

    @classmethod
    def from_monitor(cls, monitor: Monitor, *, class_index: int = -1, ax: Any = None) -> Self:
        """Draw the batches that a monitor has seen."""
        k = len(monitor.classes)
        if not isinstance(class_index, int | np.integer) or not -k <= class_index < k:
            raise ValueError(
                f"class_index must be a whole number from {-k} to {k - 1}, the place among {k} classes; "
                f"got {class_index!r}."
            )
        return cls(monitor, class_index).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw it, on ``ax`` if that is given."""
        ax = self._axes(ax)
        for i, batch in enumerate(self.monitor.batches):
            colour = _ALARM if batch.alarms else _KNOWN
            ax.vlines(i, *batch.interval[self.class_index], color=colour, lw=2)
            ax.plot(i, batch.share[self.class_index], "X" if batch.alarms else "o", color=colour)
        reference = self.monitor.reference
        if reference is not None:
            ax.axhline(reference.share[self.class_index], color=_BEFORE, ls=":", label="at the fit")
            self._legend_above(ax)
        names = [batch.name for batch in self.monitor.batches]
        # As many names as there is room for; a short run has one at each batch.
        step = max(1, -(-len(names) // _NAMES))
        ax.set_xticks(range(0, len(names), step), names[::step])
        name = self.monitor.classes[self.class_index]
        ax.set(xlabel="batch", ylabel=f"share of {name}", ylim=(0, None))
        return self
