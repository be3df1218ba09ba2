"""Readers of messages for tests, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa

from fuse_stream.cdc import debezium
from fuse_stream.cdc.message import Message
from fuse_stream.cdc.rows import Reading
from fuse_stream.cdc.values import ADAPTIVE, Form
from fuse_stream.format.arrow import columns_of_arrow

UNAVAILABLE = "__debezium_unavailable_value"


def debezium_reading(schema: pa.Schema, *, keys: tuple[str, ...] = (), **form: Any) -> Reading:
    """Return what `from_debezium` reads with, by default."""
    stated = {"numbers_as_times": ADAPTIVE, "decimals": ADAPTIVE} | form
    return Reading(
        parse=debezium.payload_of,
        read=partial(debezium.events_of, keys=keys, by_offset=False),
        columns=columns_of_arrow(schema),
        form=Form(**stated),
        keys=keys,
        unavailable=UNAVAILABLE,
    )


def rows_of(reading: Reading, values: Iterable[bytes | None]) -> list[dict[str, Any]]:
    """Return the rows of the events in messages of one partition."""
    messages = (Message(value, None, "topic", 0, at) for at, value in enumerate(values))
    rows: list[dict[str, Any]] = reading.rows(messages).to_pylist()
    return rows
