"""Write changed rows in Spark's tasks: new images as blocks, and which rows of which blocks go.

A row has a kind; the file of the row that it deletes or updates, by its name or a number, and its
position there; and the columns of the table, as an update or an insert leaves them. Rows come to a
task ordered by kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import FrozenBitMap64

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.layout import BLOCKS_PREFIX, id_in
from fuse_stream.format.positions import Positions, positions_of
from fuse_stream.format.records import Block
from fuse_stream.spark.task_writer import TaskResult, TaskWriter

KIND = "_fuse_kind"
"""The first column of a changed row. Its place follows (`read`), and then the table's columns."""

RESULT_SCHEMA = "kind int, block string, rows binary, file string, gone binary, doubles binary"


class Kind(IntEnum):
    """What happens to a row."""

    DELETE = 0
    UPDATE = 1
    INSERT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeWriter:
    """Writes the changed rows of one task. Made on the driver, used on executors."""

    writer: TaskWriter
    """Writes the table's columns of updates and inserts."""

    def map_in_arrow(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task; yield rows of `RESULT_SCHEMA`."""
        gone: dict[tuple[Kind, str], list[np.ndarray]] = defaultdict(list)
        found: list[dict[str, object]] = []
        for kind, run in groupby(_split(batches), key=lambda part: part[0]):
            images = self._noting(kind, (rows for _, rows in run), gone)
            if kind is Kind.DELETE:
                for _ in images:
                    pass
                continue
            written = self.writer.write(images)
            found += ({"kind": int(kind), "block": block} for block in written.blocks)
            found += ({"kind": int(kind), "rows": rows} for rows in written.rows)
        for (kind, file), parts in gone.items():
            rows, counts = np.unique(np.concatenate(parts), return_counts=True)
            found.append(
                {
                    "kind": int(kind),
                    "file": file,
                    "gone": positions_of(rows).serialize(),
                    "doubles": positions_of(rows[counts > 1]).serialize(),
                }
            )
        yield pa.RecordBatch.from_pylist(found, schema=_RESULT)

    def _noting(
        self,
        kind: Kind,
        parts: Iterable[pa.RecordBatch],
        gone: dict[tuple[Kind, str], list[np.ndarray]],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the table's columns of rows; note the rows of older blocks that they replace."""
        for rows in parts:
            if kind is not Kind.INSERT:
                files = pc.dictionary_encode(rows.column(1))
                codes = files.indices.to_numpy()
                at = rows.column(2).to_numpy()
                for code, file in enumerate(files.dictionary.to_pylist()):
                    gone[kind, str(file)].append(at[codes == code])
            yield rows.select(list(range(3, rows.num_columns)))


_RESULT = pa.schema(
    [
        ("kind", pa.int32()),
        ("block", pa.string()),
        ("rows", pa.binary()),
        ("file", pa.string()),
        ("gone", pa.binary()),
        ("doubles", pa.binary()),
    ]
)


def _split(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Kind, pa.RecordBatch]]:
    """Yield the rows of one kind after the other; `batches` are ordered by kind."""
    for batch in batches:
        kinds = batch.column(0).to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
        for first, end in pairwise(edges):
            if first < end:
                yield Kind(int(kinds[first])), batch.slice(first, end - first)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """The results of all tasks."""

    updates: tuple[Block, ...]
    """Blocks of updated rows, as they are now."""
    inserts: tuple[Block, ...]
    deleted: dict[str, Positions]
    """Rows of older blocks, by block id."""
    updated: dict[str, Positions]
    ambiguous: dict[str, Positions]
    """Rows that several source rows update, or one updates and another deletes."""


def block_of(file: str) -> str:
    """Return the id of the block in a file.

    Raises:
        CorruptObjectError: the file is no block's.
    """
    block_id = id_in(f"{BLOCKS_PREFIX}{file}", BLOCKS_PREFIX)
    if block_id is None:
        raise CorruptObjectError("Spark read a file that is no block", file=file)
    return block_id


def gathered(
    writer: TaskWriter, rows: Iterable[Any], block_of: Callable[[str], str] = block_of
) -> ChangedRows:
    """Return the results of tasks, from their rows of `RESULT_SCHEMA`.

    Rows that tasks have returned are stored as further blocks by `writer`. `block_of` returns the
    id of a block by how changed rows name its file.
    """
    results = list(rows)
    blocks = {
        kind: writer.gather(
            [
                TaskResult(
                    blocks=tuple(row.block for row in results if row.block and row.kind == kind),
                    rows=tuple(bytes(row.rows) for row in results if row.rows and row.kind == kind),
                )
            ]
        )
        for kind in (Kind.UPDATE, Kind.INSERT)
    }
    gone: dict[Kind, dict[str, Positions]] = {Kind.DELETE: {}, Kind.UPDATE: {}}
    ambiguous: dict[str, Positions] = {}
    for row in results:
        if row.file is None:
            continue
        kind, block_id = Kind(row.kind), block_of(row.file)
        positions = FrozenBitMap64.deserialize(bytes(row.gone))
        known = gone[kind].get(block_id, Positions())
        twice = FrozenBitMap64.deserialize(bytes(row.doubles)) | (known & positions)
        if twice and kind is Kind.UPDATE:
            ambiguous[block_id] = ambiguous.get(block_id, Positions()) | twice
        gone[kind][block_id] = known | positions
    for block_id, positions in gone[Kind.UPDATE].items():
        if both := positions & gone[Kind.DELETE].get(block_id, Positions()):
            ambiguous[block_id] = ambiguous.get(block_id, Positions()) | both
    return ChangedRows(
        updates=blocks[Kind.UPDATE],
        inserts=blocks[Kind.INSERT],
        deleted=gone[Kind.DELETE],
        updated=gone[Kind.UPDATE],
        ambiguous=ambiguous,
    )
