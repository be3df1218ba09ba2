"""How far a query lags behind the tables that it follows, read off its last progress."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from fuse_stream.errors import StreamIdentityError
from fuse_stream.format.source_offset import Offset, offset_from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLag:
    """How far one source of a query lags behind, as of its last trigger."""

    source: int
    """Its place among the query's sources."""
    table_id: str
    branch_id: str
    version: int
    """The last version that was delivered whole; -1 before that."""
    head: int
    """The version that was there to reach when the trigger looked."""

    @property
    def versions(self) -> int:
        """How many versions are yet to be delivered, whole or in part."""
        return self.head - self.version


def lag(query: StreamingQuery) -> list[SourceLag]:
    """Return how far `query` lags behind, one record for each of its fuse sources.

    Empty before the first progress. With `Trigger.AvailableNow` the head is that of the start.
    """
    # The annotation says "a mapping" in some releases and "an object" in others; it is both.
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
    """Return a fuse source's offset; None for that of another kind, or for none."""
    try:
        item = json.loads(text) if isinstance(text, str) else text
        return offset_from_json(item) if isinstance(item, dict) else None
    except (ValueError, StreamIdentityError):
        return None
