"""The claim of an optimizer on a branch, so that several do not repeat each other's work.

Rules:
- Correctness does not depend on the claim. Two optimizers on one branch waste work and do no harm:
  the slot decides every commit.
- The claim is renewed while its owner works. It is taken over once it has lapsed by the store's
  time.
- A released claim is not deleted, because it records what was done.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fuse_stream.errors import FuseError, NotFoundError
from fuse_stream.format.codec import decode_claim, encode_claim
from fuse_stream.format.layout import SERVICES_PREFIX, service_key
from fuse_stream.format.refs import Past, ServiceClaim
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import find_modified_us

LEASE_US = 60_000_000
RENEWALS = 3
"""Renewals in the duration of a claim, so that two may fail."""

_log = logging.getLogger(__name__)


class BranchClaim:
    """The claim on a branch, for one optimizer to take, renew and release."""

    def __init__(self, metadata: Metadata, branch_id: str, *, owner_id: str) -> None:
        self.past = Past()
        """What optimizers did for the branch, as the claim records it."""

        self._metadata = metadata
        self._branch_id = branch_id
        self._owner_id = owner_id
        self._key = service_key(branch_id)

    def take(self, store_us: int) -> int | None:
        """Take the claim at the store's time; return when to retry if another optimizer has it.

        Raises:
            StorageError: the store failed.
        """
        current = find_claim(self._metadata, self._branch_id)
        if current is not None:
            self.past = current.past
            if current.owner_id not in {None, self._owner_id}:
                written_us = find_modified_us(self._metadata.store, SERVICES_PREFIX, self._key) or 0
                lapses_us = written_us + min(current.lease_us, LEASE_US)
                # A time far ahead of the store's own is damage, and not a live claim.
                if store_us < lapses_us <= store_us + 2 * LEASE_US:
                    return lapses_us
        self._write(self._owner_id)
        # If two optimizers take the claim at once, the last write wins.
        current = find_claim(self._metadata, self._branch_id)
        if current is None or current.owner_id == self._owner_id:
            return None
        return store_us + LEASE_US

    def release(self) -> None:
        """Release the claim, with the past in it.

        Raises:
            StorageError: the store failed; the claim lapses by itself.
        """
        current = find_claim(self._metadata, self._branch_id)
        if current is None or current.owner_id == self._owner_id:
            self._write(None)

    @contextmanager
    def renewing(self) -> Iterator[None]:
        """Renew the claim, by a thread, while the `with` block runs."""
        if not self._metadata.store.overlaps:
            yield
            return
        is_over = threading.Event()
        renewer = threading.Thread(target=self._renew_until, args=(is_over,), daemon=True)
        renewer.start()
        try:
            yield
        finally:
            is_over.set()
            renewer.join()

    def _renew_until(self, is_over: threading.Event) -> None:
        while not is_over.wait(LEASE_US / RENEWALS / 1_000_000):
            try:
                self._write(self._owner_id)
            except FuseError as error:
                _log.info("the claim on a branch was not renewed: %s", error)

    def _write(self, owner_id: str | None) -> None:
        claim = ServiceClaim(
            branch_id=self._branch_id, owner_id=owner_id, lease_us=LEASE_US, past=self.past
        )
        self._metadata.store.replace(self._key, encode_claim(claim))


def find_claim(metadata: Metadata, branch_id: str) -> ServiceClaim | None:
    """Return the claim on a branch; None if it is missing or damaged."""
    try:
        return decode_claim(metadata.store.get(service_key(branch_id)))
    except (NotFoundError, ValueError):  # a damaged claim has no owner
        return None
