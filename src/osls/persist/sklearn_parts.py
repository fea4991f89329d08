"""scikit-learn's estimators, through skops: only types on a list are built, their contents are checked."""

from __future__ import annotations

import warnings
import zipfile
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning

from osls.persist.archive import TOLD_TO_SKOPS, check_archive, unpacked_size, untrusted
from osls.persist.budget import MOST_UNPACKED
from osls.persist.contents import check_contents, rebuild_indices, without_indices
from osls.persist.tree import Codec, ModelError, Node, Reader, Writer, in_short

# Takes half the time of the default level, for a tenth more bytes.
_COMPRESSION = 3


def _write_part(value: Any, writer: Writer, where: str) -> dict[str, Node]:
    try:
        data = _dumped(without_indices(value))
        unknown = _unknown(data, writer.trusted)
    except Exception as error:
        # skops calls the estimator's own methods, which may raise anything.
        raise ModelError(f"{where}: skops cannot save {type(value).__name__} ({in_short(error)}).") from error
    if unknown:
        raise ModelError(
            f"{where} holds the type {unknown[0]}, which is not on the list of trusted types; if you trust "
            f"it, pass trusted={unknown!r} to save and load."
        )
    check_contents(without_indices(value), where)
    return {"file": writer.add_part(data)}


def _dumped(value: Any) -> bytes:
    """Return an estimator as an archive, compressed unless that makes it look like a trap to the reader."""
    # Imported here because skops imports all of scikit-learn.
    import skops.io

    data: bytes = skops.io.dumps(value, compression=zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION)
    if unpacked_size(data) > MOST_UNPACKED * len(data):
        data = skops.io.dumps(value)
    return data


def _unknown(data: bytes, trusted: tuple[str, ...]) -> list[str]:
    import skops.io

    known = {*TOLD_TO_SKOPS, *trusted}
    types = {name for name in skops.io.get_untrusted_types(data=data) if name not in known}
    return sorted(types.union(untrusted(data, trusted)))


def _read_part(node: dict[str, Node], reader: Reader, where: str) -> Any:
    import skops.io

    name = node["file"]
    data = reader.fetch(name)
    check_archive(data, name, reader.budget, reader.trusted)
    try:
        with warnings.catch_warnings():
            # load warns once for the whole model.
            warnings.simplefilter("ignore", InconsistentVersionWarning)
            part = skops.io.loads(data, trusted=[*TOLD_TO_SKOPS, *reader.trusted])
    except MemoryError:
        raise
    except Exception as error:
        # skops passes damaged content to numpy, scipy and scikit-learn, which raise different errors.
        raise ModelError(f"{name} is damaged ({in_short(error)}).") from error
    check_contents(part, name)
    rebuild_indices(part)
    return part


def _is_part(value: Any, writer: Writer) -> bool:
    kind = type(value)
    return isinstance(value, BaseEstimator) or f"{kind.__module__}.{kind.__qualname__}" in writer.trusted


SKLEARN_PARTS = (Codec("sklearn", _is_part, _write_part, _read_part),)
