"""The claim of an optimizer on a branch: so that several do not repeat each other's work.

Rules:
- Correctness does not depend on it. Two optimizers on one branch waste work and do no harm: every
  commit is decided by its slot.
- It is renewed while its owner works, and taken over once it is dead by the store's time.
- It stays when it is released, because it records what was done.
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
"""In the time of a lease: two may fail."""

_log = logging.getLogger(__name__)


class BranchClaim:
    """The claim on a branch as one optimizer takes, renews and releases it."""

    def __init__(self, metadata: Metadata, branch_id: str, *, owner_id: str) -> None:
        self.past = Past()
        """What was done for the branch, as the claim records it."""

        self._metadata = metadata
        self._branch_id = branch_id
        self._owner_id = owner_id
        self._key = service_key(branch_id)

    def take(self, store_us: int) -> int | None:
        """Take the claim and learn the past; return when to try again if another optimizer has it.

        Args:
            store_us: the store's time.

        Raises:
            StorageError: the store failed.
        """
        standing = self._load()
        if standing is not None:
            self.past = standing.past
            if standing.owner_id not in {None, self._owner_id}:
                written_us = find_modified_us(self._metadata.store, SERVICES_PREFIX, self._key) or 0
                dead_us = written_us + min(standing.lease_us, LEASE_US)
                # A time that lies far ahead of the store's own is damage, not a lease.
                if store_us < dead_us <= store_us + 2 * LEASE_US:
                    return dead_us
        self._write(self._owner_id)
        # Of two that took it at one moment the last one has it.
        standing = self._load()
        if standing is None or standing.owner_id == self._owner_id:
            return None
        return store_us + LEASE_US

    def release(self) -> None:
        """Release the claim, with the past in it.

        Raises:
            StorageError: the store failed; the claim dies by itself.
        """
        standing = self._load()
        if standing is None or standing.owner_id == self._owner_id:
            self._write(None)

    @contextmanager
    def renewing(self) -> Iterator[None]:
        """Keep the claim alive while the block runs."""
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

    def _load(self) -> ServiceClaim | None:
        return find_claim(self._metadata, self._branch_id)


def find_claim(metadata: Metadata, branch_id: str) -> ServiceClaim | None:
    """Return the claim on a branch; None if there is none, or it is damaged."""
    try:
        return decode_claim(metadata.store.get(service_key(branch_id)))
    except (NotFoundError, ValueError):  # a damaged claim has no owner
        return None
