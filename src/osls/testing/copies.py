"""Checks of copies: clones, pickles and saved models predict what the original predicts."""

from __future__ import annotations

import pickle  # nosec B403  # what is unpickled here was pickled two lines before
import tempfile
from pathlib import Path
from typing import Any

from osls.testing.running import ContractError, demand, same
from osls.testing.subject import Subject

__all__ = ["CHECKS"]


def clones_are_unfitted(subject: Subject) -> None:
    """A copy of the parameters, and nothing else."""
    if hasattr(subject.fitted, "get_params"):
        kept = hasattr(subject.copy(subject.fitted), "classes_")
        demand(not kept, "sklearn.base.clone copies classes_: it is a parameter, or __init__ sets it.")


def pickles_predict_alike(subject: Subject) -> None:
    """Through pickle and back."""
    try:
        copy = pickle.loads(pickle.dumps(subject.fitted))  # nosec B301  # our own bytes
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ContractError(f"the fitted adapter cannot be pickled ({error}).") from error
    _demand_alike(subject, copy, "an unpickled copy")


def saved_models_predict_alike(subject: Subject) -> None:
    """Through ``save`` and :func:`osls.load`; a class unknown to osls is refused and leaves nothing."""
    from osls.persist import ModelError, load

    if not hasattr(subject.fitted, "save"):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        try:
            subject.fitted.save(path)
        except ModelError as error:
            demand(
                not type(subject.fitted).__module__.startswith("osls."), f"save raises ModelError: {error}"
            )
            demand(not list(Path(folder).iterdir()), "save raises ModelError but leaves files behind.")
            return
        _demand_alike(subject, load(path), "a saved and loaded copy")


def _demand_alike(subject: Subject, copy: Any, what: str) -> None:
    X = subject.problem.X_test
    same(copy.classes_, subject.fitted.classes_, f"classes_ of {what}")
    same(copy.target_marginal_, subject.fitted.target_marginal_, f"target_marginal_ of {what}")
    same(copy.predict_proba(X), subject.fitted.predict_proba(X), f"predict_proba of {what}")


CHECKS = (clones_are_unfitted, pickles_predict_alike, saved_models_predict_alike)
