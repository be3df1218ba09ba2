"""Stage rows: put them as blocks and a segment, which are invisible until a slot names them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from fuse_stream.commit.plan import Staged, StagedSide, check_may_add, may_be_gone
from fuse_stream.errors import ConflictError
from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.batch_sums import BatchSums, MeasuredTables
from fuse_stream.format.deletions import (
    MAX_DELETION_FILE_BYTES,
    VECTOR_RECORD_BYTES,
    DeletionFile,
)
from fuse_stream.format.evolve import resolve
from fuse_stream.format.positions import BlockRows, Positions
from fuse_stream.format.private import describing_less, private_leaves
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import (
    Block,
    DeletionFileRef,
    Operation,
    Segment,
    SegmentRef,
    Snapshot,
    Summary,
)
from fuse_stream.format.schema import Column, Schema
from fuse_stream.format.stats import summarize
from fuse_stream.objects.blocks import store_blocks
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.storage.parallel import background_puts

Rows: TypeAlias = pa.Table | pa.RecordBatchReader
"""Rows to write; a reader can be read only once."""


def stage_rows(
    metadata: Metadata,
    head: Stored,
    before: Staged | None,
    rows: Rows,
    *,
    merge_schema: bool = False,
    case_sensitive: bool = False,
    is_numbered: bool = False,
    operation: Operation = Operation.APPEND,
    check: Callable[[pa.Table, Schema], None] | None = None,
) -> Staged:
    """Put `rows` as blocks and a segment that fit `head`; those of a numbered batch with sums.

    `before` is what was staged for an older head, if anything; `operation` is what the commit
    does. `check` may refuse a table, which has the given schema then, before anything is put.

    Raises:
        SchemaMismatchError: the rows' schema is not the table's; nothing was written.
        UnsupportedTypeError: the format has no such type as a column's.
        InvalidInputError: a value does not fit its column.
        ConflictError: the table changed, and the rows come from a reader, which must start again.
    """
    snapshot = head.snapshot
    check_may_add(snapshot, operation)
    arriving = columns_of_arrow(rows.schema)
    schema, columns = resolve(
        snapshot.schema, arriving, merge_schema=merge_schema, case_sensitive=case_sensitive
    )
    if before is not None and not isinstance(rows, pa.Table):
        raise ConflictError(
            "the table's schema changed, or vacuum ran, while rows from a reader were written; "
            "send the rows again",
            version=snapshot.version,
        )
    adapted = _adapted(rows, columns, schema)
    if check is not None and isinstance(rows, pa.Table):
        whole = adapt(rows, columns, schema)
        check(whole, schema)
        adapted = iter([whole])
    if not is_numbered:
        return stage_tables(metadata, snapshot, schema, adapted)
    measured = MeasuredTables(adapted, schema)
    staged = stage_tables(metadata, snapshot, schema, measured)
    return dataclasses.replace(staged, sums=measured.sums)


def measure_rows(head: Stored, rows: Rows) -> BatchSums:
    """Return the sums of `rows` in the columns of `head`; read all of them.

    Columns that the table has got since `rows` were committed are null.

    Raises:
        SchemaMismatchError: a column cannot be held by the table's.
        InvalidInputError: a value does not fit its column.
    """
    schema, columns = resolve(
        head.snapshot.schema, columns_of_arrow(rows.schema), merge_schema=True, case_sensitive=True
    )
    measured = MeasuredTables(_adapted(rows, columns, schema), schema)
    for _ in measured:
        pass
    return measured.sums


def _adapted(rows: Rows, columns: tuple[Column, ...], schema: Schema) -> Iterator[pa.Table]:
    is_table = isinstance(rows, pa.Table)
    tables = [rows] if is_table else (pa.Table.from_batches([batch]) for batch in rows)
    return (adapt(table, columns, schema) for table in tables)


def stage_tables(
    metadata: Metadata, snapshot: Snapshot, schema: Schema, tables: Iterable[pa.Table]
) -> Staged:
    """Put tables that have `schema` as blocks and a segment that fit the head `snapshot`."""
    with background_puts(metadata.store) as puts:
        blocks = store_blocks(
            puts,
            tables,
            schema,
            snapshot.cluster_key,
            target=block_target(snapshot.properties),
            clock=metadata.clock,
        )
        return stage_blocks(metadata, snapshot, schema, tuple(blocks), epoch=snapshot.epoch)


def stage_blocks(
    metadata: Metadata, snapshot: Snapshot, schema: Schema, blocks: tuple[Block, ...], *, epoch: int
) -> Staged:
    """Put the segment of `blocks`, which were put or are being put; put nothing for no blocks.

    `schema` is the table's after the commit on the head `snapshot`; `epoch` is that of a head that
    was read before the first block was put.

    Raises:
        ConflictError: vacuum may have deleted the blocks.
    """
    if not blocks:
        return Staged(schema=schema)
    if may_be_gone(epoch, snapshot):
        raise ConflictError(
            "vacuum ran twice while the rows were written, and may have deleted their blocks; "
            "write the rows again",
            version=snapshot.version,
        )
    staged = stage_segment(metadata, snapshot, blocks, schema=schema)
    return Staged(schema=schema, ref=staged.ref, summary=staged.summary)


def stage_side(
    metadata: Metadata,
    snapshot: Snapshot,
    schema: Schema,
    rows: Iterable[pa.Table],
    *,
    hidden: BlockRows | None = None,
) -> StagedSide:
    """Put what a commit on the head `snapshot` brings to one of its sides.

    `schema` is the side's after the commit, which each table of `rows` has. They are kept in their
    order. `hidden` are rows of the side's blocks that the commit hides.
    """
    plain = dataclasses.replace(snapshot, cluster_key=())
    staged = stage_tables(metadata, plain, schema, rows)
    deletions = stage_deletions(metadata, hidden) if hidden else ()
    return StagedSide(schema=schema, ref=staged.ref, summary=staged.summary, deletions=deletions)


def stage_deletions(
    metadata: Metadata,
    rows: BlockRows,
    updated: BlockRows | None = None,
    *,
    since_us: int | None = None,
) -> tuple[DeletionFileRef, ...]:
    """Put and return the deletion files, mostly one, that hide `rows`.

    `updated` are the rows of these blocks, and of the commit's own, that are updates. `since_us` is
    when the first of `rows` was hidden; now if not given.
    """
    parts: list[dict[str, Positions]] = []
    total = 0
    for block_id, positions in rows.items():
        size = 2 * (len(positions.serialize()) + VECTOR_RECORD_BYTES)
        total += size
        # Half of the limit: updates of the commit's own blocks come on top.
        if not parts or total > MAX_DELETION_FILE_BYTES // 2:
            parts.append({})
            total = size
        parts[-1][block_id] = positions
    own = {at: marked for at, marked in (updated or {}).items() if at not in rows}
    return tuple(
        metadata.deletions.put(
            DeletionFile(
                hidden=part,
                updated={
                    **({} if number else own),
                    **{at: marked for at, marked in (updated or {}).items() if at in part},
                },
            ),
            file_id=metadata.clock.new_id(),
            level=0,
            since_us=metadata.clock.now_us() if since_us is None else since_us,
        )
        for number, part in enumerate(parts)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSegment:
    """A segment that was put: how a snapshot names it, and its totals."""

    ref: SegmentRef
    summary: Summary


def stage_segment(
    metadata: Metadata,
    snapshot: Snapshot,
    blocks: Sequence[Block],
    *,
    schema: Schema | None = None,
    level: int = 0,
    summary: Summary | None = None,
) -> StagedSegment:
    """Put a segment of blocks, at least one, in their order.

    The cluster key and the block size of `snapshot` apply, and its schema unless another one has
    all columns of the blocks. `level` is 0 for new blocks, n + 1 for a roll-up of level n. The
    totals of the blocks, `summary`, are computed if not given.
    """
    if summary is None:
        summary = summarize(blocks, block_target(snapshot.properties))
    schema = schema or snapshot.schema
    private = private_leaves(schema, snapshot.properties)
    # Without their hidden rows, as they are stored: the segment is cached.
    whole = tuple(block if block.hidden is None else block.hiding(None) for block in blocks)
    if private:  # blocks that were written before the columns were private show their bounds
        summary = describing_less(summary, private)
        whole = tuple(describing_less(block, private) for block in whole)
    ref = metadata.store_segment(
        Segment(blocks=whole, summary=summary),
        schema.leaf_types,
        segment_id=metadata.clock.new_id(),
        level=level,
        cluster_key=snapshot.cluster_key,
    )
    return StagedSegment(ref=ref, summary=summary)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """Blocks of a head, and the blocks in the store that replace them."""

    inputs: tuple[Block, ...]
    outputs: tuple[Block, ...]
