"""What a store holds of a value: in raw bytes, and in all that can be unpacked."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from fuse_stream.format.layout import BLOCKS_PREFIX, slot_of
from fuse_stream.objects.blocks import load_block
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore


def unpacked(key: str, data: bytes) -> bytes:
    """Return an object's bytes, with what a decoder finds in compressed pages after them."""
    if key.endswith(".zst"):
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return data + bytes(stream.read())
    if key.startswith(BLOCKS_PREFIX):
        return data + b"\n".join(pages(data))
    return data


def pages(data: bytes) -> Iterator[bytes]:
    """Yield all rows of a Parquet file, and the dictionaries of its texts, as text."""
    plain = pq.ParquetFile(pa.BufferReader(data))
    texts = [field.name for field in plain.schema_arrow if pa.types.is_string(field.type)]
    yield repr(plain.read().to_pydict()).encode()
    encoded = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts).read(columns=texts)
    for column in encoded.columns:
        for chunk in column.chunks:
            yield repr(chunk.dictionary.to_pylist()).encode()


def holding(objects: dict[str, bytes], value: bytes) -> list[str]:
    """Return the keys of the objects that hold a value."""
    return [key for key, data in objects.items() if value in unpacked(key, data)]


def bytes_of(store: MemoryStore) -> dict[str, bytes]:
    return {key: item.data for key, item in store.objects.items()}


def reachable_holding(table: Table, value: bytes) -> list[str]:
    """Return the keys of the objects of the newest version that hold a value."""
    head = table.head()
    segments = {f"_sg/{ref.id}_v1.json.zst" for ref in head.segments}
    blocks = {f"_b/{block.id}_v1.parquet" for block in table.blocks()}
    store = table.metadata.store
    keys = {*segments, *blocks, f"_ss/{head.branch_id}/{head.version:020}_v1.json"}
    return holding({key: store.get(key) for key in keys}, value)


def slots_holding(store: MemoryStore, value: bytes) -> list[int]:
    """Return the versions of `main` whose slots hold a value; nothing else may hold it."""
    places = [slot_of(key) for key in holding(bytes_of(store), value)]
    assert None not in places
    return [place[1] for place in places if place is not None]


def all_rows(table: Table) -> list[dict[str, object]]:
    """Return the rows in the blocks of a head, hidden ones included."""
    head = table.head()
    return [
        row
        for block in table.blocks()
        for row in load_block(table.metadata.store, block.hiding(None), head.schema).to_pylist()
    ]
