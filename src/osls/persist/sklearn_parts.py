"""scikit-learn's estimators, through skops: only types on a list are ever built."""

from __future__ import annotations

import io
import warnings
import zipfile
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning

from osls.persist.contents import check_contents
from osls.persist.errors import ModelError, in_short
from osls.persist.tree import Codec, Node, Reader, Writer

__all__ = ["ALLOWED", "SKLEARN_PARTS"]

# Beyond what skops trusts by itself: Python's and numpy's plain types and scikit-learn's public estimators.
# Of the two kinds of tree, skops cannot know whether their numbers are sound; check_contents sees to that.
ALLOWED = (
    "numpy.dtype",
    "scipy.sparse._csc.csc_matrix",
    "scipy.sparse._csr.csr_array",
    "scipy.sparse._csr.csr_matrix",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.calibration._TemperatureScaling",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
    "sklearn.gaussian_process.kernels.ConstantKernel",
    "sklearn.gaussian_process.kernels.Matern",
    "sklearn.gaussian_process.kernels.Product",
    "sklearn.gaussian_process.kernels.RBF",
    "sklearn.gaussian_process.kernels.Sum",
    "sklearn.gaussian_process.kernels.WhiteKernel",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
)

# Half the time of the default level, a tenth more bytes.
_COMPRESSION = 3
# Unpacked bytes for one packed byte; the JSON inside an archive of a few trees has about thirty.
_MOST_UNPACKED = 200
_SMALL = 10_000_000


def _write_part(value: Any, writer: Writer, where: str) -> dict[str, Node]:
    # Here, since skops imports all of scikit-learn.
    import skops.io

    try:
        data = skops.io.dumps(value, compression=zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION)
        found = skops.io.get_untrusted_types(data=data)
    except Exception as error:
        # skops calls the estimator's own methods, which may raise anything.
        raise ModelError(f"{where}: skops cannot save {type(value).__name__} ({in_short(error)}).") from error
    unknown = [name for name in found if name not in {*ALLOWED, *writer.trusted}]
    if unknown:
        raise ModelError(
            f"{where} holds the type {unknown[0]}, which is not on the list of trusted types; if you trust "
            f"it, pass trusted={unknown!r} to save and load."
        )
    return {"file": writer.add_part(data)}


def _read_part(node: dict[str, Node], reader: Reader, where: str) -> Any:
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    data = reader.fetch(node["file"])
    _check_archive(data, node["file"])
    try:
        with warnings.catch_warnings():
            # Said once for the whole model, by load.
            warnings.simplefilter("ignore", InconsistentVersionWarning)
            part = skops.io.loads(data, trusted=[*ALLOWED, *reader.trusted])
    except UntrustedTypesFoundException as error:
        found = skops.io.get_untrusted_types(data=data)
        unknown = [name for name in found if name not in {*ALLOWED, *reader.trusted}]
        raise ModelError(
            f"{node['file']} holds the type {', '.join(unknown)}, which is not trusted; if you know where "
            f"the model comes from and trust the type, pass load(..., trusted={unknown!r})."
        ) from error
    except Exception as error:
        # skops hands damaged content to numpy, scipy and scikit-learn, each with errors of its own.
        raise ModelError(f"{node['file']} is damaged ({in_short(error)}).") from error
    check_contents(part, node["file"])
    return part


def _check_archive(data: bytes, name: str) -> None:
    """Refuse what is no archive, and what would unpack to far more than it is."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise ModelError(f"{name} is not a skops archive ({in_short(error)}).") from error
    if unpacked > max(_SMALL, _MOST_UNPACKED * len(data)):
        raise ModelError(f"{name} has {len(data)} bytes and claims to unpack to {unpacked}; it is refused.")


def _is_part(value: Any, writer: Writer) -> bool:
    kind = type(value)
    return isinstance(value, BaseEstimator) or f"{kind.__module__}.{kind.__qualname__}" in writer.trusted


SKLEARN_PARTS = (Codec("sklearn", _is_part, _write_part, _read_part),)
