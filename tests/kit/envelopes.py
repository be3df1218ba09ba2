"""The columns of events as the readers of messages make them."""

from __future__ import annotations

import pyarrow as pa


def envelope_of(schema: pa.Schema, sequence: pa.DataType | None = None) -> pa.Schema:
    """Return the columns of a table and those of its events; a sequence is a long by default."""
    return pa.schema(
        [
            *schema,
            ("_op", pa.string()),
            ("_seq", sequence or pa.int64()),
            ("_unset", pa.list_(pa.string())),
            ("_error", pa.string()),
            ("_raw", pa.string()),
            ("_source", pa.string()),
        ]
    )
