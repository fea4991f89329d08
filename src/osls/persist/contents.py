"""What the estimators of scikit-learn hold, checked after loading: shapes, and ranges of stored indices.

Compiled code uses the node numbers of trees, the class numbers of neighbours and the indices of sparse
matrices without checking them. A file with invalid ones loads without error, and the first prediction reads
or writes foreign memory. Every estimator that loads without being named by the user has an entry here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.neighbors import BallTree, KDTree

from osls._core.arrays import AnyArray
from osls.persist.tree import ModelError
from osls.persist.values import check_state

# Types that scikit-learn gives no public name.
TREE = "sklearn.tree._tree.Tree"
HISTOGRAM_TREE = "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"

Held = Mapping[str, Any]

# -- Shapes -----------------------------------------------------------------------------------------

# Names of sizes: n columns, k classes, b rows of coefficients (one for two classes). Other letters only have
# to agree within an estimator.
_LINEAR = {"coef_": "bn", "intercept_": "b"}
_SCALES = {"mean_": "n", "scale_": "n", "var_": "n", "center_": "n", "min_": "n"}
_SHAPES: dict[str, dict[str, str]] = {
    "sklearn.calibration.CalibratedClassifierCV": {},
    "sklearn.calibration._CalibratedClassifier": {},
    "sklearn.calibration._SigmoidCalibration": {"a_": "", "b_": ""},
    "sklearn.calibration._TemperatureScaling": {"beta_": ""},
    "sklearn.compose._column_transformer.ColumnTransformer": {},
    "sklearn.decomposition._pca.PCA": {"components_": "cn", "mean_": "n", "explained_variance_": "c"},
    "sklearn.decomposition._truncated_svd.TruncatedSVD": {"components_": "cn"},
    "sklearn.discriminant_analysis.LinearDiscriminantAnalysis": {**_LINEAR, "means_": "kn", "xbar_": "n"},
    "sklearn.dummy.DummyClassifier": {"class_prior_": "k"},
    "sklearn.ensemble._voting.VotingClassifier": {},
    "sklearn.impute._base.SimpleImputer": {"statistics_": "n"},
    "sklearn.isotonic.IsotonicRegression": {"X_thresholds_": "t", "y_thresholds_": "t"},
    "sklearn.linear_model._logistic.LogisticRegression": _LINEAR,
    "sklearn.linear_model._logistic.LogisticRegressionCV": _LINEAR,
    "sklearn.linear_model._perceptron.Perceptron": _LINEAR,
    "sklearn.linear_model._ridge.RidgeClassifier": _LINEAR,
    "sklearn.linear_model._ridge.RidgeClassifierCV": _LINEAR,
    "sklearn.linear_model._stochastic_gradient.SGDClassifier": _LINEAR,
    "sklearn.naive_bayes.GaussianNB": {"theta_": "kn", "var_": "kn", "class_prior_": "k"},
    "sklearn.pipeline.Pipeline": {},
    "sklearn.preprocessing._data.MaxAbsScaler": _SCALES,
    "sklearn.preprocessing._data.MinMaxScaler": _SCALES,
    "sklearn.preprocessing._data.Normalizer": {},
    "sklearn.preprocessing._data.PowerTransformer": {"lambdas_": "n"},
    "sklearn.preprocessing._data.QuantileTransformer": {"quantiles_": "qn", "references_": "q"},
    "sklearn.preprocessing._data.RobustScaler": _SCALES,
    "sklearn.preprocessing._data.StandardScaler": _SCALES,
    "sklearn.preprocessing._encoders.OneHotEncoder": {},
    "sklearn.preprocessing._encoders.OrdinalEncoder": {},
    "sklearn.preprocessing._function_transformer.FunctionTransformer": {},
    "sklearn.preprocessing._label.LabelBinarizer": {},
    "sklearn.preprocessing._label.LabelEncoder": {},
    "sklearn.svm._classes.LinearSVC": _LINEAR,
}


def _shapes_agree(held: Held, shapes: Mapping[str, str], sizes: dict[str, int]) -> bool:
    for name, letters in shapes.items():
        if (value := held.get(name)) is None:
            continue
        shape = value.shape if sparse.issparse(value) else np.shape(value)
        if letters.startswith("b") and sizes.get("b") == 1 and len(shape) < len(letters):
            letters = letters[1:]  # a single row may be written as a vector
        if len(shape) != len(letters):
            return False
        if any(sizes.setdefault(letter, size) != size for letter, size in zip(letters, shape, strict=True)):
            return False
    return True


def _sizes(thing: Any) -> dict[str, int]:
    """Return the numbers of columns and classes that an estimator says it has."""
    sizes = {}
    if (columns := vars(thing).get("n_features_in_")) is not None:
        sizes["n"] = columns
    classes = getattr(thing, "classes_", None)
    if isinstance(classes, np.ndarray) and classes.ndim == 1:
        sizes |= {"k": len(classes), "b": 1 if len(classes) == 2 else len(classes)}
    return sizes


# -- Trees ------------------------------------------------------------------------------------------


def _nodes_are_sound(
    left: AnyArray, right: AnyArray, feature: AnyArray, leaf: AnyArray, columns: int
) -> bool:
    """Check that children lie inside the tree and after their parent, so that every walk ends."""
    number, inner = np.arange(len(left)), ~leaf.astype(bool)
    return all(
        bool(np.all((child[inner] > number[inner]) & (child[inner] < len(left)))) for child in (left, right)
    ) and bool(np.all((feature[inner] >= 0) & (feature[inner] < columns)))


def _tree_is_sound(tree: Any) -> bool:
    # Check the count first: it sets the length of the arrays that the properties below return.
    if not 1 <= tree.node_count <= tree.capacity:
        return False
    return _nodes_are_sound(
        tree.children_left, tree.children_right, tree.feature, tree.children_left == -1, tree.n_features
    )


def _decision_tree(held: Held, sizes: dict[str, int]) -> bool:
    tree = held.get("tree_")
    if tree is None:
        return True
    return bool(
        _is_a(tree, TREE)
        and tree.n_features == sizes.get("n")
        and tree.n_outputs == held.get("n_outputs_") == 1
        and tree.n_classes.tolist() == [held.get("n_classes_")] == [sizes.get("k")]
    )


def _forest(held: Held, sizes: dict[str, int]) -> bool:
    if "estimators_" not in held:
        return True
    return held.get("n_classes_") == sizes.get("k") and all(
        _name(tree) in _TREES and _sizes(tree) == sizes for tree in held["estimators_"]
    )


def _histogram_boosting(held: Held, sizes: dict[str, int]) -> bool:
    if "_predictors" not in held:
        return True
    bins, columns = held["_bin_mapper"], sizes.get("n")
    categorical = np.asarray(bins.is_categorical_)
    known = [bins.bin_thresholds_[i] for i in np.flatnonzero(categorical)]
    return (
        categorical.shape == (columns,)
        and held["_n_features"] == columns
        # Categories become bits of a fixed number of bytes.
        and all(((values >= 0) & (values < _CATEGORIES)).all() for values in known)
        and all(len(group) == sizes.get("b") for group in held["_predictors"])
        and all(
            _predictor_is_sound(tree, categorical != 0) for group in held["_predictors"] for tree in group
        )
    )


_CATEGORIES = 256
_WORDS = 8


def _predictor_is_sound(tree: Any, categorical: AnyArray) -> bool:
    """The same for trees of histogram gradient boosting; ``categorical`` marks the categorical columns."""
    if not _is_a(tree, HISTOGRAM_TREE) or not len(tree.nodes):
        return False
    nodes, bits = tree.nodes, tree.raw_left_cat_bitsets
    left, right, feature = (nodes[name].astype(np.int64) for name in ("left", "right", "feature_idx"))
    leaf = nodes["is_leaf"] != 0
    if bits.ndim != 2 or bits.shape[1] != _WORDS:
        return False
    if not _nodes_are_sound(left, right, feature, leaf, len(categorical)):
        return False
    by_category = ~leaf & (nodes["is_categorical"] != 0)
    return bool(
        np.all(categorical[feature[by_category]]) and np.all(nodes["bitset_idx"][by_category] < len(bits))
    )


# -- Networks and neighbours ------------------------------------------------------------------------


def _perceptron(held: Held, sizes: dict[str, int]) -> bool:
    if "coefs_" not in held:
        return True
    weights, offsets = held["coefs_"], held["intercepts_"]
    widths = [sizes.get("n"), *(np.shape(offset)[0] for offset in offsets)]
    return (
        len(weights) == len(offsets) == held["n_layers_"] - 1
        and [np.shape(each) for each in weights] == list(pairwise(widths))
        and widths[-1] == held["n_outputs_"]
        and widths[-1] in (sizes.get("b"), sizes.get("k"))
    )


_METRICS = frozenset(
    {"chebyshev", "cosine", "euclidean", "l1", "l2", "manhattan", "minkowski", "sqeuclidean"}
)


def _neighbours(held: Held, sizes: dict[str, int]) -> bool:
    if "_fit_X" not in held:
        return True
    numbers = held["_y"]
    return (
        _shapes_agree(held, {"_fit_X": "rn", "_y": "r"}, sizes)
        and held["n_samples_fit_"] == sizes["r"]
        and held["effective_metric_"] in _METRICS
        and all(isinstance(value, int | float) for value in held["effective_metric_params_"].values())
        and numbers.dtype.kind == "i"
        and bool(((numbers >= 0) & (numbers < sizes.get("k", 0))).all())
        and held.get("_tree") is None
    )


def without_indices(part: Any) -> Any:
    """Return an estimator without the search trees of neighbours, which are too intricate to be checked."""
    if not any(_name(thing) == _NEIGHBOURS for thing in everything_in(part)):
        return part
    bare = copy.deepcopy(part)
    for thing in everything_in(bare):
        if _name(thing) == _NEIGHBOURS and "_tree" in vars(thing):
            thing._tree = None
    return bare


def rebuild_indices(part: Any) -> None:
    """Make the search trees of neighbours anew, from the rows and thus as they were."""
    for thing in everything_in(part):
        kind = _INDICES.get(vars(thing).get("_fit_method")) if _name(thing) == _NEIGHBOURS else None
        if kind is not None:
            thing._tree = kind(
                thing._fit_X,
                thing.leaf_size,
                metric=thing.effective_metric_,
                **thing.effective_metric_params_,
            )


_INDICES: dict[Any, Any] = {"ball_tree": BallTree, "kd_tree": KDTree}
_NEIGHBOURS = "sklearn.neighbors._classification.KNeighborsClassifier"
_TREES = frozenset(
    {"sklearn.tree._classes.DecisionTreeClassifier", "sklearn.tree._classes.ExtraTreeClassifier"}
)
_BINS = "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper"
_CHECKS: dict[str, Callable[[Held, dict[str, int]], bool]] = {
    **dict.fromkeys(_TREES, _decision_tree),
    "sklearn.ensemble._forest.ExtraTreesClassifier": _forest,
    "sklearn.ensemble._forest.RandomForestClassifier": _forest,
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingClassifier": (
        _histogram_boosting
    ),
    "sklearn.neural_network._multilayer_perceptron.MLPClassifier": _perceptron,
    _NEIGHBOURS: _neighbours,
}
# All estimators that load without being named.
ESTIMATORS = frozenset({*_SHAPES, *_CHECKS, _BINS})


# -- All of a part ----------------------------------------------------------------------------------

# More threads than any machine has.
_MOST_JOBS = 4096


def check_contents(part: Any, name: str) -> None:
    """Raise an error for contents that would make a prediction read invalid memory, or never end."""
    for thing in everything_in(part):
        if _is_a(thing, TREE) and not _tree_is_sound(thing):
            raise ModelError(f"{name} holds a decision tree whose nodes point outside of it.")
        if sparse.issparse(thing) and not _is_well_formed(thing):
            raise ModelError(f"{name} holds a sparse matrix with entries outside of it.")
        if isinstance(thing, np.random.RandomState):
            check_state(thing.get_state(legacy=False), name)
        if isinstance(thing, np.random.Generator):
            check_state(thing.bit_generator.state, name)
        if _name(thing) in ESTIMATORS and not _is_consistent(thing):
            raise ModelError(f"{name} holds a {type(thing).__name__} whose parts do not fit together.")


def _is_consistent(thing: Any) -> bool:
    held, name = vars(thing), _name(thing)
    try:
        sizes = _sizes(thing)
        return (
            _names_are_right(thing)
            and _jobs_are_few(held.get("n_jobs"))
            and _shapes_agree(held, _SHAPES.get(name, {}), dict(sizes))
            and (name not in _CHECKS or _CHECKS[name](held, sizes))
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        # Something is missing, or of another kind than it should be.
        return False


def _names_are_right(thing: Any) -> bool:
    """Whether no attribute of an estimator stands in for one of its methods."""
    return not isinstance(thing, BaseEstimator) or not any(
        name.startswith("__") or callable(getattr(type(thing), name, None)) for name in vars(thing)
    )


def _jobs_are_few(jobs: Any) -> bool:
    return jobs is None or (isinstance(jobs, int) and abs(jobs) <= _MOST_JOBS)


def everything_in(part: Any) -> Iterator[Any]:
    """Yield an object and all that it holds, each once."""
    waiting, seen = [part], {id(part): part}
    while waiting:
        thing = waiting.pop()
        yield thing
        for inner in _held_by(thing):
            if id(inner) not in seen and not isinstance(inner, str | int | float):
                # A reference is kept, so that no new object can get the same id.
                seen[id(inner)] = inner
                waiting.append(inner)


def _held_by(thing: Any) -> list[Any]:
    held = list(vars(thing).values()) if hasattr(thing, "__dict__") and not isinstance(thing, type) else []
    if isinstance(thing, dict):
        held += [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set) or (isinstance(thing, np.ndarray) and thing.dtype == object):
        held += list(thing.ravel()) if isinstance(thing, np.ndarray) else list(thing)
    return held


def _name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _is_a(thing: Any, name: str) -> bool:
    return _name(thing) == name


def _is_well_formed(matrix: Any) -> bool:
    try:
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
    except ValueError:
        return False
    return True
