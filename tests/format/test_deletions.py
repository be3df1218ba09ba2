"""Deletion files survive their bytes, other systems read them, and damage is a typed error.

`golden/deletions.puffin` is what `encode_deletions(example())` returned.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from fuse_stream.errors import CorruptObjectError, FuseError
from fuse_stream.format.deletions import (
    HIDDEN,
    VECTOR_RECORD_BYTES,
    DeletionFile,
    decode_deletions,
    encode_deletions,
)
from fuse_stream.format.layout import block_key
from fuse_stream.format.positions import Positions, positions_of

GOLDEN = Path(__file__).parent.parent / "golden" / "deletions.puffin"
MAGIC, NO_FLAGS = b"PFA1", b"\0\0\0\0"
VECTOR_MAGIC = b"\xd1\xd3\x39\x64"

ids = st.text("0123456789abcdef", min_size=32, max_size=32)
STARTS = (0, 1, 65_000, 2**31 - 9, 2**32 - 600, 2**32 - 501)
"""Some near the ends of a container and of a bitmap of 32 bits."""


@st.composite
def some_rows(draw: st.DrawFn, most: int = len(STARTS)) -> Positions:
    starts = st.sampled_from(STARTS[:most])
    runs = draw(st.lists(st.tuples(starts, st.integers(1, 500)), max_size=2))
    single = draw(st.lists(st.integers(0, 200_000), max_size=20))
    found = Positions(single)
    for start, count in runs:
        found |= Positions(range(start, start + count))
    return found or Positions([draw(starts)])


files = st.builds(
    DeletionFile,
    hidden=st.dictionaries(ids, some_rows(), max_size=3),
    updated=st.dictionaries(ids, some_rows(), max_size=2),
)


def example() -> DeletionFile:
    return DeletionFile(
        hidden={
            "a" * 32: Positions([0, 2, 5, 100_000]),
            "b" * 32: Positions(range(3, 70_000)),
        },
        updated={"c" * 32: Positions([1])},
    )


def puffin(*blobs: tuple[dict[str, object], bytes], **footer: object) -> bytes:
    """Return a file that holds `blobs`, made by hand."""
    data, records = bytearray(MAGIC), []
    for record, blob in blobs:
        place = {"offset": len(data), "length": len(blob), "fields": []}
        records.append({**place, "snapshot-id": -1, "sequence-number": -1, **record})
        data += blob
    payload = orjson.dumps({"blobs": records, **footer})
    return bytes(data + MAGIC + payload + struct.pack("<i", len(payload)) + NO_FLAGS + MAGIC)


def vector(rows: list[int], block_id: str = "a" * 32, **record: object) -> Any:
    """Return a blob as another writer may write it: without runs, with keys that it alone has."""
    body = VECTOR_MAGIC + BitMap64(rows, optimize=False).serialize()
    return sealed(body, {"cardinality": str(len(rows))}, block_id, **record)


def sealed(body: bytes, about: dict[str, str], block_id: str, **record: object) -> Any:
    named = {"referenced-data-file": block_key(block_id), **about}
    blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    return {"type": HIDDEN, "properties": named, **record}, blob


# ---- the law


@given(file=files)
def test_a_deletion_file_survives_its_bytes(file: DeletionFile) -> None:
    assert decode_deletions(encode_deletions(file)) == file


def test_the_bytes_are_pinned() -> None:
    pinned = GOLDEN.read_bytes()

    assert encode_deletions(example()) == pinned
    assert decode_deletions(pinned) == example()
    assert example().row_count == 4 + 69_997


def test_a_vector_has_the_same_small_size_however_its_rows_were_found() -> None:
    whole = Positions(range(1_000_000))
    odd = Positions(np.arange(1, 1_000_000, 2, dtype=np.uint64))
    found = {"a" * 32: (whole - odd) | odd, "b" * 32: whole - Positions(range(5, 1_000_000))}

    assert len(encode_deletions(DeletionFile(hidden=found))) < 2 * VECTOR_RECORD_BYTES


@given(file=files)
def test_a_vector_takes_little_more_than_its_bitmap(file: DeletionFile) -> None:
    vectors = [*file.hidden.values(), *file.updated.values()]
    bitmaps = sum(len(rows.serialize()) for rows in vectors)

    assert len(encode_deletions(file)) <= bitmaps + VECTOR_RECORD_BYTES * max(1, len(vectors))


# ---- other systems


@given(hidden=st.dictionaries(ids, some_rows(most=5), max_size=3))  # 0.12 reads 32 bits right
def test_iceberg_reads_the_hidden_rows(hidden: dict[str, Positions]) -> None:
    puffin_file = PuffinFile(encode_deletions(DeletionFile(hidden=hidden)))
    found = {
        each.referenced_data_file: each.to_vector().to_pylist()
        for each in deletion_vectors_from_puffin_file(puffin_file)
    }

    assert found == {block_key(block_id): list(rows) for block_id, rows in hidden.items()}


def test_iceberg_reads_the_pinned_bytes() -> None:
    puffin_file = PuffinFile(GOLDEN.read_bytes())
    vectors = deletion_vectors_from_puffin_file(puffin_file)

    assert [blob.type for blob in puffin_file.footer.blobs] == [HIDDEN, HIDDEN, "fuse-updated-v1"]
    assert [blob.properties["cardinality"] for blob in puffin_file.footer.blobs] == [
        "4",
        "69997",
        "1",
    ]
    assert vectors[0].to_vector().to_pylist() == [0, 2, 5, 100_000]
    assert vectors[1].to_vector().to_pylist() == list(range(3, 70_000))


def test_a_file_of_another_writer_is_read_and_unknown_blobs_are_ignored() -> None:
    data = puffin(
        ({"type": "apache-datasketches-theta-v1", "properties": {"ndv": "7"}}, b"\x01\x02"),
        vector([1, 2, 3, 70_000], fields=[1]),
        ({"type": "later-v9"}, b""),
        properties={"created-by": "by hand"},
    )

    assert decode_deletions(data) == DeletionFile(hidden={"a" * 32: Positions([1, 2, 3, 70_000])})


def test_a_file_without_blobs_hides_nothing() -> None:
    assert decode_deletions(puffin()) == DeletionFile(hidden={})


# ---- damage


def small() -> bytes:
    return encode_deletions(
        DeletionFile(
            hidden={"a" * 32: Positions([0, 7]), "b" * 32: Positions(range(9))},
            updated={"c" * 32: Positions([1])},
        )
    )


def test_every_cut_is_noticed() -> None:
    data = small()
    for kept in range(len(data)):
        with pytest.raises(CorruptObjectError):
            decode_deletions(data[:kept])
        with pytest.raises(CorruptObjectError):
            decode_deletions(data[kept + 1 :])


@pytest.mark.parametrize("change", [1, 0x20, 0x80, 0xFF])
def test_every_changed_byte_of_a_vector_is_noticed_and_no_other_error_is_raised(
    change: int,
) -> None:
    data, expected = small(), decode_deletions(small())
    footer = data.rindex(MAGIC, 0, -4)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= change
        try:
            found = decode_deletions(bytes(damaged))
        except CorruptObjectError:
            continue

        assert place > footer  # a footer has no checksum: the snapshot has the hash of the file
        assert sum(map(len, (found.hidden, found.updated))) <= 3
        assert set(found.hidden.values()) <= {*expected.hidden.values(), *expected.updated.values()}


@given(data=st.binary(max_size=80))
def test_any_bytes_give_a_typed_error(data: bytes) -> None:
    for hostile in (data, MAGIC + data + MAGIC, small()[:60] + data + small()[-12:]):
        with pytest.raises(FuseError):
            decode_deletions(hostile)


JUNK: list[object] = [None, True, -1, 0, 3, 2**40, 2**63, 0.5, "", "x", [], {}, [[]], {"a": None}]


@pytest.mark.parametrize("name", ["type", "offset", "length", "properties"])
@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_a_broken_record_of_a_blob_is_damage(name: str, junk: object) -> None:
    if name == "type" and isinstance(junk, str):
        return
    record, blob = vector([1])

    with pytest.raises(CorruptObjectError):
        decode_deletions(puffin(({**record, name: junk}, blob)))
    with pytest.raises(CorruptObjectError):
        decode_deletions(puffin((vector([1], properties=junk)[0], blob)))


@pytest.mark.parametrize("blobs", [*JUNK[:-3], {}, [None], [1], ["x"], [[]], [{}]], ids=repr)
def test_a_broken_list_of_blobs_is_damage(blobs: object) -> None:
    if blobs == []:
        return

    with pytest.raises(CorruptObjectError):
        decode_deletions(puffin(blobs=blobs))


BROKEN: dict[str, Callable[[], Any]] = {
    "no bitmap": lambda: sealed(VECTOR_MAGIC, {"cardinality": "0"}, "a" * 32),
    "no magic": lambda: sealed(b"\0\0\0\0" + BitMap64([1]).serialize(), {}, "a" * 32),
    "empty": lambda: vector([]),
    "another count": lambda: sealed(
        VECTOR_MAGIC + BitMap64([1, 2]).serialize(), {"cardinality": "1"}, "a" * 32
    ),
    "no count": lambda: sealed(VECTOR_MAGIC + BitMap64([1]).serialize(), {}, "a" * 32),
    "another folder": lambda: vector(
        [1], properties={"cardinality": "1", "referenced-data-file": "_sg/" + "a" * 32}
    ),
    "a path outside": lambda: vector(
        [1], properties={"cardinality": "1", "referenced-data-file": "_b/../../x"}
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_vector_is_damage(name: str) -> None:
    with pytest.raises(CorruptObjectError):
        decode_deletions(puffin(BROKEN[name]()))


def test_two_vectors_of_one_block_are_damage() -> None:
    with pytest.raises(CorruptObjectError, match="two vectors"):
        decode_deletions(puffin(vector([1]), vector([2])))


def test_a_changed_bitmap_under_a_right_checksum_is_another_set_or_damage() -> None:
    bitmap = positions_of(np.array([1, 5, 6, 7, 70_000])).serialize()
    for place in range(len(bitmap)):
        for change in (1, 0x80, 0xFF):
            damaged = bytearray(bitmap)
            damaged[place] ^= change
            body = VECTOR_MAGIC + damaged
            try:
                found = decode_deletions(puffin(sealed(body, {"cardinality": "5"}, "a" * 32)))
            except CorruptObjectError:
                continue

            assert found.row_count == 5
