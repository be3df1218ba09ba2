"""Put a snapshot into its slot, and find out what became of the put.

Rules:
- All attempts on one slot send identical bytes. After any exception the slot itself is read to
  learn what happened; the type of the error decides nothing, and an unknown outcome deletes
  nothing.
- A put that took long counts only while its chunk has no floor marker: the slot may have been
  taken, superseded and freed in the meantime.
- A store that keeps failing is asked for a limited time, then the outcome is unknown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from fuse_stream.clock import Clock
from fuse_stream.errors import (
    CommitStateUnknownError,
    FuseError,
    NotFoundError,
    UnsupportedFormatError,
)
from fuse_stream.format.codec import decode_snapshot, encode_snapshot
from fuse_stream.format.layout import slot_key
from fuse_stream.format.records import Snapshot
from fuse_stream.objects.slots import Metadata, Stored

SLOT_ATTEMPTS = 8
"""The most puts of one slot that fail without creating it, and the most reads after each."""
DOUBT_SECONDS = 60.0
"""After a put of a slot failed, the time in which new calls begin that put it or look for it."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.005, 1.0

T = TypeVar("T")


def put_snapshot(
    metadata: Metadata, candidate: Snapshot, head: Stored, *, grace_us: int
) -> Stored | None:
    """Put `candidate`, which builds on `head`; return what its slot holds, None if it was freed.

    Raises:
        CommitStateUnknownError: the store failed; the snapshot may have landed.
    """
    return _Put(metadata, candidate).run(head, grace_us)


def is_late(clock: Clock, since_s: float, grace_us: int) -> bool:
    """True if since then a slot may have been taken, superseded and freed."""
    return (clock.monotonic_s() - since_s) * 1_000_000 > grace_us / 4


def pause(clock: Clock, attempt: int) -> None:
    """Wait before the next attempt, longer after each."""
    longest = min(LAST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt, 10))
    clock.sleep(longest * clock.jitter())


class _Put:
    """The attempts on one slot."""

    def __init__(self, metadata: Metadata, candidate: Snapshot) -> None:
        self._metadata = metadata
        self._clock = metadata.clock
        self._candidate = candidate
        self._failure: Exception | None = None
        self._in_doubt_since_s: float | None = None

    def run(self, head: Stored, grace_us: int) -> Stored | None:
        candidate = self._candidate
        key = slot_key(candidate.branch_id, candidate.version)
        data = encode_snapshot(candidate)
        # A slot never changes: after unreadable bytes no commit would be possible any more.
        mine = decode_snapshot(data)
        sent_s = self._clock.monotonic_s()
        for attempt in range(1, SLOT_ATTEMPTS + 1):
            try:
                self._metadata.store.put_if_absent(key, data)
            except Exception as error:  # noqa: BLE001 - no error proves whether the bytes landed
                self._failure = error
                found = self._retry(self._find_slot)
            else:
                found = self._metadata.remember(data, mine)
            if found is not None and found.snapshot.snapshot_id != candidate.snapshot_id:
                # Perhaps no head any more, but neither it nor a later one was there at that time.
                return dataclasses.replace(found, read_s=head.read_s)
            # The slot may have been taken, superseded and freed before the put arrived.
            is_doubtful = found is None or is_late(self._clock, head.read_s, grace_us)
            if is_doubtful and self._retry(self._is_freed):
                return None
            if found is not None:
                return dataclasses.replace(found, read_s=sent_s)
            if self._has_failed_long():
                break
            pause(self._clock, attempt)
        raise CommitStateUnknownError(
            "the store keeps failing to create the snapshot, which does not exist yet: repair the "
            f"store ({self._failure}), look at the table's log, and deliver the batch again",
            version=candidate.version,
            attempts=attempt,
        ) from self._failure

    def _find_slot(self) -> Stored | None:
        try:
            return self._metadata.reload(self._candidate.branch_id, self._candidate.version)
        except NotFoundError:
            return None

    def _is_freed(self) -> bool:
        return self._metadata.has_expired(self._candidate.branch_id, self._candidate.version)

    def _has_failed_long(self) -> bool:
        since_s = self._in_doubt_since_s
        return since_s is not None and self._clock.monotonic_s() - since_s > DOUBT_SECONDS

    def _retry(self, ask: Callable[[], T]) -> T:
        """Return the answer of `ask`, which is retried.

        Raises:
            CommitStateUnknownError: no answer. The snapshot was sent, so a storage error alone
                would mislead.
        """
        if self._in_doubt_since_s is None:
            self._in_doubt_since_s = self._clock.monotonic_s()
        unread: FuseError | None = None
        for attempt in range(1, SLOT_ATTEMPTS + 1):
            try:
                return ask()
            except UnsupportedFormatError:
                raise  # the slot holds a newer release's snapshot: this one did not land
            except FuseError as error:
                unread = error
                if self._has_failed_long():
                    break
                pause(self._clock, attempt)
        raise CommitStateUnknownError(
            "the store failed after the snapshot was sent, and the slot cannot be read: the commit "
            "may have landed. Look at the table's log before trying again; with an app_id and a "
            "batch_id a second delivery is safe",
            version=self._candidate.version,
            put_failed=None if self._failure is None else str(self._failure),
            get_failed=str(unread),
        ) from (self._failure or unread)
