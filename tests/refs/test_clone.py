"""A clone of a table's snapshot: its content, its folder, and which origins it may read."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fuse_stream as fuse
from fuse_stream.commit.ledger import Batch, offsets_of
from fuse_stream.commit.plan import Intent
from fuse_stream.errors import (
    AlreadyExistsError,
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    StorageError,
    UnsupportedStorageError,
)
from fuse_stream.format.codec import decode_table_file, encode_table_file
from fuse_stream.format.layout import (
    TABLE_KEY,
    block_key,
    clone_ref_key,
    slot_key,
)
from fuse_stream.format.records import Operation
from fuse_stream.objects.origins import StoreWithOrigins
from fuse_stream.objects.slots import Metadata
from fuse_stream.objects.source_offsets import load_offsets, store_offsets
from fuse_stream.recovery.target import Goal
from fuse_stream.refs.clone import Clone
from fuse_stream.refs.clone import clone as clone_branch
from fuse_stream.storage.base import Store
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.open import open_store
from fuse_stream.storage.wrappers import ReadOnlyStore
from fuse_stream.table import location as table_location
from fuse_stream.table.handle import Table
from fuse_stream.table.location import TableLocation
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.by_hand import compact
from tests.recovery.histories import SEEDS, keys, opened, raise_floor, rewind, rows
from tests.recovery.streams import Query

Create = Callable[..., Table]
OLD = "11111111-2222-3333-4444-555555555555"


def made(source: Store, place: Store, *allowed: Store, version: Any = None) -> Clone:
    """Make a clone as a new process does."""
    store = StoreWithOrigins(source, allowed)
    table = opened(store)
    clock = ManualClock(seed=next(SEEDS))
    return clone_branch(
        table.committer,
        Metadata(place, clock),
        version=version,
        origin_of=store.origin,
        probe_place=False,
    )


def of(place: Store, *allowed: Store, branch: str = "main") -> Table:
    """Open a clone."""
    return opened(StoreWithOrigins(place, allowed), branch)


@pytest.fixture
def place() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def table(create: Create) -> Table:
    """Five commits, key n at version n, the third as batch 7 of an application."""
    table = create(properties={"team": "a", "fuse.grace": "2h"}, cluster_by=["k"])
    for key in range(1, 6):
        batch: dict[str, Any] = {"app_id": "a", "batch_id": 7} if key == 3 else {}
        table.append(rows(key), **batch)
    return table


# ---- what it holds


def test_a_clone_has_the_rows_of_its_snapshot_and_no_blocks_of_its_own(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    done = made(store, place, version=4)
    clone = of(place, store)

    assert keys(clone.to_arrow()) == [1, 2, 3, 4]
    assert keys(clone.to_arrow(where="k > 2")) == [3, 4]
    assert list(place.list("_b/")) == []
    assert {block.origin for block in clone.blocks()} == {table.table_id}
    assert (done.source, done.snapshot) == (table.snapshot(4), clone.head())
    assert done.origins == ((table.table_id, store.url),)
    head, source = clone.head(), done.source
    assert head.table_id == clone.table_id == done.table_id != table.table_id
    assert (head.schema, head.summary) == (source.schema, source.summary)
    assert (head.cluster_key, head.properties) == (source.cluster_key, source.properties)
    assert head.message == f"clone of table {table.table_id}, version 4"
    files = [Metadata(one, ManualClock()).load_table_file() for one in (store, place)]
    assert files[0].grace_us == files[1].grace_us == 7_200_000_000


def test_a_clone_continues_the_ledger(table: Table, store: MemoryStore, place: MemoryStore) -> None:
    made(store, place)
    clone = of(place, store)

    again = clone.append(rows(3), app_id="a", batch_id=7)
    clone.append(rows(6), app_id="a", batch_id=8)

    assert again.version == 1
    assert keys(clone.to_arrow()) == [1, 2, 3, 4, 5, 6]
    assert clone.ledger()["a", ""].version == 2
    assert keys(table.to_arrow()) == [1, 2, 3, 4, 5]


def test_a_clone_copies_source_offsets_that_are_too_long_for_the_ledger(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    text = "v1\n" + "x" * 9000
    offsets = offsets_of(0, text)
    assert offsets is not None
    put_aside = store_offsets(table.metadata.store, offsets, "e" * 32)
    batch = Batch(application="b", query_id=OLD, batch_id=0, offsets=put_aside)
    table.commit_rows(Intent(operation=Operation.APPEND, batch=batch), rows(6))
    made(store, place)
    (kept,) = of(place).ledger()["b", ""].offsets

    assert kept.id != put_aside.id
    assert load_offsets(place, kept) == text


def test_a_follower_of_a_clone_gets_every_row_once(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    made(store, place)
    clone = of(place, store)
    clone.append(rows(6))
    changes = clone.changes(0).read_all().to_pylist()

    assert [(row["k"], row["_commit_version"]) for row in changes] == [
        *((key, 1) for key in range(1, 6)),
        (6, 2),
    ]
    assert {row["_change_type"] for row in changes} == {"insert"}
    assert keys(clone.diff(0, 1).read_all()) == [1, 2, 3, 4, 5]
    assert keys(clone.diff(1, 2).read_all()) == [6]


def test_a_clone_can_be_tagged_branched_published_rewound_and_reverted(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    made(store, place)
    clone = of(place, store)
    clone.append(rows(6))
    clone.create_tag("good")
    clone.create_branch("try")
    branch = of(place, store, branch="try")
    branch.overwrite(rows(9))
    clone.publish("try")
    set_back = rewind(clone.committer, Goal(version="good"))

    assert keys(branch.to_arrow()) == [9]
    assert keys(clone.to_arrow()) == [1, 2, 3, 4, 5, 6]
    assert set_back.snapshot is not None
    assert keys(clone.diff(3, 4).read_all()) == [1, 2, 3, 4, 5, 6, 9]
    assert clone.revert(2).summary.row_count == 5
    assert (keys(table.to_arrow()), table.head().version) == ([1, 2, 3, 4, 5], 5)


def test_a_rewind_of_the_origin_does_not_change_its_clone(
    create: Create, store: MemoryStore, place: MemoryStore
) -> None:
    query, fork = Query(create()).begin(OLD), MemoryStore()
    query.run(4)
    paths = ((query.checkpoint, fork),)
    rewind(query.table.committer, Goal(after_batch=1), checkpoints=paths)
    made(store, place)
    clone = of(place, store)
    clone.append(rows(9))

    with pytest.raises(AlreadyExistsError, match="not empty"):
        rewind(clone.committer, Goal(version=1), checkpoints=paths)
    assert clone.head().version == 2


def test_rolled_up_segments_keep_the_origin_of_their_blocks(
    create: Create, store: MemoryStore, place: MemoryStore
) -> None:
    table = create()
    for key in range(14):
        table.append(rows(key))
    made(store, place)
    clone = of(place, store)
    for key in range(14, 20):
        clone.append(rows(key))

    assert any(ref.level for ref in clone.segments())
    assert keys(clone.to_arrow()) == list(range(20))
    owners = [block.origin for block in clone.blocks()]
    assert (owners.count(table.table_id), owners.count(None)) == (14, 6)


def test_a_snapshot_without_rows_is_cloned_too(
    create: Create, store: MemoryStore, place: MemoryStore
) -> None:
    create()
    made(store, place)
    clone = of(place)
    clone.append(rows(1))

    assert keys(clone.to_arrow()) == [1]
    assert [one.operation for one in clone.log()] == ["append", "append", "create"]


def test_a_column_added_in_the_clone_gets_an_id_of_its_own(
    create: Create, store: MemoryStore, place: MemoryStore
) -> None:
    table = create()
    table.append(rows(1).append_column("v", pa.array([10])), merge_schema=True)
    table.append(rows(2).append_column("w", pa.array([20])), merge_schema=True)
    made(store, place)
    clone = of(place, store)
    more = pa.table({"k": [3], "v": [30], "w": [31], "x": ["new"]})
    clone.append(more, merge_schema=True)

    assert [column.id for column in clone.head().schema.columns] == [1, 2, 3, 4]
    assert clone.to_arrow().sort_by("k").to_pylist() == [
        {"k": 1, "v": 10, "w": None, "x": None},
        {"k": 2, "v": None, "w": 20, "x": None},
        {"k": 3, "v": 30, "w": 31, "x": "new"},
    ]


def test_ids_of_dropped_columns_are_not_used_again(
    create: Create, store: MemoryStore, place: MemoryStore
) -> None:
    table = create()
    table.append(rows(1))
    table.append(rows(2).append_column("gone", pa.array([20])), merge_schema=True)
    rewind(table.committer, Goal(version=1))
    made(store, place)
    clone = of(place, store)
    clone.append(rows(3).append_column("x", pa.array([30])), merge_schema=True)

    assert [column.id for column in clone.head().schema.columns] == [1, 3]
    assert clone.snapshot(0).schema == clone.snapshot(1).schema == table.head().schema


def test_a_branch_is_cloned(table: Table, store: MemoryStore, place: MemoryStore) -> None:
    table.create_branch("fix", 3)
    opened(store, "fix").append(rows(30))
    done = made(store, place, version="fix@")
    table.delete_branch("fix")

    assert keys(of(place, store).to_arrow()) == [1, 2, 3, 30]
    assert done.snapshot.message.endswith(f"version 4 of branch {done.source.branch_id}")
    assert [fork.version for fork in table.clones()[0].forks] == [3, 4]


# ---- clones of clones


def test_a_clone_of_a_clone_names_the_first_owner_of_every_block(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    made(store, place)
    middle = of(place, store)
    middle.append(rows(6))
    last_place = MemoryStore()
    done = made(place, last_place, store)
    last = of(last_place, store, place)

    assert keys(last.to_arrow()) == [1, 2, 3, 4, 5, 6]
    owners = [block.origin for block in last.blocks()]
    assert (owners.count(table.table_id), owners.count(middle.table_id)) == (5, 1)
    assert [table_id for table_id, _ in done.origins] == [middle.table_id, table.table_id]
    # Every table that holds its blocks has a pin.
    assert {pin.table_id for pin in table.clones()} == {middle.table_id, last.table_id}
    assert [pin.table_id for pin in middle.clones()] == [last.table_id]
    assert {pin.target for pin in table.clones()} == {table.clones()[0].target}


def test_a_clone_of_a_clone_needs_only_origins_that_hold_its_blocks(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    made(store, place)
    of(place, store).overwrite(rows(9))
    last_place = MemoryStore()
    done = made(place, last_place)

    assert keys(of(last_place, place).to_arrow()) == [9]
    assert [location for _, location in done.origins] == [place.url]


def test_a_clone_without_its_pin_in_the_origin_is_not_cloned(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    done = made(store, place)
    table.unpin(done.table_id)
    last_place = MemoryStore()

    with pytest.raises(NotFoundError, match="pin was removed from its origin"):
        made(place, last_place, store)

    assert of(place).clones() == table.clones() == ()
    assert not last_place.objects


def test_a_clone_fails_if_a_pin_is_removed_while_it_is_copied(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    done = made(store, place)
    last_place = MemoryStore()

    class Overtaken(FaultyStore):
        def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
            super().put_if_absent(key, data)
            table.unpin(done.table_id)

    with pytest.raises(NotFoundError, match="pin was removed from its origin"):
        made(place, last_place, Overtaken(store))

    assert of(place).clones() == table.clones() == ()
    assert not last_place.objects


# ---- which origins an opener allows


@pytest.fixture
def folders(tmp_path: Path) -> Mapping[str, str]:
    """Two tables and a clone of the first, on disk; the folder `moved` does not exist."""
    places = {name: str(tmp_path / name) for name in ("table", "other", "clone", "moved")}
    for number, name in enumerate(("table", "other")):
        made_table = Table.create(places[name], rows().schema)
        made_table.append(rows(number + 1))
    fuse.clone(places["table"], places["clone"])
    return places


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every path that was opened together with a clone, as it was given."""
    paths: list[str] = []
    real = open_store

    def spy(path: str | os.PathLike[str], **options: Any) -> Store:
        paths.append(os.fspath(path))
        return real(path, **options)

    monkeypatch.setattr(table_location, "open_store", spy)
    return paths


def test_no_origin_is_opened_without_permission(
    folders: Mapping[str, str], asked: list[str]
) -> None:
    clone = Table.open(folders["clone"])

    assert clone.head().summary.row_count == 1
    with pytest.raises(InvalidInputError, match=r"origins=\[…\]") as caught:
        clone.to_arrow()
    assert caught.value.context["recorded"] == folders["table"]
    with pytest.raises(InvalidInputError):
        clone.metadata.store.location(block_key("0" * 32, clone.blocks()[0].origin))
    assert asked == [folders["clone"]]


def test_a_clone_can_be_written_without_permission_to_read_its_origin(
    folders: Mapping[str, str],
) -> None:
    clone = Table.open(folders["clone"])
    clone.append(rows(7))

    assert keys(clone.changes(2).read_all()) == [7]


def test_an_origin_that_was_moved_is_found_at_its_new_path(folders: Mapping[str, str]) -> None:
    Path(folders["table"]).rename(folders["moved"])
    allowed: list[str | Path] = [folders["other"], Path(folders["moved"])]

    assert keys(Table.open(folders["clone"], origins=allowed).to_arrow()) == [1]


def test_another_table_at_an_allowed_path_is_not_read(folders: Mapping[str, str]) -> None:
    Path(folders["table"]).rename(folders["moved"])
    Path(folders["other"]).rename(folders["table"])
    clone = Table.open(folders["clone"], origins=[folders["table"], folders["other"]])

    with pytest.raises(InvalidInputError, match="in another table") as caught:
        clone.to_arrow()

    other_id = Table.open(folders["table"]).table_id
    assert caught.value.context["allowed"] == {folders["table"]: other_id, folders["other"]: None}


def test_a_location_recorded_in_a_table_file_is_never_opened(
    folders: Mapping[str, str], asked: list[str]
) -> None:
    trap = "s3://attacker/" + "x" * 5000
    store = LocalStore(Path(folders["clone"]))
    file = decode_table_file(store.get(TABLE_KEY))
    hostile = ((file.origins[0][0], trap), ("f" * 32, "/etc"))
    store.replace(TABLE_KEY, encode_table_file(dataclasses.replace(file, origins=hostile)))
    clone = Table.open(folders["clone"], origins=[folders["other"]])

    with pytest.raises(InvalidInputError) as caught:
        clone.to_arrow()

    assert asked == [folders["clone"], folders["other"]]
    assert caught.value.context["recorded"] == trap[:500]
    allowed = Table.open(folders["clone"], origins=[folders["table"]])
    assert keys(allowed.to_arrow()) == [1]


@pytest.mark.parametrize(
    ("path", "location", "is_told"),
    [
        ("s3://a/clone", "s3://a/table", True),
        ("/lake/clone", "s3://a/table", True),
        ("file:///lake/clone", "s3://a/table", True),
        ("s3://a/clone", "gs://a/table", False),
    ],
)
def test_storage_options_are_not_passed_to_a_store_of_another_kind(
    monkeypatch: pytest.MonkeyPatch, path: str, location: str, *, is_told: bool
) -> None:
    told: dict[str, object] = {}

    def spy(path: str, *, storage_options: object, **_: object) -> Store:
        told[path] = storage_options
        return MemoryStore()

    monkeypatch.setattr(table_location, "open_store", spy)
    options = {"key": "secret"}
    TableLocation.of(path, origins=[location], storage_options=options).store()

    assert told == {path: options, location: options if is_told else None}


def test_origins_must_be_a_list(folders: Mapping[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="list of locations"):
        Table.open(folders["clone"], origins=folders["table"])


def test_a_block_missing_from_its_origin_is_a_corrupt_object_error(
    folders: Mapping[str, str],
) -> None:
    for block in Path(folders["table"], "_b").iterdir():
        block.unlink()

    with pytest.raises(CorruptObjectError, match="a block is missing") as caught:
        Table.open(folders["clone"], origins=[folders["table"]]).to_arrow()
    assert caught.value.context["origin"] == Table.open(folders["table"]).table_id


@pytest.mark.parametrize("verb", ["put", "put_if_absent", "replace", "delete", "list"])
def test_an_origin_cannot_be_written_through_a_clone(
    table: Table, store: MemoryStore, place: MemoryStore, verb: str
) -> None:
    counted = FaultyStore(store)
    both = StoreWithOrigins(place, [counted])
    key = block_key("0" * 32, table.table_id)
    data = (b"x",) if verb in {"put", "put_if_absent", "replace"} else ()

    with pytest.raises(UnsupportedStorageError, match="only be read"):
        getattr(both, verb)(key, *data)

    assert (counted.calls, place.objects) == ([], {})


# ---- the pin


def test_a_pin_remains_in_the_origin_until_it_is_removed(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    done = made(store, place, version=2)
    (pin,) = table.clones()

    assert (pin.table_id, pin.location) == (done.table_id, place.url)
    assert pin.snapshot_id == table.snapshot(2).snapshot_id
    assert (pin.target.version, pin.target.branch_id) == (2, "main")
    table.unpin(done.table_id)
    assert table.clones() == ()
    with pytest.raises(NotFoundError, match="no pin"):
        table.unpin(done.table_id)
    with pytest.raises(InvalidInputError, match="32 hex digits"):
        table.unpin("../tags/good")


def test_a_pin_copied_to_another_name_is_corrupt(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    done = made(store, place)
    store.put(clone_ref_key("a" * 32), store.get(clone_ref_key(done.table_id)))

    with pytest.raises(CorruptObjectError, match="another name"):
        table.clones()


def test_a_clone_is_undone_if_its_version_expires_during_the_call(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    class Overtaken(FaultyStore):
        def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
            super().put_if_absent(key, data)
            raise_floor(table, 4)

    with pytest.raises(SnapshotExpiredError, match="taken back"):
        made(Overtaken(store), place, version=3)

    assert table.clones() == ()
    assert not place.objects
    assert made(store, place, version=4).source.version == 4


def test_an_origin_that_cannot_be_written_is_refused(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    with pytest.raises(UnsupportedStorageError, match="needs a pin in its origin"):
        made(ReadOnlyStore(store), place)

    assert not place.objects


# ---- the target folder


def test_a_folder_that_holds_something_else_is_refused_and_gets_no_pin(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    place.put("_delta_log/0.json", b"x")
    before = set(store.objects)

    with pytest.raises(AlreadyExistsError, match="a Delta table"):
        made(store, place)
    assert set(place.objects) == {"_delta_log/0.json"}
    assert set(store.objects) == before
    assert table.clones() == ()


def test_a_folder_that_holds_a_table_is_refused(
    table: Table, store: MemoryStore, place: MemoryStore, create: Create
) -> None:
    create(at=place)

    with pytest.raises(AlreadyExistsError, match="a table here already"):
        made(store, place)
    assert table.clones() == ()


def test_an_unfinished_clone_of_a_clone_is_not_finished_from_the_first_table(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    made(store, place)
    of(place).append(rows(6))
    last_place = MemoryStore()
    made(place, last_place, store)
    last_place.delete(slot_key("main", 1))

    with pytest.raises(AlreadyExistsError, match="a table here already"):
        made(store, last_place)
    made(place, last_place, store)
    assert keys(of(last_place, store, place).to_arrow()) == [1, 2, 3, 4, 5, 6]


def test_the_same_call_again_changes_nothing(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    done = made(store, place, version=2)
    before = dict(place.objects)

    assert made(store, place, version=2) == done
    assert place.objects == before
    with pytest.raises(AlreadyExistsError, match="another version"):
        made(store, place)
    with pytest.raises(NotFoundError) as caught:
        made(store, place, version=99)
    assert "not finished" not in str(caught.value)
    of(place).append(rows(9))
    with pytest.raises(AlreadyExistsError, match="some commits ago"):
        made(store, place, version=2)
    assert len(table.clones()) == 1


def test_a_failure_before_the_first_object_removes_the_pin(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    def dies(at_call: int, *, keep_failing: bool) -> StorageError:
        faulty = FaultyStore(
            store, at_call=at_call, fault=Fault.LOST_REPLY, keep_failing=keep_failing
        )
        with pytest.raises(StorageError) as caught:
            made(faulty, place)
        return caught.value

    whole = FaultyStore(store)
    made(whole, MemoryStore())
    (pin_at,) = [at for at, (verb, _) in enumerate(whole.calls, 1) if verb == "put_if_absent"]
    table.unpin(table.clones()[0].table_id)

    dies(pin_at + 1, keep_failing=False)
    assert table.clones() == ()
    error = dies(pin_at, keep_failing=True)
    (pin,) = table.clones()
    assert error.context["clone_id"] == pin.table_id
    assert "remove it with unpin" in error.message
    assert not place.objects


def begun(store: MemoryStore, place: MemoryStore, version: int | None = None) -> None:
    """Leave the objects of a call that died before version 1."""
    made(store, place, version=version)
    place.delete(slot_key("main", 1))


def test_an_unfinished_clone_cannot_be_opened(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    begun(store, place)

    with pytest.raises(NotFoundError, match="not finished"):
        of(place, store)


def test_an_unfinished_clone_is_finished_at_its_first_version(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    begun(store, place)
    table.append(rows(6))
    table.append(rows(7))

    with pytest.raises(AlreadyExistsError, match="another version"):
        made(store, place, version=6)
    assert made(store, place).source.version == 5
    assert keys(of(place, store).to_arrow()) == [1, 2, 3, 4, 5]


def test_an_unfinished_clone_of_an_expired_version_is_finished(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    begun(store, place, version=2)
    raise_floor(table, 4)

    assert made(store, place, version=2).source.version == 2
    assert keys(of(place, store).to_arrow()) == [1, 2]


def test_an_unfinished_clone_without_its_pin_is_refused(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    begun(store, place)
    table.unpin(table.clones()[0].table_id)

    with pytest.raises(AlreadyExistsError, match="pin was removed"):
        made(store, place)


def test_a_clone_inside_or_around_its_origin_is_refused(folders: Mapping[str, str]) -> None:
    around = str(Path(folders["table"]).parent)
    for inside in (folders["table"], f"{folders['table']}/_b/x", around):
        with pytest.raises(InvalidInputError, match="beside"):
            fuse.clone(folders["table"], inside)


def test_a_compacted_clone_no_longer_needs_its_origin(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    made(store, place)
    compact(of(place, store))

    assert keys(of(place).to_arrow()) == [1, 2, 3, 4, 5]
    assert of(place).head().operation is Operation.COMPACT


def test_a_clone_reads_its_segments_and_a_constant_number_of_objects(
    table: Table, store: MemoryStore, place: MemoryStore
) -> None:
    opening = FaultyStore(store)
    opened(opening)
    origin, new = FaultyStore(store), FaultyStore(place)
    made(origin, new)
    segments = len(table.segments())

    verbs = [verb for verb, _ in origin.calls[len(opening.calls) :]]
    assert (verbs.count("get"), verbs.count("put_if_absent")) == (8 + segments, 1)
    verbs = [verb for verb, _ in new.calls]
    assert (verbs.count("get"), verbs.count("put_if_absent")) == (15, 3)
    assert verbs.count("put") == segments
