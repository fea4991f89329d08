"""Single cells: gene expression, one row a cell, one class a cell type."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from osls.datasets.labelled import Labelled, named_classes
from osls.datasets.origin import find_first

__all__ = ["CELL_FILES", "load_cells", "log_normalise"]

_GEO = "https://www.ncbi.nlm.nih.gov/geo/query/acc.cgi?acc="
# Where each is published. Those that hold counts are normalised here; the others are logarithms already.
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
    path = find_first((f"{name}.npz",))
    if path is None:
        raise FileNotFoundError(
            f"{name}.npz is not in the folder that OSLS_DATA names. The data is published at "
            f"{CELL_FILES[name]}: save it there with the arrays data, indices, indptr and shape of a CSR "
            "matrix (cells x genes), y (class numbers) and class_names."
        )
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
    >>> from osls.datasets.cells import log_normalise
    >>> np.expm1(log_normalise(csr_matrix([[1, 3], [0, 0]]), total=8).toarray()).round(3).tolist()
    [[2.0, 6.0], [0.0, 0.0]]
    """
    sums = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    scale = np.divide(total, sums, out=np.zeros_like(sums), where=sums > 0)
    scaled = sparse.csr_matrix(sparse.diags_array(scale) @ counts.astype(np.float64))
    return scaled.log1p().astype(np.float32)
