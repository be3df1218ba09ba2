"""A table that is made of Parquet files."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fuse_stream as fuse
from fuse_stream.errors import (
    AlreadyExistsError,
    CommitStateUnknownError,
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    StorageError,
    UnsupportedFormatError,
    UnsupportedTypeError,
)
from fuse_stream.format.arrow import FIELD_ID
from fuse_stream.format.layout import COPY_KEY, STAGED_PREFIX, TABLE_KEY, block_key
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import find_object
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.wrappers import READS
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.transfer import import_parquet as importing
from fuse_stream.transfer.import_parquet import ImportReport, ImportRequest, import_files
from fuse_stream.transfer.sources import find_source
from tests.recovery.histories import SEEDS, opened

EVERY_TYPE = pa.table(
    {
        "yes": pa.array([True, None, False]),
        "b": pa.array([1, -2, None], pa.int8()),
        "s": pa.array([1, -2, None], pa.int16()),
        "i": pa.array([1, -2, None], pa.int32()),
        "l": pa.array([1, -2, None], pa.int64()),
        "f": pa.array([1.5, float("nan"), None], pa.float32()),
        "d": pa.array([1.5, float("nan"), None], pa.float64()),
        "m": pa.array([Decimal("1.10"), Decimal("-2.00"), None], pa.decimal128(9, 2)),
        "n": pa.array([Decimal("1.10"), None, None], pa.decimal128(38, 2)),
        "t": pa.array(["ä", "", None]),
        "x": pa.array([b"\xff", b"", None]),
        "day": pa.array([date(2026, 1, 1), None, None]),
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
        "local": pa.array([datetime(2026, 1, 1), None, None], pa.timestamp("us")),  # noqa: DTZ001
        "list": pa.array([[1, None], [], None], pa.list_(pa.field("element", pa.int64()))),
        "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "struct": pa.array(
            [{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}],
            pa.struct([("a", pa.int64()), ("b", pa.list_(pa.field("element", pa.string())))]),
        ),
    }
)


def with_ids(schema: pa.Schema) -> pa.Schema:
    ids = iter(range(1, 1000))

    def field(one: pa.Field) -> pa.Field:
        number = str(next(ids)).encode()
        kind = one.type
        if pa.types.is_struct(kind):
            kind = pa.struct([field(part) for part in kind])
        elif pa.types.is_list(kind):
            kind = pa.list_(field(kind.value_field.with_name("element")))
        elif pa.types.is_map(kind):
            kind = pa.map_(
                field(kind.key_field.with_name("key")), field(kind.item_field.with_name("value"))
            )
        return pa.field(one.name, kind, one.nullable, {FIELD_ID: number})

    return pa.schema([field(one) for one in schema])


def write_block_like(path: Path, table: pa.Table, **options: Any) -> None:
    """Write a file that is what the format asks of a block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = with_ids(table.schema)
    arrays = [
        column.combine_chunks().cast(one.type)
        for column, one in zip(table.columns, schema, strict=True)
    ]
    chosen = {
        "compression": "zstd",
        "store_schema": False,
        "write_page_checksum": True,
        **options,
    }
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path, **chosen)


def write(path: Path, table: pa.Table, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


def numbers(start: int, count: int = 3) -> pa.Table:
    return pa.table({"k": pa.array(range(start, start + count), pa.int64())})


def keys(table: Table) -> list[int]:
    return sorted(table.to_arrow()["k"].to_pylist())


def same(table: Table, wanted: pa.Table) -> bool:
    found = table.to_arrow()
    return str(found.cast(table.to_arrow().schema).to_pylist()) == str(wanted.to_pylist())


def test_a_file_that_is_a_block_is_taken_byte_for_byte(tmp_path: Path) -> None:
    file = tmp_path / "files" / "a.parquet"
    write_block_like(file, EVERY_TYPE)
    before = file.read_bytes()
    done = fuse.import_parquet(tmp_path / "files", tmp_path / "t")
    table = Table.open(tmp_path / "t")
    (block,) = table.blocks()

    assert done.reasons == {}
    assert (done.file_count, done.taken_count, done.rewritten_count) == (1, 1, 0)
    assert (tmp_path / "t" / block_key(block.id)).read_bytes() == before == file.read_bytes()
    assert same(table, EVERY_TYPE)
    assert table.fsck(deep=True).is_sound


def test_a_block_of_another_table_is_taken(tmp_path: Path) -> None:
    first = Table.create(tmp_path / "first", EVERY_TYPE.schema)
    first.append(EVERY_TYPE)
    (block,) = first.blocks()
    done = fuse.import_parquet(tmp_path / "first" / block_key(block.id), tmp_path / "t")
    (taken,) = Table.open(tmp_path / "t").blocks()

    assert done.taken_count == 1
    assert (taken.sha256, dict(taken.col_stats)) == (block.sha256, dict(block.col_stats))
    assert dict(taken.col_metas) == dict(block.col_metas)
    assert taken.block_size == block.block_size


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"compression": "snappy"}, "compressed"),
        ({"store_schema": True}, "Arrow schema"),
        ({"write_page_checksum": False}, "checksums"),
        ({"row_group_size": 2}, "row group"),
        ({"store_decimal_as_integer": True}, "another way"),
    ],
)
def test_a_file_that_is_no_block_is_rewritten(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    write_block_like(tmp_path / "files" / "a.parquet", EVERY_TYPE, **options)
    done = fuse.import_parquet(tmp_path / "files", tmp_path / "t")
    table = Table.open(tmp_path / "t")

    assert (done.taken_count, done.rewritten_count) == (0, 1)
    assert any(reason in why for why in done.reasons)
    assert same(table, EVERY_TYPE)
    assert table.fsck(deep=True).is_sound


def test_a_list_whose_elements_have_another_name_is_rewritten(tmp_path: Path) -> None:
    ids = [{FIELD_ID: str(number).encode()} for number in (1, 2)]
    kind = pa.list_(pa.field("item", pa.int64(), metadata=ids[1]))
    rows = pa.Table.from_arrays(
        [pa.array([[1]], kind)], schema=pa.schema([pa.field("k", kind, metadata=ids[0])])
    )
    like = {"compression": "zstd", "store_schema": False, "write_page_checksum": True}
    write(tmp_path / "a.parquet", rows, use_compliant_nested_type=False, **like)
    done = fuse.import_parquet(tmp_path / "a.parquet", tmp_path / "t")

    assert done.reasons == {"types stored in another way": 1}


def test_a_file_without_field_ids_or_with_others_is_rewritten(tmp_path: Path) -> None:
    like = {"compression": "zstd", "store_schema": False, "write_page_checksum": True}
    write(tmp_path / "files" / "a.parquet", numbers(1), **like)
    other = pa.schema([pa.field("k", pa.int64(), metadata={FIELD_ID: b"7"})])
    write(tmp_path / "files" / "b.parquet", numbers(4).cast(other), **like)
    write_block_like(tmp_path / "files" / "c.parquet", numbers(7))
    done = fuse.import_parquet(tmp_path / "files", tmp_path / "t")

    assert (done.taken_count, done.rewritten_count) == (1, 2)
    assert set(done.reasons) == {
        "columns without field ids",
        "other columns, types or field ids than the table",
    }
    assert Table.open(tmp_path / "t").to_arrow()["k"].to_pylist() == list(range(1, 10))


def test_statistics_come_from_the_values_not_from_the_footer(tmp_path: Path) -> None:
    write_block_like(tmp_path / "a.parquet", EVERY_TYPE, write_statistics=False)
    fuse.import_parquet(tmp_path / "a.parquet", tmp_path / "t")
    table = Table.open(tmp_path / "t")
    (block,) = table.blocks()
    by_name = {
        one.name: block.col_stats[one.id] for one in table.head().schema.columns if not one.children
    }

    assert (by_name["l"].min, by_name["l"].max, by_name["d"].nan_count) == (-2, 1, 1)


def test_rows_in_the_order_of_the_cluster_key_make_a_sorted_block(tmp_path: Path) -> None:
    write_block_like(tmp_path / "files" / "a.parquet", numbers(1))
    write_block_like(tmp_path / "files" / "b.parquet", numbers(1).take([2, 0, 1]))
    fuse.import_parquet(tmp_path / "files", tmp_path / "t", cluster_by=["k"])
    table = Table.open(tmp_path / "t")
    first, second = table.blocks()

    assert first.cluster_stats is not None
    assert second.cluster_stats is None
    assert table.fsck(deep=True).is_sound
    table.recluster()
    assert keys(table) == [1, 1, 2, 2, 3, 3]


def test_private_columns_are_rewritten(tmp_path: Path) -> None:
    write_block_like(tmp_path / "a.parquet", numbers(1))
    done = fuse.import_parquet(
        tmp_path / "a.parquet", tmp_path / "t", properties={"fuse.private": "k", "team": "a"}
    )
    table = Table.open(tmp_path / "t")

    assert done.rewritten_count == 1
    assert table.blocks()[0].col_stats[1].min is None
    assert table.properties["team"] == "a"


def test_columns_of_all_files_are_brought_together(tmp_path: Path) -> None:
    write(tmp_path / "files" / "a.parquet", pa.table({"k": pa.array([1], pa.int32())}))
    write(tmp_path / "files" / "b.parquet", pa.table({"n": ["x"], "k": pa.array([2], pa.int64())}))
    write(tmp_path / "files" / "c.parquet", pa.table({"k": pa.array([3], pa.int16())}))
    fuse.import_parquet(tmp_path / "files", tmp_path / "t")
    table = Table.open(tmp_path / "t")

    assert [(one.id, one.name, one.type) for one in table.head().schema.columns] == [
        (1, "k", "long"),
        (2, "n", "string"),
    ]
    assert table.to_arrow().to_pylist() == [
        {"k": 1, "n": None},
        {"k": 2, "n": "x"},
        {"k": 3, "n": None},
    ]


def test_types_that_do_not_fit_together_are_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    write(tmp_path / "files" / "a.parquet", pa.table({"k": [1]}))
    write(tmp_path / "files" / "b.parquet", pa.table({"k": ["x"]}))
    with pytest.raises(SchemaMismatchError):
        fuse.import_parquet(tmp_path / "files", tmp_path / "t")

    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("column", "error"),
    [
        (pa.array([1], pa.uint64()), UnsupportedTypeError),
        (pa.array([1], pa.duration("s")), UnsupportedTypeError),
    ],
)
def test_unknown_types_are_refused(tmp_path: Path, column: pa.Array, error: type) -> None:
    write(tmp_path / "a.parquet", pa.table({"k": column}))
    with pytest.raises(error, match="cast the column"):
        fuse.import_parquet(tmp_path / "a.parquet", tmp_path / "t")


def test_a_value_that_does_not_fit_names_its_file(tmp_path: Path) -> None:
    at = pa.array([1], pa.timestamp("ns"))
    write(tmp_path / "files" / "a.parquet", pa.table({"at": at}), version="2.6")
    with pytest.raises(InvalidInputError, match="without loss") as raised:
        fuse.import_parquet(tmp_path / "files", tmp_path / "t")

    assert raised.value.context["file"] == "a.parquet"


def test_int96_is_an_instant(tmp_path: Path) -> None:
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    write(
        tmp_path / "a.parquet",
        pa.table({"at": at}),
        use_deprecated_int96_timestamps=True,
        store_schema=False,
    )
    nested = pa.table({"s": pa.StructArray.from_arrays([at], names=["at"])})
    write(tmp_path / "b.parquet", nested, use_deprecated_int96_timestamps=True, store_schema=False)
    fuse.import_parquet(tmp_path / "a.parquet", tmp_path / "t")
    with pytest.raises(UnsupportedTypeError, match="INT96"):
        fuse.import_parquet(tmp_path / "b.parquet", tmp_path / "u")

    table = Table.open(tmp_path / "t").to_arrow()
    assert table.column("at").type == pa.timestamp("us", "UTC")
    assert table.column("at").to_pylist() == at.to_pylist()


def test_folders_of_values_become_columns(tmp_path: Path) -> None:
    for folder in (
        "year=2026/day=2026-01-01/name=a%2Fb",
        "year=7/day=__HIVE_DEFAULT_PARTITION__/name=__HIVE_DEFAULT_PARTITION__",
    ):
        write_block_like(tmp_path / "files" / folder / "x.parquet", numbers(1, 1))
    (tmp_path / "files" / "_SUCCESS").write_text("")
    (tmp_path / "files" / "year=7" / ".x.crc").write_text("")
    done = fuse.import_parquet(tmp_path / "files", tmp_path / "t")
    table = Table.open(tmp_path / "t")

    assert done.reasons == {"columns that only folders or a log have": 2}
    assert [one.type for one in table.head().schema.columns] == [
        "long",
        "integer",
        "date",
        "string",
    ]
    assert sorted(table.to_arrow().to_pylist(), key=str) == [
        {"k": 1, "year": 2026, "day": date(2026, 1, 1), "name": "a/b"},
        {"k": 1, "year": 7, "day": None, "name": None},
    ]


def test_a_column_that_files_and_folders_have_is_that_of_the_files(tmp_path: Path) -> None:
    write(tmp_path / "files" / "k=9" / "x.parquet", numbers(1, 2))
    fuse.import_parquet(tmp_path / "files", tmp_path / "t")

    assert Table.open(tmp_path / "t").to_arrow().to_pylist() == [{"k": 1}, {"k": 2}]


def test_folders_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "files" / "a=1" / "x.parquet", numbers(1))
    write(tmp_path / "files" / "b=1" / "x.parquet", numbers(1))
    with pytest.raises(InvalidInputError, match="other columns"):
        fuse.import_parquet(tmp_path / "files", tmp_path / "t")


def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    with pytest.raises(NotFoundError):
        fuse.import_parquet(folder, tmp_path / "t")
    with pytest.raises(NotFoundError):
        fuse.import_parquet(tmp_path / "nowhere.parquet", tmp_path / "t")
    (folder / "a.parquet").write_text("no Parquet at all")
    with pytest.raises(InvalidInputError, match="cannot be read as Parquet"):
        fuse.import_parquet(folder, tmp_path / "t")
    (folder / "a.csv").write_text("1")
    with pytest.raises(InvalidInputError, match="other files"):
        fuse.import_parquet(folder, tmp_path / "t")
    Table.create(tmp_path / "fuse", numbers(1).schema)
    with pytest.raises(InvalidInputError, match=r"fuse\.copy"):
        fuse.import_parquet(tmp_path / "fuse", tmp_path / "t")
    with pytest.raises(InvalidInputError, match="folder of its own"):
        fuse.import_parquet(folder, folder / "t")

    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("name", ["metadata/v1.metadata.json", ".hoodie/x", "_spark_metadata/0"])
def test_other_formats_are_refused_with_a_remedy(tmp_path: Path, name: str) -> None:
    write(tmp_path / "files" / "a.parquet", numbers(1))
    log = tmp_path / "files" / name
    log.parent.mkdir()
    log.write_text("{}")
    with pytest.raises(UnsupportedFormatError, match=r"fuse\.write"):
        fuse.import_parquet(tmp_path / "files", tmp_path / "t")


def test_a_table_or_other_files_in_the_place_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "files" / "a.parquet", numbers(1))
    fuse.import_parquet(tmp_path / "files", tmp_path / "t")
    with pytest.raises(AlreadyExistsError, match="table here already"):
        fuse.import_parquet(tmp_path / "files", tmp_path / "t")
    with pytest.raises(AlreadyExistsError):
        fuse.import_parquet(tmp_path / "files" / "a.parquet", tmp_path / "files")


def test_a_key_is_set_if_the_rows_are_unique(tmp_path: Path) -> None:
    write(tmp_path / "files" / "a.parquet", numbers(1))
    fuse.import_parquet(tmp_path / "files", tmp_path / "t", key=["k"])
    write(tmp_path / "files" / "b.parquet", numbers(3))
    with pytest.raises(InvalidInputError):
        fuse.import_parquet(tmp_path / "files", tmp_path / "u", key=["k"])
    with pytest.raises(InvalidInputError, match="no such column"):
        fuse.import_parquet(tmp_path / "files", tmp_path / "v", key=["x"])
    with pytest.raises(NotFoundError, match="not finished"):
        Table.open(tmp_path / "u")
    fuse.import_parquet(tmp_path / "files", tmp_path / "u")

    assert Table.open(tmp_path / "t").head().key == (1,)
    assert keys(Table.open(tmp_path / "u")) == [1, 2, 3, 3, 4, 5]
    assert not (tmp_path / "v").exists()


def test_small_files_are_rewritten_into_common_blocks(tmp_path: Path) -> None:
    for number in range(20):
        write(tmp_path / "files" / f"{number:02}.parquet", numbers(number, 1))
    done = fuse.import_parquet(tmp_path / "files", tmp_path / "t")
    table = Table.open(tmp_path / "t")

    assert done.rewritten_count == 20
    assert len(table.blocks()) == 1
    assert [one.operation for one in table.log()] == ["append", "create"]


def test_files_without_rows_bring_columns_alone(tmp_path: Path) -> None:
    write(tmp_path / "files" / "a.parquet", numbers(1, 0))
    done = fuse.import_parquet(tmp_path / "files", tmp_path / "t")

    assert (done.file_count, done.taken_count, done.rewritten_count) == (1, 0, 0)
    assert Table.open(tmp_path / "t").head().version == 0


def test_many_blocks_come_in_several_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "COMMIT_BLOCKS", 2)
    for number in range(5):
        write_block_like(tmp_path / "files" / f"{number}.parquet", numbers(number, 1))
    fuse.import_parquet(tmp_path / "files", tmp_path / "t")

    assert [one.version for one in Table.open(tmp_path / "t").log()] == [3, 2, 1, 0]
    assert Table.open(tmp_path / "t").to_arrow()["k"].to_pylist() == [0, 1, 2, 3, 4]


def made(folder: Path, place: Any, **options: Any) -> ImportReport:
    store = LocalStore(folder)
    return import_files(
        store,
        find_source(store, None),
        Metadata(place, ManualClock(seed=next(SEEDS))),
        ImportRequest(**options),
        report=lambda *_: None,
        probe_place=False,
    )


@pytest.mark.parametrize("fault", AT_ANY_CALL)
def test_an_import_that_dies_anywhere_is_no_table_until_it_is_finished(
    tmp_path: Path, fault: Fault
) -> None:
    folder = tmp_path / "files"
    write_block_like(folder / "a.parquet", numbers(0))
    write(folder / "b.parquet", numbers(3))
    write_block_like(folder / "c.parquet", numbers(6))
    calls = FaultyStore(MemoryStore())
    made(folder, calls, key=("k",))
    writes = [at for at, (verb, _) in enumerate(calls.calls, 1) if verb not in READS]

    for at in writes:
        memory = MemoryStore()
        with suppress(StorageError, CommitStateUnknownError, Crash):
            made(folder, FaultyStore(memory, at_call=at, fault=fault), key=("k",))
        if find_object(memory, TABLE_KEY) is None:
            with pytest.raises(NotFoundError):
                opened(memory)
        with suppress(AlreadyExistsError):  # it came to its end
            made(folder, memory, key=("k",))
        table = opened(memory)
        assert table.to_arrow()["k"].to_pylist() == list(range(9))
        assert table.head().key == (1,)
        assert table.fsck(deep=True).is_sound
        assert find_object(memory, COPY_KEY) is None


def test_a_second_call_does_the_rest_alone(tmp_path: Path, calls_of: Callable[..., int]) -> None:
    folder = tmp_path / "files"
    for number in range(4):
        write_block_like(folder / f"{number}.parquet", numbers(number, 1))
    memory = MemoryStore()
    calls = FaultyStore(MemoryStore())
    made(folder, calls)
    blocks = [at for at, (verb, key) in enumerate(calls.calls, 1) if calls_of(verb, key)]
    with suppress(Crash):
        made(folder, FaultyStore(memory, at_call=blocks[3], fault=Fault.CRASH_BEFORE))
    again = FaultyStore(memory)
    done = made(folder, again)

    assert done.taken_count == 4
    assert sum(calls_of(verb, key) for verb, key in again.calls) == 1
    assert not list(memory.list(STAGED_PREFIX))


@pytest.fixture
def calls_of() -> Callable[..., int]:
    return lambda verb, key: int(verb == "put" and key.startswith("_b/"))


def test_other_arguments_do_not_go_on_with_an_import(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    write(folder / "a.parquet", numbers(1))
    memory = MemoryStore()
    with suppress(Crash):
        made(folder, FaultyStore(memory, at_call=12, fault=Fault.CRASH_BEFORE))
    assert find_object(memory, COPY_KEY) is not None
    with pytest.raises(AlreadyExistsError, match="was begun in this folder"):
        made(folder, memory, cluster_by=("k",))
    made(folder, memory)

    assert keys(opened(memory)) == [1, 2, 3]


# ---- Delta


def commit(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    log = folder / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def metadata(configuration: dict[str, str] | None = None, by: tuple[str, ...] = ()) -> Any:
    fields = [
        {"name": "k", "type": "long", "nullable": True, "metadata": {}},
        {"name": "day", "type": "date", "nullable": True, "metadata": {}},
        {
            "name": "more",
            "type": {"type": "array", "elementType": "decimal(5, 2)", "containsNull": True},
            "nullable": True,
            "metadata": {},
        },
    ]
    text = json.dumps({"type": "struct", "fields": fields})
    return {
        "metaData": {
            "id": "x",
            "schemaString": text,
            "partitionColumns": list(by),
            "configuration": configuration or {},
        }
    }


PROTOCOL: dict[str, Any] = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def add(path: str, **more: Any) -> dict[str, Any]:
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "dataChange": True, **more}}


def test_the_live_files_of_a_delta_table_are_imported(tmp_path: Path) -> None:
    folder = tmp_path / "delta"
    for name, start in (("a", 0), ("b c", 3), ("d", 6), ("never", 9)):
        write(folder / f"{name}.parquet", numbers(start))
    commit(folder, 0, PROTOCOL, metadata(), add("a.parquet"), add("d.parquet"))
    commit(folder, 1, add("b%20c.parquet"), {"remove": {"path": "a.parquet"}})
    done = fuse.import_parquet(folder, tmp_path / "t")
    table = Table.open(tmp_path / "t")

    assert done.source == "version 1 of a Delta table"
    assert keys(table) == [3, 4, 5, 6, 7, 8]
    assert [one.type for one in table.head().schema.columns] == ["long", "date", "array"]
    assert table.head().schema.columns[2].children[0].type == "decimal(5,2)"


def test_partition_values_of_a_delta_table_become_rows(tmp_path: Path) -> None:
    folder = tmp_path / "delta"
    write(folder / "day=2026-01-02" / "a.parquet", numbers(0, 1))
    write(folder / "b.parquet", numbers(1, 1))
    commit(
        folder,
        0,
        PROTOCOL,
        metadata(by=("day",)),
        add("day=2026-01-02/a.parquet", partitionValues={"day": "2026-01-02"}),
        add("b.parquet", partitionValues={"day": None}),
    )
    fuse.import_parquet(folder, tmp_path / "t")
    rows = Table.open(tmp_path / "t").to_arrow().select(["k", "day"]).to_pylist()

    assert sorted(rows, key=str) == [
        {"k": 0, "day": date(2026, 1, 2)},
        {"k": 1, "day": None},
    ]


@pytest.mark.parametrize("parts", [1, 2])
def test_a_checkpoint_of_a_delta_table_stands_for_the_commits_before(
    tmp_path: Path, parts: int
) -> None:
    folder = tmp_path / "delta"
    for name, start in (("a", 0), ("b", 3), ("c", 6)):
        write(folder / f"{name}.parquet", numbers(start))
    commit(folder, 8, {"remove": {"path": "a.parquet"}}, add("c.parquet"))
    value = pa.map_(pa.string(), pa.string())
    add_type = pa.struct([("path", pa.string()), ("partitionValues", value)])
    meta_type = pa.struct(
        [
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", value),
        ]
    )
    meta = metadata()["metaData"]
    rows = [
        {"metaData": {**meta, "configuration": []}, "add": None},
        {"metaData": None, "add": {"path": "a.parquet", "partitionValues": []}},
        {"metaData": None, "add": {"path": "b.parquet", "partitionValues": []}},
    ]
    table = pa.Table.from_pylist(
        [{**row} for row in rows], schema=pa.schema([("add", add_type), ("metaData", meta_type)])
    )
    log = folder / "_delta_log"
    if parts == 1:
        pq.write_table(table, log / f"{7:020}.checkpoint.parquet")
    else:
        for number, piece in enumerate((table.slice(0, 2), table.slice(2)), 1):
            name = f"{7:020}.checkpoint.{number:010}.{2:010}.parquet"
            pq.write_table(piece, log / name)
    fuse.import_parquet(folder, tmp_path / "t")

    assert keys(Table.open(tmp_path / "t")) == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("actions", "why"),
    [
        ([metadata({"delta.columnMapping.mode": "name"})], "mapped"),
        ([metadata(), add("a.parquet", deletionVector={"storageType": "u"})], "REORG TABLE"),
        ([metadata(), add("/abs/a.parquet")], "outside its folder"),
        ([metadata(), add("../a.parquet")], "outside its folder"),
        ([metadata(), add("s3://b/a.parquet")], "outside its folder"),
        (
            [metadata(), {"protocol": {"minReaderVersion": 3, "readerFeatures": ["variantType"]}}],
            "reader features",
        ),
    ],
)
def test_a_delta_table_whose_files_do_not_say_all_is_refused(
    tmp_path: Path, actions: list[Any], why: str
) -> None:
    folder = tmp_path / "delta"
    write(folder / "a.parquet", numbers(0))
    commit(folder, 0, PROTOCOL, *actions)
    with pytest.raises(UnsupportedFormatError, match=why) as raised:
        fuse.import_parquet(folder, tmp_path / "t")

    assert "fuse.write" in str(raised.value)
    assert not (tmp_path / "t").exists()


def test_a_damaged_log_of_a_delta_table_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "delta"
    write(folder / "a.parquet", numbers(0))
    commit(folder, 0, PROTOCOL, metadata(), add("a.parquet"))
    commit(folder, 2, add("b.parquet"))
    with pytest.raises(CorruptObjectError, match="lacks a commit"):
        fuse.import_parquet(folder, tmp_path / "t")
    commit(folder, 1, add("b.parquet"))
    with pytest.raises(CorruptObjectError, match="missing"):
        fuse.import_parquet(folder, tmp_path / "t")
    (folder / "_delta_log" / f"{1:020}.json").write_text('{"add": 3}')
    with pytest.raises(CorruptObjectError, match="cannot be read"):
        fuse.import_parquet(folder, tmp_path / "t")
    (folder / "_delta_log" / f"{0:020}.json").unlink()
    (folder / "_delta_log" / f"{2:020}.checkpoint.{'a' * 8}-{'b' * 27}.parquet").write_text("")
    with pytest.raises(UnsupportedFormatError, match="V2"):
        fuse.import_parquet(folder, tmp_path / "t")


def test_random_rows_are_the_same_after_an_import(tmp_path: Path) -> None:
    seeded = np.random.default_rng(7)
    rows = pa.table(
        {
            "k": seeded.integers(0, 1000, 5000),
            "x": seeded.normal(size=5000),
            "t": [f"t{one}" for one in seeded.integers(0, 50, 5000)],
        }
    )
    write(tmp_path / "files" / "a.parquet", rows.slice(0, 2500), row_group_size=700)
    write_block_like(tmp_path / "files" / "b.parquet", rows.slice(2500))
    fuse.import_parquet(tmp_path / "files", tmp_path / "t", properties={"fuse.block.rows": "1000"})
    table = Table.open(tmp_path / "t")

    assert table.to_arrow().equals(rows)
    assert table.fsck(deep=True).is_sound
