"""Commit rows to the sides of a table, as the writers of sides do."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.commit.stage import stage_rows, stage_side
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.positions import BlockRows, Positions
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.schema import Column, Schema
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.objects.snapshot_blocks import iter_blocks
from fuse_stream.table.handle import Table

SIDE_SCHEMA = Schema(
    id=0,
    last_column_id=2,
    columns=(
        Column(id=1, name="key", type="string"),
        Column(id=2, name="seq", type="long"),
    ),
)


def side_rows(*keys: str, seq: int = 0, schema: Schema = SIDE_SCHEMA) -> pa.Table:
    """Return a row for each key; columns but the first two are null."""
    lists = [list(keys), [seq] * len(keys), *([None] * len(keys) for _ in schema.columns[2:])]
    types = arrow_schema(schema)
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(lists, types, strict=True)],
        schema=types,
    )


def commit_sides(
    table: Table,
    brought: Mapping[str, pa.Table | None],
    *,
    hides: Mapping[str, set[str]] | None = None,
    rows: pa.Table | None = None,
    schema: Schema = SIDE_SCHEMA,
    operation: Operation = Operation.MERGE,
) -> Snapshot:
    """Commit rows of sides, and `rows` of the table.

    `hides` are keys by side: their rows are hidden.
    """
    metadata = table.metadata
    hidden = hides or {}

    def stage(on: Stored, before: Staged | None) -> Staged:
        head = on.snapshot
        staged = Staged(schema=head.schema)
        if rows is not None:
            staged = stage_rows(metadata, on, None, rows, operation=operation)
        sides = {
            name: stage_side(
                metadata,
                head,
                schema,
                [new] if (new := brought.get(name)) is not None else [],
                hidden=rows_with(metadata, head, name, hidden.get(name, set())),
            )
            for name in {*brought, *hidden}
        }
        return dataclasses.replace(staged, sides=sides)

    return table.committer.commit(Intent(operation=operation), stage).stored.snapshot


def rows_with(metadata: Metadata, head: Snapshot, name: str, keys: set[str]) -> BlockRows:
    """Return where a side shows rows with one of these keys."""
    if not keys or name not in head.sides:
        return {}
    view = head.side(name)
    found = {}
    for block in iter_blocks(metadata, view):
        held = load_block(metadata.store, block.hiding(None), view.schema)
        at = [row for row, key in enumerate(held["key"].to_pylist()) if key in keys]
        if rows := Positions(at) & block.shown:
            found[block.id] = rows
    return found


def keys_of(table: Table, name: str, snapshot: Snapshot | None = None) -> Counter[str]:
    """Return the keys that a side shows, and how often; empty if there is no such side."""
    head = table.head() if snapshot is None else snapshot
    if name not in head.sides:
        return Counter()
    view = head.side(name)
    return Counter(
        key
        for block in iter_blocks(table.metadata, view)
        for key in load_block(table.metadata.store, block, view.schema)["key"].to_pylist()
    )
