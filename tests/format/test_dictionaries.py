"""Texts held as dictionaries: the same block comes of them as of texts that stand row by row."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.format import dictionaries
from fuse_stream.format.arrow import arrow_schema, columns_of_arrow
from fuse_stream.format.block import decode_block, encode_block
from fuse_stream.format.dictionaries import joined, with_one_dictionary
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.records import Block

SCHEMA = first_schema(
    columns_of_arrow(pa.schema([("k", pa.int64()), ("t", pa.string()), ("b", pa.binary())]))
)
PLAIN = arrow_schema(SCHEMA)

TEXTS = st.none() | st.sampled_from(["", "a", "b", "ä", "c" * 40])
BYTES = st.none() | st.binary(max_size=2)
PIECES = st.lists(st.lists(st.tuples(TEXTS, BYTES), min_size=1, max_size=9), min_size=1, max_size=4)


def plain(rows: Sequence[tuple[str | None, bytes | None]]) -> pa.Table:
    texts, some_bytes = ([row[place] for row in rows] for place in (0, 1))
    return pa.table([range(len(rows)), texts, some_bytes], schema=PLAIN)


def as_dictionaries(rows: pa.Table) -> pa.Table:
    for place in (1, 2):
        values = rows.column(place).dictionary_encode()
        rows = rows.set_column(place, rows.schema.field(place).with_type(values.type), values)
    return rows


def encoded(rows: pa.Table) -> tuple[Block, pa.Table]:
    block, data = encode_block(rows, SCHEMA, (), block_id="a" * 32)
    found = decode_block(pa.BufferReader(data), block, SCHEMA)
    stats = {
        column: dataclasses.replace(item, in_memory_size=0)
        for column, item in block.col_stats.items()
    }
    same = dataclasses.replace(
        block, sha256="", file_size=0, block_size=0, col_metas={}, col_stats=stats
    )
    return same, found


@given(PIECES, st.data())
def test_a_block_is_the_same_as_of_plain_texts(
    pieces: list[list[tuple[str | None, bytes | None]]], data: st.DataObject
) -> None:
    tables = [plain(rows) for rows in pieces]
    rows = pa.concat_tables(tables)
    start = data.draw(st.integers(0, len(rows) - 1))
    count = data.draw(st.integers(1, len(rows) - start))
    held = pa.concat_tables(map(as_dictionaries, tables)).slice(start, count)

    assert encoded(held) == encoded(rows.slice(start, count))


@pytest.mark.parametrize("start", [0, 3])
def test_sizes_are_those_of_plain_texts(start: int) -> None:
    rows = plain([("ab", b"x"), (None, b""), ("äöü", None), ("ab", b"y")] * 4)
    held = pa.concat_tables([as_dictionaries(rows), as_dictionaries(rows)]).slice(start)
    rows = pa.concat_tables([rows, rows]).slice(start)
    blocks = [encode_block(item, SCHEMA, (), block_id="a" * 32)[0] for item in (held, rows)]
    ours, theirs = ((block.block_size, block.col_stats) for block in blocks)

    assert ours == theirs


@given(PIECES, st.data())
def test_what_is_a_dictionary_only_here_and_there_is_none_at_all(
    pieces: list[list[tuple[str | None, bytes | None]]], data: st.DataObject
) -> None:
    tables = [plain(rows) for rows in pieces]
    mixed = [as_dictionaries(item) if data.draw(st.booleans()) else item for item in tables]
    found = joined(mixed, PLAIN)

    assert found.cast(PLAIN) == pa.concat_tables(tables)
    if len({str(item.schema) for item in mixed}) > 1:
        assert found.schema == PLAIN


def test_a_large_dictionary_is_given_up_before_parquet_stores_it_in_vain() -> None:
    rows = plain([(f"{number:06}" * 200, None) for number in range(1000)] * 8)
    assert (
        rows["t"].dictionary_encode().chunk(0).dictionary.nbytes > dictionaries.MAX_DICTIONARY_BYTES
    )
    held = with_one_dictionary(as_dictionaries(rows))
    sizes = [
        encode_block(item, SCHEMA, (), block_id="a" * 32)[0].file_size
        for item in (rows, as_dictionaries(rows))
    ]

    assert held.schema.types == [pa.int64(), pa.string(), held.schema.types[2]]
    assert sizes[1] <= sizes[0]


@pytest.mark.parametrize("kept", [["a", "b"], ["b", None], [None, None]])
def test_a_dictionary_has_only_the_values_of_the_rows(kept: list[str | None]) -> None:
    rows = as_dictionaries(plain([(text, None) for text in ("x", *kept, "y")])).slice(1, 2)
    (held,) = with_one_dictionary(rows)["t"].chunks

    assert held.to_pylist() == kept
    assert held.dictionary.to_pylist() == [text for text in kept if text is not None]
