"""What a snapshot says of the events with sequences from which its rows come."""

from __future__ import annotations

from dataclasses import dataclass, field

from fuse_stream.format.stored_fields import IF_ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequenced:
    """That the rows of a table come from events with sequences, and how."""

    scd_type: int
    """1: a row is the latest state of its key. 2: it is one of the states that its key had."""
    keys: tuple[int, ...]
    """The ids of the columns that name a key."""
    tracked: tuple[int, ...] = field(default=(), metadata=IF_ANY)
    """For 2: the ids of the columns of which a change begins a new row; none for all columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What became of the events of a batch, and of the rows of their keys."""

    inserted: int = 0
    """Rows."""
    updated: int = 0
    """Rows."""
    deleted: int = 0
    """Rows."""
    applied: int = 0
    """Events that changed what the table holds."""
    superseded: int = 0
    """Events that came after a later one of their key."""
    duplicate: int = 0
    """Events that the table had already, or the batch had twice."""
    quarantined: int = 0
    """Events that could not be applied."""

    @property
    def events(self) -> int:
        """All events of the batch."""
        return self.applied + self.superseded + self.duplicate + self.quarantined
