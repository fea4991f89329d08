"""How to fit: which method, with which models, and what to do with its warnings."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from osls._core.arrays import AnyArray

if TYPE_CHECKING:
    from osls.app.tables.pictures import ImageMode
    from osls.app.tables.text import TextMode
    from osls.pulse import PULSE

__all__ = ["FitOptions", "Method", "fit_quietly", "make_adapter"]

Method = Literal["pulse", "pulse-paper"]


@dataclass(frozen=True)
class FitOptions:
    """How to fit; see :func:`adapt`."""

    method: Method | PULSE = "pulse"
    level: float = 0.95
    random_state: int = 0
    text: TextMode = "auto"
    images: ImageMode = "auto"
    novel_label: str = "novel"
    fast: bool = False
    verbose: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ValueError(f"level must lie between 0 and 1; got {self.level}.")
        if self.method not in ("pulse", "pulse-paper") and not hasattr(self.method, "fit"):
            raise ValueError(
                f"method must be 'pulse', 'pulse-paper' or a PULSE instance; got {self.method!r}."
            )
        if self.text not in ("auto", "tfidf", "minilm"):
            raise ValueError(f"text must be 'auto', 'tfidf' or 'minilm'; got {self.text!r}.")
        if self.images not in ("auto", "efficientnet", "scratch"):
            raise ValueError(f"images must be 'auto', 'efficientnet' or 'scratch'; got {self.images!r}.")


def make_adapter(options: FitOptions, X: Any, n_rows: int) -> PULSE:
    """Return the adapter that the options ask for, unfitted."""
    from sklearn.base import clone

    from osls.pulse import PULSE

    if isinstance(options.method, PULSE):
        return clone(options.method)  # type: ignore[no-any-return]
    parameters: dict[str, Any] = {
        "recipe": "paper" if options.method == "pulse-paper" else "cross-fit",
        "level": options.level,
        "random_state": options.random_state,
        "novel_label": options.novel_label,
        "verbose": options.verbose,
        **(_fast_parameters(X, n_rows, options.parameters.get("n_jobs")) if options.fast else {}),
        **options.parameters,
    }
    known = PULSE().get_params(deep=False)
    for name in parameters:
        if name not in known:
            raise TypeError(f"adapt() has no argument {name!r}, and neither has PULSE.")
    return PULSE(**parameters)


def _fast_parameters(X: Any, n_rows: int, n_jobs: int | None) -> dict[str, Any]:
    from scipy import sparse
    from sklearn.ensemble import ExtraTreesClassifier

    model: Any = ExtraTreesClassifier(50, min_samples_leaf=max(1, n_rows // 10_000), n_jobs=n_jobs)
    if sparse.issparse(X):
        model = "linear"
    elif X.ndim == 4:
        model = "convnet"
    few = {"n_folds": 3, "rounds": 1, "n_bootstrap": 50}
    steps = {"max_steps": 300} if model == "convnet" else {}
    return {"source_classifier": model, "discriminator": model, **few, **steps}


def fit_quietly(model: PULSE, X: AnyArray, y: AnyArray, X_target: AnyArray) -> list[str]:
    """Fit and return what the model warned of; what other libraries warn of is passed on."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, X_target=X_target)
    notes = []
    for each in caught:
        if each.category is UserWarning:
            notes.append(str(each.message))
        elif not issubclass(each.category, ConvergenceWarning):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return list(dict.fromkeys(notes))
