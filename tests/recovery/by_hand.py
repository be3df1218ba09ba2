"""Commit blocks of any shape, also with operations that this release does not make yet."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from fuse_stream.commit.plan import Content, Intent, Staged, parent_of
from fuse_stream.commit.stage import stage_blocks
from fuse_stream.format.evolve import next_schema
from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import (
    Block,
    Operation,
    Snapshot,
    Summary,
)
from fuse_stream.objects.blocks import load_block, store_blocks
from fuse_stream.objects.slots import Stored
from fuse_stream.table.handle import Table
from tests.recovery.histories import put_next


def commit_blocks(
    table: Table,
    operation: Operation,
    blocks: Iterable[Block],
    *,
    data_change: bool = False,
    target: Stored | None = None,
) -> Snapshot:
    """Commit a snapshot that holds these blocks and no others."""
    old = table.head()
    staged = stage_blocks(table.metadata, old, old.schema, tuple(blocks), epoch=old.epoch)
    assert staged.ref is not None
    return put_next(
        table,
        operation,
        data_change=data_change,
        summary=staged.summary,
        segments=(staged.ref,),
        added=(staged.ref.id,),
        target=parent_of(target) if target else None,
    )


def compact(
    table: Table,
    *chosen: int,
    operation: Operation = Operation.COMPACT,
    block_rows: int = 1_000_000,
) -> Snapshot:
    """Write the rows of the chosen blocks (default: all) into blocks of this size."""
    blocks = table.blocks()
    inputs = [blocks[at] for at in chosen or range(len(blocks))]
    made = write_blocks(table, read_rows(table, inputs), block_rows)
    kept = [block for block in blocks if block not in inputs]
    return commit_blocks(table, operation, [*kept, *made])


def read_rows(table: Table, blocks: Iterable[Block]) -> pa.Table:
    schema = table.head().schema
    return pa.concat_tables(load_block(table.metadata.store, block, schema) for block in blocks)


def write_blocks(table: Table, rows: pa.Table, block_rows: int = 1_000_000) -> list[Block]:
    metadata = table.metadata
    target = BlockTarget(rows=block_rows, bytes=1 << 30)
    schema = table.head().schema
    return list(
        store_blocks(metadata.store, [rows], schema, (), target=target, clock=metadata.clock)
    )


def take(table: Table, operation: Operation, content: Snapshot, target: Stored) -> Snapshot:
    """Commit another snapshot's content, as a rewind, revert or publish does."""

    def stage(head: Stored, _: Staged | None) -> Staged:
        return Staged(
            schema=next_schema(head.snapshot.schema, content.schema),
            content=Content(
                segments=content.segments,
                summary=content.summary if content.segments else Summary(),
                deletion_files=content.deletion_files,
                sides=content.sides,
                cluster_key=content.cluster_key,
                key=content.key,
                sequence=content.sequence,
                required_features=content.required_features,
                ledger=(head if operation is Operation.REVERT else target).snapshot.ledger,
                target=parent_of(target),
                after_us=target.snapshot.timestamp_us,
            ),
        )

    table.committer.head()
    return table.committer.commit(Intent(operation=operation), stage).stored.snapshot


def rewind(table: Table, version: int) -> Snapshot:
    target = table.metadata.load_snapshot(table.committer.branch_id, version)
    return take(table, Operation.REWIND, target.snapshot, target)


def publish(table: Table, other: Table) -> Snapshot:
    target = other.committer.head()
    return take(table, Operation.PUBLISH, target.snapshot, target)


def revert_head(table: Table) -> Snapshot:
    """Undo the newest commit by taking the content before it."""
    head = table.committer.head()
    return take(table, Operation.REVERT, table.snapshot(head.snapshot.version - 1), head)
