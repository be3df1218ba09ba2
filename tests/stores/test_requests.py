"""What S3 is asked for, counted where the client sends it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import s3fs

import fuse_stream as fuse
from fuse_stream.errors import CorruptObjectError
from tests.kit.servers import Place

pytestmark = pytest.mark.long

ROWS = 400_000
FOOTER_BYTES = 64 * 1024
COMMITS = 106
SCHEMA = pa.schema([("k", pa.int64())])


@dataclass
class Wire:
    """What has been sent."""

    sent: list[tuple[str, int]] = field(default_factory=list)
    """Operations, each with the bytes of the object that came; 0 if there was none."""
    most_at_once: int = 0
    under_way: int = 0

    def names(self) -> list[str]:
        return sorted(name for name, _ in self.sent)


@pytest.fixture
def place(places: dict[str, Place]) -> Place:
    return places["s3"]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Records the requests of all clients; each takes 50 ms more."""
    wire = Wire()
    send = s3fs.S3FileSystem._call_s3  # noqa: SLF001 - the one place that all requests pass

    async def recorded(self: Any, method: str, *arguments: Any, **options: Any) -> Any:
        wire.under_way += 1
        wire.most_at_once = max(wire.most_at_once, wire.under_way)
        size = 0
        try:
            await asyncio.sleep(0.05)
            answer = await send(self, method, *arguments, **options)
            size = answer["ContentLength"] if method == "get_object" else 0
        finally:
            wire.under_way -= 1
            wire.sent.append((method, size))
        return answer

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", recorded)
    return wire


@pytest.fixture(scope="module")
def many(places: dict[str, Place]) -> str:
    """A table of `COMMITS` commits of one row."""
    location = f"{places['s3'].url}/many"
    table = fuse.Table.create(location, SCHEMA, storage_options=places["s3"].options)
    for key in range(COMMITS):
        table.append(pa.table({"k": [key]}))
    return location


@pytest.fixture
def wide(place: Place, url: str) -> str:
    draw = np.random.default_rng(0)
    rows = pa.table({f"c{at}": draw.random(ROWS) for at in range(10)})
    properties = {"fuse.block.rows": str(ROWS), "fuse.block.bytes": str(2**30)}
    table = fuse.Table.create(
        url, rows.schema, properties=properties, storage_options=place.options
    )
    table.append(rows)
    return url


def test_of_a_large_block_the_wanted_columns_are_fetched(
    place: Place, wide: str, wire: Wire
) -> None:
    table = fuse.Table.open(wide, storage_options=place.options)
    (block,) = table.blocks()
    wire.sent.clear()

    assert table.to_arrow(columns=["c5"]).num_rows == ROWS

    assert set(wire.names()) == {"get_object"}
    assert sum(size for _, size in wire.sent) < 1.2 * block.file_size / 10 + FOOTER_BYTES
    assert len(wire.sent) == 4  # the head is there, no newer one; the footer; the column


def test_a_large_block_that_is_missing_is_an_error_that_names_it(place: Place, wide: str) -> None:
    table = fuse.Table.open(wide, storage_options=place.options)
    (block,) = table.blocks()
    table.metadata.store.delete(f"_b/{block.id}_v1.parquet")

    with pytest.raises(CorruptObjectError, match="a block is missing"):
        table.to_arrow(columns=["c5"])


def test_a_commit_is_three_puts_and_a_get(place: Place, url: str, wire: Wire) -> None:
    table = fuse.Table.create(url, SCHEMA, storage_options=place.options)
    table.append(pa.table({"k": [1]}))
    wire.sent.clear()

    table.append(pa.table({"k": [2]}))

    assert wire.names() == ["get_object", "put_object", "put_object", "put_object"]


def test_a_second_handle_sends_no_probe(place: Place, url: str, wire: Wire) -> None:
    fuse.Table.create(url, SCHEMA, storage_options=place.options).append(pa.table({"k": [1]}))
    table = fuse.Table.open(url, storage_options=place.options)
    wire.sent.clear()

    table.append(pa.table({"k": [2]}))

    assert wire.names().count("put_object") == 3
    assert set(wire.names()) == {"get_object", "put_object"}


def test_small_blocks_are_read_eight_at_once_and_in_order(
    place: Place, url: str, wire: Wire
) -> None:
    table = fuse.Table.create(url, SCHEMA, storage_options=place.options)
    for key in range(20):
        table.append(pa.table({"k": [key]}))
    found = fuse.Table.open(url, storage_options=place.options)
    found.blocks()
    wire.most_at_once = 0

    assert found.to_arrow()["k"].to_pylist() == list(range(20))

    assert 1 < wire.most_at_once <= 8


# ---- a table of many commits; tests/table/test_rounds.py counts how often each act waits


def test_a_table_is_opened_with_sixteen_gets(place: Place, many: str, wire: Wire) -> None:
    fuse.Table.open(many, storage_options=place.options)

    assert wire.names() == ["get_object"] * 16
    assert 1 < wire.most_at_once <= 7


def test_an_idle_poll_is_two_gets_at_once(place: Place, many: str, wire: Wire) -> None:
    table = fuse.Table.open(many, storage_options=place.options)
    wire.sent.clear()
    wire.most_at_once = 0
    table.head()

    assert wire.names() == ["get_object"] * 2
    assert wire.most_at_once <= 2


def test_a_plan_reads_its_segments_at_once(place: Place, many: str, wire: Wire) -> None:
    table = fuse.Table.open(many, storage_options=place.options)
    segments = len(table.segments())
    wire.sent.clear()
    wire.most_at_once = 0

    assert len(table.blocks()) == COMMITS

    assert wire.names() == ["get_object"] * (2 + segments)
    assert segments == 16
    assert 1 < wire.most_at_once <= 16  # tests/table/test_rounds.py counts them by a slow store


def test_the_blocks_of_a_commit_are_put_eight_at_once(place: Place, url: str, wire: Wire) -> None:
    properties = {"fuse.block.rows": "1000"}
    table = fuse.Table.create(url, SCHEMA, properties=properties, storage_options=place.options)
    wire.sent.clear()
    wire.most_at_once = 0
    table.append(pa.table({"k": range(16_000)}))

    assert wire.names().count("put_object") == 16 + 2  # and the segment and the slot
    assert 1 < wire.most_at_once <= 8 + 2


def test_fsck_and_vacuum_read_sixteen_at_once(place: Place, many: str, wire: Wire) -> None:
    table = fuse.Table.open(many, storage_options=place.options)
    for act in (table.fsck, table.vacuum):
        wire.most_at_once = 0
        act()

        assert 1 < wire.most_at_once <= 16
