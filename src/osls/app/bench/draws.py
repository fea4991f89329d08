"""The problem of a draw, and the network for it: the same for every method, on every machine."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from osls._core.arrays import AnyArray, Floats
from osls._core.names import unknown
from osls._core.validation import stack_rows
from osls.app.bench.network_plans import NetworkPlan, NetworkSpec, pretrained
from osls.datasets import OSLSProblem, change_looks, load_dataset, simulate_osls
from osls.datasets.loading import find_file
from osls.datasets.newsgroups import newsgroup_texts

_SIMULATED = ("source_fraction", "source_rows", "source_marginal", "target_marginal", "test_size")

# Data sets that are texts, and what is stripped from them.
TEXTS: dict[str, tuple[str, ...]] = {
    "newsgroups": (),
    "newsgroups-bare": ("headers", "footers", "quotes"),
}
# The sizes that the authors of the text network use.
MAX_WORDS = 20_000
_DIMENSIONS = 100
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class _Rows:
    X: AnyArray
    y: AnyArray
    class_names: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()


# A worker runs the methods of a draw and the draws of a data set one after the other.
@lru_cache(maxsize=1)
def _load(name: str, options: str, words: int | None) -> _Rows:
    given: dict[str, Any] = json.loads(options)
    if words is not None:
        texts, y = texts_of(name, **given)
        X, vocabulary = number_words(texts, max_length=words)
        return _Rows(X, y, vocabulary=tuple(vocabulary))
    labelled = load_dataset(name).load(**given)  # nosec B615  # ours, not the Hugging Face Hub's
    return _Rows(labelled.X, labelled.y, labelled.class_names)


def _rows(data: Mapping[str, Any], network: Mapping[str, Any] | None) -> _Rows:
    options = json.dumps(data.get("options", {}), sort_keys=True)
    as_words = network is not None and network["body"] == "text-cnn"
    return _load(data["name"], options, NetworkSpec.model_validate(network).words if as_words else None)


def draw_problem(
    data: Mapping[str, Any], *, draw: int, seed: int = 0, network: Mapping[str, Any] | None = None
) -> OSLSProblem:
    """Draw a problem from a data set.

    Parameters
    ----------
    data : mapping
        ``name`` and, as in a study file, how the rows are split.
    draw, seed : int
        Together they fix the problem.
    network : mapping, optional
        The config of the network, which decides how texts are represented.

    Examples
    --------
    >>> from osls.app.bench.draws import draw_problem
    >>> problem = draw_problem({"name": "digits", "novel": [8, 9], "target_size": 200}, draw=0)
    >>> len(problem.classes), len(problem.y_target)
    (8, 200)
    """
    dataset, rows = load_dataset(data["name"]), _rows(data, network)  # nosec B615  # as above
    X, y = rows.X, rows.y
    rng = np.random.RandomState(np.random.SeedSequence([seed, draw]).generate_state(1))
    most_rows = data.get("rows", dataset.max_rows)
    if most_rows not in (None, "all") and len(y) > most_rows:
        chosen = rng.choice(len(y), most_rows, replace=False)
        X, y = X[chosen], y[chosen]
    novel = data.get("novel")
    novel = dataset.draw_novel(rng) if novel is None else _class_numbers(novel, rows.class_names)
    options = {key: data[key] for key in _SIMULATED if key in data}
    problem = simulate_osls(X, y, novel=novel, random_state=rng, **options)
    if "looks" in data:
        problem = change_looks(problem, data["looks"], random_state=rng)
    return _first_rows(problem, data["target_size"]) if "target_size" in data else problem


def _class_numbers(novel: Any, names: tuple[str, ...]) -> Any:
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
    """Return the network of a config for the adapters, with its pre-trained weights and word vectors."""
    if network is None:
        return None
    spec = NetworkSpec.model_validate(network)
    if spec.pretrain is not None:
        spec = pretrained(spec, spec.pretrain, stack_rows(problem.X_source, problem.X_target))
    vocabulary = _rows(data, network).vocabulary
    return NetworkPlan(spec, read_vectors(spec.vectors, vocabulary) if vocabulary else None)


# -- Texts for the paper's text network ------------------------------------------------------------------


def texts_of(name: str, **options: bool) -> tuple[list[str], AnyArray]:
    """Return the texts of a data set and their classes."""
    if name not in TEXTS:
        raise ValueError(f"the network 'text-cnn' reads texts, and {name!r} is none of {', '.join(TEXTS)}.")
    news = newsgroup_texts(TEXTS[name], **options)
    return list(news.data), np.asarray(news.target)


def number_words(
    texts: Sequence[str], *, max_words: int = MAX_WORDS, max_length: int
) -> tuple[AnyArray, list[str]]:
    """Number the most frequent words from 1; other words are dropped, short texts padded with 0.

    Examples
    --------
    >>> from osls.app.bench.draws import number_words
    >>> rows, vocabulary = number_words(["the cat", "The cat and the hat"], max_words=2, max_length=4)
    >>> rows.tolist(), vocabulary
    ([[1, 2, 0, 0], [1, 2, 1, 0]], ['the', 'cat'])
    """
    split = [_WORD.findall(text.lower()) for text in texts]
    counts = Counter(word for words in split for word in words)
    # Equally frequent words are ordered by the alphabet, so that the order of the texts does not matter.
    vocabulary = sorted(counts, key=lambda word: (-counts[word], word))[:max_words]
    number = {word: i for i, word in enumerate(vocabulary, start=1)}
    rows = np.zeros((len(texts), max_length), dtype=np.int32)
    for row, words in zip(rows, split, strict=True):
        known = [number[word] for word in words if word in number][:max_length]
        row[: len(known)] = known
    return rows, vocabulary


def read_vectors(source: str, vocabulary: Sequence[str]) -> Floats:
    """Return one vector a word, after a zero vector for the padding.

    Parameters
    ----------
    source : str
        A GloVe file: a word and its numbers on each line. A plain file name is looked for in the folder that
        ``OSLS_DATA`` names. Or "random". Words that the file does not have get small random vectors.
    vocabulary : list of str
        The words, in the order of their numbers.
    """
    known = {} if source == "random" else _read_glove(_vector_file(source), set(vocabulary))
    size = len(next(iter(known.values()))) if known else _DIMENSIONS
    vectors = np.random.default_rng(0).normal(scale=0.1, size=(len(vocabulary) + 1, size)).astype(np.float32)
    vectors[0] = 0
    for i, word in enumerate(vocabulary, start=1):
        if word in known:
            vectors[i] = known[word]
    return vectors


def _vector_file(source: str) -> Path:
    path = find_file(source)
    if path is not None:
        return path
    name = Path(source).name
    raise FileNotFoundError(
        f"the word vectors {name} are not there: download glove.6B.zip from the GloVe page of Stanford "
        f"NLP, and put {name} from it into the folder that OSLS_DATA names; or set vectors: random."
    )


def _read_glove(path: Path, wanted: set[str]) -> dict[str, Floats]:
    vectors: dict[str, Floats] = {}
    with path.open(encoding="utf-8") as file:
        for line in file:
            word, _, numbers = line.partition(" ")
            if word in wanted:
                vectors[word] = np.array(numbers.split(), dtype=np.float32)
    sizes = {len(vector) for vector in vectors.values()}
    if len(sizes) != 1:
        raise ValueError(f"{path} is not a GloVe file: its words have {sorted(sizes) or 'no'} numbers.")
    return vectors
