"""A scan as other libraries take it: a reader, a data frame, a stream of Arrow's, a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, given, settings

from fuse_stream.errors import CorruptObjectError, FuseError
from fuse_stream.format.layout import BLOCKS_PREFIX
from fuse_stream.objects import blocks as blocks_module
from fuse_stream.table.handle import Table
from tests.reading.test_scan import batches, made, predicates

NARROW = pa.schema(
    [
        pa.field("k", pa.int32(), nullable=False),
        ("x", pa.float32()),
        ("p", pa.struct([("q", pa.int16())])),
        ("l", pa.list_(pa.struct([("m", pa.int8())]))),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
WIDE = pa.schema(
    [
        ("late", pa.string()),
        pa.field("k", pa.int64(), nullable=False),
        ("x", pa.float64()),
        ("p", pa.struct([("new", pa.string()), ("q", pa.int64())])),
        ("l", pa.list_(pa.struct([("n", pa.bool_()), ("m", pa.int32())]))),
        ("at", pa.timestamp("us", tz="UTC")),
        ("d", pa.decimal128(38, 2)),
    ]
)


def narrow_rows(first: int) -> pa.Table:
    rows = [
        {"k": first + i, "x": i / 3, "p": {"q": i} if i else None, "l": [{"m": i}], "at": i}
        for i in range(3)
    ]
    return pa.Table.from_pylist(rows, schema=NARROW)


def wide_rows(first: int) -> pa.Table:
    rows = [
        {
            "late": "z",
            "k": 2**40 + first + i,
            "x": i / 3,
            "p": {"new": "y", "q": 2**40},
            "l": [{"n": True, "m": 2**20}, None],
            "at": i,
            "d": i,
        }
        for i in range(3)
    ]
    return pa.Table.from_pylist(rows, schema=WIDE)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Versions 1 and 2 of narrow columns, 3 of more and wider ones, 4 of these too."""
    table = Table.create(tmp_path / "t", NARROW, cluster_by=["k"])
    table.append(narrow_rows(0))
    table.append(narrow_rows(100))
    table.append(wide_rows(0), merge_schema=True)
    table.append(wide_rows(100))
    return table


def test_a_scan_has_all_methods_of_a_record_batch_reader(table: Table) -> None:
    reader = table.scan()
    missing = [name for name in dir(pa.RecordBatchReader) if not hasattr(reader, name)]

    assert missing == []
    assert reader.schema == table.schema
    assert reader.read_next_batch()["k"].to_pylist() == [0, 1, 2]
    assert next(reader)["k"].to_pylist() == [100, 101, 102]
    assert [len(batch) for batch in reader] == [3, 3]
    with table.scan() as closed:
        assert closed.read_all() == table.to_arrow()
    assert repr(table.scan(columns=["k", "x"], version=1)) == "Scan(version=1, columns=['k', 'x'])"


def test_a_scan_is_a_data_frame_of_pandas(table: Table) -> None:
    frame = table.scan(where="k < 101", columns=["k", "late"]).to_pandas()

    assert isinstance(frame, pd.DataFrame)
    assert frame["k"].tolist() == [0, 1, 2, 100]
    assert table.scan(columns=["late"]).to_pandas(types_mapper=pd.ArrowDtype).dtypes["late"] == (
        pd.ArrowDtype(pa.string())
    )


def test_a_scan_is_a_stream_of_arrow(table: Table, tmp_path: Path) -> None:
    copy = Table.create(tmp_path / "copy", table.schema)
    copy.append(table.scan())

    assert pa.table(table.scan()) == table.to_arrow()
    assert pa.RecordBatchReader.from_stream(table.scan()).read_all() == table.to_arrow()
    assert copy.to_arrow() == table.to_arrow()


def test_a_table_takes_a_data_frame_of_pandas(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.schema([("k", pa.int64()), ("s", pa.string())]))
    frame = pd.DataFrame({"s": ["a", "b", None], "k": [1, 2, 3]})
    table.append(frame)
    table.append(frame[frame["k"] > 1].reset_index(drop=True))

    assert table.to_arrow().to_pydict() == {
        "k": [1, 2, 3, 2, 3],
        "s": ["a", "b", None, "b", None],
    }


@pytest.mark.parametrize("library", ["polars", "duckdb"])
def test_polars_and_duckdb_take_a_scan_and_a_dataset(table: Table, library: str) -> None:
    module: Any = pytest.importorskip(library)
    scan, dataset = table.scan(columns=["k"]), table.scan().dataset()
    if library == "polars":
        assert module.DataFrame(scan)["k"].to_list() == table.to_arrow()["k"].to_pylist()
        frame = module.scan_pyarrow_dataset(dataset).filter(module.col("k") > 50)
        assert frame.select("k").collect()["k"].len() == 9
        table.append(module.DataFrame(table.scan(version=4)))
        assert table.head().summary.row_count == 24
    else:
        assert module.sql("SELECT count(*) FROM scan").fetchall() == [(12,)]
        assert module.sql("SELECT count(*) FROM dataset WHERE k > 50").fetchall() == [(9,)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"version": 1},
        {"columns": ["x", "k"]},
        {"columns": ["p", "late"]},
        {"where": "k < 101"},
        {"where": "late = 'z'"},
        {"where": "k = -1"},
        {"where": "k <> 1", "columns": ["late"]},
    ],
)
def test_a_dataset_has_the_rows_of_its_scan(table: Table, options: dict[str, Any]) -> None:
    scan = table.scan(**options)
    dataset = scan.dataset()
    expected = scan.read_all()

    for _ in range(2):
        assert dataset.to_table() == expected
    assert dataset.schema.equals(expected.schema, check_metadata=True)
    assert dataset.count_rows() == len(expected)


def test_a_dataset_has_the_rows_of_its_scan_after_a_rewritten_history(table: Table) -> None:
    table.revert(2)
    table.compact()
    table.append(wide_rows(200))

    assert table.scan().dataset().to_table() == table.to_arrow()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches, predicates)
def test_a_dataset_has_the_rows_of_its_scan_for_every_predicate(
    groups: list[list[dict[str, object]]], where: str
) -> None:
    table = made(groups, cluster_by=("k",))
    if "late" in where and "late" not in table.schema.names:
        return
    scan = table.scan(where=where)

    assert repr(scan.dataset().to_table().to_pylist()) == repr(scan.read_all().to_pylist())


def test_readers_of_a_dataset_choose_columns_and_rows(table: Table) -> None:
    dataset = table.scan(columns=["late", "k"]).dataset()
    found = dataset.to_table(columns=["late"], filter=ds.field("k") > 2**40 + 50)

    assert found.to_pydict() == {"late": ["z"] * 3}


def test_a_dataset_reads_large_blocks_in_part(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_module, "MAX_WHOLE_BYTES", 0)

    assert table.scan().dataset().to_table() == table.to_arrow()


def test_a_dataset_says_that_a_block_is_missing_or_damaged(table: Table) -> None:
    dataset = table.scan().dataset()
    folder = Path(table.location.path) / BLOCKS_PREFIX
    old, new = table.blocks()[0], table.blocks()[-1]
    for block, error in ((old, "missing"), (new, "differs")):
        path = next(folder.rglob(f"{block.id}*"))
        data = path.read_bytes()
        path.unlink()
        if error == "differs":
            path.write_bytes(data[:-20] + bytes(20))
        with pytest.raises(CorruptObjectError, match=error):
            dataset.to_table()
        path.write_bytes(data)

    assert dataset.to_table() == table.to_arrow()


def test_a_dataset_cannot_be_written(table: Table) -> None:
    dataset = table.scan().dataset()

    with pytest.raises(FuseError, match="only be read"):
        dataset.filesystem.delete_file("x")
