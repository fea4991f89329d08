"""The array types that the package's signatures speak of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]
AnyArray = NDArray[Any]
RandomState = int | np.random.RandomState | None

__all__ = ["AnyArray", "Bools", "Floats", "Ints", "RandomState"]
