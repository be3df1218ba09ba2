"""The table handle: its results, its errors and its guarantees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from fuse_stream.errors import (
    AlreadyExistsError,
    ConflictError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
    StorageError,
    StreamIdentityError,
    UnsupportedTypeError,
)
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.batch_sums import BatchSums
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import slot_key
from fuse_stream.format.records import Operation
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.storage.wrappers import StoreWrapper
from fuse_stream.table.arriving import Data
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound, rows_of
from tests.recovery.histories import rewind

T = TypeVar("T")
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", pa.string())])
ROWS = pa.table({"k": [1, 2], "s": ["a", None]}, schema=SCHEMA)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=ManualClock())


@pytest.fixture
def table(store: MemoryStore) -> Table:
    return create_table(
        store, first_schema(columns_of_arrow(SCHEMA)), clock=ManualClock(), probe_store=False
    )


def opened(store: MemoryStore, seed: int = 5) -> Table:
    return open_table(store, clock=ManualClock(seed=seed), probe_store=False)


def test_a_table_on_disk_from_create_to_read(tmp_path: Path) -> None:
    path = tmp_path / "lake" / "flights"
    created = Table.create(path, SCHEMA, cluster_by=["k"], properties={"owner": "me"})
    created.append(ROWS, message="first", author="Ada")
    created.append(ROWS.to_batches()[0])
    created.append(ROWS.to_reader())
    table = Table.open(path)

    assert table.to_arrow().num_rows == 6
    assert table.schema.names == ["k", "s"]
    assert not table.schema.field("k").nullable
    assert table.properties == {"owner": "me"}
    assert table.snapshot(1).message == "first"
    assert table.snapshot(1).author == "Ada"
    assert [item.operation for item in table.log()] == ["append"] * 3 + ["create"]
    assert_sound(table.metadata.store, table)


def test_the_path_and_the_branch_are_in_the_repr(table: Table) -> None:
    assert repr(table) == "Table('memory-store', branch='main')"


def test_opening_what_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"Table\.create") as caught:
        Table.open(tmp_path / "nothing")

    assert caught.value.context["path"] == str(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_second_create_is_refused_and_changes_nothing(store: MemoryStore, table: Table) -> None:
    table.append(ROWS)
    before = dict(store.objects)

    with pytest.raises(AlreadyExistsError):
        create_table(
            store,
            first_schema(columns_of_arrow(SCHEMA)),
            clock=ManualClock(seed=9),
            probe_store=False,
        )

    assert store.objects == before


@pytest.mark.parametrize(
    ("arguments", "error", "names"),
    [
        ({"cluster_by": "k"}, InvalidInputError, "list of names"),
        ({"cluster_by": ["nope"]}, InvalidInputError, "nope"),
        ({"cluster_by": ["k", "k"]}, InvalidInputError, "twice"),
        ({"properties": {"fuse.blok.rows": "5"}}, InvalidInputError, "fuse.block.rows"),
        ({"properties": {"fuse.grace": "soon"}}, InvalidInputError, "soon"),
        ({"properties": ["a"]}, InvalidInputError, "mapping"),
        ({"schema": pa.schema([])}, InvalidInputError, "empty"),
        ({"schema": pa.schema([("c", pa.uint8())])}, UnsupportedTypeError, "uint8"),
        ({"schema": {"k": "long"}}, InvalidInputError, "pyarrow.Schema"),
        ({"path": ""}, InvalidInputError, "empty"),
    ],
    ids=str,
)
def test_a_refused_create_writes_nothing(
    tmp_path: Path, arguments: dict[str, object], error: type[Exception], names: str
) -> None:
    values = {"path": tmp_path / "t", "schema": SCHEMA} | arguments
    with pytest.raises(error, match=names):
        Table.create(**values)

    assert not (tmp_path / "t" / "_fuse.json").exists()


def test_opening_a_missing_branch_is_a_not_found_error(table: Table, store: MemoryStore) -> None:
    with pytest.raises(NotFoundError, match="no such branch") as caught:
        open_table(store, branch="mian", probe_store=False)

    assert caught.value.context["nearest"] == "main"


@pytest.mark.parametrize("branch", ["../x", "", "a/b", "12"])
def test_an_invalid_branch_name_is_refused(store: MemoryStore, branch: str) -> None:
    create_table(store, first_schema(columns_of_arrow(SCHEMA)), probe_store=False)

    with pytest.raises(InvalidInputError, match="name of a branch"):
        open_table(store, branch=branch, probe_store=False)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([1, 2], InvalidInputError),
        ({"k": [1]}, InvalidInputError),
        (None, InvalidInputError),
        (pa.table({"k": [1]}), SchemaMismatchError),
        (pa.table({"k": ["x"], "s": ["y"]}), SchemaMismatchError),
        (pa.table({"k": [1], "s": ["y"], "z": [0]}), SchemaMismatchError),
        (pa.table({"k": [1], "K": [1], "s": ["y"]}), InvalidInputError),
        (pa.table({"k": [1], "s": ["y"], "_change_type": ["insert"]}), InvalidInputError),
        (pa.table({"k": pa.array([1], pa.uint8()), "s": ["y"]}), UnsupportedTypeError),
        (
            pa.table(
                {"k": [None], "s": ["y"]}, schema=pa.schema([("k", pa.int64()), ("s", pa.string())])
            ),
            InvalidInputError,
        ),
    ],
    ids=lambda item: str(item)[:30],
)
@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_data_that_does_not_fit_the_schema_writes_nothing(
    table: Table, store: MemoryStore, operation: str, data: object, error: type[Exception]
) -> None:
    before = dict(store.objects)
    with pytest.raises(error):
        getattr(table, operation)(data)

    assert store.objects == before


@pytest.mark.parametrize(
    "arguments",
    [{"app_id": "a"}, {"writer": "w"}, {"batch_id": "1"}, {"batch_id": 1.0}, {"batch_id": -1}],
    ids=str,
)
def test_a_batch_needs_an_application_and_a_number(
    table: Table, arguments: dict[str, object]
) -> None:
    with pytest.raises(InvalidInputError):
        table.append(ROWS, **arguments)  # type: ignore[arg-type]


def test_an_equal_batch_is_a_replay_and_a_lower_one_an_error(table: Table) -> None:
    first = table.append(ROWS, app_id="a", batch_id=1)
    table.append(ROWS)
    again = table.append(ROWS, app_id="a", batch_id=1)

    assert again.ledger.entries["a", ""].version == first.version
    assert table.head().version == 2
    with pytest.raises(StreamIdentityError):
        table.append(ROWS, app_id="a", batch_id=0)
    assert table.append(ROWS, app_id="a", batch_id=0, writer="other").version == 3


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("_delta_log/00000000000000000000.json", "a Delta table"),
        ("metadata/v1.metadata.json", "an Iceberg table"),
        (".hoodie/hoodie.properties", "a Hudi table"),
        ("data/part-0.parquet", "other files"),
        ("notes.txt", "other files"),
    ],
)
def test_no_table_is_created_beside_something_else(store: MemoryStore, key: str, kind: str) -> None:
    store.put(key, b"x")
    faulty = FaultyStore(store)
    with pytest.raises(AlreadyExistsError, match=f"{kind}.*folder of its own") as caught:
        create_table(faulty, first_schema(columns_of_arrow(SCHEMA)), clock=ManualClock())

    name, slash, _ = key.partition("/")
    assert caught.value.context == {"path": store.url, "found": [name + slash], "count": 1}
    assert faulty.calls == [("names", "")]


@pytest.mark.parametrize(
    ("key", "kind"),
    [("_delta_log/0.json", "a Delta table"), ("part-0.parquet", "other files"), ("t/x", "other")],
)
def test_the_error_of_an_open_says_what_is_there_instead(
    store: MemoryStore, key: str, kind: str
) -> None:
    store.put(key, b"x")
    with pytest.raises(NotFoundError, match=f"no fuse_stream table here: .* {kind}") as caught:
        open_table(store)

    name, slash, _ = key.partition("/")
    assert caught.value.context == {"path": store.url, "found": [name + slash]}


def test_an_open_of_an_empty_place_says_how_to_create_a_table(store: MemoryStore) -> None:
    store.put(".DS_Store", b"x")
    with pytest.raises(NotFoundError, match=r"create the table with Table\.create"):
        open_table(store)


@pytest.mark.parametrize(
    "data", [{"k": [1]}, [{"k": 1}], pa.array([1]), ds.dataset(pa.table({"k": [1]}))]
)
def test_the_error_for_other_data_says_how_to_convert_it(table: Table, data: Any) -> None:
    with pytest.raises(InvalidInputError, match="data is a data frame") as caught:
        table.append(data)

    for way in ("pa.table(", "pa.Table.from_pylist(", "to_frame()", "dataset.scanner().to_reader"):
        assert way in caught.value.message
    assert table.head().version == 0


def test_the_index_of_a_filtered_frame_is_to_be_left_out(store: MemoryStore) -> None:
    schema = first_schema(columns_of_arrow(pa.schema([("k", pa.int64())])))
    table = create_table(store, schema, clock=ManualClock())
    frame = pd.DataFrame({"k": [1, 2, 3]})
    with pytest.raises(SchemaMismatchError, match=r"frame\.reset_index\(drop=True\)") as caught:
        table.append(frame[frame.k > 1])

    assert "merge_schema" not in caught.value.message
    table.append(frame[frame.k > 1].reset_index(drop=True))
    assert table.to_arrow()["k"].to_pylist() == [2, 3]


@pytest.mark.parametrize(
    "key",
    [
        ".DS_Store",
        "Thumbs.db",
        "lost+found/1",
        "_checkpoints/flights/metadata",
        f"_b/{'0' * 32}_v1.parquet",
        f"_probe/{'0' * 32}",
    ],
)
def test_a_table_is_created_beside_hidden_files_and_leftovers(store: MemoryStore, key: str) -> None:
    store.put(key, b"x")
    table = create_table(
        store, first_schema(columns_of_arrow(SCHEMA)), clock=ManualClock(), probe_store=False
    )

    assert table.append(ROWS).version == 1


def test_an_interrupted_create_is_finished_beside_files_that_came_later(store: MemoryStore) -> None:
    schema, whole = first_schema(columns_of_arrow(SCHEMA)), FaultyStore(MemoryStore())
    create_table(whole, schema, clock=ManualClock(), probe_store=False)
    faulty = FaultyStore(store, at_call=len(whole.calls), fault=Fault.CRASH_BEFORE)
    with pytest.raises(Crash):
        create_table(faulty, schema, clock=ManualClock(), probe_store=False)
    store.put("notes.txt", b"x")

    assert [*store.objects] == ["_fuse.json", "notes.txt"]
    assert opened(store).append(ROWS).version == 1


def as_reader(rows: pa.Table) -> pa.RecordBatchReader:
    return rows.to_reader(max_chunksize=1)


def turned(rows: pa.Table) -> pa.Table:
    return rows.take([1, 0])


@pytest.mark.parametrize("arriving", [pa.Table.combine_chunks, as_reader, turned])
def test_a_replay_says_so_and_a_new_batch_does_not(
    table: Table, arriving: Callable[[pa.Table], Data]
) -> None:
    first = table.append(ROWS, app_id="a", batch_id=1)
    again = table.append(arriving(ROWS), app_id="a", batch_id=1)

    assert (first.replayed, again.replayed) == (False, True)
    assert again == first


def test_narrower_values_are_widened_as_they_are_written(table: Table) -> None:
    narrow = ROWS.set_column(0, "k", pa.array([1, -2], pa.int32()))
    table.append(narrow)
    table.append(narrow.to_reader(), app_id="a", batch_id=1)

    assert table.to_arrow()["k"].type == pa.int64()
    assert table.to_arrow()["k"].to_pylist() == [1, -2] * 2
    assert table.append(narrow, app_id="a", batch_id=1).replayed
    assert table.head().schema.id == 0


def test_wider_values_are_refused_even_if_they_would_fit() -> None:
    table = create_table(
        MemoryStore(),
        first_schema(columns_of_arrow(pa.schema([("k", pa.int32())]))),
        clock=ManualClock(),
        probe_store=False,
    )
    with pytest.raises(SchemaMismatchError, match="merge_schema=True"):
        table.append(pa.table({"k": [1]}))

    assert table.head().version == 0


OTHER_ROWS = ROWS.set_column(1, "s", pa.array(["b", None]))


@pytest.mark.parametrize("rows", [OTHER_ROWS, ROWS[:1], ROWS[:0]])
@pytest.mark.parametrize("arriving", [pa.Table.combine_chunks, as_reader])
@pytest.mark.parametrize("verb", [Table.append, Table.overwrite])
def test_other_rows_under_a_committed_number_are_an_error(
    table: Table,
    rows: pa.Table,
    arriving: Callable[[pa.Table], Data],
    verb: Callable[..., object],
) -> None:
    verb(table, ROWS, app_id="a", batch_id=1, writer="w")
    with pytest.raises(StreamIdentityError, match="next batch_id") as caught:
        verb(table, arriving(rows), app_id="a", batch_id=1, writer="w")

    context = caught.value.context
    assert (context["application"], context["writer"], context["batch"]) == ("a", "w", 1)
    assert (context["committed_version"], context["committed_rows"]) == (1, 2)
    assert table.head().version == 1


def test_a_reader_that_was_read_before_is_no_replay(table: Table) -> None:
    reader = as_reader(ROWS)
    table.append(reader, app_id="a", batch_id=1)

    with pytest.raises(StreamIdentityError, match="read before has no rows any more"):
        table.append(reader, app_id="a", batch_id=1)


def test_a_reader_that_was_read_before_is_an_empty_batch_under_a_new_number(table: Table) -> None:
    reader = as_reader(ROWS)
    table.append(reader, app_id="a", batch_id=1)
    made = table.append(reader, app_id="a", batch_id=2)

    assert (made.version, made.replayed, made.summary.row_count) == (2, False, ROWS.num_rows)
    assert table.ledger()["a", ""].batch_id == 2


def test_a_replay_is_known_after_other_writers_changed_the_schema(table: Table) -> None:
    table.append(ROWS, app_id="a", batch_id=1)
    table.append(pa.table({"k": [3], "s": ["c"], "new": [1.5]}), merge_schema=True)

    assert table.append(ROWS, app_id="a", batch_id=1).replayed
    with pytest.raises(StreamIdentityError):
        table.append(OTHER_ROWS, app_id="a", batch_id=1)


def test_only_an_entry_with_a_fingerprint_needs_the_feature(table: Table) -> None:
    features = [
        table.append(ROWS).required_features,
        table.append(ROWS, app_id="a", batch_id=1).required_features,
        table.append(ROWS).required_features,
        table.forget("a").required_features,
    ]

    plain, numbered = ("line", "own_hash"), ("fingerprints", "line", "own_hash")
    assert features == [plain, numbered, numbered, plain]


def test_a_rewind_takes_the_features_of_the_ledger_that_it_brings(table: Table) -> None:
    table.append(ROWS)
    table.append(ROWS, app_id="a", batch_id=1)
    rewind(table.committer, Goal(version=1), retire=["a"])
    without = table.head()
    rewind(table.committer, Goal(version=2))

    assert without.required_features == ("line", "own_hash")
    assert table.head().required_features == ("fingerprints", "line", "own_hash")
    assert table.append(ROWS, app_id="a", batch_id=1).replayed


def test_a_batch_that_an_older_release_committed_is_a_replay_without_a_comparison(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(BatchSums, "fingerprint", None)
        table.append(ROWS, app_id="a", batch_id=1)
    reader = as_reader(OTHER_ROWS)

    assert table.append(reader, app_id="a", batch_id=1).replayed
    assert reader.read_all().num_rows == 2


def test_a_replay_writes_no_object(table: Table, store: MemoryStore) -> None:
    table.append(ROWS, app_id="a", batch_id=1)
    before = dict(store.objects)
    table.append(ROWS, app_id="a", batch_id=1)

    assert store.objects == before


def test_a_forgotten_applications_next_batch_is_new(table: Table) -> None:
    table.append(ROWS, app_id="a", batch_id=7)
    table.forget("a")
    table.append(ROWS, app_id="a", batch_id=0)

    assert table.ledger()["a", ""].batch_id == 0
    assert table.to_arrow().num_rows == 4
    with pytest.raises(NotFoundError) as caught:
        table.forget("b")
    assert caught.value.context["known"] == ["a"]


def test_properties_are_merged_and_kept_by_later_commits(table: Table) -> None:
    table.set_properties({"a": "1", "b": "2"})
    table.set_properties({"b": "3", "fuse.block.rows": "1"})
    snapshot = table.append(ROWS)

    assert table.properties == {"a": "1", "b": "3", "fuse.block.rows": "1"}
    assert snapshot.summary.block_count == 2
    with pytest.raises(InvalidInputError, match="fixed"):
        table.set_properties({"fuse.grace": "2h"})
    with pytest.raises(InvalidInputError, match="on_conflict"):
        table.set_properties({}, on_conflict="retry")


def test_set_properties_is_planned_again_after_a_rival_commit_only_on_request(
    table: Table, store: MemoryStore
) -> None:
    def rival(number: int) -> Callable[[], object]:
        return lambda: opened(store, seed=number).append(ROWS)

    class Rivalled(FaultyStore):
        act: Callable[[], object] | None = None

        def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
            act, self.act = self.act, None
            if act:
                act()
            super().put_if_absent(key, data)

    faulty = table.metadata.store = Rivalled(store)
    faulty.act = rival(1)
    with pytest.raises(ConflictError, match="replan"):
        table.set_properties({"a": "1"})
    assert table.properties == {}

    faulty.act = rival(2)
    assert table.set_properties({"a": "1"}, on_conflict="replan").version == 3


def test_the_rows_of_a_reader_are_split_into_blocks_of_at_most_the_limit(
    store: MemoryStore,
) -> None:
    table = create_table(
        store,
        first_schema(columns_of_arrow(SCHEMA)),
        properties={"fuse.block.rows": "4"},
        clock=ManualClock(),
        probe_store=False,
    )
    batches = [ROWS.to_batches()[0]] * 7
    table.append(pa.RecordBatchReader.from_batches(SCHEMA, batches))

    assert [block.row_count for block in table.blocks()] == [4, 4, 4, 2]
    assert rows_of(table.to_arrow()) == {(1, "a"): 7, (2, None): 7}


def test_rows_within_a_block_are_sorted_by_the_cluster_key(store: MemoryStore) -> None:
    schema = pa.schema([("k", pa.int64()), ("s", pa.string())])
    table = create_table(
        store,
        first_schema(columns_of_arrow(schema)),
        cluster_by=["s", "k"],
        clock=ManualClock(),
        probe_store=False,
    )
    table.append(pa.table({"k": [3, None, 1, 2], "s": ["b", "a", "b", None]}))
    (ref,) = table.segments()

    assert table.to_arrow().to_pylist() == [
        {"k": None, "s": "a"},
        {"k": 1, "s": "b"},
        {"k": 3, "s": "b"},
        {"k": 2, "s": None},
    ]
    assert ref.key_range is not None
    assert (ref.key_range.min, ref.key_range.max) == (("a", 1), ("b", 3))


def test_an_empty_append_is_a_snapshot_without_rows(table: Table) -> None:
    snapshot = table.append(SCHEMA.empty_table())

    assert (snapshot.version, snapshot.data_change, snapshot.added) == (1, False, ())


def test_an_overwrite_keeps_the_schema_and_its_ids(table: Table) -> None:
    table.append(pa.table({"k": [1], "s": ["a"], "x": [0.5]}), merge_schema=True)
    table.overwrite(pa.table({"k": [1], "s": ["a"], "x": [None]}, schema=table.schema))
    table.append(pa.table({"k": [1], "s": ["a"], "y": [0.5]}), merge_schema=True)

    assert [(c.name, c.id) for c in table.head().schema.columns] == [
        ("k", 1),
        ("s", 2),
        ("x", 3),
        ("y", 4),
    ]


def test_a_failed_put_of_a_block_raises_the_storage_error_and_commits_nothing(
    table: Table, store: MemoryStore
) -> None:
    table.metadata.store = FaultyStore(store, at_call=2, keep_failing=True)

    with pytest.raises(StorageError):
        table.append(ROWS)

    assert opened(store).head().version == 0


def test_an_append_whose_consumed_reader_is_needed_again_asks_for_the_rows_again(
    table: Table, store: MemoryStore
) -> None:
    class Rivalled(FaultyStore):
        done = False

        def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
            if not self.done:
                self.done = True
                opened(store).append(
                    pa.table({"k": [1], "s": ["a"], "x": [0.5]}), merge_schema=True
                )
            super().put_if_absent(key, data)

    table.metadata.store = Rivalled(store)

    with pytest.raises(ConflictError, match="send the rows again"):
        table.append(ROWS.to_reader(), merge_schema=True)


def test_rows_are_judged_by_the_newest_schema(store: MemoryStore) -> None:
    wide = pa.table({"k": [1], "s": ["a"], "c": ["x"]})
    table = create_table(store, first_schema(columns_of_arrow(SCHEMA)), clock=ManualClock())
    other = open_table(store, clock=ManualClock(seed=5))
    other.append(wide, merge_schema=True)
    table.append(wide)
    rewind(other.committer, Goal(version=0))

    table.append(pa.table({"k": [2], "s": ["b"], "c": [7]}), merge_schema=True)

    assert table.to_arrow().to_pylist() == [{"k": 2, "s": "b", "c": 7}]
    with pytest.raises(SchemaMismatchError):
        table.append(wide, merge_schema=True)


@pytest.mark.long
def test_the_size_of_metadata_does_not_grow_with_history(table: Table, store: MemoryStore) -> None:
    sizes, segments = [0], [0]
    for number in range(1, 1001):
        snapshot = table.append(ROWS, app_id="a", batch_id=number)
        sizes.append(len(store.get(slot_key("main", number))))
        segments.append(len(snapshot.segments))

    assert max(segments[:301]) <= 50
    assert max(segments) <= 50
    assert max(sizes[900:]) < 1.25 * max(sizes[:256])
    assert "_hint/main" in store.objects


def test_every_error_of_the_handle_is_a_fuse_error(table: Table) -> None:
    calls: list[Callable[[], object]] = [
        lambda: table.scan(columns=["x"]),
        lambda: table.snapshot("x"),
        lambda: table.snapshot(9),
        lambda: table.append(1),
        lambda: table.diff(0, "x"),
        lambda: table.changes(3),
        lambda: table.forget("x"),
        lambda: table.set_properties({"fuse.x": "1"}),
        lambda: list(table.log(limit=-1)),
        lambda: table.segments("x"),
        lambda: table.blocks(-1),
    ]
    for call in calls:
        with pytest.raises(FuseError):
            call()


def test_the_log_shows_the_operation_of_every_commit(table: Table) -> None:
    table.overwrite(ROWS)
    table.set_properties({"a": "b"})

    assert [item.operation for item in table.log()] == [
        Operation.ALTER,
        Operation.OVERWRITE,
        Operation.CREATE,
    ]


def test_columns_that_differ_only_in_case_accept_rows_with_a_new_column(
    store: MemoryStore, clock: ManualClock
) -> None:
    columns = columns_of_arrow(pa.schema([("a", pa.int64()), ("A", pa.int64())]))
    schema = first_schema(columns, case_sensitive=True)
    table = create_table(store, schema, clock=clock, probe_store=False)

    table.append(pa.table({"a": [1], "A": [2]}))
    table.append(pa.table({"a": [3], "A": [4], "c": [5]}), merge_schema=True)

    assert table.to_arrow().to_pylist() == [
        {"a": 1, "A": 2, "c": None},
        {"a": 3, "A": 4, "c": 5},
    ]


class ActingFirst(StoreWrapper):
    """A store on which something else is done before the first slot is created."""

    def __init__(self, store: Store, act: Callable[[], object]) -> None:
        super().__init__(store)
        self.acts = [act]

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        if verb == "put_if_absent" and self.acts:
            self.acts.pop()()
        return super().call(verb, key, act)


@pytest.mark.parametrize(
    ("on_conflict", "error"), [("error", ConflictError), ("replan", InvalidInputError)]
)
def test_a_cluster_key_of_columns_that_a_rewind_takes_away_meanwhile_is_refused(
    table: Table, store: MemoryStore, on_conflict: str, error: type[FuseError]
) -> None:
    table.append(ROWS)
    table.append(ROWS.append_column("x", pa.array([1, 2])), merge_schema=True)
    acting = ActingFirst(store, lambda: rewind(opened(store).committer, Goal(version=1)))
    late = open_table(acting, clock=ManualClock(seed=9), probe_store=False)

    with pytest.raises(error):
        late.cluster_by(["x"], on_conflict=on_conflict)
    assert opened(store).head().cluster_key == ()
