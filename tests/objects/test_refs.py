"""Refs as objects: made once, read if they are whole, and given up if they are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from fuse_stream.errors import (
    AlreadyExistsError,
    CorruptObjectError,
    NotFoundError,
    StorageError,
    UnsupportedFormatError,
)
from fuse_stream.format.codec import encode_ref
from fuse_stream.format.jsonio import dump_canonical
from fuse_stream.format.layout import branch_ref_key, clone_ref_key, tag_ref_key
from fuse_stream.format.records import Parent
from fuse_stream.format.refs import BranchRef, CloneRef, TagRef
from fuse_stream.objects.refs import (
    delete_branch,
    delete_pin,
    delete_tag,
    load_branch,
    load_pin,
    load_tag,
    store_branch,
    store_pin,
    store_tag,
)
from fuse_stream.objects.slots import Metadata
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore

FORKS = (Parent(branch_id="main", version=3, sha256="0" * 64),)
CLONE = "e" * 32

BRANCH = BranchRef(name="fix", branch_id="b" * 32, created_us=1, forks=FORKS)
TAG = TagRef(name="good", created_us=1, forks=FORKS, snapshot_id="2" * 32)
PIN = CloneRef(
    table_id=CLONE, created_us=1, forks=FORKS, snapshot_id="2" * 32, location="s3://b/clone"
)

Kind = tuple[Any, str, Callable[..., Any], Callable[..., Any], Callable[..., Any]]

KINDS: list[Kind] = [
    (BRANCH, branch_ref_key("fix"), store_branch, load_branch, delete_branch),
    (TAG, tag_ref_key("good"), store_tag, load_tag, delete_tag),
    (PIN, clone_ref_key(CLONE), store_pin, load_pin, delete_pin),
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=["branch", "tag", "pin"])


def as_of_an_older_release(ref: BranchRef | TagRef | CloneRef) -> bytes:
    fields = {**orjson.loads(encode_ref(ref)), "format_version": 1}
    del fields["sha256"]
    return dump_canonical(fields)


@pytest.fixture
def metadata() -> Metadata:
    clock = ManualClock()
    return Metadata(MemoryStore(clock=clock), clock)


@each_kind
def test_a_ref_is_read_as_it_was_written(metadata: Metadata, kind: Kind) -> None:
    ref, _, store, load, _ = kind
    store(metadata, ref)

    assert load(metadata, ref.name) == ref


@each_kind
def test_a_ref_of_an_older_release_is_read(metadata: Metadata, kind: Kind) -> None:
    ref, key, _, load, _ = kind
    metadata.store.put(key, as_of_an_older_release(ref))

    assert load(metadata, ref.name) == ref


@each_kind
def test_the_same_ref_again_is_no_error_whichever_release_made_it(
    metadata: Metadata, kind: Kind
) -> None:
    ref, key, store, _, _ = kind
    store(metadata, ref)
    store(metadata, ref)
    metadata.store.replace(key, old := as_of_an_older_release(ref))
    store(metadata, ref)

    assert metadata.store.get(key) == old


@each_kind
@pytest.mark.parametrize("is_old", [False, True])
def test_another_ref_of_the_name_is_left_alone(
    metadata: Metadata, kind: Kind, *, is_old: bool
) -> None:
    ref, key, store, _, _ = kind
    other = type(ref)(**{name: getattr(ref, name) for name in ref.__slots__} | {"created_us": 2})
    data = as_of_an_older_release(other) if is_old else encode_ref(other)
    metadata.store.put(key, data)

    with pytest.raises(AlreadyExistsError, match="taken"):
        store(metadata, ref)
    assert metadata.store.get(key) == data


@each_kind
def test_a_ref_whose_reply_was_lost_is_stored(kind: Kind) -> None:
    ref, _, store, load, _ = kind
    metadata = Metadata(
        FaultyStore(MemoryStore(), at_call=1, fault=Fault.LOST_REPLY), ManualClock()
    )
    store(metadata, ref)

    assert load(metadata, ref.name) == ref


@each_kind
def test_a_ref_that_did_not_land_is_an_error(kind: Kind) -> None:
    ref, _, store, _, _ = kind
    metadata = Metadata(FaultyStore(MemoryStore(), at_call=1, fault=Fault.FAILURE), ManualClock())

    with pytest.raises(StorageError):
        store(metadata, ref)


@each_kind
def test_the_error_of_a_damaged_ref_says_what_to_do_and_the_ref_can_be_deleted(
    metadata: Metadata, kind: Kind
) -> None:
    ref, key, store, load, delete = kind
    metadata.store.put(key, encode_ref(ref).replace(b"0000", b"0001", 1))

    with pytest.raises(CorruptObjectError, match="restore") as raised:
        load(metadata, ref.name)
    assert raised.value.context["key"] == key
    with pytest.raises(CorruptObjectError, match="restore"):
        store(metadata, ref)
    delete(metadata, ref.name)
    with pytest.raises(NotFoundError):
        load(metadata, ref.name)


@each_kind
def test_a_ref_of_a_newer_release_is_refused_by_name_and_may_be_deleted(
    metadata: Metadata, kind: Kind
) -> None:
    ref, key, store, load, delete = kind
    fields = {**orjson.loads(encode_ref(ref)), "format_version": 3}
    metadata.store.put(key, dump_canonical(fields))

    for call, argument in ((load, ref.name), (store, ref)):
        with pytest.raises(UnsupportedFormatError, match=f"upgrade.*or {key} is damaged") as raised:
            call(metadata, argument)
        assert raised.value.context["key"] == key
    delete(metadata, ref.name)  # the digit may be damage
    with pytest.raises(NotFoundError):
        load(metadata, ref.name)
