"""Score a data set that does not fit in memory with a fitted model, by partition, on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from osls import streaming
from osls._core.arrays import Floats
from osls._core.extras import require
from osls._core.writing import draft_of
from osls.streaming import ProbabilitySummary, merge_all
from osls.streaming.class_mix import Method, MixEstimate
from osls.streaming.dask_reader import Reader, reader_for

delayed = require("dask.delayed", extra="dask").delayed
distributed = require("distributed", extra="dask")


@contextmanager
def connected(client: Any, n_workers: int | None = None) -> Iterator[Any]:
    """Yield a client; a connection or cluster that was created here is closed at the end.

    Parameters
    ----------
    client : distributed.Client, str or None
        A client to use as it is, the address of a scheduler, or None for workers on this machine.
    n_workers : int, optional
        Number of workers on this machine; by default one per core.
    """
    if isinstance(client, distributed.Client):
        yield client
    elif isinstance(client, str):
        with distributed.Client(client) as connection:
            yield connection
    elif client is None:
        # One thread per worker: the models' libraries use the core better than Python threads do.
        local = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
        with (
            distributed.LocalCluster(processes=True, **local) as cluster,
            distributed.Client(cluster) as connection,
        ):
            yield connection
    else:
        raise TypeError(
            "client must be a distributed.Client, the address of a scheduler, or None for a cluster on this "
            f"machine; got {type(client).__name__}."
        )


class _Holder(distributed.WorkerPlugin):  # type: ignore[misc, name-defined]
    """Keeps an object on every worker, also on those that join or are restarted later.

    Scattered data is lost with the worker that held it. A plugin is kept by the scheduler and sent to
    every new worker, once.
    """

    def __init__(self, name: str, held: Any):
        self.name = name
        self.held = held


@contextmanager
def model_on_workers(client: Any, model: Any) -> Iterator[str]:
    """Keep a model on every worker inside the block, under the name that is yielded."""
    name = f"osls-model-{uuid4().hex}"
    client.register_plugin(_Holder(name, model))
    try:
        yield name
    finally:
        client.unregister_worker_plugin(name)


def model_here(name: str) -> Any:
    """Return the model of that name on the worker that this runs on."""
    return distributed.get_worker().plugins[name].held


# Rows that a worker holds at once; smallest number of rows in a task of a Parquet file; merges per task.
_BATCH = 1 << 16
_TASK = 1 << 18
_FAN_IN = 8


@dataclass(frozen=True)
class Scored:
    """The result of scoring a data set: files of predictions, and a summary to estimate the mix from.

    Attributes
    ----------
    classes : tuple
        The known classes, then the novel one.
    summary : ProbabilitySummary
        Summary of the predictions of all rows.
    by_class : tuple of ProbabilitySummary or None
        Summaries of the rows of each known class, if there was a label.
    files : tuple of Path
        One file of predictions per partition, in the order of the data; empty if none were written.
    prior : array of shape (k + 1,) or None
        The mix that the model was fitted to.
    """

    classes: tuple[Any, ...]
    summary: ProbabilitySummary
    by_class: tuple[ProbabilitySummary, ...] | None
    files: tuple[Path, ...]
    prior: Floats | None

    @property
    def rows(self) -> int:
        """Rows scored."""
        return self.summary.n


def score(
    model: Any,
    data: Any,
    *,
    out: str | Path | None = None,
    columns: Sequence[str] | None = None,
    ids: Sequence[str] = (),
    label: str | None = None,
    client: Any = None,
    n_workers: int | None = None,
    retries: int = 3,
) -> Scored:
    """Score every row of a Dask DataFrame or a Parquet data set, and summarise the predictions.

    Parameters
    ----------
    model : fitted adapter, or object with ``classes`` and ``predict(table)``
        For instance :class:`osls.PULSE` on numeric columns, or :class:`osls.app.predict.Adapted` on any. It
        is sent to each worker once.
    data : dask.dataframe.DataFrame, str or Path
        The rows; a path is a Parquet file or a folder of them, which all workers can read.
    out : str or Path, optional
        Folder for the predictions, which all workers can write to: ``part-00000.parquet`` and so on, each
        written completely or not at all, with the ``ids``, ``predicted``, ``novel`` and ``p_<class>``.
    columns : sequence of str, optional
        Features, in the order of the fit. By default the names that the model was fitted with, or else all
        numeric columns except ``ids`` and ``label``.
    ids : sequence of str
        Columns to copy into the predictions.
    label : str, optional
        Column with true classes: then ``by_class`` is filled, for use as a reference.
    client : distributed.Client or str, optional
        A client, or the address of a scheduler. By default a temporary cluster on this machine; a script
        then needs ``if __name__ == "__main__":``.
    n_workers : int, optional
        Workers of that cluster; by default one per core.
    retries : int, default=3
        How often a failed partition is tried again. If a worker dies, the other workers compute its
        partitions in any case, with the same result.

    Returns
    -------
    Scored
        For :func:`osls.streaming.dask.estimate_mix`.

    Notes
    -----
    A worker holds 65,536 rows of a Parquet file at a time, or one partition of a Dask DataFrame. It sends
    only a summary of its predictions, of a few megabytes, over the network.

    Examples
    --------
    ::

        scored = score(model, "transactions/", out="predictions/", ids=["id"])
        held_out = score(model, "labelled.parquet", label="kind")
        estimate_mix(scored, reference=held_out).novel_interval
    """
    reader = reader_for(model, _empty_like(data), columns, ids, label)
    parts = _partitions(data, reader.needed)
    folder = None if out is None else _prepare(Path(out))
    with connected(client, n_workers) as cluster, model_on_workers(cluster, model) as name:
        # The intermediate futures get no name, so that the cluster can free them.
        whole: _Piece = _reduce(cluster, _submit(cluster, parts, reader, folder, name, retries)).result()
    if folder is not None:
        for left in folder.glob(".part-*"):  # left by workers that died while writing
            left.unlink()
    if label is not None and not any(summary.n for summary in whole.by_class):
        raise ValueError(f"label: no row's {label!r} is one of the known classes {reader.classes[:-1]}.")
    return Scored(
        reader.classes,
        whole.summary,
        None if label is None else whole.by_class,
        () if folder is None else tuple(folder / _file_name(i) for i in range(len(parts))),
        _fitted_mix(model),
    )


def _fitted_mix(model: Any) -> Floats | None:
    mix: Floats | None = getattr(getattr(model, "adapter", model), "target_marginal_", None)
    return mix


# -- The data as parts --------------------------------------------------------------------------------


def _empty_like(data: Any) -> pd.DataFrame:
    """Return a table with the columns of the data and no rows."""
    if isinstance(data, str | Path):
        return _dataset(data).schema.empty_table().to_pandas()
    if not (hasattr(data, "to_delayed") and hasattr(data, "_meta")):
        raise TypeError(
            f"data must be a Dask DataFrame or the path of Parquet files; got {type(data).__name__}. "
            "Rows that fit in memory can be given to the model's own predict_proba."
        )
    return data._meta


def _partitions(data: Any, columns: list[str]) -> list[Any]:
    """Return the input of each task: steps of a Dask graph, or pieces of Parquet files."""
    if not isinstance(data, str | Path):
        return list(data[columns].to_delayed())
    dataset = _dataset(data)
    parts = [(part, dataset.schema) for f in dataset.get_fragments() for part in _row_groups(f)]
    if not parts:
        raise ValueError(f"data: {data} holds no rows.")
    return parts


def _dataset(path: str | Path) -> Any:
    return pads.dataset(path, format="parquet", partitioning="hive")


def _row_groups(fragment: Any) -> Iterator[Any]:
    """Split a file into runs of row groups that are large enough for a task."""
    group: list[int] = []
    rows = 0
    for info in fragment.row_groups:
        group.append(info.id)
        rows += info.num_rows
        if rows >= _TASK:
            yield fragment.subset(row_group_ids=group)
            group, rows = [], 0
    if group:
        yield fragment.subset(row_group_ids=group)


def _batches(part: Any, columns: list[str]) -> Iterator[pd.DataFrame]:
    if isinstance(part, pd.DataFrame):
        for start in range(0, len(part), _BATCH):
            yield part.iloc[start : start + _BATCH]
    else:
        fragment, schema = part
        for batch in fragment.to_batches(schema=schema, columns=columns, batch_size=_BATCH):
            if batch.num_rows:
                yield batch.to_pandas()


# -- The work on one part -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    """The summaries of some partitions."""

    summary: ProbabilitySummary
    by_class: tuple[ProbabilitySummary, ...]


def _score_part(part: Any, number: int, reader: Reader, folder: Path | None, model_name: str) -> _Piece:
    model = model_here(model_name)
    k = len(reader.classes) - 1
    summary = ProbabilitySummary(k + 1)
    by_class = tuple(ProbabilitySummary(k + 1) for _ in range(k if reader.label else 0))

    def answers() -> Iterator[pd.DataFrame]:
        for rows in _batches(part, reader.needed):
            proba, table = reader.predict(model, rows)
            summary.update(proba)
            if reader.label is not None:
                truth = reader.true_classes(rows)
                for j, of_class in enumerate(by_class):
                    of_class.update(proba[truth == j])
            yield table

    try:
        if folder is None:
            for _ in answers():
                pass
        else:
            _write(folder / _file_name(number), answers())
    except Exception as error:
        error.add_note(f"while scoring partition {number}")
        raise
    return _Piece(summary, by_class)


def _file_name(number: int) -> str:
    return f"part-{number:05d}.parquet"


def _prepare(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.glob("part-*.parquet")):
        raise ValueError(f"out: {folder} holds predictions already; remove them or choose another folder.")
    return folder.absolute()


def _write(path: Path, tables: Iterable[pd.DataFrame]) -> None:
    """Write a Parquet file, one row group per table, completely or not at all."""
    writer: pq.ParquetWriter | None = None
    with draft_of(path) as draft:
        for table in tables:
            arrow = pa.Table.from_pandas(table, preserve_index=False)
            writer = writer or pq.ParquetWriter(draft, arrow.schema)
            writer.write_table(arrow.cast(writer.schema))
        if writer is not None:
            writer.close()
        else:
            pq.write_table(pa.table({}), draft)


# -- All parts together -------------------------------------------------------------------------------


def _submit(
    client: Any, parts: list[Any], reader: Reader, folder: Path | None, model_name: str, retries: int
) -> list[Any]:
    """Submit one task per partition; the workers read the rows themselves."""
    if isinstance(parts[0], tuple):
        shared = {"pure": False, "retries": retries}
        return [
            client.submit(_score_part, part, i, reader, folder, model_name, **shared)
            for i, part in enumerate(parts)
        ]
    work = delayed(_score_part, pure=False)
    tasks = [work(part, i, reader, folder, model_name) for i, part in enumerate(parts)]
    return list(client.compute(tasks, retries=retries))


def _reduce(client: Any, pieces: list[Any]) -> Any:
    """Merge in a tree and in the order of the data, so that the same parts give the same numbers."""
    while len(pieces) > 1:
        groups = [pieces[i : i + _FAN_IN] for i in range(0, len(pieces), _FAN_IN)]
        # Merge tasks have priority over scoring, so that summaries do not accumulate.
        pieces = [client.submit(_merge, group, pure=False, priority=1) for group in groups]
    return pieces[0]


def _merge(pieces: Sequence[_Piece]) -> _Piece:
    summary = merge_all([piece.summary for piece in pieces])
    by_class = zip(*(piece.by_class for piece in pieces), strict=True)
    return _Piece(summary, tuple(merge_all(of_class) for of_class in by_class))


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
        What :func:`osls.streaming.dask.score` returned for the data set.
    reference : Scored, optional
        The same for labelled rows that the model was not fitted to, scored with ``label=``. With it, neither
        a calibrated model nor an unchanged novel class is assumed.
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
