"""The position of a stream in a table's feed, and its form in the stream's checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from fuse_stream.errors import StreamIdentityError

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
    match item:
        case {
            "table_id": str(table_id),
            "branch_id": str(branch_id),
            "version": int(version),
            "snapshot_id": str(snapshot_id),
            "index": int(index),
        } if len(item) == 5 and version >= 0:
            return Offset(
                table_id=table_id,
                branch_id=branch_id,
                version=version,
                snapshot_id=snapshot_id,
                index=index,
            )
        case _:
            raise StreamIdentityError(
                "the checkpoint has an offset of another kind of source; give this query a "
                "checkpoint of its own",
                offset=str(dict(item))[:200],
            )
