"""A table that a catalog has found by its name."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from fuse_stream.format.records import Snapshot
from fuse_stream.format.schema import Schema
from fuse_stream.table.handle import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A snapshot of a table, found by the table's name."""

    name: str
    """With the catalog's."""
    table: Table
    snapshot: Snapshot


def hidden_schema(schema: Schema) -> Schema:
    """Return the hidden columns of a schema."""
    shown = {column.id for column in schema.visible.columns}
    hidden = tuple(column for column in schema.columns if column.id not in shown)
    return dataclasses.replace(schema, columns=hidden)
