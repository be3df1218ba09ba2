"""Hidden columns are read only by name; no user writes one, and no change of a row loses one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from click.testing import CliRunner

from fuse_stream.cli.main import main
from fuse_stream.errors import InvalidInputError
from fuse_stream.feed.tasks import stats_json
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema, resolve
from fuse_stream.format.schema import is_hidden
from fuse_stream.table.handle import Table, create_at, create_table
from fuse_stream.table.location import TableLocation
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.kit.hidden import SCHEMA, hidden_rows, hidden_schema, write_hidden

ALL = ["k", "v", "_fuse_seq", "_FUSE_Seqs"]
Row = tuple[object, ...]


@pytest.fixture
def table(store: MemoryStore, clock: ManualClock) -> Table:
    """Version 1 has the keys 1 to 3, with their hidden columns."""
    table = create_table(store, hidden_schema(), clock=clock, probe_store=False)
    write_hidden(table, hidden_rows(1, 2, 3))
    return table


def rows(table: pa.Table) -> list[Row]:
    return sorted(zip(*(table[name].to_pylist() for name in ALL), strict=True), key=repr)


def whole(table: Table) -> list[Row]:
    return rows(table.to_arrow(columns=ALL))


def test_a_name_is_hidden_in_any_case() -> None:
    names = ["_fuse_seq", "_FUSE_x", "_Fuse_", "_fuse", "fuse_seq", "_fusex", "x_fuse_"]

    assert [name for name in names if is_hidden(name)] == ["_fuse_seq", "_FUSE_x", "_Fuse_"]


def test_a_schema_without_hidden_columns_is_its_own_visible_one() -> None:
    schema = first_schema(columns_of_arrow(pa.schema([("k", pa.int64())])))

    assert schema.visible is schema


# ---- reading


def test_hidden_columns_are_in_no_default_list_of_columns(table: Table) -> None:
    assert table.schema.names == ["k", "v"]
    assert table.to_arrow().schema.names == ["k", "v"]
    assert table.scan(where="k > 1").schema.names == ["k", "v"]
    assert table.scan().dataset().to_table().schema.names == ["k", "v"]
    assert table.changes(1).schema.names[:3] == ["k", "v", "_change_type"]
    assert table.diff(0, 1).schema.names == ["k", "v", "_change_type"]


def test_hidden_columns_are_read_and_fed_by_name(table: Table) -> None:
    assert whole(table) == [(k, "a", k * 10, f"s{k}") for k in (1, 2, 3)]
    assert table.to_arrow(columns=["_FUSE_SEQ"])["_fuse_seq"].to_pylist() == [10, 20, 30]
    assert table.to_arrow(where="_fuse_seq > 10")["k"].to_pylist() == [2, 3]
    fed = table.changes(1, columns=["k", "_fuse_seq"]).read_all()
    assert fed["_fuse_seq"].to_pylist() == [10, 20, 30]
    assert table.diff(0, 1, columns=["_fuse_seq"]).read_all()["_fuse_seq"].to_pylist() == [
        *(10, 20, 30)
    ]


def test_an_error_about_columns_lists_the_visible_ones(table: Table) -> None:
    with pytest.raises(InvalidInputError) as caught:
        table.to_arrow(columns=["_fuse_se"])

    assert caught.value.context["columns"] == ["k", "v"]
    assert "_fuse" not in str(caught.value.context["nearest"])


def test_the_feed_leaves_out_updates_of_hidden_columns_alone(table: Table) -> None:
    changed = hidden_rows(1, 2, 3).set_column(2, SCHEMA.field(2), pa.array([7, 8, 9]))
    write_hidden(table, changed, instead=True)

    assert table.diff(1, 2).read_all().num_rows == 0
    assert table.diff(1, 2, columns=["k", "_fuse_seq"]).read_all().num_rows == 6


def test_a_column_that_becomes_hidden_later_changes_no_reader(table: Table) -> None:
    more = hidden_rows(4).append_column("_fuse_more", pa.array([1]))
    write_hidden(table, more)

    assert table.changes(1).read_all()["k"].to_pylist() == [1, 2, 3, 4]
    assert table.changes(1, 1).read_all()["k"].to_pylist() == [1, 2, 3]
    assert table.diff(1, 2).read_all().to_pylist() == [{"k": 4, "v": "a", "_change_type": "insert"}]


def test_a_difference_in_hidden_columns_makes_no_other_column_nullable(
    store: MemoryStore, clock: ManualClock
) -> None:
    columns = columns_of_arrow(pa.schema([pa.field("k", pa.int64(), nullable=False)]))
    table = create_table(store, first_schema(columns), clock=clock, probe_store=False)
    table.append(pa.table({"k": [1]}))
    write_hidden(table, pa.table({"k": [2], "_fuse_seq": [1]}))

    assert not table.diff(1, 2).schema.field("k").nullable


def test_the_statistics_in_the_feed_of_blocks_are_of_visible_columns(table: Table) -> None:
    (block,) = table.block_diff(0, 1).inserted

    found = orjson.loads(stats_json(block, table.head().schema))
    assert list(found) == ["k", "v"]


def test_the_command_line_shows_visible_columns(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = create_at(TableLocation.of(path), hidden_schema(), cluster_by=())
    write_hidden(table, hidden_rows(1))

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, list(arguments))
        assert result.exit_code == 0, result.output
        return result.stdout

    for arguments in (
        ("show", path),
        ("show", path, "--json"),
        ("blocks", path, "--json"),
        ("changes", path, "1", "--rows"),
        ("diff", path, "0", "1", "--rows"),
        ("stats", path),
    ):
        assert "_fuse_" not in run(*arguments).lower()
    assert "_fuse_seq" in run("blocks", path, "--stats", "_fuse_seq", "--json")


# ---- writing

NAMED: pa.Table = pa.table({"k": [1], "v": ["x"], "_Fuse_x": [1]})


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.append(NAMED),
        lambda t: t.append(NAMED, merge_schema=True),
        lambda t: t.append(hidden_rows(1)),
        lambda t: t.append(hidden_rows(1), merge_schema=True),
        lambda t: t.append(hidden_rows(1).to_reader()),
        lambda t: t.append(NAMED, app_id="a", batch_id=1),
        lambda t: t.overwrite(NAMED, merge_schema=True),
        lambda t: t.upsert(NAMED, keys=["k"], merge_schema=True),
        lambda t: t.upsert(hidden_rows(1), keys=["k"]),
        lambda t: t.update("k = 1", {"_fuse_seq": 1}),
        lambda t: t.update("k = 1", {"v": "x", "_FUSE_SEQ": 1}),
    ],
)
def test_no_user_writes_a_hidden_column(table: Table, write: Callable[[Table], object]) -> None:
    with pytest.raises(InvalidInputError, match="begin with _fuse_ are reserved"):
        write(table)

    assert table.head().version == 1


def test_no_user_creates_a_table_with_a_hidden_column(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="reserved") as caught:
        Table.create(tmp_path / "t", pa.schema([("k", pa.int64()), ("_fuse_x", pa.int64())]))

    assert caught.value.context == {"column": "_fuse_x"}
    assert not (tmp_path / "t").exists()


def test_a_part_of_a_struct_may_have_any_name(tmp_path: Path) -> None:
    schema = pa.schema([("p", pa.struct([("_fuse_x", pa.int64())]))])
    table = Table.create(tmp_path / "t", schema)

    assert table.schema == schema


def test_an_append_without_hidden_columns_puts_null(table: Table) -> None:
    table.append(pa.table({"k": [4], "v": ["b"]}))
    table.append(pa.table({"k": [5], "v": ["b"]}).to_reader())

    assert whole(table)[3:] == [(4, "b", None, None), (5, "b", None, None)]
    assert table.head().schema == table.snapshot(1).schema


def test_other_missing_columns_are_still_an_error(table: Table) -> None:
    with pytest.raises(ValueError, match="- v string: the table has it"):
        table.append(pa.table({"k": [4]}))


def test_a_merge_of_schemas_keeps_the_hidden_columns(table: Table) -> None:
    table.append(pa.table({"k": [4], "w": [1.5]}), merge_schema=True)

    assert table.schema.names == ["k", "v", "w"]
    assert table.head().schema.names() == ("k", "v", "_fuse_seq", "_FUSE_Seqs", "w")
    assert whole(table)[3] == (4, None, None, None)


def test_an_update_keeps_the_hidden_values_of_its_rows(table: Table) -> None:
    table.update("k = 2", {"v": "new"})
    table.delete("k = 3")

    assert whole(table) == [(1, "a", 10, "s1"), (2, "new", 20, "s2")]


def test_a_compaction_and_a_reclustering_keep_hidden_columns(
    store: MemoryStore, clock: ManualClock
) -> None:
    table = create_table(
        store,
        hidden_schema(),
        clock=clock,
        cluster_by=["k"],
        probe_store=False,
        properties={"fuse.cluster.depth": "1"},
    )
    for key in (3, 1, 2):
        write_hidden(table, hidden_rows(key, key + 10))
    before = whole(table)
    reclustered = table.recluster().snapshot
    table.append(pa.table({"k": [4], "v": ["b"]}))
    table.append(pa.table({"k": [5], "v": ["b"]}))
    assert table.compact().snapshot is not None

    assert reclustered is not None
    assert whole(table) == sorted([*before, (4, "b", None, None), (5, "b", None, None)], key=repr)


def test_a_replica_without_hidden_columns_finds_rows_by_the_visible_ones(table: Table) -> None:
    changes = pa.table({"k": [2, 9], "v": ["a", "z"], "_change_type": ["delete", "insert"]})
    table.replicate(changes)

    assert whole(table) == [(1, "a", 10, "s1"), (3, "a", 30, "s3"), (9, "z", None, None)]


def test_an_upsert_puts_null_into_hidden_columns_of_its_rows(table: Table) -> None:
    table.upsert(pa.table({"k": [2, 4], "v": ["new", "new"]}), keys=["k"])

    assert whole(table) == [
        (1, "a", 10, "s1"),
        (2, "new", None, None),
        (3, "a", 30, "s3"),
        (4, "new", None, None),
    ]


def test_a_batch_that_is_replayed_after_hidden_columns_came_is_known(
    store: MemoryStore, clock: ManualClock
) -> None:
    schema = first_schema(columns_of_arrow(pa.schema([("k", pa.int64()), ("v", pa.string())])))
    table = create_table(store, schema, clock=clock, probe_store=False)
    batch = pa.table({"k": [1], "v": ["a"]})
    table.append(batch, app_id="a", batch_id=1)
    write_hidden(table, hidden_rows(2))

    assert table.append(batch, app_id="a", batch_id=1).replayed
    assert table.to_arrow().num_rows == 2


def test_hidden_columns_come_by_the_lower_functions_alone() -> None:
    head = hidden_schema()
    arriving = columns_of_arrow(pa.schema([("k", pa.int64()), ("v", pa.string())]))
    new = columns_of_arrow(pa.schema([("k", pa.int64()), ("_fuse_more", pa.int64())]))

    assert resolve(head, arriving)[0] == head
    with pytest.raises(InvalidInputError, match="reserved"):
        resolve(head, new, merge_schema=True)
    extended, _ = resolve(head, new, merge_schema=True, with_hidden=True)
    assert extended.names() == (*head.names(), "_fuse_more")
    assert extended.visible.names() == ("k", "v")
