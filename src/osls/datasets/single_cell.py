"""Single-cell data: a row is a cell, a class is a cell type; Tabula Muris as in the COMET benchmark."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis

from osls._core.arrays import AnyArray, Bools
from osls._core.extras import require
from osls.datasets.download import Origin, find_file
from osls.datasets.loading import Labelled, named_classes, prepared

_GEO = "https://www.ncbi.nlm.nih.gov/geo/query/acc.cgi?acc="
# Where each data set is published. Counts are normalised here; the others are log-transformed already.
CELL_FILES = {
    "zeisel_mouse_brain": f"{_GEO}GSE60361",
    "citeseq_cbmc": f"{_GEO}GSE100866",
    "pbmc3k_lognorm": "https://www.10xgenomics.com/datasets/3-k-pbm-cs-from-a-healthy-donor-1-standard-1-1-0",
    "worm_neuron_cell": f"{_GEO}GSE98561",
}


def load_cells(name: str, *, download: bool = False) -> Labelled:
    """Load ``<name>.npz``, a CSR matrix in parts (data, indices, indptr, shape) with y, as float32.

    Counts (whole numbers) become logarithms of counts per 10,000.
    """
    arrays = "data, indices, indptr and shape of a CSR matrix (cells x genes), y (class numbers), class_names"
    advice = f"The data is published at {CELL_FILES[name]}: save it there with the arrays {arrays}."
    path = find_file(f"{name}.npz", advice)
    with np.load(path, allow_pickle=False) as file:
        parts = (file["data"], file["indices"], file["indptr"])
        X = sparse.csr_matrix(parts, shape=tuple(file["shape"].tolist()))
        y = np.asarray(file["y"])
        names = named_classes(y, file.get("class_names"))
    if X.shape[0] != len(y):
        raise ValueError(f"{path} has {X.shape[0]} cells but {len(y)} labels.")
    X.sum_duplicates()
    X = log_normalise(X) if X.dtype.kind in "iu" else X.astype(np.float32)
    return Labelled(X, y, names)


def log_normalise(counts: Any, total: float = 10_000.0) -> Any:
    """Return log(1 + counts per ``total`` of the cell) as float32 CSR.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> from osls.datasets.single_cell import log_normalise
    >>> np.expm1(log_normalise(csr_matrix([[1, 3], [0, 0]]), total=8).toarray()).round(3).tolist()
    [[2.0, 6.0], [0.0, 0.0]]
    """
    sums = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    scale = np.divide(total, sums, out=np.zeros_like(sums), where=sums > 0)
    scaled = sparse.csr_matrix(sparse.diags_array(scale) @ counts.astype(np.float64))
    return scaled.log1p().astype(np.float32)


TABULA_MURIS = Origin(
    "Tabula Muris",
    paths=("tabula-muris-comet.h5ad", "tabula-muris-comet/tabula-muris-comet.h5ad"),
    advice="Download http://snap.stanford.edu/comet/data/tabula-muris-comet.zip.",
    archives=("tabula-muris-comet.zip",),
    max_bytes=20_000_000_000,
)
# The tissues of COMET's training set; they hold 57 cell types.
# fmt: off
_TISSUES = (
    "BAT", "Bladder", "Brain_Myeloid", "Brain_Non-Myeloid", "Diaphragm", "GAT", "Heart", "Kidney",
    "Limb_Muscle", "Liver", "MAT", "Mammary_Gland", "SCAT", "Spleen", "Trachea",
)
# fmt: on
_LABEL = "cell_ontology_class_reannotated"
_MIN_CELLS_OF_A_GENE = 5
_MIN_COUNTS = 5000
_MIN_GENES = 500
_MIN_CELLS_OF_A_TYPE = 20
_CLIP = 10.0


def load_tabula_muris(*, download: bool = False) -> Labelled:
    """Load the cells of the 15 training tissues as a float32 table of standardised variable genes."""
    path = TABULA_MURIS.find(download=download)

    def build(target: Path) -> tuple[AnyArray, Sequence[str]]:
        X, names = _prepare(*_read(path))
        np.save(target, X, allow_pickle=False)
        classes, y = np.unique(names, return_inverse=True)
        return y.astype(np.int64), classes.tolist()

    seen = path.stat()
    return prepared("tabula-muris", [str(path), seen.st_size, seen.st_mtime_ns, "v1"], build)


def _read(path: Path) -> tuple[Any, AnyArray, AnyArray]:
    """Return counts, cell types and tissues of the annotated cells."""
    anndata = require("anndata", extra="single-cell")
    with warnings.catch_warnings():
        # The official file was written by an old version of anndata; the user cannot change that.
        warnings.simplefilter("ignore", anndata.OldFormatWarning)
        data = anndata.read_h5ad(path)
    for column in (_LABEL, "tissue"):
        if column not in data.obs:
            raise ValueError(f"{path} has no column {column!r} in obs. {TABULA_MURIS.advice}")
    types = data.obs[_LABEL].astype(str).to_numpy(dtype=str)
    annotated = ~np.isin(types, ("nan", "NA"))
    counts = sparse.csr_matrix(data.X)[annotated].astype(np.float64)
    return counts, types[annotated], data.obs["tissue"].to_numpy(dtype=str)[annotated]


def _prepare(counts: Any, types: AnyArray, tissues: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Filter, normalise, choose variable genes, standardise on all cells; then keep the training tissues."""
    counts = counts[:, (counts > 0).sum(axis=0).A1 >= _MIN_CELLS_OF_A_GENE]
    totals = counts.sum(axis=1).A1
    good = (totals >= _MIN_COUNTS) & ((counts > 0).sum(axis=1).A1 >= _MIN_GENES)
    counts, totals, types, tissues = counts[good], totals[good], types[good], tissues[good]
    scaled = sparse.csr_matrix(sparse.diags_array(1e4 / totals) @ counts)
    X = scaled[:, variable_genes(scaled)].log1p()
    mean, std = _mean_and_std(X)
    keep = np.isin(tissues, _TISSUES)
    _, numbers, sizes = np.unique(types[keep], return_inverse=True, return_counts=True)
    keep[keep] = sizes[numbers] >= _MIN_CELLS_OF_A_TYPE
    if not keep.any():
        raise ValueError(f"no cell type has {_MIN_CELLS_OF_A_TYPE} cells in the tissues of the training set.")
    # Made dense only here, for the selected cells.
    dense = X[keep].toarray().astype(np.float32)
    dense -= mean.astype(np.float32)
    dense /= np.where(std > 0, std, 1).astype(np.float32)
    return np.clip(dense, -_CLIP, _CLIP, out=dense), types[keep]


def _mean_and_std(X: Any) -> tuple[AnyArray, AnyArray]:
    mean, variance = mean_variance_axis(X, axis=0)
    return mean, np.sqrt(variance * X.shape[0] / max(X.shape[0] - 1, 1))


def variable_genes(
    X: Any, *, min_mean: float = 0.0125, max_mean: float = 10.0, min_dispersion: float = 0.5, bins: int = 20
) -> Bools:
    """Return which genes vary more than others of similar mean, by the rule of Seurat.

    Dispersion is the logarithm of variance over mean. Genes are put into bins of equal width by log(1 + mean)
    and their dispersion is standardised in its bin.

    Parameters
    ----------
    X : CSR matrix of shape (cells, genes)
        Normalised counts, not logarithms.
    min_mean, max_mean : float
        Range of log(1 + mean).
    min_dispersion : float
        Smallest standardised dispersion.
    bins : int
        Number of bins.
    """
    mean, std = _mean_and_std(X)
    mean = np.where(mean == 0, 1e-12, mean)
    ratio = std**2 / mean
    dispersion = np.log(ratio, out=np.full_like(ratio, np.nan), where=ratio > 0)
    level = np.log1p(mean)
    edges = np.linspace(level.min(), level.max(), bins + 1)
    # Bins are open on the left; the lowest gene belongs to the first.
    member = np.clip(np.searchsorted(edges, level, side="left") - 1, 0, bins - 1)
    score = np.zeros_like(dispersion)
    for number in np.unique(member):
        here = (member == number) & np.isfinite(dispersion)
        values = dispersion[here]
        if len(values) == 1:
            score[here] = 1.0  # nothing to compare it with
        elif len(values) > 1:
            spread = values.std(ddof=1)
            score[here] = (values - values.mean()) / (spread if spread > 0 else 1.0)
    return np.asarray((level > min_mean) & (level < max_mean) & (score > min_dispersion), dtype=np.bool_)
