"""What S3 is asked for, counted where the client sends it."""

from __future__ import annotations

import asyncio
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
SCHEMA = pa.schema([("k", pa.int64())])

Requests = list[tuple[str, int]]


@pytest.fixture
def s3(places: dict[str, Place]) -> Place:
    return places["s3"]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests were under way, at the start of each."""
    seen: list[int] = []
    send = s3fs.S3FileSystem._call_s3  # noqa: SLF001 - the one place that all requests pass
    under_way = 0

    async def counted(self: Any, method: str, *arguments: Any, **options: Any) -> Any:
        nonlocal under_way
        under_way += 1
        seen.append(under_way)
        try:
            await asyncio.sleep(0.05)
            return await send(self, method, *arguments, **options)
        finally:
            under_way -= 1

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
    return seen


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """The operations that are sent, each with the bytes of its answer or of its body."""
    sent: Requests = []
    send = s3fs.S3FileSystem._call_s3  # noqa: SLF001 - the one place that all requests pass

    async def counted(self: Any, method: str, *arguments: Any, **options: Any) -> Any:
        answer = await send(self, method, *arguments, **options)
        size = answer.get("ContentLength", 0) if method == "get_object" else 0
        sent.append((method, size))
        return answer

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
    return sent


def names(requests: Requests) -> list[str]:
    return sorted(name for name, _ in requests)


@pytest.fixture
def wide(s3: Place, url: str) -> str:
    draw = np.random.default_rng(0)
    rows = pa.table({f"c{at}": draw.random(ROWS) for at in range(10)})
    properties = {"fuse.block.rows": str(ROWS), "fuse.block.bytes": str(2**30)}
    table = fuse.Table.create(url, rows.schema, properties=properties, storage_options=s3.options)
    table.append(rows)
    return url


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_of_a_large_block_the_wanted_columns_are_fetched(
    s3: Place, wide: str, requests: Requests
) -> None:
    table = fuse.Table.open(wide, storage_options=s3.options)
    (block,) = table.blocks()
    requests.clear()

    assert table.to_arrow(columns=["c5"]).num_rows == ROWS

    assert {name for name, _ in requests} == {"get_object"}
    assert sum(size for _, size in requests) < 1.2 * block.file_size / 10 + FOOTER_BYTES
    assert len(requests) == 3  # is there a newer head; the footer; the column


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_large_block_that_is_missing_is_an_error_that_names_it(s3: Place, wide: str) -> None:
    table = fuse.Table.open(wide, storage_options=s3.options)
    (block,) = table.blocks()
    table.metadata.store.delete(f"_b/{block.id}_v1.parquet")

    with pytest.raises(CorruptObjectError, match="a block is missing"):
        table.to_arrow(columns=["c5"])


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_commit_is_three_puts_and_a_get(s3: Place, url: str, requests: Requests) -> None:
    table = fuse.Table.create(url, SCHEMA, storage_options=s3.options)
    table.append(pa.table({"k": [1]}))
    requests.clear()

    table.append(pa.table({"k": [2]}))

    assert names(requests) == ["get_object", "put_object", "put_object", "put_object"]


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_second_handle_sends_no_probe(s3: Place, url: str, requests: Requests) -> None:
    fuse.Table.create(url, SCHEMA, storage_options=s3.options).append(pa.table({"k": [1]}))
    table = fuse.Table.open(url, storage_options=s3.options)
    requests.clear()

    table.append(pa.table({"k": [2]}))

    assert names(requests).count("put_object") == 3
    assert {name for name, _ in requests} == {"get_object", "put_object"}


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_small_blocks_are_read_eight_at_once_and_in_order(
    s3: Place, url: str, at_once: list[int]
) -> None:
    table = fuse.Table.create(url, SCHEMA, storage_options=s3.options)
    for key in range(20):
        table.append(pa.table({"k": [key]}))
    found = fuse.Table.open(url, storage_options=s3.options)
    found.blocks()
    at_once.clear()

    assert found.to_arrow()["k"].to_pylist() == list(range(20))

    assert max(at_once) == 8
