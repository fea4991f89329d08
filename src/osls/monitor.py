r"""The class mix and the novel share batch by batch, with alarms whose false alarm rate is bounded.

*The mix* of a batch is the maximum likelihood mix of the model's (k+1)-way probabilities, found by EM from
the mix that the model was fitted to. Its interval has two parts: a bootstrap over the rows of the batch, and
the interval of the fit, because an error of the fitted mix is an error of every batch.

*An alarm* does not depend on that estimate, nor on calibrated probabilities. If nothing has changed, the
mean probability of a class over a batch and over the reference rows have the same expectation, for any
model. They are means of numbers in [0, 1], so the p-value of their difference follows from the exponent of
Hoeffding's inequality for a known variance (theorem 3 of [1]_), with the common mean and variance of all
rows. It is valid for rare classes and small batches, where a normal approximation would give false alarms.
Batch number i may use :math:`\alpha_i = 6 \alpha / (\pi^2 i^2)` of the error budget, which sums to
:math:`\alpha`: a quarter for the batch itself, a quarter for the last eight batches together. Small changes
that stay are found in the last 32 batches, tested at every 16th batch, and in all batches, tested at batch
16, 32, 64 and so on; the number i counts the tests of each, so these few have a larger part of the budget.
Half of each goes to the novel share and half to the known classes, in equal parts. So with a level of 95 %,
a run of any length without a change ever raises an alarm with a probability of at most about 5 %.

A second novel class, besides the model's own, is not detected: its rows are divided among the k + 1
classes that the model knows. Fit again on recent rows to detect it.

References
----------
.. [1] Hoeffding. Probability Inequalities for Sums of Bounded Random Variables. JASA, 1963.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from osls._core.arrays import Bools, Floats
from osls.inference.batches import Moments, batch_mix, chance_of_difference, even_out, widened

__all__ = ["Alarm", "BatchReport", "Monitor", "Reference"]

SCHEMA = 2
RECENT = 8
Against = Literal["fit", "first"]
Scope = Literal["batch", "recent batches", "last 32 batches", "all batches"]
# Small changes that stay are looked for at every 16th batch, in the last 32 and in all of them.
LONG, EVERY = 32, 16


@dataclass(frozen=True)
class Alarm:
    """A class whose share has changed: the share in the reference and now, and the scope of the test."""

    class_name: str
    before: float
    now: float
    scope: Scope
    chance: float


@dataclass(frozen=True)
class BatchReport:
    """Results for one batch; shares that the model cannot measure are nan."""

    name: str
    rows: int
    share: tuple[float, ...]
    interval: tuple[tuple[float, float], ...]
    mean_proba: tuple[float, ...]
    mean_square: tuple[float, ...]
    alarms: tuple[Alarm, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def novel_share(self) -> float:
        """Share of the novel class."""
        return self.share[-1]


@dataclass(frozen=True)
class Reference:
    """What batches are compared with: shares, their interval, and the moments of the reference rows."""

    share: Floats
    interval: Floats | None
    moments: Moments


class Monitor:
    """Follow a model's class mix over batches of probabilities.

    Parameters
    ----------
    reference_marginal : array-like of shape (k + 1,)
        The mix that the probabilities assume: a fitted adapter's ``target_marginal_``.
    classes : sequence of str
        Names of the k known classes, then of the novel one.
    level : float, default=0.95
        Level of the intervals; one minus it bounds the probability of any false alarm over all batches.
    reference_proba : array-like of shape (m, k + 1), optional
        Out-of-sample probabilities of the rows that the mix was estimated from: ``target_proba_``. With
        them, the uncertainty of the reference counts and a bias of the model cancels. Without them, the
        reference is taken as exact.
    reference_interval : array-like of shape (k + 1, 2), optional
        Interval of the reference's mix. It counts in the intervals of the batches.
    against : {"fit", "first"}, default="fit"
        What batches are compared with: the rows of the fit, or the first batch.
    n_bootstrap : int, default=100
        Bootstrap replicates for the intervals.
    seed : int, default=0
        Seed of the bootstrap.

    Attributes
    ----------
    batches : list of BatchReport
        The batches so far.
    reference : Reference or None
        What they are compared with; None before the first batch if ``against`` is "first".

    Examples
    --------
    >>> import numpy as np
    >>> from osls.monitor import Monitor
    >>> rng = np.random.default_rng(0)
    >>> def batch(novel):  # two known classes and a novel one, told apart without doubt
    ...     return np.eye(3)[rng.choice(3, 500, p=[0.6 - novel, 0.4, novel])]
    >>> monitor = Monitor([0.4, 0.4, 0.2], ["a", "b", "novel"])
    >>> monitor.update("monday", batch(0.2)).alarms
    ()
    >>> report = monitor.update("tuesday", batch(0.4))
    >>> sorted({alarm.class_name for alarm in report.alarms})
    ['a', 'novel']
    """

    def __init__(
        self,
        reference_marginal: ArrayLike,
        classes: Sequence[str],
        *,
        level: float = 0.95,
        reference_proba: ArrayLike | None = None,
        reference_interval: ArrayLike | None = None,
        against: Against = "fit",
        n_bootstrap: int = 100,
        seed: int = 0,
    ):
        self.classes = tuple(str(name) for name in classes)
        self.marginal = _checked_marginal(reference_marginal, len(self.classes))
        if not 0 < level < 1:
            raise ValueError(f"level must lie in (0, 1); got {level}.")
        if against not in ("fit", "first"):
            raise ValueError(f"against must be 'fit' or 'first'; got {against!r}.")
        if n_bootstrap < 2:
            raise ValueError(f"n_bootstrap must be at least 2; got {n_bootstrap}.")
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise ValueError(f"seed must be a whole number, at least 0; got {seed!r}.")
        self.level, self.against, self.n_bootstrap, self.seed = level, against, n_bootstrap, seed
        proba = None if reference_proba is None else self._checked(reference_proba, "reference_proba")
        self.weight = np.ones(len(self.classes)) if proba is None else even_out(proba, self.marginal)
        self.fit_interval = None
        if reference_interval is not None:
            self.fit_interval = _checked_interval(reference_interval, len(self.classes))
        fit = Reference(
            self.marginal,
            self.fit_interval,
            # Without the rows, assume the largest variance: that of probabilities 0 and 1.
            Moments(self.marginal, self.marginal, np.inf) if proba is None else Moments.of(proba),
        )
        self.reference: Reference | None = fit if against == "fit" else None
        self.batches: list[BatchReport] = []

    @property
    def measurable(self) -> Bools:
        """Classes that the model can predict: one with a share of zero never gets any probability."""
        return np.asarray(self.marginal > 0)

    def update(self, name: str, proba: ArrayLike, *, origin: Mapping[str, Any] | None = None) -> BatchReport:
        """Add a batch.

        Parameters
        ----------
        name : str
            Name of the batch.
        proba : array-like of shape (rows, k + 1)
            The model's probabilities.
        origin : mapping, optional
            Further information to store (of JSON's types): the file, its digest, the time.
        """
        rows = self._checked(proba, f"batch {name!r}")
        share, interval = self._estimate(rows)
        moments = Moments.of(rows)
        report = BatchReport(
            str(name),
            len(rows),
            tuple(map(float, share)),
            tuple((float(low), float(high)) for low, high in interval),
            tuple(map(float, moments.mean)),
            tuple(map(float, moments.square)),
            origin=dict(origin or {}),
        )
        if self.reference is None:
            self.reference = Reference(share, interval, moments)
        else:
            report = BatchReport(**{**vars(report), "alarms": self._alarms(report)})
        self.batches.append(report)
        return report

    def _estimate(self, proba: Floats) -> tuple[Floats, Floats]:
        seen = self.measurable
        share, interval = np.full(len(seen), np.nan), np.full((len(seen), 2), np.nan)
        share[seen], interval[seen] = batch_mix(
            proba[:, seen] * self.weight[seen] / self.marginal[seen],
            self.marginal[seen],
            level=self.level,
            repeats=self.n_bootstrap,
            rng=np.random.default_rng([self.seed, len(self.batches)]),
        )
        if self.fit_interval is not None:
            interval[seen] = widened(
                share[seen], interval[seen], self.marginal[seen], self.fit_interval[seen]
            )
        return share, interval

    def _alarms(self, report: BatchReport) -> tuple[Alarm, ...]:
        assert self.reference is not None
        # The first batch is not tested if it is the reference.
        i = len(self.batches) + (self.against == "fit")
        seen = np.flatnonzero(self.measurable)
        alarms = []
        for scope, batches, test in self._scopes(report, i):
            allowed = 6 * (1 - self.level) / (np.pi * test) ** 2 / 4 * self._parts()
            rows = np.array([batch.rows for batch in batches])
            mean, square, share = (
                np.average([getattr(batch, what) for batch in batches], axis=0, weights=rows)
                for what in ("mean_proba", "mean_square", "share")
            )
            chances = chance_of_difference(Moments(mean, square, float(rows.sum())), self.reference.moments)
            for j in seen[chances[seen] <= allowed[seen]]:
                before = float(self.reference.share[j])
                alarms.append(Alarm(self.classes[j], before, float(share[j]), scope, float(chances[j])))
        return tuple(alarms)

    def _scopes(self, report: BatchReport, i: int) -> list[tuple[Scope, list[BatchReport], int]]:
        """What is tested at batch ``i``: the scope, its batches, and how many tests of it there were."""
        tested = self.batches if self.against == "fit" else self.batches[1:]
        scopes: list[tuple[Scope, list[BatchReport], int]] = [("batch", [report], i)]
        if tested:
            scopes.append(("recent batches", [report, *tested[:-RECENT:-1]], i))
        if i % EVERY == 0:
            scopes.append(("last 32 batches", [report, *tested[:-LONG:-1]], i // EVERY))
            doublings = np.log2(i // EVERY)
            if doublings == int(doublings):
                scopes.append(("all batches", [*tested, report], int(doublings) + 1))
        return scopes

    def _parts(self) -> Floats:
        """How the false alarm probability is divided: half for the novel class, half for the known ones."""
        parts = self.measurable.astype(float)
        parts[:-1] /= max(1.0, parts[:-1].sum())
        return np.asarray(parts / parts.sum())

    def _checked(self, proba: ArrayLike, what: str) -> Floats:
        try:
            rows = np.asarray(proba, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(
                f"{what} must hold probabilities, model.predict_proba(rows), not labels or words."
            ) from None
        if rows.ndim != 2 or rows.shape[1] != len(self.classes):
            raise ValueError(
                f"{what} must have {len(self.classes)} columns, one per class; got shape {rows.shape}."
            )
        if len(rows) == 0:
            raise ValueError(f"{what} has no rows.")
        if not np.isfinite(rows).all() or rows.min() < -1e-9 or abs(rows.sum(axis=1) - 1).max() > 1e-3:
            raise ValueError(f"{what} must hold probabilities: at least 0, and each row summing to 1.")
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return the whole state in JSON's types; nan becomes null."""
        reference = None
        if self.reference is not None:
            known, interval = self.reference, self.reference.interval
            reference = {
                "share": _plain(known.share),
                "interval": None if interval is None else _plain(interval),
                "mean_proba": _plain(known.moments.mean),
                "mean_square": _plain(known.moments.square),
                "rows": None if np.isinf(known.moments.rows) else int(known.moments.rows),
            }
        return {
            "schema": SCHEMA,
            "classes": list(self.classes),
            "marginal": _plain(self.marginal),
            "weight": _plain(self.weight),
            "fit_interval": None if self.fit_interval is None else _plain(self.fit_interval),
            "level": self.level,
            "against": self.against,
            "n_bootstrap": self.n_bootstrap,
            "seed": self.seed,
            "reference": reference,
            "batches": [_plain(asdict(batch)) for batch in self.batches],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Restore a monitor from :meth:`to_dict`."""
        if state.get("schema") != SCHEMA:
            raise ValueError(
                f"the state has schema {state.get('schema')!r}, this version of osls reads {SCHEMA}; "
                "start a new state or use the osls that wrote it."
            )
        try:
            _check_whole(state["seed"], 0, "seed")
            monitor = cls(
                state["marginal"],
                state["classes"],
                level=state["level"],
                against=state["against"],
                n_bootstrap=state["n_bootstrap"],
                seed=state["seed"],
            )
            monitor.weight = _weights(state["weight"], len(monitor.classes))
            if state["fit_interval"] is not None:
                monitor.fit_interval = _shares(state["fit_interval"], len(monitor.classes), "fit_interval", 2)
            monitor.reference = _reference(state["reference"], len(monitor.classes))
            monitor.batches = [_batch(record, len(monitor.classes)) for record in state["batches"]]
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"the state is incomplete ({type(error).__name__}: {error}).") from error
        if monitor.reference is None and (monitor.against == "fit" or monitor.batches):
            raise ValueError("the state is incomplete (it has no reference).")
        return monitor

    def continues(self, other: Monitor) -> bool:
        """Whether both are about the same model, compared with the same reference, at the same level."""
        return (
            (self.classes, self.level, self.against) == (other.classes, other.level, other.against)
            and np.allclose(self.marginal, other.marginal)
            and np.allclose(self.weight, other.weight)
        )


def _checked_marginal(marginal: ArrayLike, n_classes: int) -> Floats:
    shares = np.asarray(marginal, dtype=float)
    if shares.shape != (n_classes,) or n_classes < 2:
        raise ValueError(
            "reference_marginal must have one share for each of at least two classes; "
            f"got shape {shares.shape} for {n_classes}."
        )
    if not np.isfinite(shares).all() or shares.min() < 0 or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(f"reference_marginal must be shares that sum to 1; they sum to {shares.sum():.4g}.")
    return shares


def _checked_interval(interval: ArrayLike, n_classes: int) -> Floats:
    ends = np.asarray(interval, dtype=float)
    if ends.shape != (n_classes, 2):
        raise ValueError(
            f"reference_interval must have two ends for each of {n_classes} classes, as marginal_interval_ "
            f"has; got shape {ends.shape}."
        )
    if ((ends < -1e-9) | (ends > 1 + 1e-9)).any():
        raise ValueError(f"reference_interval must be shares, from 0 to 1; got {ends.tolist()}.")
    return ends


def _plain(value: Any) -> Any:
    """Convert arrays and tuples to lists, and nan to None, because JSON has no nan."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and np.isnan(value) else value


def _shares(values: Any, n_classes: int, what: str, width: int | None = None) -> Floats:
    """Return one number in [0, 1], or ``width`` of them, per class; null becomes nan."""
    shares = np.array(values, dtype=float)
    if shares.shape != ((n_classes,) if width is None else (n_classes, width)):
        raise ValueError(f"{what} of the state does not hold a number for each of {n_classes} classes.")
    if ((shares < -1e-9) | (shares > 1 + 1e-9)).any():
        raise ValueError(f"{what} of the state has numbers outside [0, 1], which are not shares.")
    return shares


def _weights(values: Any, n_classes: int) -> Floats:
    weights = np.array(values, dtype=float)
    if weights.shape != (n_classes,) or not ((weights >= 0) & (weights < 1e9)).all():
        raise ValueError(f"weight of the state must be numbers, at least 0, for {n_classes} classes.")
    return weights


def _check_whole(value: Any, least: int, what: str) -> None:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{what} of the state must be a whole number, at least {least}; it is {value!r}.")


def _reference(record: Mapping[str, Any] | None, n_classes: int) -> Reference | None:
    if record is None:
        return None
    if record["rows"] is not None:
        _check_whole(record["rows"], 1, "the reference's rows")
    interval = record["interval"]
    return Reference(
        _shares(record["share"], n_classes, "the reference's share"),
        None if interval is None else _shares(interval, n_classes, "the reference's interval", 2),
        Moments(
            _shares(record["mean_proba"], n_classes, "the reference's mean_proba"),
            _shares(record["mean_square"], n_classes, "the reference's mean_square"),
            np.inf if record["rows"] is None else float(record["rows"]),
        ),
    )


def _batch(record: Mapping[str, Any], n_classes: int) -> BatchReport:
    what = f"batch {record['name']!r}"
    _check_whole(record["rows"], 1, f"the rows of {what}")
    share, mean, square = (
        _shares(record[key], n_classes, what) for key in ("share", "mean_proba", "mean_square")
    )
    interval = _shares(record["interval"], n_classes, what, 2)
    return BatchReport(
        str(record["name"]),
        record["rows"],
        tuple(share.tolist()),
        tuple((low, high) for low, high in interval.tolist()),
        tuple(mean.tolist()),
        tuple(square.tolist()),
        tuple(Alarm(**alarm) for alarm in record["alarms"]),
        dict(record["origin"]),
    )
