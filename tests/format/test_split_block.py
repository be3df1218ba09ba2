"""Split-block Bloom filters: the hash is XXH64, and what pyarrow writes is found."""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from fuse_stream.format.arrow import adapt, columns_of_arrow
from fuse_stream.format.block import encode_block
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.split_block import (
    BUCKET_BYTES,
    bucket_offset,
    decimal_bytes,
    hash_of,
    hashes_of,
    is_filterable,
    may_contain,
    missing_hashes,
    xxh64,
)

RANDOM = random.Random(1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [  # as xxHash gives them for seed 0
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
    ],
)
def test_the_hash_is_xxh64(text: bytes, expected: int) -> None:
    assert xxh64(np.frombuffer(text, np.uint8).reshape(1, -1)).tolist() == [expected]


def numbers(low: int, high: int, count: int = 2000) -> list[int]:
    return [low, high, 0, *(RANDOM.randrange(low, high) for _ in range(count))]


def decimals(precision: int, scale: int) -> list[Decimal]:
    most = 10**precision - 1
    return [
        Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
        for number in numbers(-most, most)
    ]


VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "byte": (pa.int8(), [*range(-128, 128)]),
    "short": (pa.int16(), [*numbers(-(2**15), 2**15 - 1)]),
    "integer": (pa.int32(), [*numbers(-(2**31), 2**31 - 1)]),
    "long": (pa.int64(), [*numbers(-(2**63), 2**63 - 1)]),
    "date": (pa.date32(), [*numbers(-100_000, 100_000)]),
    "timestamp": (pa.timestamp("us", "UTC"), [*numbers(-(10**15), 10**15)]),
    "timestamp_ntz": (pa.timestamp("us"), [*numbers(-(10**15), 10**15)]),
    "string": (pa.string(), ["é" * (number % 70) + str(number) for number in range(2000)]),
    "binary": (pa.binary(), [RANDOM.randbytes(number % 120) for number in range(2000)]),
    **{
        f"decimal({precision},{scale})": (
            pa.decimal128(precision, scale),
            [*decimals(precision, scale)],
        )
        for precision, scale in ((1, 0), (5, 2), (9, 9), (10, 2), (18, 4), (19, 3), (38, 10))
    },
}


@pytest.mark.parametrize("name", VALUES)
def test_every_value_is_in_the_filter_that_pyarrow_writes(name: str) -> None:
    arrow, values = VALUES[name]
    integers = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}
    column = pa.array([None, *values], integers.get(name, arrow)).cast(arrow)
    rows = pa.table({"c": column})
    schema = first_schema(columns_of_arrow(rows.schema))
    block, data = encode_block(
        adapt(rows, schema.columns, schema), schema, (), block_id="a" * 32, filtered=["c"]
    )
    bloom = block.col_metas[1].bloom
    assert bloom is not None
    bits = data.to_pybytes()[bloom.offset : bloom.offset + bloom.len]
    hashes = [hash_of(value, name) for value in values]

    assert bloom.type == name
    assert set(hashes) == set(hashes_of(rows.column("c"), name).tolist())
    assert missing_hashes(bits, hashes_of(rows.column("c"), name)) == 0
    for found in hashes:
        assert found is not None
        at = bucket_offset(found, len(bits))
        assert may_contain(bits[at : at + BUCKET_BYTES], found)
    others = np.random.default_rng(1).integers(0, 2**64, 10_000, np.uint64)
    assert missing_hashes(bits, others) > 9_800


def test_a_value_that_the_stored_type_cannot_hold_has_no_hash() -> None:
    assert hash_of(2**31, "integer") is None
    assert hash_of(-(2**31) - 1, "byte") is None
    assert hash_of(2**31, "long") is not None
    assert hash_of(Decimal("1.25"), "decimal(5,1)") is None
    assert hash_of(Decimal("1.20"), "decimal(5,1)") == hash_of(Decimal("1.2"), "decimal(5,1)")
    assert hash_of(Decimal("10000.0"), "decimal(5,1)") is None
    assert hash_of(Decimal("-0.0"), "decimal(5,1)") == hash_of(Decimal(0), "decimal(5,1)")


def test_a_bucket_with_an_empty_word_rules_nothing_out() -> None:
    assert may_contain(bytes(BUCKET_BYTES), 12345)
    assert not may_contain(b"\1\0\0\0" * 8, 12345)


def test_types_whose_equal_values_have_different_bytes_have_no_filter() -> None:
    assert not any(map(is_filterable, ["float", "double", "boolean", "struct", "array", "map"]))
    assert all(map(is_filterable, VALUES))


@pytest.mark.parametrize("precision", range(1, 39))
def test_a_decimal_has_the_fewest_bytes_that_hold_its_digits(precision: int) -> None:
    count = decimal_bytes(precision)

    assert 10**precision - 1 <= 2 ** (8 * count - 1) - 1
    assert count == 1 or 10**precision - 1 > 2 ** (8 * count - 9) - 1
