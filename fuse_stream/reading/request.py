"""What a stream's reader asks of a branch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fuse_stream.format.layout import MAIN
from fuse_stream.format.schema import Schema
from fuse_stream.reading.offsets import NO_LIMITS, Limits
from fuse_stream.reading.scan import Selection, select

LATEST: Literal["latest"] = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a stream's reader asked for."""

    branch: str = MAIN
    feed: Literal["changes", "append", "blocks"] = "changes"
    columns: tuple[str, ...] | None = None
    where: str | None = None
    time_zone: str = "UTC"
    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: str | None = None
    ending_version: int | None = None
    ending_timestamp: str | None = None
    skip_change_commits: bool = False
    limits: Limits = NO_LIMITS
    consumer: str | None = None
    """Whose lease keeps what the stream has yet to read."""
    on_expired: Literal["fail", "resync"] = "fail"
    """What is done where the lease was lost, and with it what the stream had yet to read."""


def select_columns(request: Request, schema: Schema) -> Selection:
    """Return what a stream reads of a table with `schema`; errors of `select`."""
    return select(schema, columns=request.columns, where=request.where, time_zone=request.time_zone)
