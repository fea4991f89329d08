"""Fitted models as folders, without pickle: JSON, safetensors, and skops for scikit-learn's parts.

A folder holds ``manifest.json`` (the object as a tree of JSON values, versions, and the SHA-256 of every
file), ``tensors.safetensors`` (all arrays and network weights) and ``sklearn/<n>.skops``. Loading builds only
what is marked as saveable and what :mod:`osls.persist.archive` lists; no code in a model is ever run.
The digests detect damage. They do not prove who wrote a model: load only models from people whose results you
would trust.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import safetensors.numpy

import osls
from osls.persist.budget import check_nesting
from osls.persist.folder import TENSORS, Stored, current, drafting
from osls.persist.networks import NETWORK_PREDICTORS
from osls.persist.objects import OBJECTS
from osls.persist.sklearn_parts import SKLEARN_PARTS
from osls.persist.tree import ModelError, Reader, Writer, in_short
from osls.persist.values import ARRAYS, PLAIN, RANDOMNESS

__all__ = ["ModelError", "load", "save"]

# The first codec that matches writes a value: registered classes before other estimators, functions last.
_CODECS = (*PLAIN, *ARRAYS, *RANDOMNESS, *NETWORK_PREDICTORS, OBJECTS[0], *SKLEARN_PARTS, OBJECTS[1])
_LIBRARIES = ("numpy", "safetensors", "scikit-learn", "scipy", "skops", "torch")
_TRIES = 3


def save(
    obj: Any,
    path: str | Path,
    *,
    trusted: Sequence[str | type] = (),
    factories: Mapping[str, Callable[..., Any]] | None = None,
) -> None:
    """Save a fitted adapter, or any object of a class that is marked as saveable.

    The folder appears complete or not at all; an earlier model at ``path`` is replaced.

    Parameters
    ----------
    obj : object
        What to save. Lists, dicts and arrays of such objects also work.
    path : str or Path
        The folder to create. An existing folder with other content is an error.
    trusted : sequence of str or type
        Further types that scikit-learn parts may contain, such as your own estimator.
        :func:`load` needs the same.
    factories : mapping from name to function, optional
        Your functions inside the object, for example those that make networks. Only the name of a function
        is saved, not the function; :func:`load` needs the same mapping.

    Raises
    ------
    ModelError
        If a part cannot be saved. Nothing is left behind then.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from osls import PULSE, load
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PULSE(source_classifier="linear", discriminator="linear", random_state=0)
    >>> model = model.fit(X[:100], y[:100], X_target=X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model")
    ...     again = load(f"{folder}/model")
    >>> bool((again.predict_proba(X) == model.predict_proba(X)).all())
    True
    """
    target = Path(path).resolve()
    with drafting(target) as draft:
        writer = Writer(_CODECS, draft.add, _type_names(trusted), dict(factories or {}))
        try:
            tree = writer.node(obj, "model")
            draft.add(TENSORS, safetensors.numpy.save(writer.tensors))
            draft.seal({"osls": osls.__version__, "libraries": _versions(), "object": tree})
        except ModelError:
            raise
        except (RecursionError, ValueError) as error:
            # For example lists nested a thousand deep, or integers of thousands of digits.
            raise ModelError(f"the object cannot be written as JSON ({in_short(error)}).") from error


def load(
    path: str | Path,
    *,
    trusted: Sequence[str | type] = (),
    factories: Mapping[str, Callable[..., Any]] | None = None,
) -> Any:
    """Load what :func:`save` wrote; with the same library versions the predictions are identical bit for bit.

    Networks are put on the device they were on, or on the CPU if that device is not available.

    Parameters
    ----------
    path : str or Path
        The folder.
    trusted : sequence of str or type
        As given to :func:`save`. Trust a type only if you know what it does when it is built.
    factories : mapping from name to function, optional
        As given to :func:`save`.

    Raises
    ------
    ModelError
        If the folder is not a model, is damaged or changed, was written by a newer osls, or contains a type
        that may not be loaded.
    """
    target = Path(path).resolve()
    for attempt in range(1, _TRIES + 1):
        place = current(target)
        before = _identity(place)
        try:
            return _load(place, _type_names(trusted), dict(factories or {}))
        except ModelError:
            # Try again if another process replaced the folder during the load: that is not damage.
            if attempt == _TRIES or (place == current(target) and _identity(place) == before):
                raise
    raise AssertionError("unreachable")


def _load(path: Path, trusted: tuple[str, ...], factories: dict[str, Callable[..., Any]]) -> Any:
    stored = Stored(path)
    _compare_versions(stored.manifest)
    try:
        tensors = _tensors(stored.fetch(TENSORS), path / TENSORS)
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path / TENSORS} is not a safetensors file ({in_short(error)}).") from error
    reader = Reader(_CODECS, stored.fetch, tensors, trusted, factories, stored.budget)
    try:
        loaded = reader.value(stored.manifest["object"], "model")
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    except MemoryError:
        raise ModelError(f"{path} does not fit into memory; load it where there is more.") from None
    except Exception as error:
        # A manifest that was edited by hand can make any constructor fail.
        raise ModelError(f"{path} is damaged ({in_short(error)}).") from error
    stored.check_all_read()
    return loaded


def _tensors(data: bytes, path: Path) -> dict[str, Any]:
    """Return the arrays of a safetensors file, after a look at its header, which begins with its length."""
    check_nesting(data[8 : 8 + int.from_bytes(data[:8], "little")], str(path))
    return safetensors.numpy.load(data)


def _type_names(trusted: Sequence[str | type]) -> tuple[str, ...]:
    if isinstance(trusted, str):
        raise TypeError(f"trusted must be a list of types or names; pass trusted=[{trusted!r}].")
    return tuple(t if isinstance(t, str) else f"{t.__module__}.{t.__qualname__}" for t in trusted)


def _versions() -> dict[str, str]:
    return {"python": sys.version.split()[0], **{name: version(name) for name in _LIBRARIES}}


def _compare_versions(manifest: dict[str, Any]) -> None:
    """Warn if scikit-learn has another version, in which the saved parts may behave differently."""
    libraries = manifest.get("libraries")
    saved = libraries.get("scikit-learn") if isinstance(libraries, dict) else None
    here = version("scikit-learn")
    parts = any(name.startswith("sklearn/") for name in manifest["files"])
    if parts and isinstance(saved, str) and saved.split(".")[:2] != here.split(".")[:2]:
        warnings.warn(
            f"the model was saved with scikit-learn {saved} and is loaded with {here}; its predictions may "
            "differ. Fit it again, or install the version it was saved with.",
            UserWarning,
            stacklevel=4,
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
