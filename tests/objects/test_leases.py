"""Consumers' leases as objects: what is written is read, and what is damaged keeps everything."""

from __future__ import annotations

import dataclasses

import orjson
import pytest

from fuse_stream.errors import (
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedFormatError,
)
from fuse_stream.format.codec import encode_ref
from fuse_stream.format.jsonio import dump_canonical
from fuse_stream.format.layout import PROBE_PREFIX, lease_key
from fuse_stream.format.records import Parent
from fuse_stream.format.refs import Lease, Position
from fuse_stream.objects.leases import (
    StoredLease,
    delete_lease,
    find_written_us,
    iter_leases,
    load_lease,
    load_store_time_us,
    store_lease,
)
from fuse_stream.objects.slots import Metadata
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore

BRANCH = "b" * 32
FORKS = (Parent(branch_id="main", version=3, sha256="0" * 64),)


def a_lease(**changes: object) -> Lease:
    lease = Lease(
        consumer="nightly",
        owner_id="a" * 32,
        branch_id="main",
        version=4,
        resumes=(Position(version=4), Position(version=7, index=2)),
        lease_us=60_000_000,
    )
    return dataclasses.replace(lease, **changes)  # type: ignore[arg-type]


@pytest.fixture
def metadata() -> Metadata:
    clock = ManualClock()
    return Metadata(MemoryStore(clock=clock), clock)


def the_clock(metadata: Metadata) -> ManualClock:
    assert isinstance(metadata.clock, ManualClock)
    return metadata.clock


def test_a_lease_is_read_as_it_was_written(metadata: Metadata) -> None:
    on_a_branch = a_lease(consumer="on-branch", branch_id=BRANCH, forks=FORKS)
    store_lease(metadata, a_lease())
    store_lease(metadata, on_a_branch)

    assert load_lease(metadata, "nightly") == a_lease()
    assert [standing.lease for standing in iter_leases(metadata)] == [a_lease(), on_a_branch]
    assert metadata.forks_of(BRANCH) == FORKS


def test_a_lease_that_is_written_again_lives_from_then_on(metadata: Metadata) -> None:
    store_lease(metadata, a_lease())
    before = find_written_us(metadata, "nightly")
    the_clock(metadata).advance(30)
    store_lease(metadata, a_lease(version=5))
    [standing] = iter_leases(metadata)

    assert before is not None
    assert standing == StoredLease(lease=a_lease(version=5), written_us=before + 30_000_000)
    assert standing.lapses_us == before + 90_000_000


@pytest.mark.parametrize(
    ("after_us", "lives"), [(0, True), (59_999_999, True), (60_000_000, False)]
)
def test_a_lease_lives_for_its_time_by_the_stores_clock(*, after_us: int, lives: bool) -> None:
    assert StoredLease(lease=a_lease(), written_us=1_000).is_live(1_000 + after_us) is lives


def test_the_stores_time_is_learned_and_nothing_is_left_behind(metadata: Metadata) -> None:
    before = the_clock(metadata).now_us()
    the_clock(metadata).advance(5)

    assert load_store_time_us(metadata) == before + 5_000_000
    assert not list(metadata.store.list(PROBE_PREFIX))


def test_a_lease_whose_reply_was_lost_is_stored() -> None:
    store = FaultyStore(MemoryStore(), at_call=1, fault=Fault.LOST_REPLY)
    metadata = Metadata(store, ManualClock())
    store_lease(metadata, a_lease())

    assert load_lease(metadata, "nightly") == a_lease()


def test_a_lease_that_did_not_land_is_an_error() -> None:
    store = FaultyStore(MemoryStore(), at_call=1, fault=Fault.FAILURE)

    with pytest.raises(StorageError):
        store_lease(Metadata(store, ManualClock()), a_lease())


def test_a_deleted_lease_is_gone_and_deleting_it_again_is_no_error(metadata: Metadata) -> None:
    store_lease(metadata, a_lease())
    delete_lease(metadata, "nightly")
    delete_lease(metadata, "nightly")

    with pytest.raises(NotFoundError):
        load_lease(metadata, "nightly")
    assert find_written_us(metadata, "nightly") is None


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "deadbeef", "x" * 101])
def test_a_consumer_has_a_name_like_a_branchs(metadata: Metadata, name: str) -> None:
    with pytest.raises(InvalidInputError):
        store_lease(metadata, a_lease(consumer=name))
    with pytest.raises(InvalidInputError):
        load_lease(metadata, name)
    with pytest.raises(InvalidInputError):
        delete_lease(metadata, name)


@pytest.mark.parametrize(
    "changes",
    [
        {"owner_id": "short"},
        {"branch_id": "../.."},
        {"branch_id": BRANCH},
        {"forks": FORKS},
        {"version": -1},
        {"lease_us": 0},
        {"lease_us": 2**62},
        {
            "branch_id": BRANCH,
            "forks": (*FORKS, Parent(branch_id=BRANCH, version=4, sha256="0" * 64)),
        },
        {"resumes": (Position(version=-1),)},
        {"consumer": "another"},
    ],
)
def test_a_damaged_lease_is_an_error_to_its_user_and_to_vacuum(
    metadata: Metadata, changes: dict[str, object]
) -> None:
    metadata.store.replace(lease_key("nightly"), encode_ref(a_lease(**changes)))

    with pytest.raises(CorruptObjectError, match="lease"):
        load_lease(metadata, "nightly")
    with pytest.raises(CorruptObjectError):
        list(iter_leases(metadata))


@pytest.mark.parametrize("data", [b"no json", b"{}", b"[]"])
def test_bytes_that_are_no_lease_are_an_error_and_can_be_deleted(
    metadata: Metadata, data: bytes
) -> None:
    metadata.store.replace(lease_key("nightly"), data)

    with pytest.raises(CorruptObjectError, match="release the consumer"):
        list(iter_leases(metadata))
    delete_lease(metadata, "nightly")
    assert not list(iter_leases(metadata))


def test_every_changed_byte_of_a_lease_is_noticed(metadata: Metadata) -> None:
    data = encode_ref(a_lease(branch_id=BRANCH, forks=FORKS))

    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        metadata.store.replace(lease_key("nightly"), bytes(changed))
        with pytest.raises((CorruptObjectError, UnsupportedFormatError)) as raised:
            load_lease(metadata, "nightly")
        assert raised.value.context["key"] == lease_key("nightly")


def test_a_lease_without_a_hash_is_of_an_older_release_and_is_read(metadata: Metadata) -> None:
    old = orjson.loads(encode_ref(a_lease()))
    del old["sha256"]
    old["format_version"] = 1
    metadata.store.replace(lease_key("nightly"), dump_canonical(old))

    assert load_lease(metadata, "nightly") == a_lease()


def test_a_lease_of_a_newer_release_is_an_error(metadata: Metadata) -> None:
    data = encode_ref(a_lease()).replace(b'"format_version":2', b'"format_version":3')
    metadata.store.replace(lease_key("nightly"), data)

    with pytest.raises(UnsupportedFormatError):
        list(iter_leases(metadata))
