"""The example of `docs/operations.md`: after it a value is in no file."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import slot_of
from fuse_stream.table.handle import create_table
from tests.protocol.worlds import AGE_S, CHUNK, GRACE_S, PROPERTIES, World, small_chunks

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
NAME = b"Ada Lovelace"


@pytest.fixture(autouse=True)
def _small_chunks() -> Iterator[None]:
    with small_chunks():
        yield


def holding(world: World) -> list[str]:
    """Return the files whose unpacked content has the name."""
    return [key for key, item in world.store.objects.items() if NAME in unpacked(key, item.data)]


def unpacked(key: str, data: bytes) -> bytes:
    if key.endswith(".zst"):
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read())
    if key.endswith(".parquet"):
        rows = pq.read_table(io.BytesIO(data))
        return repr(rows.to_pydict()).encode() + data
    return data


def test_after_an_erasure_no_file_holds_the_persons_name() -> None:
    world = World()
    world.store.objects.clear()
    schema = first_schema(columns_of_arrow(pa.schema([("name", pa.string())])))
    table = create_table(
        world.store, schema, properties=PROPERTIES, clock=world.clock, probe_store=False
    )
    table.append(pa.table({"name": ["Ada Lovelace", "Charles Babbage"]}))
    table.append(pa.table({"name": ["Mary Somerville"]}))
    assert {key.split("/")[0] for key in holding(world)} == {"_b", "_sg", "_ss"}
    pattern = r"\n### Erasing a person\n.*?```python\n(.*?)```"
    (code,) = re.findall(pattern, OPERATIONS.read_text(), re.DOTALL)
    names = {"t": table, "wait": world.pass_time, "grace": GRACE_S + 1, "age": AGE_S + 1}
    exec(code, names)

    head = table.head()
    assert sorted(table.to_arrow()["name"].to_pylist()) == ["Charles Babbage", "Mary Somerville"]
    left = [slot_of(key) for key in holding(world)]
    assert all(place is not None and place[1] < head.floor for place in left)
    for _ in range(CHUNK):  # the rest is deleted with its chunk
        table.append(pa.table({"name": ["Mary Somerville"]}))
    world.pass_time(GRACE_S + 1)
    table.expire(keep_last=1)
    table.vacuum()
    assert holding(world) == []
