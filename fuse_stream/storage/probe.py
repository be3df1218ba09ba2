"""Whether a store keeps its promise: of any number of creations of one name, one succeeds.

Servers exist that ignore the condition of a conditional put. No error type decides anything here:
a writer may win and be told otherwise. What stands under the name does.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fuse_stream.errors import AlreadyExistsError, StorageError, UnsupportedStorageError
from fuse_stream.storage.base import Store, find_modified_us

CONTENDERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a probe learned about a store."""

    clock_offset_us: int
    """How far the store's clock is ahead of this machine's; negative if behind.

    As coarse as the store's own times (S3: a second) plus the time of a write.
    """


def probe(store: Store, *, key: str, now_us: Callable[[], int]) -> ProbeResult:
    """Race for `key`, a new one in a folder of probes; return what was learned; delete it.

    Raises:
        UnsupportedStorageError: a second creation won, or a listing lacks what was written.
        StorageError: the store failed, so nothing is known about it.
    """
    bodies = [f"probe {key} of contender {number}".encode() for number in range(CONTENDERS + 1)]
    before_us = now_us()
    with ThreadPoolExecutor(CONTENDERS) as pool:  # not `each`: a race, whatever `overlaps` says
        failures = list(pool.map(lambda body: _create(store, key, body), bodies[:CONTENDERS]))
    after_us = now_us()
    first = failures[0]
    if isinstance(first, StorageError) and all(isinstance(e, StorageError) for e in failures):
        raise first  # it says what to do
    try:
        standing = store.get(key)
        late = _create(store, key, bodies[CONTENDERS])
        winners = [body for body, error in zip(bodies, [*failures, late], strict=True) if not error]
        # A winner whose reply was lost was told otherwise; nobody else may have been told "yes".
        if store.get(key) != standing or set(winners) - {standing}:
            raise UnsupportedStorageError(
                "this store let a second writer create an object that was there already, so two "
                "writers could both commit one version; use another store, or pass "
                "unsafe_single_writer=True (the option unsafeSingleWriter, "
                "--unsafe-single-writer) if there is never more than one writer",
                store=store.url,
            )
        modified_us = find_modified_us(store, f"{key.rpartition('/')[0]}/", key)
        if modified_us is None:
            raise lacks_what_was_written(store)
        return ProbeResult(clock_offset_us=modified_us - (before_us + after_us) // 2)
    finally:
        store.delete(key)


def _create(store: Store, key: str, body: bytes) -> AlreadyExistsError | StorageError | None:
    try:
        store.put_if_absent(key, body)
    except (AlreadyExistsError, StorageError) as error:
        return error
    return None


def lacks_what_was_written(store: Store) -> UnsupportedStorageError:
    """Return the error for a listing without an object that is there."""
    return UnsupportedStorageError(
        "this store's listing lacks an object that was just written; use another store",
        store=store.url,
    )
