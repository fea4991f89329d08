r"""Partitions of rows into groups: the candidates, how good each is, and how many groups to say there are.

Rows are compared in units of a known class (:class:`osls.inference.space.Space`): a new class is about as
wide as the known ones, so the covariance within known classes says which differences count. Columns are taken
standardised or as they are, whichever tells the known classes apart better; what the models learnt of the
known classes is added with a small weight, as it says less of classes that they never saw. For each number
of groups up to six, Ward's tree is cut there and a Gaussian mixture with one covariance goes on from the cut.
Figures say how good a partition is:

- the mean valley between two groups, along the axis that separates them best;
- the modularity of the graphs of nearest neighbours, by the columns and by what the models learnt (neighbours
  should be of one group), and how much larger it is than when single known classes are cut into as many
  parts: this is what one class looks like in these data;
- how wide the groups are, beside known classes: several classes in one group are wider than one, and the
  parts of a class are narrower.

They are means over draws of the rows, as a few rows can turn a cut of the tree. Their weights were learnt on
other data sets, where the number of groups is known (``_WEIGHTS``). They make the figures a probability of
each number, and the answer is its median: the figures rarely agree on a single number, and the most probable
one would often be one group where three or four are more probable together. None of the figures grows with
the number of rows, and one group is as possible an answer as several.

Among the rows called novel are some of known classes, and they would be groups of their own. They lie among
rows of their class, labelled or not, so the groups are found among the rows whose neighbours were called
novel as well. To take those that are most probable to be novel instead would leave whole classes out: a
classifier is less sure of one new class than of another.

Some of the figures say whether a known class falls into two parts (:func:`halve_classes`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import fcluster, ward
from scipy.special import softmax
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from osls._core.arrays import Floats, Ints
from osls.inference.space import Space, shrunk

__all__ = ["group_rows", "halve_classes"]

# Groups are defined by so many rows at most; the others are assigned to them.
_MAX_ROWS = 600
_FEWEST_ROWS = 24
_MOST_GROUPS = 6
# Neighbours of a row, as a part of all rows: so that more rows of the same kind change nothing.
_NEIGHBOURS = 0.06
# Known classes that are cut for comparison: how many, with at least and at most so many rows.
_REHEARSED = 8
_REHEARSED_ROWS = 40, 150
# What cutting one class into 2 to 6 parts usually gives, by columns and by what the models learnt.
_USUAL_MODULARITY = (0.25, 0.35, 0.40, 0.42, 0.43), (0.24, 0.31, 0.33, 0.35, 0.34)
# Weights of the figures; their order is that of ``_figures``, then the log of the number, and more than one.
# Fitted by benchmarks/discovery_weights.py on covtype, digits, drybean, letter, pbmc3k, satimage, usps and
# generated classes; benchmarks/discovery.py has the results for other data.
_WEIGHTS = np.array([-5.39, 4.41, 5.09, 2.39, 2.18, -0.79, -0.44, -1.52, -0.19])
# Groups are found among called rows that have so many called ones among so many neighbours (themselves
# included) in all rows, of which at most so many are looked at; but among this part of them at least.
_CALLED, _LOOKED_AT = 8, 11
_POOL = 20_000
_CORE = 0.5
# Figures are means over so many draws of so large a part of the rows.
_DRAWS = 4
_DRAWN = 0.7
# Two parts of a known class: weights of the figures, and what they have to reach.
# The score is from ``--parts`` of benchmarks/discovery.py on the same sets: 14 of 24 found, 1 of 69 others.
_HALF_WEIGHTS = np.array([3.58, -2.93, 4.49])
_HALF_SCORE = 2.1
_MIXTURE_SHRINKAGE = 0.2
_GRID = 48
_ROUNDS = 20
# A known class is looked at for parts if it has as many rows as two groups need; so many of them at most.
_PART_ROWS = 2 * _FEWEST_ROWS, 300


# -- How many groups --------------------------------------------------------------------------------


def group_rows(space: Space, y: Ints, novelty: Floats, *, seed: int = 0) -> Floats:
    """Return the memberships, of shape (m, groups), of target rows in groups of the novel ones.

    Parameters
    ----------
    space : Space
        The n source rows, then the m target rows.
    y : array of shape (n,)
        Known classes of the source rows.
    novelty : array of shape (m,)
        Probability that a target row is novel; those above one half are grouped.
    seed : int
        Seed of the draws of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.partition import group_rows
    >>> from osls.inference.space import Space
    >>> rng = np.random.default_rng(0)
    >>> kind = np.repeat([0, 1, 2, 3, 4], [80, 80, 80, 60, 40])
    >>> centres = np.array([[0, 0], [9, 0], [0, 9], [9, 9], [18, 9]])
    >>> rows = centres[kind] + rng.normal(size=(340, 2))
    >>> known = kind[:240]
    >>> membership = group_rows(Space.of(rows, rows, known), known, np.ones(100))
    >>> np.bincount(membership.argmax(axis=1)).tolist()
    [60, 40]
    """
    rng = np.random.default_rng(seed)
    target = space[len(y) :]
    called = np.flatnonzero(novelty > 0.5)
    if len(called) == 0:
        return np.zeros((len(novelty), 0))
    # Many small fits: threads cost more than they bring, the more so on a busy machine.
    with threadpool_limits(1):
        sample = space[core_rows(space.joint, len(y) + called, rng)]
        candidates = partitions(sample.joint)
        figures = mean_figures(sample, one_class(space, y, rng), rng)
        chosen = median_number(
            {count: float(_WEIGHTS @ figures[count]) for count in candidates if count in figures}
        )
        if chosen == 1:
            return np.ones((len(novelty), 1))
        membership = _posterior(target.joint, *_mixture(sample.joint, candidates[chosen])[1])
    return np.asarray(membership[:, np.argsort(-membership[called].sum(axis=0), kind="stable")])


def partitions(rows: Floats, most: int = _MOST_GROUPS) -> dict[int, Ints]:
    """Return the best partition of rows into each number of groups that they can be told to have.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.partition import partitions
    >>> rows = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 9]], 30, axis=0)
    >>> np.bincount(partitions(rows)[2]).tolist()
    [30, 30]
    """
    found: dict[int, Ints] = {1: np.zeros(len(rows), dtype=np.int64)}
    if len(rows) < _FEWEST_ROWS:
        return found
    tree = ward(rows)
    for count in range(2, most + 1):
        cut = np.asarray(fcluster(tree, count, "maxclust"), dtype=np.int64) - 1
        labels = _mixture(rows, cut)[0].argmax(axis=1)
        if len(np.unique(labels)) == count:
            found[count] = labels
    return found


def core_rows(rows: Floats, called: Ints, rng: np.random.Generator) -> Ints:
    """Return those of the rows at ``called``, ``_MAX_ROWS`` at most, that lie among others of them.

    Examples
    --------
    The first thirty rows were called novel; one of them lies among the others.

    >>> import numpy as np
    >>> from osls.inference.partition import core_rows
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(60, 2)) + np.repeat([[9, 9], [0, 0]], [29, 31], axis=0)
    >>> core_rows(rows, np.arange(30), rng).tolist() == list(range(29))
    True
    """
    asked = rng.permutation(called)[: 2 * _MAX_ROWS]
    if rows.shape[1] == 0:
        return np.sort(asked[:_MAX_ROWS])
    pool = np.union1d(rng.permutation(len(rows))[:_POOL], asked)
    near = NearestNeighbors(n_neighbors=min(_LOOKED_AT, len(pool))).fit(rows[pool])
    own = np.isin(pool, called)[near.kneighbors(rows[asked], return_distance=False)].sum(axis=1)
    return np.sort(asked[own >= min(_CALLED, float(np.quantile(own, 1 - _CORE)))][:_MAX_ROWS])


def mean_figures(rows: Space, usual: Usual, rng: np.random.Generator) -> dict[int, Floats]:
    """Return what ``_WEIGHTS`` weigh for each number of groups: means over draws of the rows."""
    n = len(rows.joint)
    size = max(min(n, _FEWEST_ROWS), round(_DRAWN * n))
    found: dict[int, list[Floats]] = {}
    for _ in range(_DRAWS):
        drawn = rows[np.sort(rng.permutation(n)[:size])]
        graphs = _neighbours(drawn.columns), _neighbours(drawn.learnt)
        for count, labels in partitions(drawn.joint).items():
            found.setdefault(count, []).append(_figures(drawn, labels, graphs, usual))
    return {count: np.mean(figures, axis=0) for count, figures in found.items()}


def median_number(score: dict[int, float]) -> int:
    """Return the median of the number of groups, if ``score`` has the logarithms of their probabilities.

    Examples
    --------
    One group is the most probable number here, but three or more have a probability of .56.

    >>> import numpy as np
    >>> from osls.inference.partition import median_number
    >>> median_number({1: np.log(0.34), 2: np.log(0.1), 3: np.log(0.26), 4: np.log(0.3)})
    3
    """
    numbers = sorted(score)
    below = np.cumsum(softmax([score[count] for count in numbers]))
    # Rounding must not make a half less than a half.
    return numbers[int(np.searchsorted(below, 0.5 - 1e-9))]


def _figures(rows: Space, labels: Ints, graphs: tuple[Ints, Ints], usual: Usual) -> Floats:
    """Valley, modularities beside the usual ones, widths beside known classes, and the number of groups."""
    count = int(labels.max()) + 1
    wide = _width(rows.columns, labels) - usual.width[0]
    wide_learnt = _width(rows.learnt, labels) - usual.width[1]
    widths = [wide_learnt, wide**2, wide_learnt**2]
    if count == 1:
        return np.array([0.0, 0.0, 0.0, 0.0, *widths, 0.0, 0.0])
    by_columns, by_learnt = (modularity(graph, labels) for graph in graphs)
    above = by_columns - usual.modularity[0, count - 2], by_learnt - usual.modularity[1, count - 2]
    return np.array(
        [_mean_valley(rows.joint, labels), above[0], by_learnt, above[1], *widths, np.log(count), 1]
    )


def _mean_valley(rows: Floats, labels: Ints) -> float:
    pieces = [rows[labels == c] for c in range(int(labels.max()) + 1)]
    return float(np.mean([_valley_between(a, b) for i, a in enumerate(pieces) for b in pieces[:i]]))


def _width(rows: Floats, labels: Ints) -> float:
    """Log of the total variance within a group, in the mean of the rows."""
    size = np.bincount(labels)
    several = np.flatnonzero(size > 1)
    total = [rows[labels == c].var(axis=0, ddof=1).sum() for c in several]
    return float(np.average(np.log(np.array(total) + 1e-6), weights=size[several])) if len(several) else 0.0


@dataclass(frozen=True)
class Usual:
    """What single known classes look like: ``modularity`` when cut into 2, 3, ... parts, and their ``width``.

    Both by the columns and by what the models learnt.
    """

    modularity: Floats
    width: Floats


def one_class(space: Space, y: Ints, rng: np.random.Generator) -> Usual:
    """Return the means over known classes that have enough rows."""
    least, most = _REHEARSED_ROWS
    usable = rng.permutation(np.flatnonzero(np.bincount(y) >= least))[:_REHEARSED]
    found: dict[int, list[Floats]] = {}
    widths = []
    for c in usable:
        rows = space[rng.permutation(np.flatnonzero(y == c))[:most]]
        graphs = _neighbours(rows.columns), _neighbours(rows.learnt)
        for count, labels in partitions(rows.joint).items():
            if count > 1:
                found.setdefault(count, []).append(np.array([modularity(graph, labels) for graph in graphs]))
            else:
                widths.append([_width(rows.columns, labels), _width(rows.learnt, labels)])
    usual = np.array(_USUAL_MODULARITY)
    for count, values in found.items():
        usual[:, count - 2] = np.mean(values, axis=0)
    return Usual(usual, np.mean(widths, axis=0) if widths else np.zeros(2))


def _neighbours(rows: Floats) -> Ints:
    """Positions of the nearest rows of each row."""
    count = min(len(rows) - 1, max(5, round(_NEIGHBOURS * len(rows))))
    if count < 1 or rows.shape[1] == 0:
        return np.zeros((len(rows), 0), dtype=np.int64)
    return np.asarray(NearestNeighbors(n_neighbors=count).fit(rows).kneighbors(return_distance=False))


def modularity(neighbours: Ints, labels: Ints) -> float:
    """Part of the neighbours that have the same label, beyond what chance would give.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.partition import modularity
    >>> modularity(np.array([[1], [0], [3], [2]]), np.array([0, 0, 1, 1]))
    0.5
    """
    count = int(labels.max()) + 1
    if neighbours.size == 0:
        return 0.0
    pairs = (labels[:, None] * count + labels[neighbours]).ravel()
    edges = np.bincount(pairs, minlength=count**2).reshape(count, count) / len(pairs)
    ends = (edges.sum(axis=0) + edges.sum(axis=1)) / 2
    return float(np.trace(edges) - np.square(ends).sum())


def _valley_between(one: Floats, other: Floats) -> float:
    # Two rows of each are needed to find an axis, and two others to look at them along it.
    return valley(*_separating_scores(one, other)) if min(len(one), len(other)) >= 4 else 1.0


def _separating_scores(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Scores of both pieces on the discriminant axis that the other halves of them gave."""
    scores: tuple[list[Floats], list[Floats]] = ([], [])
    for half in (0, 1):
        a, b = one[1 - half :: 2], other[1 - half :: 2]
        centres = a.mean(axis=0), b.mean(axis=0)
        within = np.concatenate([a - centres[0], b - centres[1]])
        share = min(1.0, (within.shape[1] + 1) / len(within))
        covariance = shrunk(within.T @ within / len(within), share)
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
    >>> from osls.inference.partition import valley
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


def _mixture(rows: Floats, labels: Ints) -> tuple[Floats, tuple[Floats, Floats, Floats]]:
    """Posteriors and parameters of a Gaussian mixture with one covariance, started from ``labels``."""
    resp: Floats = np.eye(int(labels.max()) + 1)[labels]
    for _ in range(_ROUNDS):
        parameters = _gaussians(rows, resp)
        before, resp = resp, _posterior(rows, *parameters)
        if np.abs(resp - before).max() < 1e-3:
            break
    return resp, parameters


def _gaussians(rows: Floats, resp: Floats) -> tuple[Floats, Floats, Floats]:
    """Shares, means and the common precision of a mixture with these responsibilities."""
    size = resp.sum(axis=0) + 1e-9
    means = resp.T @ rows / size[:, None]
    second = rows.T @ rows / len(rows) - (means * (size / len(rows))[:, None]).T @ means
    shrinkage = max(_MIXTURE_SHRINKAGE, min(1.0, rows.shape[1] / len(rows)))
    return size / size.sum(), means, np.linalg.inv(shrunk(second, shrinkage))


def _posterior(rows: Floats, share: Floats, means: Floats, precision: Floats) -> Floats:
    linear = means @ precision
    logits = rows @ linear.T - 0.5 * (linear * means).sum(axis=1) + np.log(share)
    return np.asarray(softmax(logits, axis=1))


# -- Parts of known classes -------------------------------------------------------------------------


def halve_classes(
    space: Space, y: Ints, answers: Ints, count: int, *, seed: int = 0
) -> dict[int, tuple[Ints, Ints]]:
    """Return the part, 0 or 1, of each row of the known classes that fall into two parts.

    Parameters
    ----------
    space : Space
        The n source rows, then the m target rows.
    y : array of shape (n,)
        Known classes of the source rows, 0..count-1.
    answers : array of shape (m,)
        What the target rows were called; other values than 0..count-1 are of no known class.
    count : int
        The number of known classes.
    seed : int
        Seed of the draws of rows.

    Returns
    -------
    dict
        For each such class the parts of its source rows, and those of the target rows that were called so.

    Examples
    --------
    >>> import numpy as np
    >>> from osls.inference.partition import halve_classes
    >>> from osls.inference.space import Space
    >>> heap = np.repeat([0, 1, 2, 0, 2], [60, 60, 90, 20, 20])
    >>> rows = np.array([[0, 0], [12, 0], [0, 12]])[heap] + np.random.default_rng(0).normal(size=(250, 2))
    >>> kind = (heap == 2).astype(int)
    >>> found = halve_classes(Space.of(rows, rows, kind[:210]), kind[:210], kind[210:], 2)
    >>> {c: np.bincount(source).tolist() for c, (source, target) in found.items()}
    {0: [60, 60]}
    """
    rng = np.random.default_rng(seed)
    least, most = _PART_ROWS
    halves: dict[int, tuple[Floats, Ints, Floats]] = {}
    with threadpool_limits(1):
        for c in np.flatnonzero(np.bincount(y, minlength=count) >= least).tolist():
            drawn = space[rng.permutation(np.flatnonzero(y == c))[:most]]
            labels = partitions(drawn.joint, most=2).get(2)
            if labels is not None:
                graphs = _neighbours(drawn.joint), _neighbours(drawn.columns)
                jointly, by_columns = (modularity(graph, labels) for graph in graphs)
                figures = np.array([jointly, _mean_valley(drawn.joint, labels), by_columns])
                halves[c] = drawn.joint, labels, figures
        found = {}
        for c, (rows, labels, figures) in halves.items():
            # What cutting one class gives: here the mean of the others, which are mostly whole.
            others = [half[2][2] for j, half in halves.items() if j != c]
            usual = float(np.mean(others)) if others else _USUAL_MODULARITY[0][0]
            if float(_HALF_WEIGHTS @ (figures - [0, 0, usual])) > _HALF_SCORE:
                of_source, of_target = np.flatnonzero(y == c), np.flatnonzero(answers == c)
                both = space[np.append(of_source, len(y) + of_target)]
                part = _posterior(both.joint, *_mixture(rows, labels)[1]).argmax(axis=1)
                found[c] = part[: len(of_source)], part[len(of_source) :]
    return found
