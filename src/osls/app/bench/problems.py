"""From a config to the problem of a draw: the same for every method, whichever machine draws it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from osls._core.arrays import AnyArray
from osls._core.names import unknown
from osls._core.validation import stack_rows
from osls.app.bench.networks import NetworkPlan, NetworkSpec
from osls.app.bench.pretraining import pretrained
from osls.app.bench.words import number_words, read_vectors, texts_of
from osls.datasets import OSLSProblem, load_dataset, simulate_osls

__all__ = ["draw_problem", "network_plan"]

_SIMULATED = ("source_fraction", "source_marginal", "target_marginal", "test_size")


@dataclass(frozen=True)
class _Rows:
    X: AnyArray
    y: AnyArray
    class_names: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


# Methods of a draw and draws of a data set follow each other in a worker: the last data set is kept.
@lru_cache(maxsize=1)
def _load(name: str, options: str, as_words: bool) -> _Rows:
    given: dict[str, Any] = json.loads(options)
    if as_words:
        texts, y = texts_of(name, **given)
        X, words = number_words(texts)
        return _Rows(X, y, words=tuple(words))
    labelled = load_dataset(name).load(**given)  # nosec B615  # ours, not the Hugging Face Hub's
    return _Rows(labelled.X, labelled.y, labelled.class_names)


def _rows(data: Mapping[str, Any], network: Mapping[str, Any] | None) -> _Rows:
    options = json.dumps(data.get("options", {}), sort_keys=True)
    return _load(data["name"], options, network is not None and network["body"] == "text-cnn")


def draw_problem(
    data: Mapping[str, Any], *, draw: int, seed: int = 0, network: Mapping[str, Any] | None = None
) -> OSLSProblem:
    """Draw a problem from a data set.

    Parameters
    ----------
    data : mapping
        ``name`` and, as in a study file, what the split is to be.
    draw, seed : int
        Together they fix the problem.
    network : mapping, optional
        The config of the network, which decides how texts are represented.

    Examples
    --------
    >>> from osls.app.bench.problems import draw_problem
    >>> problem = draw_problem({"name": "digits", "novel": [8, 9], "target_size": 200}, draw=0)
    >>> len(problem.classes), len(problem.y_target)
    (8, 200)
    """
    dataset, rows = load_dataset(data["name"]), _rows(data, network)  # nosec B615  # as above
    X, y = rows.X, rows.y
    rng = np.random.RandomState(np.random.SeedSequence([seed, draw]).generate_state(1))
    cap = data.get("rows", dataset.max_rows)
    if cap not in (None, "all") and len(y) > cap:
        chosen = rng.choice(len(y), cap, replace=False)
        X, y = X[chosen], y[chosen]
    novel = data.get("novel")
    novel = dataset.draw_novel(rng) if novel is None else _numbered(novel, rows.class_names)
    options = {key: data[key] for key in _SIMULATED if key in data}
    problem = simulate_osls(X, y, novel=novel, random_state=rng, **options)
    return _first_rows(problem, data["target_size"]) if "target_size" in data else problem


def _numbered(novel: Any, names: tuple[str, ...]) -> Any:
    """Replace names of classes by their numbers."""
    if isinstance(novel, int):
        return novel
    for name in novel:
        if isinstance(name, str) and name not in names:
            raise ValueError(unknown("class", name, names))
    return [names.index(name) if isinstance(name, str) else name for name in novel]


def _first_rows(problem: OSLSProblem, size: int) -> OSLSProblem:
    """Keep ``size`` rows of the target, which is in random order already."""
    y = problem.y_target[:size]
    names = [*problem.classes.tolist(), problem.novel_label]
    return replace(
        problem,
        X_target=problem.X_target[:size],
        y_target=y,
        target_marginal=np.array([np.mean(y == name) for name in names]),
    )


def network_plan(
    network: Mapping[str, Any] | None, data: Mapping[str, Any], problem: OSLSProblem
) -> NetworkPlan | None:
    """Return the network of a config, for the adapters; pre-trained on the problem if it is to be."""
    if network is None:
        return None
    spec = NetworkSpec.model_validate(network)
    if spec.pretrain is not None:
        spec = pretrained(spec, spec.pretrain, stack_rows(problem.X_source, problem.X_target))
    words = _rows(data, network).words
    return NetworkPlan(spec, read_vectors(spec.vectors, words) if words else None)
