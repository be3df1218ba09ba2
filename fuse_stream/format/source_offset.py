"""Where a stream stands in a table's feed, as its checkpoint holds it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from fuse_stream.errors import StreamIdentityError

FIRST_READ = -1
"""Index at version 0: a first full read, its version not chosen yet."""

FROM_NOW = -2
"""Index at version 0: the commits from now on."""

RESYNC = -(2**62)
"""Index of the end of a batch that holds a net difference; as a start it is as good as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """A position in the feed of one branch."""

    table_id: str
    branch_id: str
    version: int
    snapshot_id: str
    """Of `version`: tells a table from another history under the same numbers."""
    index: int

    @property
    def is_undecided(self) -> bool:
        """Whether the version where the stream starts is not chosen yet."""
        return self.version == 0 and self.index in {FIRST_READ, FROM_NOW}

    @property
    def settled(self) -> Offset:
        """The same place, to read on from."""
        return dataclasses.replace(self, index=0) if self.index == RESYNC else self


def offset_to_json(offset: Offset) -> dict[str, str | int]:
    """Return `offset` as a JSON object. Spark compares texts: the order of the keys is fixed."""
    return {
        "table_id": offset.table_id,
        "branch_id": offset.branch_id,
        "version": offset.version,
        "snapshot_id": offset.snapshot_id,
        "index": offset.index,
    }


def offset_from_json(item: Mapping[str, object]) -> Offset:
    """Return the offset that a checkpoint holds.

    Raises:
        StreamIdentityError: it is another source's.
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
                "the checkpoint holds an offset of another kind of source; use a checkpoint of "
                "its own for this query",
                offset=str(dict(item))[:200],
            )
