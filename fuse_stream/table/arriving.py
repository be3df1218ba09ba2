"""What a program gives to a write: rows, and the number of a batch."""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from fuse_stream.commit.ledger import Batch, application_of
from fuse_stream.commit.stage import Rows
from fuse_stream.errors import InvalidInputError


@runtime_checkable
class ArrowStream(Protocol):
    """Rows in Arrow's C stream interface: data frames of polars and pandas, a scan, and others."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows."""
        ...


Data: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream


def rows_in(data: Data) -> Rows:
    """Return the rows that a caller gave; raises InvalidInputError for other objects."""
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.Table | pa.RecordBatchReader):
        return data
    if isinstance(data, ArrowStream):
        return pa.RecordBatchReader.from_stream(data)
    raise InvalidInputError(
        "data is a data frame (pandas, polars), a pyarrow.Table, RecordBatch or RecordBatchReader, "
        "or another Arrow stream. Convert a dict of columns with pa.table(...), a list of rows "
        "with pa.Table.from_pylist(...), a Series with its to_frame(), a dataset with "
        "dataset.scanner().to_reader()",
        type=type(data).__name__,
    )


def api_batch(app_id: str | None, batch_id: int | None, writer: str) -> Batch | None:
    """Return the batch that a program numbers itself, or None; errors of `Table.append`."""
    if batch_id is None:
        if app_id is not None or writer:
            raise InvalidInputError(
                "app_id and writer need a batch_id; give the batch's number too", app_id=app_id
            )
        return None
    if type(batch_id) is not int or batch_id < 0:  # a bool is an int in Python
        raise InvalidInputError("a batch_id is a number from 0", batch_id=batch_id)
    return Batch(application=application_of(app_id), writer=writer, batch_id=batch_id)
