"""Deletion files are checked against their records, cached within limits, and never hide twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_stream.commit import stage
from fuse_stream.errors import CorruptObjectError, FuseError
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.deletions import (
    VECTOR_RECORD_BYTES,
    DeletionFile,
    encode_deletions,
)
from fuse_stream.format.layout import deletions_key
from fuse_stream.format.positions import Positions, union
from fuse_stream.format.records import DeletionFileRef
from fuse_stream.objects import deletions as module
from fuse_stream.objects.deletions import Deletions, load_deletion_file
from fuse_stream.table.handle import Table
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import keys, opened, rows

Create = Callable[..., Table]


def a_file(*positions: int, block: str = "a") -> DeletionFile:
    return DeletionFile(hidden={block * 32: Positions(positions)})


def put(store: MemoryStore, number: int, file: DeletionFile) -> DeletionFileRef:
    """Store a file with another process's cache."""
    return Deletions(store).put(file, file_id=f"{number:032x}", level=0, since_us=1)


def replaced(store: MemoryStore, ref: DeletionFileRef, data: bytes) -> DeletionFileRef:
    """Store other bytes, with their hash in the record."""
    store.replace(deletions_key(ref.id), data)
    return dataclasses.replace(ref, sha256=sha256_hex(data), byte_size=len(data))


def gets(store: FaultyStore) -> int:
    return sum(verb == "get" for verb, _ in store.calls)


def test_a_file_is_read_once_and_one_that_was_put_never(store: MemoryStore) -> None:
    ref, counted = put(store, 1, a_file(1, 5)), FaultyStore(store)
    deletions = Deletions(counted)
    own = deletions.put(a_file(2), file_id="f" * 32, level=0, since_us=1)

    assert [deletions.load(ref) for _ in range(3)] == [a_file(1, 5)] * 3
    assert deletions.load(own) == a_file(2)
    assert gets(counted) == 1


def test_the_cache_keeps_the_files_that_were_used_last(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [put(store, number, a_file(number)) for number in range(5)]
    counted = FaultyStore(store)
    monkeypatch.setattr(module, "CACHED_BYTES", 3 * refs[0].byte_size)
    deletions = Deletions(counted)
    for at in (0, 1, 2, 0, 3, 0, 2):
        deletions.load(refs[at])

    assert gets(counted) == 4
    deletions.load(refs[1])
    assert gets(counted) == 5


def test_a_file_above_the_limit_of_the_cache_is_the_only_one_in_it(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [put(store, number, a_file(number)) for number in range(2)]
    counted = FaultyStore(store)
    monkeypatch.setattr(module, "CACHED_BYTES", 1)
    deletions = Deletions(counted)
    for at in (0, 0, 1, 1, 0):
        deletions.load(refs[at])

    assert gets(counted) == 3


def test_a_missing_file_is_damage_that_names_it(store: MemoryStore) -> None:
    ref = put(store, 1, a_file(1))
    store.delete(deletions_key(ref.id))

    with pytest.raises(CorruptObjectError, match=r"missing.*later version") as caught:
        Deletions(store).load(ref)
    assert caught.value.context["file"] == ref.id


def test_every_changed_or_cut_byte_of_a_file_is_damage(store: MemoryStore) -> None:
    ref = put(store, 1, a_file(1, 5))
    data = store.get(deletions_key(ref.id))
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x20
        for damaged in (bytes(changed), data[:place]):
            store.replace(deletions_key(ref.id), damaged)
            with pytest.raises(CorruptObjectError, match="hash"):
                load_deletion_file(store, ref)


@pytest.mark.parametrize("name", ["row_count", "block_count", "byte_size"])
def test_a_file_that_differs_from_its_record_is_damage(store: MemoryStore, name: str) -> None:
    ref = put(store, 1, a_file(1, 5))
    wrong = dataclasses.replace(ref, **{name: getattr(ref, name) + 1})

    with pytest.raises(CorruptObjectError, match="record"):
        Deletions(store).load(wrong)


def test_a_file_above_the_limit_is_not_read(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, counted = put(store, 1, a_file(1)), FaultyStore(store)
    monkeypatch.setattr(module, "MAX_DELETION_FILE_BYTES", ref.byte_size - 1)

    with pytest.raises(CorruptObjectError, match="too large"):
        Deletions(counted).load(ref)
    assert counted.calls == []


def test_a_file_that_is_no_puffin_is_damage(store: MemoryStore) -> None:
    ref = replaced(store, put(store, 1, a_file(1)), b"PAR1")

    with pytest.raises(CorruptObjectError, match="damaged"):
        Deletions(store).load(ref)


def test_a_row_that_two_files_hide_is_damage_and_is_never_cached(store: MemoryStore) -> None:
    refs = [put(store, 1, a_file(1, 5)), put(store, 2, a_file(2)), put(store, 3, a_file(5))]
    deletions = Deletions(store)

    assert deletions.hidden_by(refs[:2]) == {"a" * 32: Positions([1, 2, 5])}
    for _ in range(2):
        with pytest.raises(CorruptObjectError, match="two deletion files") as caught:
            deletions.hidden_by(refs)
        assert caught.value.context["block"] == "a" * 32
    assert deletions.hidden_by(refs[1:]) == {"a" * 32: Positions([2, 5])}


BLOCKS = "abc"


@settings(max_examples=60)
@given(
    numbers=st.lists(st.frozensets(st.integers(0, 11)), min_size=1, max_size=25),
    owner=st.lists(st.sampled_from(BLOCKS), min_size=12, max_size=12),
)
def test_rows_hidden_by_any_files_are_their_union_whatever_is_cached(
    numbers: list[frozenset[int]], owner: list[str]
) -> None:
    store = MemoryStore()
    files = [
        DeletionFile(hidden=union(a_file(at, at + 50, block=owner[at]).hidden, extra.hidden))
        for at in range(12)
        for extra in [a_file(100 + at, block=BLOCKS[at % 3])]
    ]
    refs = [put(store, at, file) for at, file in enumerate(files)]
    deletions = Deletions(store)
    for chosen in numbers:
        expected: dict[str, Positions] = {}
        for at in sorted(chosen):
            expected = union(expected, files[at].hidden)

        assert deletions.hidden_by([refs[at] for at in sorted(chosen)]) == expected


def test_a_longer_list_of_files_reads_only_the_new_ones(store: MemoryStore) -> None:
    refs = [put(store, number, a_file(number)) for number in range(6)]
    counted = FaultyStore(store)
    deletions = Deletions(counted)
    before = deletions.hidden_by(refs[:5])
    after = deletions.hidden_by(refs)

    assert gets(counted) == 6
    assert before == {"a" * 32: Positions(range(5))}  # not changed by the second call
    assert after == {"a" * 32: Positions(range(6))}
    assert deletions.hidden_by([]) == {}


# ---- in a table


def tampered(table: Table, file: DeletionFile) -> Table:
    """Return the table with another newest deletion file, as if it had been written so."""
    store = table.metadata.store
    assert isinstance(store, MemoryStore)
    ref = table.head().deletion_files[-1]
    data = encode_deletions(file)
    other = opened(store)
    head = other.head()
    changed = dataclasses.replace(
        replaced(store, ref, data), row_count=file.row_count, block_count=len(file.hidden)
    )
    patched = dataclasses.replace(head, deletion_files=(*head.deletion_files[:-1], changed))
    stored = other.committer.head()
    other.committer.head = lambda: dataclasses.replace(stored, snapshot=patched)  # type: ignore[method-assign]
    return other


READS: dict[str, Callable[[Table], object]] = {
    "blocks": lambda table: table.blocks(),
    "scan": lambda table: table.to_arrow(),
    "delete": lambda table: table.delete("k > 0"),
    "update": lambda table: table.update("k > 0", {"k": 0}),
}


@pytest.mark.parametrize("read", READS)
def test_a_row_hidden_past_the_end_of_its_block_is_damage(create: Create, read: str) -> None:
    table = create()
    table.append(rows(1, 2, 3))
    table.delete("k = 2")
    block = table.blocks()[0].id
    other = tampered(table, DeletionFile(hidden={block: Positions([3])}))

    with pytest.raises(CorruptObjectError, match="past the end"):
        READS[read](other)


def test_a_deleted_row_comes_back_for_nobody_if_its_deletion_file_is_lost(create: Create) -> None:
    table = create()
    table.append(rows(1, 2, 3))
    table.delete("k = 2")
    store = table.metadata.store
    store.delete(deletions_key(table.head().deletion_files[0].id))
    reader = opened(store)
    calls: list[Callable[[], object]] = [
        reader.to_arrow,
        reader.blocks,
        lambda: reader.delete("k = 1"),
        lambda: reader.update("k = 1", {"k": 5}),
        lambda: reader.diff(1, 2).read_all(),
        lambda: reader.changes(2).read_all(),
        lambda: reader.revert(2),
        reader.compact,
    ]
    for call in calls:
        with pytest.raises(FuseError, match="missing"):
            call()

    assert reader.head().version == 2
    reader.append(rows(4))  # reads none
    assert keys(reader.to_arrow(version=1)) == [1, 2, 3]


@pytest.mark.parametrize("gone", range(1, 7))
def test_each_block_of_a_segment_hides_its_own_rows(create: Create, gone: int) -> None:
    table = create(properties={"fuse.block.rows": "2"})
    table.append(rows(1, 2, 3, 4, 5, 6))
    table.delete(f"k = {gone}")
    reader = opened(table.metadata.store)

    assert [block.live_rows for block in reader.blocks()].count(1) == 1
    assert keys(reader.to_arrow()) == [key for key in range(1, 7) if key != gone]
    assert keys(reader.changes(2).read_all()) == [gone]


def test_more_rows_than_one_file_holds_are_hidden_by_several(
    create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(pa.schema([("k", pa.int64())]), properties={"fuse.block.rows": "4"})
    table.append(rows(*range(24)))
    limit = 3 * VECTOR_RECORD_BYTES
    monkeypatch.setattr(stage, "MAX_DELETION_FILE_BYTES", 4 * limit)
    table.delete("k IN (0, 4, 8, 12, 16, 20)")
    after_delete = table.head().deletion_files
    table.overwrite(rows(99))
    table.revert(3)
    after_revert = table.head().deletion_files

    assert len(after_delete) == len(after_revert) == 3
    assert all(ref.byte_size < limit for ref in (*after_delete, *after_revert))
    assert keys(table.to_arrow()) == [key for key in range(24) if key % 4]
