"""A fitted model as one ONNX file: rows in, probabilities and labels out, without Python, torch or osls.

The graph (:mod:`osls.app.onnx_graph`) is built by hand from what each part has learned: columns to features,
forests, linear models and stacked networks, their calibration, and step 6 of Algorithm 1. Sums are in double
precision where osls has them so, and thresholds of trees are rounded down to single precision, in which trees
compare: the answers agree to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.validation import check_is_fitted

from osls._core.arrays import AnyArray, Floats
from osls._core.extras import require
from osls._core.screen import Screen
from osls.app.files.reader import InputError, shorten
from osls.app.files.staging import staged_file
from osls.app.onnx_graph import Graph
from osls.app.predict import Adapted, load_adapted
from osls.app.tables.columns import Categories, Dates, Numbers
from osls.app.tables.table_encoder import TableEncoder
from osls.base import Combined
from osls.growth import Grown
from osls.pulse import PULSE
from osls.shift.calibration import FLOOR
from osls.training.nets import StackedMLP
from osls.training.predictors import (
    CLIP,
    Blended,
    Calibrated,
    Constant,
    Encoder,
    FittedClassifier,
    Networks,
    Offsets,
    Pooled,
    Predictor,
    Shifted,
    SklearnModels,
    Verbatim,
)

__all__ = ["to_onnx"]

_TAKEN = "forests, decision trees, logistic regression and the networks of osls for tables"


def to_onnx(model: Adapted | PULSE) -> bytes:
    """Return a fitted model as the content of an ONNX file.

    Parameters
    ----------
    model : Adapted or PULSE
        ``answer.adapted`` of :func:`osls.adapt`, what :func:`osls.load` reads from the folder ``model`` of a
        run, or a fitted :class:`osls.PULSE`. Models of tables: columns of numbers, categories and dates.
        Pictures, texts and networks or estimators of another kind are refused with a sentence.

    Returns
    -------
    bytes
        A graph with the outputs ``label`` and ``probabilities``, whose columns are those of ``classes_``.
        A PULSE has one input ``X`` (double, one row a line). A model of a table has one input of shape
        (rows, 1) for each column, by its name: double for numbers, NaN where there is none; double for
        dates, as days since 1970; strings for categories, empty where there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from osls import PULSE
    >>> from osls.app.export import to_onnx
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 100)
    >>> X = rng.normal(size=(200, 2)) + 6 * y[:, None]
    >>> model = PULSE(source_classifier="linear", discriminator="linear", random_state=0)
    >>> model = model.fit(X, y, X_target=np.vstack([X + 0.01, rng.normal(size=(80, 2)) - 8]))
    >>> import onnxruntime
    >>> session = onnxruntime.InferenceSession(to_onnx(model))
    >>> session.run(["label"], {"X": np.array([[6.0, 6.0], [-8.0, -8.0]])})[0].tolist()
    [1, -1]
    """
    graph = Graph()
    if isinstance(model, Adapted):
        features, adapter, classes = _read_columns(graph, model), model.adapter, np.array(model.classes)
    elif isinstance(model, PULSE):
        check_is_fitted(model)
        features, adapter, classes = graph.input("X", "double", model.n_features_in_), model, model.classes_
    else:
        raise TypeError(f"to_onnx takes an osls.PULSE or an Adapted, not a {type(model).__name__}.")
    if isinstance(adapter._predictor, Grown):
        raise InputError(
            "a model that absorbed classes cannot be exported to ONNX; use osls serve or osls predict."
        )
    proba = _predict(graph, adapter._predictor, features)
    return graph.finish(proba, classes)


def run_export(model: Path, out: Path, *, overwrite: bool = False) -> None:
    """Write the ONNX file of a saved model, and print what it takes."""
    if out.suffix.lower() != ".onnx":
        raise InputError(f"{out}: the model is written as .onnx; change the extension.")
    content = to_onnx(load_adapted(model))
    with staged_file(out, overwrite=overwrite) as draft:
        draft.write_bytes(content)
    loaded = require("onnx", extra="onnx").load_model_from_string(content)
    screen = Screen()
    screen.print(
        f"{out}: {len(content) / 2**20:.1f} MB, for onnxruntime or any other reader of ONNX. It takes:"
    )
    for each in loaded.graph.input:
        kind = "texts" if each.type.tensor_type.elem_type == 8 else "numbers"
        screen.print(f"  {each.name}: {kind}{each.doc_string}", soft_wrap=True)
    screen.print("It returns label and probabilities.", soft_wrap=True)


# -- Columns of a table to features ---------------------------------------------------------------------


def _read_columns(graph: Graph, model: Adapted) -> str:
    """Add an input for each column of the table, and what makes features of them."""
    encoder = model.encoder
    if not isinstance(encoder, TableEncoder):
        raise InputError("models of pictures cannot be exported to ONNX; use osls predict on the folder.")
    if encoder.text_columns:
        raise InputError(
            f"the model reads the text {shorten(encoder.text_columns[0])}, and reading words cannot be "
            "exported to ONNX; fit without that column (--ignore), or use osls serve."
        )
    if encoder._scale is not None:
        raise InputError("models of sparse columns cannot be exported to ONNX; use osls predict.")
    return graph.add("Concat", *[_column(graph, column) for column in encoder.columns_], axis=1)


def _column(graph: Graph, column: Any) -> str:
    if isinstance(column, Numbers):
        return _numbers(graph, column)
    return _categories(graph, column) if isinstance(column, Categories) else _dates(graph, column)


def _numbers(graph: Graph, column: Numbers) -> str:
    inputs = [graph.input(name, "double", 1) for name in column.names]
    values = graph.add("Concat", *inputs, axis=1)
    missing = graph.add("IsNaN", values)
    filled = graph.add("Where", missing, graph.constant(column.median.astype(np.float64)), values)
    flagged = np.flatnonzero(column.has_missing)
    if not len(flagged):
        return filled
    flags = graph.add("Gather", graph.cast(missing, "DOUBLE"), graph.constant(flagged), axis=1)
    return graph.add("Concat", filled, flags, axis=1)


def _categories(graph: Graph, column: Categories) -> str:
    """One feature a level; rare and missing values have features of their own if the fit met any."""
    texts = graph.input(column.name, "string", 1)
    width, levels = len(column.feature_names), len(column.levels)
    codes = graph.add(
        "LabelEncoder",
        texts,
        domain="ai.onnx.ml",
        keys_strings=[*column.levels, ""],
        values_int64s=[*range(levels), width - 1 if column.has_missing else -1],
        default_int64=levels if column.has_other else -1,
    )
    return graph.cast(graph.add("Equal", codes, graph.constant(np.arange(width))), "DOUBLE")


def _dates(graph: Graph, column: Dates) -> str:
    days = graph.input(column.name, "double", 1, ", days since 1970-01-01")
    missing = graph.add("IsNaN", days)
    days = graph.add("Where", missing, graph.constant(np.float64(column.middle)), days)
    parts = [graph.add("Sub", days, graph.constant(np.float64(column.middle)))]
    for period in (365.2425, 7.0, *([1.0] if column.has_hours else [])):
        turn = graph.add("Mul", days, graph.constant(np.float64(2 * np.pi / period)))
        quarter_later = graph.add("Add", turn, graph.constant(np.float64(np.pi / 2)))
        parts += [graph.add("Sin", turn), graph.add("Sin", quarter_later)]
    if column.has_missing:
        parts.append(graph.cast(missing, "DOUBLE"))
    # Features of dates are kept in single precision.
    return graph.cast(graph.cast(graph.add("Concat", *parts, axis=1), "FLOAT"), "DOUBLE")


# -- Predictors -----------------------------------------------------------------------------------------


def _predict(graph: Graph, predictor: Any, X: str) -> str:
    """Add a predictor; return its probabilities, in double precision."""
    for kind, convert in _CONVERTERS.items():
        if type(predictor) is kind:
            return convert(graph, predictor, X)
    raise InputError(
        f"a {type(predictor).__name__} cannot be exported to ONNX; models of {_TAKEN} can. Use osls serve."
    )


def _constant(graph: Graph, predictor: Constant, X: str) -> str:
    return _same_for_all(graph, np.array(predictor.proba), X)


def _same_for_all(graph: Graph, row: Floats, X: str) -> str:
    rows = graph.add("Gather", graph.add("Shape", X), graph.constant(np.array([0])))
    shape = graph.add("Concat", rows, graph.constant(np.array([len(row)])), axis=0)
    return graph.add("Expand", graph.constant(row[None].astype(np.float64)), shape)


def _calibrated(graph: Graph, predictor: Calibrated, X: str) -> str:
    calibrator = predictor.calibrator
    proba = _predict(graph, predictor.predictor, X)
    if calibrator.scale is None or calibrator.bias is None:
        return proba
    log = graph.add("Log", graph.add("Max", proba, graph.constant(np.float64(calibrator.floor))))
    centred = graph.add("Sub", log, graph.add("ReduceMean", log, graph.constant(np.array([1])), keepdims=1))
    scaled = graph.add("Mul", centred, graph.constant(calibrator.scale))
    return graph.add("Softmax", graph.add("Add", scaled, graph.constant(calibrator.bias)), axis=1)


def _pooled(graph: Graph, predictor: Pooled, X: str) -> str:
    parts = zip((predictor.first, predictor.second), predictor.exponents, strict=True)
    logs = [_log_power(graph, part, X, exponent) for part, exponent in parts]
    return graph.add("Softmax", graph.add("Sum", *logs), axis=1)


def _log_power(graph: Graph, predictor: Predictor, X: str, exponent: float) -> str:
    """The logarithm of a power of probabilities, as :mod:`osls.shift.calibration` has it."""
    floored = graph.add("Max", _predict(graph, predictor, X), graph.constant(np.float64(FLOOR)))
    return graph.add("Mul", graph.add("Log", floored), graph.constant(np.float64(exponent)))


def _shifted(graph: Graph, predictor: Shifted, X: str) -> str:
    odds = graph.constant(np.array([1.0, predictor.odds]))
    weighted = graph.add("Mul", _predict(graph, predictor.predictor, X), odds)
    return graph.add("Div", weighted, graph.total(weighted))


def _blended(graph: Graph, predictor: Blended, X: str) -> str:
    shares = (predictor.first, predictor.share), (predictor.second, 1 - predictor.share)
    weighted = [
        graph.add("Mul", _predict(graph, part, X), graph.constant(np.float64(share)))
        for part, share in shares
        if share > 0
    ]
    return graph.add("Sum", *weighted)


def _combined(graph: Graph, predictor: Combined, X: str) -> str:
    """Step 6, as :func:`osls.base.combine` and :func:`osls.base.combine_opinions` have it."""
    classes, domains = _predict(graph, predictor.classifier, X), _predict(graph, predictor.discriminator, X)
    importance = graph.constant(np.asarray(predictor.importance, dtype=np.float64))
    if predictor.prior_shift is None:
        return _combine(graph, graph.column(domains, 1), classes, importance)
    shifted = graph.add("Mul", domains, graph.constant(np.asarray(predictor.prior_shift, dtype=np.float64)))
    total = graph.add("Max", graph.total(shifted), graph.constant(np.float64(1e-12)))
    own = graph.add("Div", shifted, total)
    known = graph.add("Sub", graph.constant(np.float64(1)), graph.column(own, len(predictor.importance)))
    both = graph.add("Add", _combine(graph, known, classes, importance), own)
    return graph.add("Div", both, graph.total(both))


def _combine(graph: Graph, known: str, classes: str, importance: str) -> str:
    one, zero = graph.constant(np.float64(1)), graph.constant(np.float64(0))
    weighted = graph.add("Mul", classes, importance)
    total = graph.total(weighted)
    some = graph.add("Greater", total, zero)
    divided = graph.add("Div", weighted, graph.add("Where", some, total, one))
    among = graph.add("Where", some, divided, classes)
    parts = graph.add("Mul", among, known), graph.add("Sub", one, known)
    proba = graph.add("Concat", *parts, axis=1)
    return graph.add("Div", proba, graph.total(proba))


def _networks(graph: Graph, predictor: Networks, X: str) -> str:
    networks = predictor.networks
    if not isinstance(networks, StackedMLP):
        raise InputError(
            f"only the networks of osls for tables can be exported, not {type(networks).__name__}."
        )
    rows = graph.add("Unsqueeze", _encoded(graph, predictor.encoder, X), graph.constant(np.array([0])))
    layers, values = list(networks.layers), rows
    for i in range(0, len(layers), 4):
        weight, bias = (_array(part).astype(np.float64) for part in (layers[i].weight, layers[i].bias))
        hidden = i + 4 < len(layers)
        if hidden:
            scale, shift = _normalisation(layers[i + 1].norm, bias.shape)
            weight, bias = weight * scale, bias * scale + shift
        values = graph.add("MatMul", values, graph.constant(weight.astype(np.float32)))
        values = graph.add("Add", values, graph.constant(bias.astype(np.float32)))
        values = graph.add("Relu", values) if hidden else values
    if bias.shape[2] == 1:
        half = graph.add("Mul", values, graph.constant(np.float32(0.5)))
        values = graph.add("Concat", graph.add("Neg", half), half, axis=2)
    by_member = graph.cast(graph.add("Softmax", values, axis=2), "DOUBLE")
    return graph.add("ReduceMean", by_member, graph.constant(np.array([0])), keepdims=0)


def _normalisation(norm: Any, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Batch normalisation as it is after training: a factor and a shift for each unit of each member."""
    mean, variance, weight, bias = (
        _array(part).astype(np.float64).reshape(shape)
        for part in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    scale = weight / np.sqrt(variance + norm.eps)
    return scale, bias - scale * mean


def _array(tensor: Any) -> AnyArray:
    return np.asarray(tensor.detach().cpu().numpy())


def _encoded(graph: Graph, encoder: Encoder | Offsets | None, X: str) -> str:
    """Centre and scale as the encoder does, in double precision, then round to single precision."""
    if isinstance(encoder, Verbatim) or (isinstance(encoder, Encoder) and encoder.svd is not None):
        raise InputError(
            "models of sparse rows and of networks that look rows up cannot be exported to ONNX."
        )
    if encoder is not None:
        mean, scale = (np.asarray(part, dtype=np.float64) for part in (encoder.mean, encoder.scale))
        X = graph.add("Div", graph.add("Sub", X, graph.constant(mean)), graph.constant(scale))
    if isinstance(encoder, Encoder):
        X = graph.add("Clip", X, graph.constant(np.float64(-CLIP)), graph.constant(np.float64(CLIP)))
    return graph.cast(X, "FLOAT")


def _sklearn_models(graph: Graph, predictor: SklearnModels, X: str) -> str:
    rows = _encoded(graph, predictor.encoder, X)
    share = 1 / len(predictor.models)
    places = [model.classes_.astype(np.int64) for model in predictor.models]
    forests = [(m, place) for m, place in zip(predictor.models, places, strict=True) if _trees_of(m)]
    parts = [_forest(graph, forests, predictor.n_classes, share, rows)] if forests else []
    for model, place in zip(predictor.models, places, strict=True):
        if not _trees_of(model):
            spread = np.zeros((len(place), predictor.n_classes))
            spread[np.arange(len(place)), place] = share
            parts.append(graph.add("MatMul", _estimator(graph, model, rows), graph.constant(spread)))
    return graph.add("Sum", *parts)


def _fitted_classifier(graph: Graph, predictor: FittedClassifier, X: str) -> str:
    estimator, k = predictor.estimator, len(predictor.estimator.classes_)
    if _trees_of(estimator):
        proba = _forest(graph, [(estimator, np.arange(k))], k, 1.0, graph.cast(X, "FLOAT"))
    else:
        proba = _estimator(graph, estimator, X)
    chosen = graph.add("Gather", proba, graph.constant(np.asarray(predictor.order, dtype=np.int64)), axis=1)
    least = graph.constant(np.float64(1e-12))
    return graph.add("Div", chosen, graph.add("Max", graph.total(chosen), least))


def _estimator(graph: Graph, model: Any, rows: str) -> str:
    """Add an estimator that has no trees; its probabilities are those of its own classes."""
    if type(model) is DummyClassifier and model.strategy == "prior":
        return _same_for_all(graph, np.asarray(model.class_prior_), rows)
    if type(model) is not LogisticRegression:
        raise InputError(
            f"a {type(model).__name__} cannot be exported to ONNX; models of {_TAKEN} can. Use osls serve."
        )
    weight, bias = model.coef_.T.astype(np.float64), model.intercept_.astype(np.float64)
    product = graph.add("MatMul", graph.cast(rows, "DOUBLE"), graph.constant(weight))
    score = graph.add("Add", product, graph.constant(bias))
    if weight.shape[1] > 1:
        return graph.add("Softmax", score, axis=1)
    nothing = graph.add("Mul", score, graph.constant(np.float64(0)))
    return graph.add("Softmax", graph.add("Concat", nothing, score, axis=1), axis=1)


def _trees_of(model: Any) -> list[Any]:
    """The trees of a forest, or of a single tree; none of any other model."""
    if type(model) in (ExtraTreesClassifier, RandomForestClassifier):
        return [tree.tree_ for tree in model.estimators_]
    return [model.tree_] if type(model) is DecisionTreeClassifier else []


def _forest(
    graph: Graph, forests: Sequence[tuple[Any, AnyArray]], n_classes: int, share: float, rows: str
) -> str:
    """Add all trees of several forests as one node; with each forest go the places of its classes."""
    columns: dict[str, list[Any]] = {name: [] for name in (*_NODE_FIELDS, *_LEAF_FIELDS)}
    number = 0
    for forest, place in forests:
        trees = _trees_of(forest)
        for tree in trees:
            _append_tree(columns, tree, number, place, share / len(trees))
            number += 1
    attributes = {name: np.concatenate(parts).tolist() for name, parts in columns.items()}
    total = graph.add(
        "TreeEnsembleRegressor",
        rows,
        domain="ai.onnx.ml",
        n_targets=n_classes,
        aggregate_function="SUM",
        post_transform="NONE",
        **attributes,
    )
    return graph.cast(total, "DOUBLE")


_NODE_FIELDS = (
    "nodes_treeids",
    "nodes_nodeids",
    "nodes_featureids",
    "nodes_modes",
    "nodes_values",
    "nodes_truenodeids",
    "nodes_falsenodeids",
    "nodes_missing_value_tracks_true",
)
_LEAF_FIELDS = ("target_treeids", "target_nodeids", "target_ids", "target_weights")


def _append_tree(
    columns: Mapping[str, list[Any]], tree: Any, number: int, place: AnyArray, share: float
) -> None:
    nodes, inner = np.arange(tree.node_count), tree.children_left >= 0
    missing_left = getattr(tree, "missing_go_to_left", np.zeros(tree.node_count))
    fields = (
        np.full(len(nodes), number),
        nodes,
        np.where(inner, tree.feature, 0),
        np.where(inner, "BRANCH_LEQ", "LEAF"),
        np.where(inner, _rounded_down(tree.threshold), 0.0),
        np.where(inner, tree.children_left, 0),
        np.where(inner, tree.children_right, 0),
        np.where(inner, missing_left, 0).astype(np.int64),
    )
    for name, values in zip(_NODE_FIELDS, fields, strict=True):
        columns[name].append(values)
    value = tree.value[~inner, 0, :]
    proba = value / value.sum(axis=1, keepdims=True)
    leaf, target = np.nonzero(proba)
    leaves = (np.full(len(leaf), number), nodes[~inner][leaf], place[target], share * proba[leaf, target])
    for name, values in zip(_LEAF_FIELDS, leaves, strict=True):
        columns[name].append(values)


def _rounded_down(threshold: Floats) -> Floats:
    """The largest float32 that is not above: x <= threshold is the same for every x in single precision."""
    single = threshold.astype(np.float32)
    return np.where(single > threshold, np.nextafter(single, np.float32(-np.inf)), single)


_CONVERTERS: dict[type, Callable[[Graph, Any, str], str]] = {
    Blended: _blended,
    Calibrated: _calibrated,
    Combined: _combined,
    Constant: _constant,
    FittedClassifier: _fitted_classifier,
    Networks: _networks,
    Pooled: _pooled,
    SklearnModels: _sklearn_models,
    Shifted: _shifted,
}
