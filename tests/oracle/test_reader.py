"""The oracle reads a stored table as a person does, and finds each way in which it can be broken.

`tests/golden/table` was written by the first release: eight versions with nested columns, a wider
type, a new column, hidden rows, a compaction and a rewind.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.table.handle import Table
from tests.oracle.reader import Changes, Oracle, OracleError, Row, rows_of

GOLDEN = Path(__file__).parent.parent / "golden" / "table"
Objects = dict[str, bytes]

ONE = (
    ("k", 1),
    ("v", "one"),
    ("at", (("x", 0.5), ("tags", ("a", None)))),
    ("m", (("p", 1),)),
)
UNO = (("k", 1), ("v", "uno"), *ONE[2:])
TWO = (("k", 2),)
THREE = (("k", 3), ("v", "three"), ("at", (("x", "NaN"), ("tags", ()))), ("m", ()))
FOUR = (("k", 4), ("v", "four"), ("extra", Decimal("1.10")))
NINE = (("k", 9), ("v", "nine"))
VERSIONS: list[tuple[list[Row], dict[tuple[str, str], int]]] = [
    ([], {}),
    ([ONE, TWO], {("pipe", ""): 0}),
    ([ONE, TWO, THREE], {("pipe", ""): 1}),
    ([ONE, THREE], {("pipe", ""): 1}),
    ([ONE, THREE, FOUR], {("pipe", ""): 2}),
    ([ONE, THREE, FOUR], {("pipe", ""): 2}),
    ([UNO, THREE, FOUR], {("pipe", ""): 2}),
    ([NINE], {("pipe", ""): 2, ("side", ""): 7}),
    ([ONE, THREE, FOUR], {("pipe", ""): 2}),
]


@pytest.fixture
def objects() -> Objects:
    return dict(Oracle.of_folder(GOLDEN).objects)


@pytest.mark.parametrize("version", range(len(VERSIONS)))
def test_every_version_has_the_rows_and_the_ledger_that_were_written(version: int) -> None:
    oracle = Oracle.of_folder(GOLDEN)
    rows, ledger = VERSIONS[version]

    assert oracle.rows(version) == Counter(rows)
    assert oracle.ledger(version) == ledger


def test_the_head_and_its_chain_are_found() -> None:
    oracle = Oracle.of_folder(GOLDEN)
    oracle.check_chain()

    assert (oracle.floor, oracle.head) == (0, 8)
    assert oracle.rows() == oracle.rows(8)


def test_a_feed_has_the_rows_that_went_and_came() -> None:
    oracle = Oracle.of_folder(GOLDEN)

    assert oracle.changes(3) == Changes(Counter([TWO]), Counter())
    assert oracle.changes(5) == Changes(Counter(), Counter())
    assert oracle.changes(6) == Changes(Counter([ONE]), Counter([UNO]))
    assert oracle.feed(5, 7) == Changes(Counter([ONE, UNO, THREE, FOUR]), Counter([UNO, NINE]))


def test_the_package_reads_the_same() -> None:
    table = Table.open(GOLDEN)
    oracle = Oracle.of_folder(GOLDEN)

    for version in range(len(VERSIONS)):
        assert rows_of(table.to_arrow(version=version)) == oracle.rows(version)
    assert {key: entry.batch_id for key, entry in table.ledger().items()} == oracle.ledger()


def test_equal_values_are_equal_rows() -> None:
    floats = pa.table({"x": [float("nan"), -0.0, None]})
    others = pa.table({"x": [None, float("nan"), 0.0]})

    assert rows_of(floats) == rows_of(others)


# ---- broken tables


def key_of(objects: Objects, prefix: str) -> str:
    return min(key for key in objects if key.startswith(prefix))


def slot(version: int) -> str:
    return f"_ss/main/{version:020}_v1.json"


def changed(**fields: object) -> Callable[[Objects], None]:
    """Return what puts other fields into the newest snapshot."""

    def act(objects: Objects) -> None:
        record = json.loads(objects[slot(8)])
        objects[slot(8)] = json.dumps({**record, **fields}).encode()

    return act


def drop(prefix: str) -> Callable[[Objects], None]:
    def act(objects: Objects) -> None:
        for key in [key for key in objects if key.startswith(prefix)]:
            del objects[key]

    return act


def flip(prefix: str, at: int) -> Callable[[Objects], None]:
    def act(objects: Objects) -> None:
        for key in [key for key in objects if key.startswith(prefix)]:
            data = bytearray(objects[key])
            data[at] ^= 1
            objects[key] = bytes(data)

    return act


def move_a_slot(objects: Objects) -> None:
    objects[slot(5)] = objects[slot(4)]


BREAKS: dict[str, tuple[Callable[[Objects], None], str]] = {
    "a block is gone": (drop("_b/"), "is missing"),
    "a segment is gone": (drop("_sg/"), "is missing"),
    "a deletion file is gone": (drop("_dv/"), "is missing"),
    "a slot is gone": (drop(slot(4)), "is missing"),
    "the table file is gone": (drop("_fuse.json"), "is missing"),
    "all slots are gone": (drop("_ss/"), "no snapshot"),
    "a byte of the blocks is another": (flip("_b/", 40), "another hash"),
    "a byte of the segments is another": (flip("_sg/", 20), "another hash"),
    "a byte of the deletion files is another": (flip("_dv/", 20), "another hash"),
    "a byte of an older slot is another": (flip(slot(6), 30), "has changed|not JSON|is of"),
    "a version stands in another slot": (move_a_slot, "holds another version"),
    "a hidden row is shown": (changed(deletion_files=[]), "not as many"),
    "the head is of another table": (changed(table_id="0" * 32), "another table"),
    "time goes back": (changed(timestamp_us=1), "time goes back"),
    "the epoch goes back": (changed(epoch=-1), "epoch goes back"),
    "the parent is another": (changed(prev_snapshot_id="0" * 32), "another parent"),
    "a segment is listed no more": (changed(segments=[]), "not as many|are not there"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_table_is_refused(objects: Objects, name: str) -> None:
    harm, told = BREAKS[name]
    harm(objects)

    def read_all() -> None:
        oracle = Oracle(objects)
        oracle.check_chain()
        for version in range(max(oracle.floor, 0), oracle.head + 1):
            oracle.rows(version)

    with pytest.raises(OracleError, match=told):
        read_all()


def test_a_row_hidden_twice_is_refused(objects: Objects) -> None:
    record = json.loads(objects[slot(3)])
    (ref,) = record["deletion_files"]
    record["deletion_files"] = [ref, ref]
    objects[slot(3)] = json.dumps(record).encode()

    with pytest.raises(OracleError, match="hide one row"):
        Oracle(objects).rows(3)


def test_a_compaction_that_loses_a_row_is_refused(objects: Objects) -> None:
    before, after = (json.loads(objects[slot(version)]) for version in (4, 5))
    after["segments"], after["deletion_files"] = before["segments"][1:], []
    after["summary"] |= {"row_count": 2, "block_count": 2}
    objects[slot(5)] = json.dumps(after).encode()

    with pytest.raises(OracleError, match="changed rows by compact"):
        Oracle(objects).changes(5)
