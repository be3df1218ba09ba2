"""Tags that are dates, and `HEAD`, wherever a version is taken."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import fuse_stream as fuse
from fuse_stream.errors import (
    AlreadyExistsError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFormatError,
)
from fuse_stream.format import codec, names
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import tag_ref_key
from fuse_stream.format.names import _is_name
from fuse_stream.storage.wrappers import StoreWrapper
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore

DATE, DASHED = "20261122", "2026-11-22"
SCHEMA = pa.schema([("k", pa.int64())])


class CountingStore(StoreWrapper):
    """Counts the reads of each key."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.reads: Counter[str] = Counter()

    def get(self, key: str) -> bytes:
        self.reads[key] += 1
        return super().get(key)


@pytest.fixture
def table(store: MemoryStore, clock: ManualClock) -> Table:
    """Versions 1 to 4, each with one row more."""
    schema = first_schema(columns_of_arrow(SCHEMA))
    table = create_table(store, schema, clock=clock, probe_store=False)
    for number in range(4):
        table.append(pa.table({"k": [number]}, schema=SCHEMA))
    return table


def opened(store: Any, clock: ManualClock, branch: str = "main") -> Table:
    return open_table(store, branch=branch, clock=clock, probe_store=False)


@pytest.mark.parametrize("name", [DATE, DASHED, "20261122093000"])
def test_a_text_that_equals_a_tag_is_the_tag(table: Table, name: str) -> None:
    table.create_tag(name, 2)

    assert table.snapshot(name).version == 2
    assert table.scan(version=name).read_all().num_rows == 2
    assert [tag.name for tag in table.tags()] == [name]
    assert table.fsck().is_sound
    table.create_branch("fix", name)
    table.create_tag("again", name)
    assert table.snapshot("again").version == 2
    table.delete_tag(name)
    assert [tag.name for tag in table.tags()] == ["again"]


def test_an_int_is_always_a_version(table: Table) -> None:
    table.create_tag(DATE, 2)

    with pytest.raises(NotFoundError, match="past the head"):
        table.snapshot(int(DATE))
    with pytest.raises(NotFoundError, match="past the head"):
        table.snapshot(f"main@{DATE}")


def test_an_int_that_a_tag_has_as_its_name_is_told_so(table: Table) -> None:
    with pytest.raises(NotFoundError) as without:
        table.snapshot(int(DATE))
    table.create_tag(DATE, 2)
    hint = "a tag has this name: give it as text"

    assert hint not in str(without.value)
    for read in (table.snapshot, table.changes, table.create_branch):
        arguments = ("fix", int(DATE)) if read == table.create_branch else (int(DATE),)
        with pytest.raises(FuseError, match=f"past the (head|last); {hint}"):
            read(*arguments)


def test_head_in_other_letters_leads_to_head(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    for name in ("head", "Head"):
        with pytest.raises(NotFoundError, match="no such tag; HEAD names the newest snapshot"):
            table.snapshot(name)
    with pytest.raises(InvalidInputError, match="HEAD"):
        table.snapshot("main@head")


def test_older_names_that_are_head_in_other_letters_still_work(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(names, "HEAD", "HEAD of an older release")
        table.create_tag("head", 2)
        table.create_branch("Head", 2)

    assert table.snapshot("head").version == table.snapshot("Head@").version == 2
    assert table.fsck().is_sound
    table.delete_tag("head")
    table.delete_branch("Head")
    assert table.tags() == ()
    assert [branch.name for branch in table.branches()] == ["main"]


@pytest.mark.parametrize("head", ["HEAD", "4", True, 4.0])
def test_the_expected_head_is_a_number(tmp_path: Path, head: Any) -> None:
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(pa.table({"k": [1]}, schema=SCHEMA))
    table.create_branch("fix", 0)
    message = "expected_head is the number of the head that you have seen"

    with pytest.raises(InvalidInputError, match=message):
        table.publish("fix", expected_head=head)
    with pytest.raises(InvalidInputError, match=message):
        fuse.publish([tmp_path / "t"], "fix", expected_head={tmp_path / "t": head})


def test_digits_without_a_tag_are_a_number(table: Table) -> None:
    assert table.snapshot("00000003").version == 3
    assert next(iter(table.changes("00000003", "00000003")))["k"].to_pylist() == [2]
    with pytest.raises(NotFoundError, match="no tag of this name, and no version of this number"):
        table.snapshot(DATE)
    with pytest.raises(NotFoundError, match="no tag of this name, and no version of this number"):
        table.changes(DATE)


def test_a_tag_wins_over_a_number(table: Table) -> None:
    table.create_tag("00000003", 1)

    assert table.snapshot("00000003").version == 1
    assert table.snapshot("3").version == table.snapshot("main@00000003").version == 3
    assert table.diff("00000003", "3").read_all().num_rows == 2


def test_a_tag_whose_time_is_over_gives_its_digits_back(table: Table, clock: ManualClock) -> None:
    table.create_tag("00000003", 1, retain="1d")
    clock.advance(2 * 86_400)

    assert table.snapshot("00000003").version == 3


@pytest.mark.parametrize("name", ["2026112", "deadbeef", "HEAD", "head", "Head", f"{DATE}."])
def test_other_names_are_refused(table: Table, name: str) -> None:
    with pytest.raises(InvalidInputError):
        table.create_tag(name)


@pytest.mark.parametrize("name", [DATE, "HEAD", "head", "Head"])
def test_a_branch_has_no_such_name(table: Table, name: str) -> None:
    with pytest.raises(InvalidInputError):
        table.create_branch(name)


def test_a_date_is_taken_once(table: Table) -> None:
    table.create_tag(DATE, 2)

    with pytest.raises(AlreadyExistsError, match="taken"):
        table.create_tag(DATE, 3)


def test_a_plain_number_costs_no_look_for_a_tag(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    counted = CountingStore(store)
    handle = opened(counted, clock)
    for version in (2, "2", "0000002", int(DATE), "main@2", None, "HEAD"):
        counted.reads.clear()
        try:
            handle.snapshot(version)
        except NotFoundError:
            assert version == int(DATE)
        assert [key for key in counted.reads if key.startswith("_refs/")] == []
    handle.snapshot("00000002")

    assert counted.reads[tag_ref_key("00000002")] == 1


def test_a_snapshot_with_a_date_survives_expiry_and_vacuum(
    table: Table, store: MemoryStore, clock: ManualClock
) -> None:
    table.create_tag(DATE, 2)
    for _ in range(3):
        clock.advance(40 * 86_400)
        table.overwrite(pa.table({"k": [9]}, schema=SCHEMA))
        table.expire(older_than="1d", keep_last=1)
        table.vacuum()

    assert table.scan(version=DATE).read_all()["k"].to_pylist() == [0, 1]
    assert table.fsck().is_sound


def test_an_older_release_refuses_a_table_with_such_a_tag(
    table: Table, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows version 2 of a tag, and no name that is all digits."""
    table.create_tag(DATE, 2)
    (key,) = (key for key in store.objects if key.startswith("_refs/tags/"))
    fields = orjson.loads(store.get(key))
    monkeypatch.setattr(codec, "DATE_TAG_FORMAT_VERSION", 2)
    listed = key.removeprefix("_refs/tags/").removesuffix(".json")

    assert _is_name(listed)  # it looks at the object: it does not take it for a foreign one
    assert fields["format_version"] == 3
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        table.vacuum()
    assert not table.fsck().is_sound


@pytest.mark.parametrize("version", ["HEAD", "main@HEAD", "main@"])
def test_head_names_the_head_wherever_a_version_is_taken(table: Table, version: str) -> None:
    assert table.snapshot(version).version == 4
    assert table.scan(version=version).read_all().num_rows == 4
    assert table.segments(version) == table.segments()
    assert table.blocks(version) == table.blocks()
    assert table.changes(4, version).read_all().num_rows == 1
    assert table.diff(0, version).read_all().num_rows == 4
    assert table.bisect("k = 2", last=version).last == 4
    assert table.create_tag("now", version).target.version == 4
    assert table.create_branch("fix", version).forks[-1].version == 4
    assert table.revert(version).version == 5


def test_head_of_another_branch(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    table.create_branch("fix", 2)
    opened(store, clock, "fix").append(pa.table({"k": [7]}, schema=SCHEMA))

    assert table.snapshot("fix@HEAD") == table.snapshot("fix@")
    assert table.snapshot("fix@HEAD").version == 3


def test_the_functions_of_a_path_take_head_and_dates(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(pa.table({"k": [1]}, schema=SCHEMA))
    table.create_tag(DATE, 1)
    table.append(pa.table({"k": [2]}, schema=SCHEMA))

    assert fuse.clone(tmp_path / "t", tmp_path / "a", version="HEAD").source.version == 2
    assert fuse.clone(tmp_path / "t", tmp_path / "b", version=DATE).source.version == 1
    assert fuse.rewind(tmp_path / "t", version=DATE).target == table.snapshot(1)
    with pytest.raises(FuseError, match="nothing to undo"):
        fuse.rewind(tmp_path / "t", version="HEAD")
