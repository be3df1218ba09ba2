"""Arrow's values as NumPy sees them where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def stored(values: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return values of a fixed width as they lie in memory; anything where they are null."""
    # Not by `to_numpy`, which loads pandas, and which makes floats of integers beside nulls.
    item = np.dtype(dtype)
    start, count = values.offset * item.itemsize, len(values)
    return np.frombuffer(
        values.buffers()[1], item.base, count * item.itemsize // item.base.itemsize, start
    ).reshape(count, *item.shape)


def marked(values: pa.ChunkedArray, low: int, high: int) -> npt.NDArray[np.bool_]:
    """Return for each integer from `low` to `high` whether it is among `values`, all of these."""
    is_there = np.zeros(high - low + 1, np.bool_)
    dtype = np.dtype(f"i{values.type.bit_width // 8}")
    for chunk in values.drop_null().chunks:
        if len(chunk):
            is_there[np.subtract(stored(chunk, dtype), low, dtype=np.int64)] = True
    return is_there
