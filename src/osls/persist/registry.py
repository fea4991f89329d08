"""What a saved model may be made of, in one place: nothing else is ever looked up by name.

An entry is ``module:name`` and is imported when a model holds it. The entries are part of the file format: a
class that is moved or renamed makes old models unreadable.

A class belongs here if it has ``get_state() -> dict`` and a class method ``from_state(dict)``, or is a
dataclass, a named tuple, or a scikit-learn estimator whose ``fit`` sets names that begin or end in ``_``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from osls.persist.tree import ModelError, in_short

__all__ = ["CLASSES", "FUNCTIONS", "NETWORKS", "find", "tag_of"]

CLASSES = frozenset(
    {
        # Adapters
        "osls.pulse:PULSE",
        "osls.baselines.backprop_oda:BackpropODA",
        "osls.baselines.cmu:CMU",
        "osls.baselines.dance:DANCE",
        "osls.baselines.domain_discriminator:DomainDiscriminator",
        "osls.baselines.kpu:KPU",
        "osls.baselines.open_set_em:OpenSetEM",
        "osls.baselines.separate_to_adapt:SeparateToAdapt",
        "osls.baselines.source_only:SourceOnly",
        "osls.baselines.uan:UAN",
        # What a fit leaves behind
        "osls.pu.classifier:CorrectedDiscriminator",
        "osls.pulse:Tempered",
        "osls.training.encoding:Encoder",
        "osls.training.encoding:Verbatim",
        "osls.training.learners:FoldModels",
        "osls.training.predictors:Blended",
        "osls.training.predictors:Constant",
        "osls.training.predictors:FittedClassifier",
        "osls.training.predictors:SklearnModels",
        "osls.inference.diagnostics:Check",
        "osls.inference.diagnostics:Diagnostics",
        "osls.inference.diagnostics:Verdict",
        # Parts with a life of their own
        "osls.mixture.bbe:BBE",
        "osls.mixture.bbe:BinCurve",
        "osls.mixture.bootstrap:Scores",
        "osls.mixture.dedpul:DEDPUL",
        "osls.mixture.elkan_noto:ElkanNoto",
        "osls.mixture.regroup:Regroup",
        "osls.mixture.subsample:Subsample",
        "osls.pu.classifier:PUClassifier",
        "osls.shift.bbse:BBSE",
        "osls.shift.calibration:Calibrator",
        "osls.shift.mlls:MLLS",
        "osls.shift.rlls:RLLS",
        # An adapter with what turns files into its rows
        "osls.app.adapting:Adapted",
        "osls.app.tables.encoder:TableEncoder",
        "osls.app.tables.pictures:PictureEncoder",
        # Taken apart rather than left to skops, which knows none of the above inside it
        "sklearn.pipeline:Pipeline",
    }
)

FUNCTIONS = frozenset(
    {
        "osls.baselines.open_set_em:confidence",
        "osls.training.learners:convnet",
    }
)

# Networks that remember their constructor's ``arguments``.
NETWORKS = frozenset(
    {
        "osls.training.nets.fast_convnet:FastConvFeatures",
        "osls.training.nets.features:ConvFeatures",
        "osls.training.nets.features:MLPFeatures",
        "osls.training.nets.mlp:StackedMLP",
        "osls.training.nets.resnet:ResNet9Features",
        "osls.training.nets.resnet:SmallResNet",
    }
)


def tag_of(thing: Any) -> str:
    """Return the entry that a class or function would have."""
    return f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', '')}"


def find(tag: Any, table: frozenset[str], where: str) -> Any:
    """Return the class or function of an entry; what the table does not list is refused."""
    if not isinstance(tag, str) or tag not in table:
        raise ModelError(f"{where} asks for {tag!r}, which is none of the types that a saved model may hold.")
    module, name = tag.split(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ModelError(
            f"{where} needs {tag}, which this installation lacks ({in_short(error)})."
        ) from error
