"""The search for keys, beside a comparison of every row with every key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from fuse_stream.dml import keys as keys_module
from fuse_stream.dml.keys import KeySearch, key_of, key_schema
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.snapshot_blocks import iter_blocks
from tests.conftest import Create

DAYS = [dt.date(1600, 2, 29), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]
TIMES = [dt.datetime(year, 1, 2, 3, 4, 5, 6, dt.UTC) for year in (1, 1969, 1970, 2026)]
KEYS: dict[str, list[tuple[pa.DataType, Sequence[object]]]] = {
    "numbers": [(pa.int64(), [-(2**63), -1, 0, 1, 2**32, 2**63 - 1, *range(100, 140)])],
    "small numbers": [(pa.int8(), list(range(-128, 128, 5)))],
    "days": [(pa.date32(), DAYS)],
    "times": [(pa.timestamp("us", "UTC"), TIMES)],
    "texts": [(pa.string(), ["", "a", "á", "a ", "b" * 50])],
    "bytes": [(pa.binary(), [b"", b"\x00", b"\xff"])],
    "decimals": [(pa.decimal128(38, 2), [Decimal("0.01"), Decimal("-0.01"), Decimal(10**35)])],
    "floats": [(pa.float64(), [0.5, -1.5, float("inf"), 2.0**60])],
    "text and number": [(pa.string(), ["", "a", "b"]), (pa.int32(), [-1, 0, 7, 2**31 - 1])],
    "two numbers": [(pa.int32(), [1, 2]), (pa.int64(), list(range(-20, 20)))],
    "truths": [(pa.bool_(), [True, False]), (pa.int16(), [3, 4])],
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("at_a_time", [1, 100_000], ids=["each block", "joined blocks"])
@pytest.mark.parametrize("kind", KEYS)
def test_a_search_finds_the_rows_that_have_an_arriving_key(
    create: Create, monkeypatch: pytest.MonkeyPatch, kind: str, at_a_time: int, seed: int
) -> None:
    monkeypatch.setattr(keys_module, "_SEARCHED", at_a_time)
    draw = Random(f"{kind} {seed}")
    names = [f"k{at}" for at in range(len(KEYS[kind]))]
    types = [arrow for arrow, _ in KEYS[kind]]
    schema = pa.schema([("n", pa.int64()), *zip(names, types, strict=True)])
    table = create(schema)
    stored: dict[int, tuple[object, ...]] = {}

    def drawn(count: int, *, nulls: bool) -> list[tuple[object, ...]]:
        pools = [[*pool, *([None] if nulls else [])] for _, pool in KEYS[kind]]
        return [tuple(draw.choice(pool) for pool in pools) for _ in range(count)]

    for _ in range(5):
        rows = {len(stored) + at: key for at, key in enumerate(drawn(20, nulls=True))}
        stored |= rows
        columns = [list(rows), *zip(*rows.values(), strict=True)]
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
        ]
        table.append(pa.table(arrays, schema=schema))
    gone = draw.sample(sorted(stored), 30)
    table.delete(f"n IN ({', '.join(map(str, gone))})")
    wanted = list(dict.fromkeys(drawn(8, nulls=False)))
    head = table.head()
    keys = key_schema(head.schema, key_of(head.schema, names))
    arriving = pa.table(
        [
            pa.array(column, arrow)
            for column, arrow in zip(zip(*wanted, strict=True), types, strict=True)
        ],
        names=names,
    )

    found = KeySearch(keys, arriving).find(table.metadata, head)

    numbers = [
        number
        for block in found.blocks
        for number in load_block(table.metadata.store, block, head.schema)["n"].to_pylist()
    ]
    shown = {number: key for number, key in stored.items() if number not in gone}
    assert sorted(numbers) == [number for number, key in shown.items() if key in wanted]
    assert found.is_known.tolist() == [key in shown.values() for key in wanted]
    assert {block.id for block in found.blocks} <= {
        block.id for block in iter_blocks(table.metadata, head)
    }
