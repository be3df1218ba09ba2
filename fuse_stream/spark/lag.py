"""The lag of a query behind the tables that it follows, from its last progress."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from fuse_stream.errors import StreamIdentityError
from fuse_stream.format.source_offset import Offset, offset_from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLag:
    """The lag of one source of a query, as of its last trigger."""

    source: int
    """The source's position among the query's sources."""
    table_id: str
    branch_id: str
    version: int
    """The last version that was delivered as a whole; -1 if none was."""
    head: int
    """The newest version when the trigger ran."""

    @property
    def versions(self) -> int:
        """The number of versions that are not delivered yet, or only in part."""
        return self.head - self.version


def lag(query: StreamingQuery) -> list[SourceLag]:
    """Return the lag of each fuse source of `query`; empty before the query's first progress.

    With `Trigger.AvailableNow`, `head` is the head at the query's start.
    """
    # Some releases annotate a mapping, others an object with attributes; it is both.
    progress: Any = query.lastProgress
    if progress is None:
        return []
    found = []
    for place, source in enumerate(progress["sources"]):
        end, head = _offset(source["endOffset"]), _offset(source["latestOffset"])
        if end is not None and head is not None:
            found.append(
                SourceLag(
                    source=place,
                    table_id=end.table_id,
                    branch_id=end.branch_id,
                    version=end.version - (end.index != 0),
                    head=head.version,
                )
            )
    return found


def _offset(text: object) -> Offset | None:
    """Return the offset of a fuse source; None for another source's, or if there is none."""
    try:
        item = json.loads(text) if isinstance(text, str) else text
        return offset_from_json(item) if isinstance(item, dict) else None
    except (ValueError, StreamIdentityError):
        return None
