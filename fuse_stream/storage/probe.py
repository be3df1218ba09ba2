"""Test that a store creates an object exactly once, and measure its clock.

Some servers ignore the condition of a conditional put. The test compares the stored object with
the replies; an error alone proves nothing, because the reply of a successful put may be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fuse_stream.errors import (
    AlreadyExistsError,
    NotFoundError,
    StorageError,
    UnsupportedStorageError,
)
from fuse_stream.storage.base import Store, find_modified_us

CONTENDERS = 8
_ATTEMPTS = 3
_LEAST_AGE_US = 1_000_000  # no vacuum deletes a younger object: `fuse.vacuum.age` is no less


def probe(store: Store, *, new_key: Callable[[], str], now_us: Callable[[], int]) -> int:
    """Create an object from several threads, check the outcome, and delete it.

    `new_key` returns a new key in the folder of probes. Returns the store's clock minus this
    machine's, in microseconds. Its error is the resolution of the store's times (S3: a second) plus
    the time of a write. If a vacuum may have deleted the object meanwhile, the test is repeated.

    Raises:
        UnsupportedStorageError: a second creation succeeded, or a listing lacks the object.
        StorageError: the store failed, so the test has no result.
    """
    verdict = stale_listing_error(store)
    for _ in range(_ATTEMPTS):
        started_us = now_us()
        try:
            return _probe_once(store, new_key(), now_us)
        except NotFoundError:
            continue
        except UnsupportedStorageError as error:
            verdict = error
            if now_us() - started_us < _LEAST_AGE_US:
                break
    raise verdict


def _probe_once(store: Store, key: str, now_us: Callable[[], int]) -> int:
    bodies = [f"probe {key} of contender {number}".encode() for number in range(CONTENDERS + 1)]
    before_us = now_us()
    with ThreadPoolExecutor(CONTENDERS) as pool:  # not `each`, which may run calls one by one
        failures = list(pool.map(lambda body: _create(store, key, body), bodies[:CONTENDERS]))
    after_us = now_us()
    first = failures[0]
    if isinstance(first, StorageError) and all(isinstance(e, StorageError) for e in failures):
        raise first
    try:
        stored = store.get(key)
        late = _create(store, key, bodies[CONTENDERS])
        winners = [body for body, error in zip(bodies, [*failures, late], strict=True) if not error]
        # The winner's own reply may be an error; no other call may have succeeded.
        if store.get(key) != stored or set(winners) - {stored}:
            raise UnsupportedStorageError(
                "this store let a second writer create an object that already existed, so two "
                "writers could both commit one version; use another store, or pass "
                "unsafe_single_writer=True (the option unsafeSingleWriter, "
                "--unsafe-single-writer) if there is never more than one writer",
                store=store.url,
            )
        modified_us = find_modified_us(store, f"{key.rpartition('/')[0]}/", key)
        if modified_us is None:
            store.get(key)  # raises NotFoundError if it is deleted
            raise stale_listing_error(store)
        return modified_us - (before_us + after_us) // 2
    finally:
        store.delete(key)


def _create(store: Store, key: str, body: bytes) -> AlreadyExistsError | StorageError | None:
    try:
        store.put_if_absent(key, body)
    except (AlreadyExistsError, StorageError) as error:
        return error
    return None


def stale_listing_error(store: Store) -> UnsupportedStorageError:
    """Return the error for a store or a listing that lacks an existing object."""
    return UnsupportedStorageError(
        "this store or its listing lacks an object that was just written; use another store",
        store=store.url,
    )
