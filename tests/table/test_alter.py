"""Changes of columns by `Table.update_schema`: what they do, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from fuse_stream.errors import (
    AlreadyExistsError,
    ConflictError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    UnsupportedTypeError,
)
from fuse_stream.format.codec import decode_table_file, encode_table_file
from fuse_stream.format.features import STORED_NAMES
from fuse_stream.table.alter import SchemaUpdate
from fuse_stream.table.handle import Table
from fuse_stream.table.transfer import copy
from fuse_stream.table.verbs import clone
from fuse_stream.testing.tables import open_table_in, temporary_table

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("name", pa.string()),
        ("part", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("m", pa.map_(pa.struct([("q", pa.int64())]), pa.int64())),
    ]
)


def rows(*keys: int) -> pa.Table:
    return pa.Table.from_pylist(
        [{"k": k, "name": f"n{k}", "part": {"x": k, "y": "y"}, "m": []} for k in keys],
        schema=SCHEMA,
    )


@pytest.fixture
def table() -> Table:
    made = temporary_table(SCHEMA)
    made.append(rows(1, 2, 3))
    return made


def rename(table: Table, old: str, new: str) -> None:
    with table.update_schema() as change:
        change.rename_column(old, new)


def test_several_changes_are_one_commit(table: Table) -> None:
    with table.update_schema(message="why", author="anna") as change:
        change.rename_column("name", "label").add_column(("part", "z"), pa.float64())
        change.move_first("label").update_column("k", comment="the key", nullable=False)
        change.delete_column("m")

    assert change.snapshot == table.head()
    assert (table.head().version, table.head().message, table.head().author) == (2, "why", "anna")
    assert table.schema.names == ["label", "k", "part"]
    assert table.to_arrow().to_pylist()[0] == {
        "label": "n1",
        "k": 1,
        "part": {"x": 1, "y": "y", "z": None},
    }


def test_no_change_commits_nothing(table: Table) -> None:
    with table.update_schema() as change:
        change.rename_column("k", "j").rename_column("j", "k")
    with table.update_schema():
        pass
    with pytest.raises(NotFoundError), table.update_schema() as change:
        change.rename_column("k", "j").delete_column("nothing")

    assert table.schema.names == SCHEMA.names
    assert table.head().version == 2  # its name in between is kept from files
    assert STORED_NAMES in table.head().required_features


REFUSED: dict[str, tuple[Callable[[SchemaUpdate], object], type[FuseError], str]] = {
    "a taken name": (lambda c: c.rename_column("k", "name"), AlreadyExistsError, "of this name"),
    "a name in another case": (lambda c: c.add_column("NAME", "long"), AlreadyExistsError, "case"),
    "a taken field": (lambda c: c.rename_column("part.x", "y"), AlreadyExistsError, "of this name"),
    "no column": (lambda c: c.delete_column("nmae"), NotFoundError, "nearest='name'"),
    "no field": (lambda c: c.move_first("part.q"), NotFoundError, "no such column"),
    "no struct": (lambda c: c.add_column("other.x", "long"), NotFoundError, "no such column"),
    "a field of a number": (lambda c: c.add_column("k.x", "long"), InvalidInputError, "struct"),
    "no neighbour": (lambda c: c.move_after("k", "x"), NotFoundError, "beside"),
    "two places": (
        lambda c: c.add_column("z", "long", first=True, after="k"),
        InvalidInputError,
        "one place",
    ),
    "a narrower type": (lambda c: c.update_column("k", type="integer"), InvalidInputError, "wider"),
    "no type": (lambda c: c.add_column("z", "bigint"), InvalidInputError, "a type is one"),
    "an unsigned type": (lambda c: c.add_column("z", pa.uint8()), UnsupportedTypeError, "type"),
    "the feed's": (lambda c: c.rename_column("k", "_change_type"), InvalidInputError, "feed"),
    "a hidden name": (lambda c: c.rename_column("k", "_fuse_x"), InvalidInputError, "reserved"),
    "no name": (lambda c: c.rename_column("k", ""), InvalidInputError, "no name"),
    "a part of a map": (lambda c: c.rename_column("m.value", "v"), InvalidInputError, "map"),
    "a map's key": (lambda c: c.delete_column("m.key.q"), InvalidInputError, "key of a map"),
    "a path of nothing": (lambda c: c.delete_column(()), InvalidInputError, "named by a text"),
    "not null in a struct": (
        lambda c: c.update_column("part.x", nullable=False),
        InvalidInputError,
        "not nested",
    ),
    "a long comment": (
        lambda c: c.update_column("k", comment="x" * 10_001),
        InvalidInputError,
        "at most",
    ),
    "the last field": (
        lambda c: c.delete_column("part.x").delete_column("part.y"),
        InvalidInputError,
        "at least one",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_change_that_cannot_be_is_refused_at_once(table: Table, case: str) -> None:
    act, kind, text = REFUSED[case]

    with pytest.raises(kind, match=text), table.update_schema() as change:
        act(change)
    assert table.head().version == 1


def test_columns_that_the_table_needs_are_not_dropped(table: Table) -> None:
    table.cluster_by(["name"])
    table.set_key(["k"])
    table.set_properties({"fuse.bloom.columns": "name,k"})

    for name, text in (("name", "the cluster key"), ("k", "the key of the rows")):
        with pytest.raises(InvalidInputError, match=text):
            table.update_schema().delete_column(name)
    table.cluster_by([])
    with pytest.raises(InvalidInputError, match=r"fuse\.bloom\.columns"):
        table.update_schema().delete_column("name")


def test_a_column_with_nulls_is_not_set_not_null(table: Table) -> None:
    table.append(pa.table({"k": [None], "name": ["x"], "part": [None], "m": [None]}, schema=SCHEMA))

    with pytest.raises(InvalidInputError, match="a column with nulls"):
        table.update_schema().update_column("k", nullable=False).commit()
    with table.update_schema() as change:
        change.add_column("new", "long")
    with pytest.raises(InvalidInputError, match="a column with nulls"):
        table.update_schema().update_column("new", nullable=False).commit()
    table.delete("k IS NULL")
    table.compact()
    with table.update_schema() as change:
        change.update_column("k", nullable=False)
    with pytest.raises(InvalidInputError, match="holds nulls"):
        table.append(pa.Table.from_pylist([{"name": "x"}], schema=table.schema.remove(0).insert(
            0, pa.field("k", pa.int64()))))  # fmt: skip


def test_another_change_of_columns_is_a_conflict_unless_replanned(table: Table) -> None:
    slow, again = table.update_schema(), table.update_schema(on_conflict="replan")
    slow.rename_column("k", "key")
    again.rename_column("k", "key")
    rename(table, "name", "label")

    with pytest.raises(ConflictError, match="changed the columns"):
        slow.commit()
    again.commit()
    assert table.schema.names[:2] == ["key", "label"]


def test_an_append_of_old_names_after_a_rename_is_refused(table: Table) -> None:
    rename(table, "name", "label")

    with pytest.raises(SchemaMismatchError, match="label"):
        table.append(rows(4))
    merged = rows(4)
    table.append(merged, merge_schema=True)
    assert table.to_arrow(where="name = 'n4'").to_pylist()[0]["label"] is None
    assert table.to_arrow(where="name IS NULL").num_rows == 3


def test_properties_follow_a_renamed_column(table: Table) -> None:
    table.set_properties({"fuse.bloom.columns": "name", "fuse.private": "name"})
    rename(table, "name", "label")
    table.append(pa.table({"k": [9], "label": ["z9"], "part": [None], "m": [None]}, table.schema))

    assert table.properties["fuse.bloom.columns"] == "label"
    assert table.properties["fuse.private"] == "name,label"
    (block,) = [one for one in table.blocks() if one.row_count == 1]
    assert block.index_size > 0
    stats = block.col_stats[2]
    assert (stats.min, stats.max, stats.null_count) == (None, None, 0)
    assert table.to_arrow(where="label = 'z9'").num_rows == 1
    assert table.fsck(deep=True).is_sound


def test_rows_change_by_key_under_new_names(table: Table) -> None:
    table.set_key(["k"])
    rename(table, "k", "key")
    rename(table, "name", "k")
    table.upsert(
        pa.table(
            {"key": [2, 7], "k": ["up", "new"], "part": [None] * 2, "m": [None] * 2}, table.schema
        )
    )
    table.update("k = 'n1'", {"k": "updated"})
    table.delete("key = 3")

    found = {row["key"]: row["k"] for row in table.to_arrow().to_pylist()}
    assert found == {1: "updated", 2: "up", 7: "new"}
    assert table.to_arrow(version=1, where="k = 3").num_rows == 1


def test_a_dropped_columns_values_leave_the_files_by_compaction(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(rows(1))
    table.append(rows(2))
    with table.update_schema() as change:
        change.delete_column("name")
        change.delete_column("part.y")
    table.compact()

    (block,) = table.blocks()
    assert set(block.col_metas) == {1, 4, 8, 9}
    files = sorted((tmp_path / "t" / "_b").rglob("*.parquet"), key=lambda one: one.stat().st_mtime)
    assert pq.read_schema(files[-1]).names == ["k", "part", "m"]
    assert table.to_arrow(version=2, where="name = 'n2'").num_rows == 1


def test_datasets_clones_and_copies_have_the_names_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = Table.create(path, SCHEMA)
    table.append(rows(1, 2))
    rename(table, "part.x", "z")
    rename(table, "name", "label")
    with table.update_schema() as change:
        change.add_column("name", "long")
    table.append(pa.Table.from_pylist([{"k": 3, "name": 3, "label": "l"}], schema=table.schema))
    whole = table.to_arrow().to_pylist()

    found = table.scan().dataset()
    assert isinstance(found, ds.Dataset)
    assert found.to_table().to_pylist() == whole
    assert found.to_table(filter=ds.field("name").is_null()).num_rows == 2
    clone(path, tmp_path / "clone")
    cloned = Table.open(tmp_path / "clone", origins=[path])
    copy(path, tmp_path / "copy")
    for other in (cloned, Table.open(tmp_path / "copy")):
        assert other.to_arrow().to_pylist() == whole
        other.append(pa.Table.from_pylist([{"k": 4, "name": 4}], schema=other.schema))
        assert other.to_arrow(where="name >= 3").num_rows == 2
        assert other.fsck(deep=True).is_sound
    data = (tmp_path / "clone" / "_fuse.json").read_bytes()
    assert b'"format_version":2' in data
    assert encode_table_file(decode_table_file(data)) == data


def test_branches_have_columns_of_their_own(table: Table) -> None:
    table.create_branch("fix")
    fix = open_table_in(table.metadata.store, branch="fix")
    rename(fix, "name", "label")
    with fix.update_schema() as change:
        change.add_column("name", "long")
    table.append(rows(4))

    assert table.to_arrow(where="name = 'n4'").num_rows == 1
    assert fix.to_arrow(where="name IS NULL").num_rows == 3
    assert fix.to_arrow(where="label = 'n1'").num_rows == 1


def test_a_table_of_events_gets_columns_at_the_end_only() -> None:
    table = temporary_table(pa.schema([("k", pa.int64()), ("v", pa.string())]))
    events = pa.table({"k": [1], "v": ["a"], "seq": [1]})
    table.upsert(events, keys=["k"], sequence_by="seq", except_column_list=["seq"])

    acts: list[Callable[[SchemaUpdate], object]] = [
        lambda change: change.rename_column("v", "w"),
        lambda change: change.delete_column("v"),
        lambda change: change.move_first("v"),
        lambda change: change.add_column("w", "long", first=True),
    ]
    for act in acts:
        with pytest.raises(SchemaMismatchError, match="come from events"):
            act(table.update_schema())
    with table.update_schema() as change:
        change.add_column("w", "long").update_column("v", comment="text")
    assert table.to_arrow().to_pylist() == [{"k": 1, "v": "a", "w": None}]
