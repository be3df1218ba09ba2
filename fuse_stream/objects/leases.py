"""Consumers' leases: small objects that keep snapshots until they are read or the lease lapses.

Rules:
- A renewal replaces the lease. A lease is live until `lease_us` after its last write, by the
  store's time; the clocks of machines do not matter.
- A check for live leases measures the store's time *first* and lists the leases after that, so a
  lease that is renewed in between does not count as lapsed.
- A lease that cannot be read may keep any version, so it is an error and is never ignored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from fuse_stream.errors import CorruptObjectError, FuseError, NotFoundError, UnsupportedFormatError
from fuse_stream.format.codec import decode_lease, encode_ref
from fuse_stream.format.layout import LEASES_PREFIX, PROBE_PREFIX, lease_key, probe_key
from fuse_stream.format.names import check_name, listed_name
from fuse_stream.format.refs import Lease
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import find_modified_us, find_object
from fuse_stream.storage.probe import stale_listing_error

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLease:
    """A lease and the time of its last write, by the store's time."""

    lease: Lease
    written_us: int

    @property
    def lapses_us(self) -> int:
        """The time from which on it keeps nothing."""
        return self.written_us + self.lease.lease_us

    @property
    def is_unbroken(self) -> bool:
        """True if its versions were always kept, even if the floor is above them now."""
        return self.written_us < self.lease.unbroken_until_us

    def is_live(self, store_now_us: int) -> bool:
        """True if it keeps its versions; measure `store_now_us` before leases are listed."""
        return store_now_us < self.lapses_us


def load_lease(metadata: Metadata, consumer: str) -> Lease:
    """Return the lease of a consumer, live or not; `metadata` learns the forks of its branch.

    Raises:
        NotFoundError: there is no such lease.
        InvalidInputError: `consumer` is not a valid name.
        CorruptObjectError: the lease is damaged.
    """
    key = lease_key(check_name(consumer))
    try:
        data = metadata.store.get(key)
    except NotFoundError:
        raise NotFoundError(
            "this consumer has no lease; consumers() lists all leases", consumer=consumer
        ) from None
    try:
        lease = decode_lease(data)
    except CorruptObjectError as error:
        raise CorruptObjectError(
            f"a consumer's lease is damaged ({error.message}), so what it keeps is not known; "
            "release the consumer: its next start writes a new lease",
            **{**error.context, "consumer": consumer, "key": key},
        ) from error
    except UnsupportedFormatError as error:
        raise UnsupportedFormatError(
            f"{error.message}; or {key} is damaged: release the consumer by force, and its next "
            "start writes a new lease",
            **error.context,
            consumer=consumer,
            key=key,
        ) from error
    if lease.name != consumer:
        raise CorruptObjectError(
            "a lease has the key of another consumer: it was copied or renamed by hand; delete "
            "this object, and do not release the consumer that it names",
            consumer=consumer,
            holds=lease.name[:100],
            key=key,
        )
    metadata.learn_forks(lease.branch_id, lease.forks)
    return lease


def find_lease(metadata: Metadata, consumer: str) -> StoredLease | None:
    """Return the lease of a consumer and the time of its last write; None if there is none."""
    # The time first: if the lease is renewed in between, the time is too early, never too late.
    found_us = find_written_us(metadata, consumer)
    if found_us is None:
        return None
    try:
        return StoredLease(lease=load_lease(metadata, consumer), written_us=found_us)
    except NotFoundError:
        return None


def iter_leases(metadata: Metadata) -> Iterator[StoredLease]:
    """Yield all leases, live or not, in the order of their consumers' names.

    Raises:
        CorruptObjectError: a lease cannot be read, so it is unknown what it keeps.
    """
    for info in metadata.store.list(LEASES_PREFIX):
        name = listed_name(info.key, LEASES_PREFIX)
        if name is None:
            continue
        with contextlib.suppress(NotFoundError):  # deleted since it was listed
            yield StoredLease(lease=load_lease(metadata, name), written_us=info.modified_us)


def store_lease(metadata: Metadata, lease: Lease) -> None:
    """Create or replace a consumer's lease; its time starts again."""
    key, data = lease_key(check_name(lease.consumer)), encode_ref(lease)
    try:
        metadata.store.replace(key, data)
    except FuseError:
        if find_object(metadata.store, key) != data:  # if equal, only the reply was lost
            raise
    metadata.learn_forks(lease.branch_id, lease.forks)


def delete_lease(metadata: Metadata, consumer: str) -> None:
    """Delete a consumer's lease, even if it cannot be read; no error if there is none."""
    metadata.store.delete(lease_key(check_name(consumer)))


def find_written_us(metadata: Metadata, consumer: str) -> int | None:
    """Return the store's time of the last write of a consumer's lease; None if there is none."""
    return find_modified_us(metadata.store, LEASES_PREFIX, lease_key(check_name(consumer)))


def load_store_time_us(metadata: Metadata) -> int:
    """Return the store's time, from the listing of a probe object that is written and deleted.

    Raises:
        UnsupportedStorageError: the store's listing lacks the probe object.
    """
    for _ in range(_ATTEMPTS):
        key = probe_key(metadata.clock.new_id())
        metadata.store.put(key, b"what time is it")
        try:
            found = find_modified_us(metadata.store, PROBE_PREFIX, key)
        finally:
            metadata.store.delete(key)
        if found is not None:  # if None, the process was suspended, and vacuum deleted the probe
            return found
    raise stale_listing_error(metadata.store)
