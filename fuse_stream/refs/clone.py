"""Clone a snapshot: make a table with its content and its ledger, without copying a block.

The clone gets its own segments, deletion files and source offsets: these are small.

Rules:
- The origin's pin is put, and checked again, before any object of the clone exists. So vacuum never
  deletes a block that the clone needs. If the snapshot is itself a clone's, a pin is put in every
  further origin, too.
- `_fuse.json` decides which of several calls makes the clone; a later call finishes that clone. Its
  pin names the snapshot.
- Version 0 has the snapshot's columns with their ids, which the blocks contain. Version 1 appends
  all blocks at once, so a follower gets each row once. Before version 1 nobody may open the clone.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.create import (
    check_clock,
    check_folder_is_free,
    claim_table_file,
    finish_create,
    probe_store,
    put_version_0,
)
from fuse_stream.commit.plan import Content, Intent, Staged
from fuse_stream.commit.stage import stage_segment
from fuse_stream.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptObjectError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.format.index_codec import without_part_origins
from fuse_stream.format.indexes import IndexListRef
from fuse_stream.format.layout import CLONED_VERSION, MAIN
from fuse_stream.format.names import Version, parse_version
from fuse_stream.format.one_line import one_line
from fuse_stream.format.records import (
    DeletionFileRef,
    Ledger,
    Operation,
    Snapshot,
    SourceOffsets,
    TableFile,
)
from fuse_stream.format.refs import CloneRef
from fuse_stream.format.sides import side_views
from fuse_stream.objects.indexes import load_index_list, store_index_list
from fuse_stream.objects.refs import MAIN_BRANCH, load_pin
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.objects.source_offsets import load_offsets, store_offsets
from fuse_stream.reading.history import History, load_tagged
from fuse_stream.refs.create import get_stored
from fuse_stream.refs.pins import Pins, further_origins, naming_pins
from fuse_stream.storage.base import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """A table that was cloned from a snapshot."""

    table_id: str
    """The id to pass to `unpin` after the clone was deleted."""
    location: str
    source: Snapshot
    """The snapshot of the origin whose content and ledger the clone has."""
    snapshot: Snapshot
    """The clone's version 1."""
    origins: tuple[tuple[str, str], ...]
    """(table id, location) of the tables whose blocks it names: pass these to open the clone."""

    __repr__ = one_line(
        "location version=source.version rows=source.summary.row_count table_id origins"
    )


def clone(
    committer: Committer,
    place: Metadata,
    *,
    version: Version | None = None,
    origin_of: Callable[[str], Store],
    probe_place: bool = True,
) -> Clone:
    """Clone a snapshot to `place` and return the clone; errors of `fuse_stream.clone`.

    `origin_of` returns the store of a further origin by table id, if the table is a clone.
    """
    table = committer.metadata.load_table_file()
    current = place.find_table_file()
    put = put_version_0 if current is None else finish_create
    if current is not None:
        _check_is_clone_of(table, current, place)
    if current is None:
        check_folder_is_free(place)
    offset_us = probe_store(place) if probe_place else 0
    if current is None:
        now_us = place.clock.now_us()
        check_clock(now_us, now_us + offset_us)
        current = _begin(committer, place, table, version, origin_of)
        _check_is_clone_of(table, current, place)
    with naming_pins(current):
        put(place, current)
        return _finish(committer, place, current, version, offset_us)


def _begin(
    committer: Committer,
    place: Metadata,
    table: TableFile,
    version: Version | None,
    origin_of: Callable[[str], Store],
) -> TableFile:
    """Pin the snapshot and put the clone's table file; return the one that is then there."""
    metadata, location = committer.metadata, place.store.url
    stored = get_stored(committer, version)
    snapshot = stored.snapshot
    further = {
        table_id: Metadata(origin_of(table_id), metadata.clock)
        for table_id in further_origins(metadata, table, snapshot)
    }
    origins = tuple((table_id, origin.store.url) for table_id, origin in further.items())
    wanted = table_file_of(metadata, table, snapshot, origins)
    clone_id = wanted.table_id
    pins = Pins(committer=committer, further=tuple(further.values()), source_id=table.table_id)
    pins.put(version, stored, clone_id=clone_id, location=location)
    with naming_pins(wanted):
        current = claim_table_file(place, wanted)
    if current.table_id != clone_id:  # another call was faster, and pinned for itself
        pins.withdraw(clone_id)
    return current


def table_file_of(
    metadata: Metadata,
    table: TableFile,
    snapshot: Snapshot,
    further: tuple[tuple[str, str], ...] = (),
) -> TableFile:
    """Return the table file of a new table that begins with a snapshot of `table`.

    `further` are ids and locations of other tables that hold blocks of the snapshot.
    """
    clock = metadata.clock
    return TableFile(
        table_id=clock.new_id(),
        created_us=clock.now_us(),
        snapshot_id=clock.new_id(),
        schema=snapshot.schema,
        cluster_key=snapshot.cluster_key,
        properties=snapshot.properties,
        grace_us=table.grace_us,
        origins=((table.table_id, metadata.store.url), *further),
    )


def _finish(
    committer: Committer,
    place: Metadata,
    current: TableFile,
    version: Version | None,
    offset_us: int,
) -> Clone:
    """Commit the content of a clone whose table file exists, unless that was done."""
    metadata = committer.metadata
    writer = Committer(place, MAIN_BRANCH, grace_us=current.grace_us, is_probed=True)
    writer.clock_offset_us = offset_us
    head = writer.head().snapshot
    try:
        pin = load_pin(metadata, current.table_id)
    except NotFoundError as error:
        raise AlreadyExistsError(
            "there is a clone here whose pin was removed; remove its folder, or use another path",
            path=place.store.url,
            clone_id=current.table_id,
        ) from error
    if head.version > CLONED_VERSION or not _is_wanted(committer, version, pin, head):
        raise AlreadyExistsError(
            "a clone of this table was made here already, of another version or some commits ago; "
            "open it, or use another path",
            path=place.store.url,
            clone_id=current.table_id,
            clone_of_version=pin.target.version,
            head=head.version,
        )
    stored = load_tagged(metadata, pin)

    def stage(_head: Stored, _before: Staged | None) -> Staged:
        staged = stage_content(metadata, place, stored.snapshot, is_copied=False)
        pinned = frozenset(table_id for table_id, _ in current.origins)
        indexes = stage_indexes(metadata, place, stored.snapshot, pinned=pinned)
        return dataclasses.replace(staged, index_list=indexes)

    if head.version < CLONED_VERSION:
        source = stored.snapshot
        branch = "" if source.branch_id == MAIN else f" of branch {source.branch_id}"
        # The table's id and not its location, which only the table file may contain.
        message = f"clone of table {source.table_id}, version {source.version}{branch}"
        intent = Intent(operation=Operation.APPEND, message=message)
        with suppress(ConflictError):  # an equal call was first: nobody else can open the clone
            writer.commit(intent, stage, replan=False)
    return Clone(
        table_id=current.table_id,
        location=place.store.url,
        source=stored.snapshot,
        snapshot=place.load_snapshot(MAIN, CLONED_VERSION).snapshot,
        origins=current.origins,
    )


def stage_content(
    metadata: Metadata, place: Metadata, source: Snapshot, *, is_copied: bool
) -> Staged:
    """Stage the content and the ledger of `source` for version 1 of the table in `place`.

    Each block names the table that holds it; if the blocks are copied, none does.
    """
    rows = _lists(metadata, place, source, is_copied=is_copied)
    sides = {
        name: dataclasses.replace(
            source.sides[name], **_lists(metadata, place, view, is_copied=is_copied)
        )
        for name, view in side_views(source).items()
    }
    return Staged(
        schema=source.schema,
        content=Content.of(
            source,
            **rows,
            added=tuple(ref.id for ref in rows["segments"]),
            sides=sides,
            ledger=_ledger(metadata, place, source.ledger),
        ),
    )


def _lists(
    metadata: Metadata, place: Metadata, source: Snapshot, *, is_copied: bool
) -> dict[str, Any]:
    """Put the segments and deletion files of `source`, or of a side, in the clone."""
    types = source.schema.leaf_types
    refs = []
    for ref in source.segments:
        segment = metadata.load_segment(ref, types)
        blocks = tuple(
            dataclasses.replace(
                block, origin=None if is_copied else block.origin or source.table_id
            )
            for block in segment.blocks
        )
        refs.append(
            stage_segment(place, source, blocks, level=ref.level, summary=segment.summary).ref
        )
    return {
        "segments": tuple(refs),
        "deletion_files": tuple(_copied(metadata, place, ref) for ref in source.deletion_files),
    }


def _copied(metadata: Metadata, place: Metadata, ref: DeletionFileRef) -> DeletionFileRef:
    """Put a deletion file in the clone: blocks have the same ids there."""
    return place.deletions.put(
        metadata.deletions.load(ref),
        file_id=place.clock.new_id(),
        level=ref.level,
        since_us=ref.since_us,
    )


def stage_indexes(
    metadata: Metadata, place: Metadata, source: Snapshot, *, pinned: frozenset[str] | None
) -> IndexListRef | None:
    """Put the list of indexes of `source` in the clone, and return the reference to it.

    Its parts stay in the tables with the ids `pinned`, which keep them; others are left out. If
    the parts are copied, `pinned` is None. A list that cannot be read is left out.
    """
    try:
        indexes = load_index_list(metadata, source.index_list)
    except CorruptObjectError as error:
        _log.warning("the indexes were left out: %s", error)
        return None
    if pinned is None:
        return store_index_list(place, without_part_origins(indexes))
    parts = (
        dataclasses.replace(part, origin=part.origin or source.table_id) for part in indexes.parts
    )
    kept = tuple(part for part in parts if part.origin in pinned)
    return store_index_list(place, dataclasses.replace(indexes, parts=kept))


def _ledger(metadata: Metadata, place: Metadata, ledger: Ledger) -> Ledger:
    """Return the ledger for the clone, whose version 1 holds all its batches."""

    def moved(offsets: SourceOffsets) -> SourceOffsets:
        if offsets.id is None:
            return offsets
        text = load_offsets(metadata.store, offsets)
        whole = dataclasses.replace(offsets, text=text)
        return store_offsets(place.store, whole, place.clock.new_id())

    return Ledger(
        entries={
            key: dataclasses.replace(
                entry, version=CLONED_VERSION, offsets=tuple(map(moved, entry.offsets))
            )
            for key, entry in ledger.entries.items()
        },
        retired={
            query_id: dataclasses.replace(passed, version=CLONED_VERSION)
            for query_id, passed in ledger.retired.items()
        },
    )


def _check_is_clone_of(table: TableFile, current: TableFile, place: Metadata) -> None:
    if not current.origins or current.origins[0][0] != table.table_id:
        raise AlreadyExistsError(
            "there is a table here already; use another path for the clone", path=place.store.url
        )


def _is_wanted(
    committer: Committer, version: Version | None, pin: CloneRef, head: Snapshot
) -> bool:
    """True if a clone at `head`, finished or not, is the one that this call should make."""
    if version is None and head.version < CLONED_VERSION:
        # An unfinished clone of the snapshot that was the head when it was begun.
        metadata = committer.metadata
        history = History(metadata, committer.head())
        return history.contains(load_tagged(metadata, pin).snapshot)
    try:
        return get_stored(committer, version).snapshot.snapshot_id == pin.snapshot_id
    except SnapshotExpiredError:  # the pin keeps it
        return version is not None and parse_version(version).number == pin.target.version
