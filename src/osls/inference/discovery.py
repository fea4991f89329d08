r"""Groups inside the novel part of a target: how many, how large, and which rows.

What one class looks like is learnt from the known classes. Rows are measured by the covariance within them
(so that a distance of one is usual inside a class), and the rows of a few known classes at a time are cut
into pieces. For each pair of pieces it is known whether they belong to one class, and three figures say how
it looks: how deep the valley between them is along the axis that separates them best, how far apart their
means are, and how wide both are together. A logistic regression on these figures is then asked about pieces
of the novel rows. Pieces are merged as long as it finds them to be one class, so that one group is as
possible an answer as several.

The membership of a row is its posterior under a Gaussian mixture with one covariance, started from these
groups, in the space of the columns and of what the models learnt together.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from osls._core.arrays import Bools, Floats, Ints
from osls._core.saving import saveable

if TYPE_CHECKING:
    from osls.pulse import PULSE

__all__ = ["Discovery", "Group", "Part", "discover", "group_rows", "group_shares"]

# Novel rows that are sure enough to define groups, and how many of them.
_SURE = 0.6
_MAX_ROWS = 800
_PIECES = 10
_LEAST_PIECE = 12
# Nothing can be said of pieces with fewer rows.
_SMALLEST = 6
# A smaller part of the novel rows is not a group: known rows that were called novel gather in such.
_LEAST_SHARE = 0.08
_REHEARSALS = 6
_REHEARSED_ROWS = 400
_ROWS_OF_A_CLASS = 20
# Pieces are one class above this probability. Below one half: a group too few is a smaller harm than one that
# is not there. Chosen on digits, usps, satimage, letter, drybean and pbmc3k (benchmarks/discovery.py).
_ONE_CLASS = 0.4
# Without known classes to learn from, a valley of less than this separates two groups.
_DEEP_VALLEY = 0.35
_SHRINKAGE = 0.1
_GRID = 48
_ROUNDS = 30


@saveable
@dataclass(frozen=True)
class Group:
    """Target rows that are novel in the same way.

    Attributes
    ----------
    share : float
        Its share of the target.
    interval : tuple of two floats
        Interval for it, at the level of the fit.
    rows : array of int
        Positions in the target of the rows called novel that belong to it, the most typical first.
    purity : float
        Mean probability that these rows are novel and of this group.
    nearest : object
        The known class that most of them resemble; None if there is no such class.
    """

    share: float
    interval: tuple[float, float]
    rows: Ints
    purity: float
    nearest: Any = None


@saveable
@dataclass(frozen=True)
class Part:
    """One of several parts that a known class falls into, with its share of the class before and now."""

    class_name: Any
    source_share: float
    target_share: float
    rows: Ints


@saveable
@dataclass(frozen=True)
class Discovery:
    """The groups of a target.

    Attributes
    ----------
    groups : tuple of Group
        The largest first; none if no row was called novel.
    group : array of shape (m,)
        The group of each target row, counted from 0; -1 for rows that were not called novel.
    membership : array of shape (m, groups)
        Probability of each group, given that the row is novel.
    parts : tuple of Part
        Known classes that consist of several parts. They look as before, so they are not new.
    """

    groups: tuple[Group, ...]
    group: Ints
    membership: Floats
    parts: tuple[Part, ...] = ()

    def __len__(self) -> int:
        return len(self.groups)

    def among(self, positions: Ints, m: int) -> Discovery:
        """Return the same groups for ``m`` rows of which these are the rows at ``positions``."""
        group, membership = np.full(m, -1), np.zeros((m, len(self)))
        group[positions], membership[positions] = self.group, self.membership
        groups = tuple(replace(each, rows=positions[each.rows]) for each in self.groups)
        parts = tuple(replace(each, rows=positions[each.rows]) for each in self.parts)
        return Discovery(groups, group, membership, parts)


def discover(model: PULSE) -> Discovery:
    """Return the groups that the novel rows of a fitted model's target fall into.

    The same as ``model.discover()``, see :meth:`osls.PULSE.discover`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from osls import PULSE, discover
    >>> from osls.datasets import simulate_osls
    >>> problem = simulate_osls(*load_digits(return_X_y=True), novel=[0, 4], random_state=0)
    >>> model = PULSE(source_classifier="trees", discriminator="trees", rounds=1, random_state=0)
    >>> model = model.fit(problem.X_source, problem.y_source, X_target=problem.X_target)
    >>> found = discover(model)
    >>> len(found)
    2
    >>> bool(abs(sum(group.share for group in found.groups) - model.novel_prevalence_) < 1e-9)
    True
    """
    return model.discover()


# -- How many groups --------------------------------------------------------------------------------


def group_rows(
    source: Floats, y: Ints, target: Floats, learnt: Floats, novelty: Floats, *, seed: int = 0
) -> Floats:
    """Return the memberships, of shape (m, groups), of target rows in groups of the novel ones.

    Parameters
    ----------
    source, target : arrays of shapes (n, d) and (m, d)
        Rows by their columns.
    y : array of shape (n,)
        Known classes of the source rows.
    learnt : array of shape (m, e)
        Target rows in the space in which memberships are computed.
    novelty : array of shape (m,)
        Probability that a target row is novel; those above one half are grouped.
    seed : int
        Seed of the draws and of the mixture.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.discovery import group_rows
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2], 80)
    >>> centres = np.array([[0, 0], [9, 0], [0, 9], [9, 9], [18, 9]])
    >>> source = centres[y] + rng.normal(size=(240, 2))
    >>> target = centres[np.repeat([3, 4], [60, 40])] + rng.normal(size=(100, 2))
    >>> membership = group_rows(source, y, target, target, np.ones(100))
    >>> np.bincount(membership.argmax(axis=1)).tolist()
    [60, 40]
    """
    rng = np.random.default_rng(seed)
    called = np.flatnonzero(novelty > 0.5)
    if len(called) == 0:
        return np.zeros((len(novelty), 0))
    # Hundreds of small fits: threads cost more than they bring, the more so on a busy machine.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        scale = within_class_scale(source, y)
        source, target = source @ scale, target @ scale
        sure = called[novelty[called] >= _SURE]
        rows = sure if len(sure) >= 2 * _LEAST_PIECE else called
        rows = np.sort(rng.permutation(rows)[:_MAX_ROWS])
        labels = _merge(target[rows], _OneClass.learn(source, y, len(rows), rng), rng)
        return _memberships(learnt, rows[labels >= 0], labels[labels >= 0], called)


def within_class_scale(rows: Floats, y: Ints) -> Floats:
    """Return the matrix that makes the covariance within classes the identity, shrunk to be invertible.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.discovery import within_class_scale
    >>> rows = np.array([[-3.0, 0.0], [3.0, 0.0], [7.0, -1.0], [13.0, 1.0]])
    >>> scaled = rows @ within_class_scale(rows, np.array([0, 0, 1, 1]))
    >>> bool(np.linalg.norm(scaled[1] - scaled[0]) < 3)
    True
    """
    means = np.stack([rows[y == c].mean(axis=0) for c in np.unique(y)])
    within = rows - means[np.unique(y, return_inverse=True)[1]]
    value, vector = np.linalg.eigh(_shrunk(within.T @ within / len(within), _SHRINKAGE))
    return np.asarray(vector / np.sqrt(value))


def _shrunk(covariance: Floats, share: float) -> Floats:
    d = len(covariance)
    level = np.trace(covariance) / d + 1e-12
    return np.asarray((1 - share) * covariance + share * level * np.eye(d))


@dataclass(frozen=True)
class _OneClass:
    """Says of two pieces how probable it is that they are parts of one class."""

    model: Any = None

    @classmethod
    def learn(cls, source: Floats, y: Ints, size: int, rng: np.random.Generator) -> _OneClass:
        """Cut a few known classes at a time into pieces, and learn from pairs of pieces."""
        usable = np.flatnonzero(np.bincount(y) >= _ROWS_OF_A_CLASS)
        figures: list[Floats] = []
        same: list[bool] = []
        for repeat in range(_REHEARSALS if len(usable) > 1 else 0):
            chosen = rng.choice(usable, min(len(usable), 2 + repeat % 3), replace=False)
            rows = rng.permutation(np.flatnonzero(np.isin(y, chosen)))[: min(size, _REHEARSED_ROWS)]
            pieces = _cut(source[rows], rng)
            owner = np.array([np.bincount(y[rows][pieces == j]).argmax() for j in range(pieces.max() + 1)])
            # Pieces as they are, and classes of which about half of the pieces were merged already.
            period = int(owner.max()) + 1
            half = owner[pieces] + period * (rng.random(len(owner)) < 0.5)[pieces]
            for labels, of in ((pieces, owner), (half, None)):
                large = np.flatnonzero(np.isin(labels, np.flatnonzero(np.bincount(labels) >= _SMALLEST)))
                for a, b in _pairs(labels[large]):
                    figures.append(_figures(source[rows][labels == a], source[rows][labels == b]))
                    same.append(bool(a % period == b % period if of is None else of[a] == of[b]))
        if len(set(same)) < 2:
            return cls()
        model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced"))
        return cls(model.fit(np.array(figures), same))

    def probability(self, one: Floats, other: Floats) -> float:
        if min(len(one), len(other)) < _SMALLEST:
            return 0.0
        figures = _figures(one, other)
        if self.model is None:
            return 1.0 if figures[0] > _DEEP_VALLEY else 0.0
        return float(self.model.predict_proba(figures[None])[0, 1])


def _pairs(labels: Ints) -> list[tuple[int, int]]:
    names = np.unique(labels).tolist()
    return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]


def _cut(rows: Floats, rng: np.random.Generator) -> Ints:
    """Cut rows into more pieces than there should be groups."""
    count = min(_PIECES, len(rows) // _LEAST_PIECE)
    if count < 2:
        return np.zeros(len(rows), dtype=np.int64)
    model = GaussianMixture(
        count, covariance_type="tied", reg_covar=1e-3, random_state=int(rng.integers(2**31))
    )
    return np.asarray(np.unique(model.fit_predict(rows), return_inverse=True)[1])


def _merge(rows: Floats, one_class: _OneClass, rng: np.random.Generator) -> Ints:
    """Merge the pieces that are most probably one class, as long as they are; the largest group first.

    Rows have -1 if they remain in a piece that is too small: outliers, and known rows that were called novel.
    """
    labels = _cut(rows, rng)
    known: dict[tuple[int, int], float] = {}
    while True:
        for a, b in _pairs(labels):
            if (a, b) not in known:
                known[a, b] = one_class.probability(rows[labels == a], rows[labels == b])
        if not known or max(known.values()) < _ONE_CLASS:
            break
        a, b = max(known, key=lambda pair: known[pair])
        labels[labels == b] = a
        known = {pair: value for pair, value in known.items() if a not in pair and b not in pair}
    sizes = np.bincount(labels)
    large = np.flatnonzero(sizes >= min(sizes.max(), max(_SMALLEST, _LEAST_SHARE * len(rows))))
    order = large[np.argsort(-sizes[large], kind="stable")]
    rank = np.full(len(sizes), -1)
    rank[order] = np.arange(len(order))
    return np.asarray(rank[labels])


def _figures(one: Floats, other: Floats) -> Floats:
    """Depth of the valley between two pieces, log distance of their means, log width of both together."""
    both = np.concatenate([one, other])
    width = np.log(both.var(axis=0).sum() + 1e-9)
    x, z = _separating_scores(one, other)
    spread = np.sqrt((x.var() + z.var()) / 2) + 1e-9
    distance = (x.mean() - z.mean()) / spread
    return np.array([valley(x, z), np.log(max(distance, 0.3)), width])


def _separating_scores(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Scores of both pieces on the discriminant axis that the other halves of them gave."""
    scores: tuple[list[Floats], list[Floats]] = ([], [])
    for half in (0, 1):
        a, b = one[1 - half :: 2], other[1 - half :: 2]
        centres = a.mean(axis=0), b.mean(axis=0)
        within = np.concatenate([a - centres[0], b - centres[1]])
        share = min(1.0, (within.shape[1] + 1) / len(within))
        covariance = _shrunk(within.T @ within / len(within), share)
        axis = np.linalg.solve(covariance, centres[0] - centres[1])
        axis /= np.sqrt(axis @ covariance @ axis) + 1e-12
        middle = (centres[0] + centres[1]) @ axis / 2
        for part, rows in zip(scores, (one, other), strict=True):
            part.append(rows[half::2] @ axis - middle)
    return np.concatenate(scores[0]), np.concatenate(scores[1])


def valley(high: Floats, low: Floats) -> float:
    """Smallest density between two samples' medians, relative to the lower of the peaks at its sides.

    Both samples have the same weight. One when there is no valley; near zero when nothing lies between.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.discovery import valley
    >>> x = np.linspace(-1, 1, 101)
    >>> valley(x + 9, x) < 0.01, valley(x, x)
    (True, 1.0)
    """
    start, stop = float(np.median(low)), float(np.median(high))
    if stop <= start + 0.2:
        return 1.0
    grid = np.linspace(start - 1, stop + 1, _GRID)
    density = _density(high, grid) + _density(low, grid)
    between = np.flatnonzero((grid >= start) & (grid <= stop))
    lowest = int(between[density[between].argmin()])
    return float(density[lowest] / min(density[: lowest + 1].max(), density[lowest:].max()))


def _density(sample: Floats, grid: Floats) -> Floats:
    """Kernel density with Silverman's bandwidth."""
    quarter, three_quarters = np.quantile(sample, [0.25, 0.75])
    spread = min(float(sample.std()), (three_quarters - quarter) / 1.34) or float(sample.std())
    width = max(1e-3, 0.9 * spread * len(sample) ** -0.2)
    return np.asarray(np.exp(-0.5 * ((grid[:, None] - sample) / width) ** 2).mean(axis=1) / width)


def _memberships(learnt: Floats, rows: Ints, labels: Ints, called: Ints) -> Floats:
    """Posteriors of all rows under a mixture with one covariance, learnt from ``labels`` onwards."""
    count = int(labels.max()) + 1
    if count == 1:
        return np.ones((len(learnt), 1))
    fitted = learnt[called]
    resp = np.full((len(called), count), np.nan)
    resp[np.searchsorted(called, rows)] = np.eye(count)[labels]
    start = ~np.isnan(resp[:, 0])
    parameters = _gaussians(fitted[start], resp[start])
    for _ in range(_ROUNDS):
        new = _posterior(fitted, *parameters)
        if not np.isnan(resp).any() and np.abs(new - resp).max() < 1e-3:
            break
        resp = new
        parameters = _gaussians(fitted, resp)
    membership = _posterior(learnt, *parameters)
    sizes = membership[called].sum(axis=0)
    return np.asarray(membership[:, np.argsort(-sizes, kind="stable")])


def _gaussians(rows: Floats, resp: Floats) -> tuple[Floats, Floats, Floats]:
    """Shares, means and the common precision of a mixture with these responsibilities."""
    size = resp.sum(axis=0) + 1e-9
    means = resp.T @ rows / size[:, None]
    second = rows.T @ rows / len(rows) - (means * (size / len(rows))[:, None]).T @ means
    return size / size.sum(), means, np.linalg.inv(_shrunk(second, _SHRINKAGE))


def _posterior(rows: Floats, share: Floats, means: Floats, precision: Floats) -> Floats:
    linear = means @ precision
    logits = rows @ linear.T - 0.5 * (linear * means).sum(axis=1) + np.log(share)
    return np.asarray(softmax(logits, axis=1))


# -- Shares -----------------------------------------------------------------------------------------


def group_shares(
    novelty: Floats, membership: Floats, share: float, interval: Sequence[float], level: float
) -> tuple[Floats, Floats]:
    r"""Share of each group in the target, and its interval.

    With fraction :math:`f_g` of the novel part, the mean membership weighted by novelty, the share is
    :math:`\alpha f_g`. Its variance adds that of :math:`\alpha` (from its interval, each side by itself) and
    that of the fraction: of drawing so many novel rows, and of rows whose group is in doubt.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.discovery import group_shares
    >>> novelty, membership = np.repeat([1.0, 0.0], [40, 60]), np.eye(2)[np.repeat([0, 1], [30, 70])]
    >>> shares, intervals = group_shares(novelty, membership, 0.4, (0.3, 0.5), 0.95)
    >>> shares
    array([0.3, 0.1])
    >>> intervals.round(3)
    array([[0.208, 0.392],
           [0.041, 0.159]])
    """
    total = float(novelty.sum())
    if membership.shape[1] == 0 or total == 0:
        return np.zeros(membership.shape[1]), np.zeros((membership.shape[1], 2))
    fraction = np.clip(novelty @ membership / total, 0.0, 1.0)
    drawn = fraction * (1 - fraction) / total
    doubt = np.square(novelty) @ (membership * (1 - membership)) / total**2
    noise = norm.ppf(0.5 + level / 2) * share * np.sqrt(drawn + doubt)
    below = np.hypot(fraction * (share - interval[0]), noise)
    above = np.hypot(fraction * (interval[1] - share), noise)
    shares = share * fraction
    return shares, np.clip(np.column_stack([shares - below, shares + above]), 0.0, 1.0)


def describe_groups(
    proba: Floats,
    membership: Floats,
    share: float,
    interval: Sequence[float],
    level: float,
    classes: Sequence[Any],
    novel: Bools,
) -> Discovery:
    """Put shares, rows, purity and the nearest known class of every group together.

    ``proba`` has the known classes and then the novel one; ``novel`` marks the rows called novel.
    """
    shares, intervals = group_shares(proba[:, -1], membership, share, interval, level)
    group = np.where(novel, membership.argmax(axis=1), -1) if membership.shape[1] else np.full(len(proba), -1)
    groups = []
    for j in range(membership.shape[1]):
        rows = np.flatnonzero(group == j)
        typical = membership[rows, j] * proba[rows, -1]
        rows = rows[np.argsort(-typical, kind="stable")]
        bounds = (float(intervals[j, 0]), float(intervals[j, 1]))
        nearest = _nearest(proba[rows, :-1], classes)
        purity = float(typical.mean()) if len(rows) else 0.0
        groups.append(Group(float(shares[j]), bounds, rows, purity, nearest))
    return Discovery(tuple(groups), group, membership)


def _nearest(known: Floats, classes: Sequence[Any]) -> Any:
    """The known class that the classifier would choose for most of the rows, if it had to."""
    if known.shape[1] < 2 or not len(known):
        return None
    votes = np.bincount(known.argmax(axis=1)[known.sum(axis=1) > 0], minlength=known.shape[1])
    best = int(votes.argmax())
    return classes[best] if votes[best] > 0.5 * len(known) else None
