"""The columns that the change feed adds to a table's: those of Spark's own change data."""

from __future__ import annotations

import pyarrow as pa

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = (
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
)
INSERT, DELETE = "insert", "delete"
PREIMAGE, POSTIMAGE = "update_preimage", "update_postimage"
"""An updated row as it was, and as it became."""

FEED_FIELDS = (
    pa.field(CHANGE_TYPE, pa.string(), nullable=False),
    pa.field(COMMIT_VERSION, pa.int64(), nullable=False),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC"), nullable=False),
)


def change_type_of(*, is_removed: bool, is_update: bool) -> str:
    """Return the value of `_change_type`."""
    if is_update:
        return PREIMAGE if is_removed else POSTIMAGE
    return DELETE if is_removed else INSERT
