"""What `Table.scan` returns: the rows of a snapshot, for Arrow, pandas, polars and DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from fuse_stream.format.one_line import line_of
from fuse_stream.format.records import Snapshot
from fuse_stream.objects.slots import Metadata
from fuse_stream.on_demand import OnDemand
from fuse_stream.reading.scan import Selection, scan_snapshot

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

    from fuse_stream.reading import dataset
else:
    dataset = OnDemand("fuse_stream.reading.dataset")


class Scan:
    """The wanted rows of a snapshot, read lazily.

    It has the methods of `pyarrow.RecordBatchReader` (`read_all`, `read_next_batch`, `schema`, …),
    and like one it delivers its rows once. Libraries that take Arrow streams take it as it is.
    """

    def __init__(self, metadata: Metadata, snapshot: Snapshot, selection: Selection) -> None:
        """Build a scan; callers use `Table.scan`."""
        self._metadata = metadata
        self._snapshot = snapshot
        self._selection = selection
        self._reader = scan_snapshot(metadata, snapshot, selection)

    def __repr__(self) -> str:
        names = self._selection.schema.names()
        facts = {"version": self._snapshot.version, "columns": tuple(names)}
        return line_of("Scan", facts)

    def to_pandas(self, **options: Any) -> Any:
        """Return the rows as a `pandas.DataFrame`; `options` are those of `pa.Table.to_pandas`.

        Raises:
            SnapshotExpiredError: the version has expired while its rows were read.
        """
        return self._reader.read_pandas(**options)

    def dataset(self) -> Dataset:
        """Return the rows as a `pyarrow.dataset.Dataset`, which can be read many times.

        Its readers choose columns and rows; it reads only the blocks that may hold rows of this
        scan. Reading it raises the errors of reading the scan.
        """
        return dataset.dataset_of(self._metadata, self._snapshot, self._selection)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows in Arrow's C stream interface, for other libraries."""
        return self._reader.__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._reader)

    def __next__(self) -> pa.RecordBatch:
        return self._reader.read_next_batch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are not above: those of a RecordBatchReader.
        if name == "_reader":  # a copy that is being made
            raise AttributeError(name)
        return getattr(self._reader, name)
