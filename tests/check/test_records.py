"""The records of segments and blocks are compared with the stored objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuse_stream.check.records import flaw_of_block, flaw_of_bounds, flaw_of_segment
from fuse_stream.format.arrow import arrow_schema, columns_of_arrow
from fuse_stream.format.block import encode_block
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.properties import BlockTarget
from fuse_stream.format.records import (
    Block,
    ColumnMeta,
    KeyRange,
    Segment,
    SegmentRef,
)
from fuse_stream.format.stats import summarize

SCHEMA = first_schema(columns_of_arrow(pa.schema([("k", pa.int64()), ("f", pa.float64())])))
ROWS = pa.table({"k": [3, 7], "f": [None, 1.5]}, schema=arrow_schema(SCHEMA))
BLOCK, DATA = encode_block(ROWS, SCHEMA, (1,), block_id="a" * 32)
SEGMENT = Segment(blocks=(BLOCK,), summary=summarize([BLOCK], BlockTarget(rows=11, bytes=11)))
REF = SegmentRef(
    id="b" * 32,
    sha256="0" * 64,
    level=0,
    row_count=2,
    block_count=1,
    byte_size=1,
    key_range=KeyRange(columns=(1,), min=(3,), max=(7,)),
)


def with_summary(**changes: object) -> Segment:
    return dataclasses.replace(
        SEGMENT,
        summary=dataclasses.replace(SEGMENT.summary, **changes),  # type: ignore[arg-type]
    )


def with_stats(column: int, **changes: object) -> Segment:
    stats = dict(SEGMENT.summary.col_stats)
    stats[column] = dataclasses.replace(stats[column], **changes)  # type: ignore[arg-type]
    return with_summary(col_stats=stats)


def block_with(column: int, **changes: object) -> Block:
    stats = dict(BLOCK.col_stats)
    stats[column] = dataclasses.replace(stats[column], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(BLOCK, col_stats=stats)


def test_written_segments_and_blocks_have_no_flaw() -> None:
    assert flaw_of_segment(SEGMENT, REF) is None
    assert flaw_of_block(DATA.to_pybytes(), BLOCK, SCHEMA) is None


def test_looser_bounds_are_no_flaw() -> None:
    assert flaw_of_segment(with_stats(1, min=None, max=99), REF) is None


@pytest.mark.parametrize(
    ("segment", "ref", "said"),
    [
        (with_summary(row_count=3), REF, "2 rows"),
        (SEGMENT, dataclasses.replace(REF, row_count=3), "2 rows"),
        (with_summary(block_count=2), REF, "1 blocks"),
        (with_summary(compressed_byte_size=1), REF, "sizes"),
        (with_stats(1, max=6), REF, "bounds of column 1"),
        (with_stats(2, null_count=0), REF, "nulls"),
        (
            SEGMENT,
            dataclasses.replace(REF, key_range=KeyRange(columns=(1,), min=(4,), max=(7,))),
            "bounds of column 1",
        ),
    ],
)
def test_a_segment_that_is_not_the_sum_of_its_blocks_is_a_flaw(
    segment: Segment, ref: SegmentRef, said: str
) -> None:
    assert said in str(flaw_of_segment(segment, ref))


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (dataclasses.replace(BLOCK, file_size=1), "bytes"),
        (dataclasses.replace(BLOCK, sha256="0" * 64), "hash"),
        (dataclasses.replace(BLOCK, row_count=3), "number of rows"),
        (dataclasses.replace(BLOCK, col_metas={1: BLOCK.col_metas[1]}), "ids and places"),
        (
            dataclasses.replace(
                BLOCK,
                col_metas={**BLOCK.col_metas, 2: ColumnMeta(offset=4, len=1, num_values=2)},
            ),
            "ids and places",
        ),
        (block_with(1, max=6), "bounds of column 1"),
        (block_with(2, null_count=0), "nulls"),
        (dataclasses.replace(BLOCK, col_stats={1: BLOCK.col_stats[1]}), "nulls"),
    ],
)
def test_a_block_that_differs_from_its_record_is_a_flaw(block: Block, said: str) -> None:
    assert said in str(flaw_of_block(DATA.to_pybytes(), block, SCHEMA))


def _foreign(write: Callable[[pa.BufferOutputStream], None]) -> tuple[Block, bytes]:
    sink = pa.BufferOutputStream()
    write(sink)
    data = sink.getvalue().to_pybytes()
    return dataclasses.replace(BLOCK, file_size=len(data), sha256=sha256_hex(data)), data


def test_a_block_with_several_row_groups_is_a_flaw() -> None:
    block, data = _foreign(lambda sink: pq.write_table(ROWS, sink, row_group_size=1))

    assert flaw_of_block(data, block, SCHEMA) == "it has 2 row groups, not one"


def test_a_block_that_is_not_parquet_is_a_flaw_and_not_an_error() -> None:
    block, data = _foreign(lambda sink: sink.write(b"no Parquet at all"))

    assert flaw_of_block(data, block, SCHEMA)


def test_columns_without_values_need_no_bounds() -> None:
    empty = {2: dataclasses.replace(BLOCK.col_stats[2], min=None, max=None, null_count=2)}

    assert flaw_of_bounds(BLOCK.col_stats, empty, 2) is None
    assert flaw_of_bounds(BLOCK.col_stats, empty, 3) is not None
