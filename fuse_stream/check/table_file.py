"""Restore a lost `_fuse.json` from the table's snapshots.

Version 0 has all that the table file has, except the origins of a clone, which the caller names. If
version 0 has expired, the oldest snapshot of `main` has the table's id and grace. The rest of the
file only determines version 0, which is never created again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuse_stream.check.findings import FindingKind, FsckReport
from fuse_stream.check.fsck import check_table
from fuse_stream.clock import Clock
from fuse_stream.commit.create import claim_table_file
from fuse_stream.commit.version_0 import table_file_of
from fuse_stream.errors import (
    AlreadyExistsError,
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.format.layout import MAIN, TABLE_KEY, slot_key
from fuse_stream.format.properties import grace_us
from fuse_stream.format.records import Snapshot, TableFile
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import Store, find_object


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTableFile:
    """A table file that was restored."""

    table_file: TableFile
    version: int
    """The version that it was restored from."""


def restore_table_file(
    store: Store, clock: Clock, *, origins: Sequence[Store] = ()
) -> RestoredTableFile:
    """Restore the lost table file of the table in `store`, and return it; reads all snapshots.

    `origins` are the stores of a clone's origins, first that of the table that it was cloned from.

    Raises:
        AlreadyExistsError: there is a table file.
        NotFoundError: there is no snapshot, or no table at one of the origins.
        InvalidInputError: the table is a clone, and `origins` lacks an origin.
        CorruptObjectError: the snapshots that have its facts are lost or damaged, too.
    """
    metadata = Metadata(store, clock)
    if find_object(store, TABLE_KEY) is not None:
        raise _is_there(store)
    report = check_table(store, clock)
    oldest = _find_oldest(metadata, report)
    places = {Metadata(origin, clock).load_table_file().table_id: origin.url for origin in origins}
    if missing := [origin for origin in report.origins if origin not in places]:
        raise InvalidInputError(
            "this is a clone, and only its table file named the tables that hold its blocks; name "
            "each with --origin, first the one that it was cloned from",
            path=store.url,
            missing=missing,
        )
    wanted = table_file_of(oldest, grace_us(oldest.properties), tuple(places.items()))
    if claim_table_file(metadata, wanted) != wanted:
        raise _is_there(store)
    return RestoredTableFile(table_file=wanted, version=oldest.version)


def _is_there(store: Store) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"there is a table file here; if fuse-stream fsck says that {TABLE_KEY} is damaged or "
        "another table's, move it away, then try again",
        key=TABLE_KEY,
        path=store.url,
    )


def _find_oldest(metadata: Metadata, report: FsckReport) -> Snapshot:
    """Return version 0; if it has expired, the oldest version of `main`."""
    head = metadata.load_head(MAIN).snapshot
    damaged = {one.key for one in report.findings if one.kind is not FindingKind.NOTE}
    for version in (0, head.floor):
        if slot_key(MAIN, version) in damaged:
            continue
        try:
            found = metadata.load_snapshot(MAIN, version).snapshot
        except (NotFoundError, SnapshotExpiredError, CorruptObjectError):
            continue
        if found.table_id == head.table_id:
            return found
    raise CorruptObjectError(
        f"{TABLE_KEY} is lost, and so is the snapshot to restore it from: put one of the two back "
        "from a copy",
        key=slot_key(MAIN, head.floor),
        path=metadata.store.url,
    )
