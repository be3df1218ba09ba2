"""What a batch of events does to the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from fuse_stream.commit.plan import StagedSide
from fuse_stream.format.positions import BlockRows
from fuse_stream.format.schema import Schema

NOT_APPLICABLE, APPLIED, SUPERSEDED, DUPLICATE, TIED, LATE, LACKING = range(-1, 6)
"""What became of an event. `NOT_APPLICABLE`: it is bad. `TIED`: another event of its key has its
sequence. `LATE`: it may be older than what was forgotten of its key. `LACKING`: it counts, but its
row lacks a value that the table needs, so the table does not show the row yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a batch of events does to the rows of a table."""

    status: np.ndarray
    """What became of each event."""
    lacks: np.ndarray
    """For each event that is `LACKING` the column, as objects; None for the others."""
    written: pa.Table
    """New rows: the visible columns and the hidden ones of the table."""
    is_update: np.ndarray
    """For each new row, whether it replaces one."""
    updated: BlockRows
    """The rows that new ones replace."""
    hidden: BlockRows
    """All rows that go."""


def find_lacks(rows: pa.Table, schema: Schema) -> np.ndarray:
    """Return for each row the first column that is null but must not be, or None, as objects."""
    lacks = np.full(len(rows), None, object)
    for column in reversed(schema.columns):
        if not column.nullable:
            lacks[rows.column(column.name).is_null().to_numpy()] = column.name
    return lacks


class EventTable(Protocol):
    """Applies a batch of events to the rows of one head."""

    def apply(self, at: np.ndarray, truncates: np.ndarray) -> Effect:
        """Return what the events with these numbers do: upserts and deletes, and truncates."""
        ...

    def stage_sides(self) -> Mapping[str, StagedSide]:
        """Put what the sides get, after `apply`."""
        ...
