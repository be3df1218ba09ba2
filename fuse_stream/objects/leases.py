"""Consumers' leases: small objects that keep snapshots until they are read, or for a time.

Rules:
- A lease is replaced at every renewal. It lives for `lease_us` from the store's time of its last
  write on; no machine's clock has a say.
- Who asks whether leases live learns the store's time *first*, and lists them after that: what is
  renewed in between is then not taken for lapsed.
- A lease that cannot be read may hold anything, so nobody passes over it.
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
from fuse_stream.storage.probe import lacks_what_was_written

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLease:
    """A lease and when it was written last, by the store's time."""

    lease: Lease
    written_us: int

    @property
    def lapses_us(self) -> int:
        """From then on it keeps nothing."""
        return self.written_us + self.lease.lease_us

    @property
    def is_unbroken(self) -> bool:
        """Whether it kept what it names even if the floor has passed that."""
        return self.written_us < self.lease.unbroken_until_us

    def is_live(self, store_now_us: int) -> bool:
        """Whether it keeps what it names; the store's time is learned before leases are listed."""
        return store_now_us < self.lapses_us


def load_lease(metadata: Metadata, consumer: str) -> Lease:
    """Return the lease of a consumer, live or not, and make its line known to `metadata`.

    Raises:
        NotFoundError: there is none.
        InvalidInputError: this is no name.
        CorruptObjectError: it is damaged.
    """
    key = lease_key(check_name(consumer))
    try:
        data = metadata.store.get(key)
    except NotFoundError:
        raise NotFoundError(
            "there is no lease of such a consumer; consumers() lists those that stand",
            consumer=consumer,
        ) from None
    try:
        lease = decode_lease(data)
    except CorruptObjectError as error:
        raise CorruptObjectError(
            f"a consumer's lease is damaged ({error.message}), so what it keeps is not known; "
            "release the consumer, whose next start writes it anew",
            **{**error.context, "consumer": consumer, "key": key},
        ) from error
    except UnsupportedFormatError as error:
        raise UnsupportedFormatError(
            f"{error.message}; or {key} is damaged: release the consumer by force, whose next "
            "start writes it anew",
            **error.context,
            consumer=consumer,
            key=key,
        ) from error
    if lease.name != consumer:
        raise CorruptObjectError(
            "a lease stands under another's name: it is a stray copy, or was renamed; delete this "
            "object, and leave the consumer alone that it names",
            consumer=consumer,
            holds=lease.name[:100],
            key=key,
        )
    metadata.learn_forks(lease.branch_id, lease.forks)
    return lease


def find_lease(metadata: Metadata, consumer: str) -> StoredLease | None:
    """Return the lease of a consumer and when it was written last; None if there is none."""
    # The time first: of a lease that is renewed in between it is too early, never too late.
    found_us = find_written_us(metadata, consumer)
    if found_us is None:
        return None
    try:
        return StoredLease(lease=load_lease(metadata, consumer), written_us=found_us)
    except NotFoundError:
        return None


def iter_leases(metadata: Metadata) -> Iterator[StoredLease]:
    """Yield the leases that stand, live or not, by the consumer's name.

    Raises:
        CorruptObjectError: one cannot be read, so what it keeps is not known.
    """
    for info in metadata.store.list(LEASES_PREFIX):
        name = listed_name(info.key, LEASES_PREFIX)
        if name is None:
            continue
        with contextlib.suppress(NotFoundError):  # deleted since it was listed
            yield StoredLease(lease=load_lease(metadata, name), written_us=info.modified_us)


def store_lease(metadata: Metadata, lease: Lease) -> None:
    """Write a lease, or write it anew, which prolongs it."""
    key, data = lease_key(check_name(lease.consumer)), encode_ref(lease)
    try:
        metadata.store.replace(key, data)
    except FuseError:
        if find_object(metadata.store, key) != data:  # else only the reply was lost
            raise
    metadata.learn_forks(lease.branch_id, lease.forks)


def delete_lease(metadata: Metadata, consumer: str) -> None:
    """Delete a lease, even one that cannot be read; deleting none is no error."""
    metadata.store.delete(lease_key(check_name(consumer)))


def find_written_us(metadata: Metadata, consumer: str) -> int | None:
    """Return the store's time of the last write of a consumer's lease; None if there is none."""
    return find_modified_us(metadata.store, LEASES_PREFIX, lease_key(check_name(consumer)))


def load_store_time_us(metadata: Metadata) -> int:
    """Return the store's time, learned from an object that is written for it and deleted.

    Raises:
        UnsupportedStorageError: the store's listing lacks what was just written.
    """
    for _ in range(_ATTEMPTS):
        key = probe_key(metadata.clock.new_id())
        metadata.store.put(key, b"what time is it")
        try:
            found = find_modified_us(metadata.store, PROBE_PREFIX, key)
        finally:
            metadata.store.delete(key)
        if found is not None:  # else this process slept, and a vacuum took it for a leftover
            return found
    raise lacks_what_was_written(metadata.store)
