"""Make tables with hidden columns, as the writers of such columns do."""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.commit.stage import stage_deletions, stage_tables
from fuse_stream.dml.keys import key_of
from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.evolve import first_schema, resolve
from fuse_stream.format.positions import all_rows
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.objects.slots import Stored
from fuse_stream.table.handle import Table

SCHEMA = pa.schema(
    [("k", pa.int64()), ("v", pa.string()), ("_fuse_seq", pa.int64()), ("_FUSE_Seqs", pa.string())]
)


def hidden_schema() -> Schema:
    """Return the schema of a new table with two hidden columns."""
    return first_schema(columns_of_arrow(SCHEMA), with_hidden=True)


def hidden_rows(*keys: int, v: str = "a") -> pa.Table:
    """Return rows whose hidden columns follow from their keys."""
    lists = [list(keys), [v] * len(keys), [key * 10 for key in keys], [f"s{k}" for k in keys]]
    return pa.table(lists, schema=SCHEMA)


def write_hidden(
    table: Table, rows: pa.Table, *, keys: tuple[str, ...] = (), instead: bool = False
) -> Snapshot:
    """Commit rows with their hidden columns; with `instead`, in place of all other rows."""
    metadata = table.metadata

    def stage(on: Stored, _: Staged | None) -> Staged:
        head = on.snapshot
        arriving = columns_of_arrow(rows.schema)
        schema, columns = resolve(head.schema, arriving, merge_schema=True, with_hidden=True)
        staged = stage_tables(metadata, head, schema, [adapt(rows, columns, schema)])
        if instead:
            hidden = {block.id: all_rows(block.row_count) for block in table.blocks()}
            staged = dataclasses.replace(staged, deletions=stage_deletions(metadata, hidden))
        if keys:
            staged = dataclasses.replace(staged, key=key_of(schema, keys))
        return dataclasses.replace(staged, is_for_one_head=True)

    return table.committer.commit(Intent(operation=Operation.UPSERT), stage).stored.snapshot
