"""A saved model as a pyfunc model of MLflow: tables in, answers out, kept without pickle.

``pip install 'osls[mlflow]'`` brings mlflow-skinny. What MLflow keeps is the folder that ``osls adapt``
wrote; :func:`_load_pyfunc` is what it calls to read it.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from osls import __version__
from osls._core.extras import require
from osls.app.predict import Adapted, load_adapted
from osls.persist import save

__all__ = ["log_model", "save_model"]


def log_model(model: Adapted, name: str = "osls", **options: Any) -> Any:
    """Log a model to the active run of MLflow, or to a new one.

    Parameters
    ----------
    model : Adapted
        ``answer.adapted`` of :func:`osls.adapt`, or what :func:`osls.load` reads from the folder ``model`` of
        a run.
    name : str
        Name of the model in the run.
    **options
        Passed to ``mlflow.pyfunc.log_model``, such as ``registered_model_name``.

    Returns
    -------
    mlflow.models.model.ModelInfo
        ``mlflow.pyfunc.load_model(info.model_uri).predict(frame)`` returns what ``osls predict`` writes.
    """
    pyfunc = _pyfunc()
    with tempfile.TemporaryDirectory() as folder:
        return pyfunc.log_model(name=name, **_described(model, Path(folder)), **options)


def save_model(model: Adapted, path: str | Path, **options: Any) -> None:
    """Write a model as a folder that ``mlflow.pyfunc.load_model`` reads and ``mlflow models serve`` serves.

    Examples
    --------
    >>> import numpy as np, pandas as pd, osls, tempfile
    >>> from osls.app.mlflow import save_model
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(np.repeat([0, 5, 10], 60), 0.3)
    >>> source = pd.DataFrame({"x": x[:120], "kind": np.repeat(["a", "b"], 60)})
    >>> answer = osls.adapt(source, pd.DataFrame({"x": x + 0.01}), label="kind", fast=True)
    >>> folder = tempfile.mkdtemp() + "/model"
    >>> save_model(answer.adapted, folder)
    >>> import mlflow
    >>> mlflow.pyfunc.load_model(folder).predict(pd.DataFrame({"x": [5.0]}))["predicted"].tolist()
    ['b']
    """
    pyfunc = _pyfunc()
    with tempfile.TemporaryDirectory() as folder:
        pyfunc.save_model(str(path), **_described(model, Path(folder)), **options)


def _pyfunc() -> Any:
    """Import MLflow without its warnings about type hints of its own, which are none of the user's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return require("mlflow.pyfunc", extra="mlflow")


def _described(model: Adapted, folder: Path) -> dict[str, Any]:
    """Save the model for MLflow to copy, and say who reads it and what that needs."""
    if not isinstance(model, Adapted):
        raise TypeError(
            f"give answer.adapted of osls.adapt, which knows the columns, not a {type(model).__name__}."
        )
    save(model, folder / "model")
    needed = [f"osls=={__version__}"]
    return {"loader_module": __name__, "data_path": str(folder / "model"), "pip_requirements": needed}


@dataclass(frozen=True)
class _Pyfunc:
    """What MLflow expects of a model: ``predict`` of a table."""

    adapted: Adapted

    def predict(self, rows: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return the id columns, ``predicted``, ``novel`` and ``p_<class>`` of new rows."""
        return self.adapted.predict(rows)


def _load_pyfunc(path: str) -> _Pyfunc:
    """Read what :func:`_described` saved; MLflow calls this by its name."""
    return _Pyfunc(load_adapted(Path(path)))
