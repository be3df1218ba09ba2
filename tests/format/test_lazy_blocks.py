"""Blocks found in the text of a segment are those that were written, or a typed error."""

from __future__ import annotations

import dataclasses
import pickle
import tracemalloc
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.errors import CorruptObjectError, FuseError, UnsupportedFormatError
from fuse_stream.format.codec import decode_segment, encode_segment, sha256_hex
from fuse_stream.format.jsonio import dump_canonical, to_json
from fuse_stream.format.positions import Positions
from fuse_stream.format.records import (
    Block,
    ColumnStats,
    Segment,
)
from tests.format.test_codec import JUNK, LEAVES, example_segment, segments

replace: Any = dataclasses.replace

MARKS = (
    '"},"15":{"',
    ',"compression":',
    '\\",\\"col_stats\\":',
    '{"block_size":',
    '"null_count":}',
    "},",
    "]",
)
"""Texts that look like what parts are found by."""


def written(segment: Segment) -> bytes:
    return dump_canonical(to_json(segment, LEAVES))


def read(text: bytes) -> Segment:
    stored = pa.Codec("zstd").compress(text, asbytes=True)
    return decode_segment(stored, sha256_hex(stored), LEAVES)


def read_whole(text: bytes) -> Segment:
    """Read a segment and all that its records hold by column."""
    segment = read(text)
    dict(segment.summary.col_stats)
    blocks = tuple(
        replace(block, col_stats=dict(block.col_stats), col_metas=dict(block.col_metas))
        for block in segment.blocks
    )
    return dataclasses.replace(segment, blocks=blocks)


def example_block() -> Block:
    return example_segment().blocks[0]


def segment_of(*blocks: Block) -> Segment:
    return dataclasses.replace(example_segment(), blocks=blocks)


@given(segment=segments)
def test_blocks_are_what_was_written(segment: Segment) -> None:
    found = read(written(segment))

    assert found == segment
    assert written(found) == written(segment)
    assert read_whole(written(segment)) == segment


def test_a_block_in_text_equals_one_that_is_not_from_either_side() -> None:
    (found,) = read(written(segment_of(example_block()))).blocks
    other = replace(example_block(), row_count=4)

    assert found == example_block()
    assert example_block() == found
    assert found != other
    assert other != found
    assert pickle.loads(pickle.dumps(found)) == example_block()
    assert replace(found, origin="b" * 32) == replace(example_block(), origin="b" * 32)


@given(low=st.sampled_from(MARKS), high=st.sampled_from(MARKS), origin=st.sampled_from(MARKS))
def test_texts_that_look_like_marks_are_texts(low: str, high: str, origin: str) -> None:
    stats = {
        **example_block().col_stats,
        8: ColumnStats(min=low, max=high, null_count=0, in_memory_size=1),
    }
    block = replace(example_block(), col_stats=stats, origin=origin)
    found = read(written(segment_of(block, example_block(), block))).blocks

    assert found == (block, example_block(), block)


def test_a_column_is_read_without_those_beside_it() -> None:
    text = written(segment_of(example_block())).replace(b'"max":"z', b'"max":7,"x":"z', 1)
    (block,) = read(text).blocks

    assert block.col_stats[5] == example_block().col_stats[5]
    with pytest.raises(CorruptObjectError):
        block.col_stats[8]
    with pytest.raises(CorruptObjectError):
        dict(block.col_stats)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"null_count":1}', b'"null_count": 1}'),
        (b'"null_count":1}', b'"null_count":1.0}'),
        (b'"distinct_of_values":2', b'"distinct_of_values":2,"distinct_of_values":2'),
        (b'{"distinct_of_values":2', b"7"),
    ],
)
def test_one_column_is_read_strictly(old: bytes, new: bytes) -> None:
    (block,) = read(written(segment_of(example_block())).replace(old, new, 1)).blocks

    with pytest.raises(CorruptObjectError):
        block.col_stats[1]


def test_a_duplicate_column_is_corrupt() -> None:
    text = written(segment_of(example_block()))
    part = text[text.index(b'"5":{"d') : text.index(b',"6":{"d')]
    (block,) = read(text.replace(part, part + b"," + part, 1)).blocks

    with pytest.raises(CorruptObjectError):
        dict(block.col_stats)


def test_a_column_that_the_schema_lacks_is_passed_over() -> None:
    stored, sha256 = encode_segment(segment_of(example_block()), LEAVES)
    known = {column: name for column, name in LEAVES.items() if column != 8}
    (block,) = decode_segment(stored, sha256, known).blocks

    assert 8 not in block.col_stats
    assert block.col_stats.get(8) is None
    assert set(block.col_stats) == set(known)
    assert len(block.col_stats) == len(known)


PATHS: list[tuple[Any, ...]] = [
    ("blocks",),
    ("blocks", 0),
    ("blocks", 0, "id"),
    ("blocks", 0, "row_count"),
    ("blocks", 0, "block_size"),
    ("blocks", 0, "origin"),
    ("blocks", 0, "compression"),
    ("blocks", 0, "deletes"),
    ("blocks", 0, "col_stats"),
    ("blocks", 0, "col_stats", "5"),
    ("blocks", 0, "col_stats", "5", "min"),
    ("blocks", 0, "col_stats", "5", "null_count"),
    ("blocks", 0, "col_metas"),
    ("blocks", 0, "col_metas", "5"),
    ("blocks", 0, "col_metas", "5", "offset"),
    ("blocks", 0, "cluster_stats"),
    ("blocks", 0, "cluster_stats", "level"),
    ("blocks", 0, "cluster_stats", "range"),
    ("blocks", 0, "cluster_stats", "range", "min"),
    ("blocks", 0, "unheard_of"),
    ("summary",),
    ("summary", "col_stats", "5"),
    ("format_version",),
    ("unheard_of",),
]


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_a_field_of_another_kind_is_typed_or_harmless(path: tuple[Any, ...]) -> None:
    for junk in JUNK:
        item = orjson.loads(written(segment_of(example_block(), example_block())))
        at = item
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = junk
        text = dump_canonical(item)
        try:
            segment = read_whole(text)
        except FuseError:
            continue

        # A bound may stand in the form of a narrower type, which the column had once.
        assert read_whole(written(segment)) == segment
        assert "col_stats" in path or written(segment) == text


TWO = written(segment_of(example_block(), example_block()))


@given(place=st.integers(0, len(TWO) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_is_noticed_or_is_canonical(place: int, byte: int) -> None:
    text = bytearray(TWO)
    text[place] = byte
    try:
        segment = read_whole(bytes(text))
    except FuseError:
        return

    assert written(segment) == bytes(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'{"blocks":[{', b'{"blocks":[{},{'),
        (b'{"blocks":[{', b'{"blocks":[7,{'),
        (b'{"blocks":[{', b'{"blocks": [{'),
        (b'}],"format_version"', b'},{}],"format_version"'),
        (b'}],"format_version"', b'},],"format_version"'),
        (b'}],"format_version"', b'}]],"format_version"'),
        (b'},{"block_size"', b'}{"block_size"'),
        (b'},{"block_size"', b'},7,{"block_size"'),
        (b'"row_count":3', b'"row_count":3,"row_count":3'),
        (b'"row_count":3', b'"row_count": 3'),
        (b'"row_count":3', b'"row_count":3.0'),
        (b'"row_count":3,', b""),
        (b'"level":2', b'"level":2,"level":2'),
        (b'"len":60', b'"len":60,"len":60'),
        (b'"len":60', b'"len": 60'),
        (b'"col_metas":{"5"', b'"col_metas":{"05"'),
        (b'"col_stats":{"1":', b'"col_stats":{"1":{},"1":'),
        (b'"col_stats":{"1":', b'"col_stats":{"x":'),
        (b'"null_count":1', b'"null_count":1.0'),
    ],
)
def test_what_is_not_the_one_encoding_is_corrupt(old: bytes, new: bytes) -> None:
    assert old in TWO

    with pytest.raises(CorruptObjectError):
        read_whole(TWO.replace(old, new, 1))


@pytest.mark.parametrize(
    "text",
    [
        b'{"format_version":2,"what":"ever"}',
        TWO.replace(b'"format_version":1', b'"format_version":2'),
    ],
)
def test_a_newer_format_says_upgrade(text: bytes) -> None:
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        read(text)


def test_the_reserved_field_of_deleted_rows_says_upgrade() -> None:
    text = TWO.replace(b',"file_size":', b',"deletes":{},"file_size":', 1)

    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        read(text)


def test_a_block_in_text_can_hide_rows() -> None:
    block = read(TWO).blocks[0]
    hiding = block.hiding(Positions([0]))

    assert (hiding.live_rows, block.live_rows) == (block.row_count - 1, block.row_count)
    assert dict(hiding.col_stats) == dict(block.col_stats)
    assert hiding != block
    assert hiding.hiding(None) == block
    assert replace(block, origin="a" * 32).hiding(Positions([0])).hidden == Positions([0])


@pytest.mark.parametrize("piece", [b',{"block_size":', b',"col_metas":', b"{" * 10, b"["])
def test_a_segment_of_marks_alone_is_corrupt(piece: bytes) -> None:
    text = TWO.replace(b'{"blocks":[', b'{"blocks":[{"block_size":' + piece * 100_000, 1)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptObjectError):
            read(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 50 * 2**20
