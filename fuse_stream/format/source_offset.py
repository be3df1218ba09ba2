"""The position of a stream in a table's feed, and its form in checkpoints and ledgers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from fuse_stream.errors import StreamIdentityError
from fuse_stream.format.layout import MAIN, is_id

FIRST_READ = -1
"""An index at version 0: start with the whole table; the version is not chosen yet."""

FROM_NOW = -2
"""An index at version 0: start with the next commit; the version is not chosen yet."""

RESYNC = -(2**62)
"""The index of the end of a batch with a net difference; as a start it means the same as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """A position in the feed of one branch."""

    table_id: str
    branch_id: str
    version: int
    snapshot_id: str
    """That of `version`: it distinguishes two histories with the same version numbers."""
    index: int

    @property
    def is_undecided(self) -> bool:
        """True if the version at which the stream starts is not chosen yet."""
        return self.version == 0 and self.index in {FIRST_READ, FROM_NOW}

    @property
    def settled(self) -> Offset:
        """The same position, as the start of the next batch."""
        return dataclasses.replace(self, index=0) if self.index == RESYNC else self


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePosition:
    """How far a batch of a query has read one of its sources."""

    offset: Offset
    path: str | None = None
    """As the user gave it, for people: the table is the one with the id in `offset`."""

    @property
    def version(self) -> int:
        """The last version that was read as a whole; -1 if none was."""
        return self.offset.version - (self.offset.index not in {0, RESYNC})

    @property
    def table_name(self) -> str:
        """The last name in the path; the first digits of the table's id without one."""
        last = (self.path or "").rstrip("/").rpartition("/")[2]
        return self.offset.table_id[:_SHOWN_DIGITS] if last in {"", ".", ".."} else last

    @property
    def name(self) -> str:
        """The position for people, such as "bronze@26"; docs/format.md has the other forms."""
        return self.spell()

    def spell(self, branch_name: str | None = None) -> str:
        """Return `name`, with the name of a branch in place of its id if it is given."""
        branch_id, index = self.offset.branch_id, self.offset.index
        branch = "" if branch_id == MAIN else f"/{branch_name or branch_id[:_SHOWN_DIGITS]}"
        blocks = f"{index:+}" if index not in {0, RESYNC} else ""
        version = self.offset.version - (index > 0)
        at = "start" if self.offset.is_undecided else f"{version}{blocks}"
        return f"{self.table_name}{branch}@{at}"


_SHOWN_DIGITS = 8


def offset_to_json(offset: Offset) -> dict[str, str | int]:
    """Return `offset` as a JSON object; the order of keys is fixed, as Spark compares the text."""
    return {
        "table_id": offset.table_id,
        "branch_id": offset.branch_id,
        "version": offset.version,
        "snapshot_id": offset.snapshot_id,
        "index": offset.index,
    }


def offset_from_json(item: Mapping[str, object]) -> Offset:
    """Return the offset whose JSON object is `item`.

    Raises:
        StreamIdentityError: it is an offset of another kind of source.
    """
    offset = find_offset(item)
    if offset is None:
        raise StreamIdentityError(
            "the checkpoint has an offset of another kind of source; give this query a "
            "checkpoint of its own",
            offset=str(dict(item))[:200],
        )
    return offset


def find_offset(item: object) -> Offset | None:
    """Return the offset whose JSON object is `item`; None if it is no offset of this source."""
    match item:
        case {
            "table_id": str(table_id),
            "branch_id": str(branch_id),
            "version": int(version),
            "snapshot_id": str(snapshot_id),
            "index": int(index),
        } if isinstance(item, Mapping) and len(item) == 5 and version >= 0:
            return Offset(
                table_id=table_id,
                branch_id=branch_id,
                version=version,
                snapshot_id=snapshot_id,
                index=index,
            )
        case _:
            return None


def is_storable_offset(offset: Offset) -> bool:
    """True if the ledger can hold an offset: its ids are ids, its numbers numbers."""
    ids = (offset.table_id, offset.snapshot_id)
    numbers = (offset.version, offset.index)
    return (
        all(map(is_id, ids))
        and (offset.branch_id == MAIN or is_id(offset.branch_id))
        and all(type(number) is int for number in numbers)
        and offset.version >= 0
    )
