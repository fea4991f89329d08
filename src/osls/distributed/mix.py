"""The class mix of a data set that was scored on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from osls import streaming
from osls.streaming.mix import Method, MixEstimate

if TYPE_CHECKING:
    from osls.distributed.scoring import Scored

__all__ = ["estimate_mix"]


def estimate_mix(
    target: Scored,
    reference: Scored | None = None,
    *,
    method: Method = "auto",
    level: float = 0.95,
    n_boot: int = 100,
    random_state: int = 0,
) -> MixEstimate:
    """Estimate the mix of the k known classes and the novel one in a scored data set.

    Parameters
    ----------
    target : Scored
        What :func:`osls.distributed.score` returned for the data set.
    reference : Scored, optional
        The same for labelled rows that the model was not fitted to, scored with ``label=``. With it nothing
        is assumed of the model's calibration, nor of what the novel class looks like.
    method, level, n_boot, random_state
        As in :func:`osls.streaming.estimate_mix`.

    Returns
    -------
    MixEstimate
        Its ``marginal`` and ``interval`` are in the order of ``target.classes``.
    """
    by_class = None
    if reference is not None:
        if reference.classes != target.classes:
            raise ValueError("reference and target were scored with different models: their classes differ.")
        if reference.by_class is None:
            raise ValueError("reference was scored without labels; score it with label=.")
        by_class = reference.by_class
    return streaming.estimate_mix(
        target.summary,
        prior=target.prior,
        reference=by_class,
        method=method,
        level=level,
        n_boot=n_boot,
        random_state=random_state,
    )
