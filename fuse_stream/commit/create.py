"""Create a table: put `_fuse.json`, then version 0, whose bytes `_fuse.json` determines.

`_fuse.json` alone is an unfinished create, which any process may finish. Version 0 alone, or any
later object of a table, is a table that has lost its `_fuse.json`: nothing is created there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from fuse_stream.clock import Clock, StoreClock
from fuse_stream.commit.version_0 import create_snapshot
from fuse_stream.errors import (
    AlreadyExistsError,
    ClockSkewError,
    CorruptObjectError,
    FuseError,
    InvalidInputError,
)
from fuse_stream.format.bloom import check_filtered
from fuse_stream.format.codec import encode_snapshot
from fuse_stream.format.layout import MAIN, TABLE_KEY, probe_key, slot_key
from fuse_stream.format.names import names_in, nearest
from fuse_stream.format.private import check_private
from fuse_stream.format.properties import check_properties, grace_us
from fuse_stream.format.records import TableFile
from fuse_stream.format.schema import Schema, is_hidden
from fuse_stream.objects.other_files import SHOWN, find_other_files
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import find_object
from fuse_stream.storage.probe import probe

MAX_SKEW_US = 5 * 60 * 1_000_000

_probed: dict[tuple[Hashable, Clock], StoreClock] = {}
"""The time of each server that has passed the probe, by the clock that it was compared with."""


def create_objects(
    metadata: Metadata,
    schema: Schema,
    *,
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> TableFile:
    """Create a table in the store and return its table file.

    Raises:
        AlreadyExistsError: there is a table.
        CorruptObjectError: there is a table that has lost its table file; nothing was written.
        InvalidInputError: a property or the cluster key is not valid; nothing was written.
    """
    table_file = new_table_file(
        metadata.clock, schema, cluster_by=cluster_by, properties=properties
    )
    # Look before the put: a new table file over a table that has lost its own would make that
    # table unreadable.
    if metadata.find_table_file() or claim_table_file(metadata, table_file) != table_file:
        raise AlreadyExistsError(
            "there is a table here already; open it, or use another path", path=metadata.store.url
        )
    put_version_0(metadata, table_file)
    return table_file


def new_table_file(
    clock: Clock,
    schema: Schema,
    *,
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> TableFile:
    """Return the table file of a new table.

    Raises:
        InvalidInputError: a property or the cluster key is not valid.
    """
    checked = check_properties({} if properties is None else properties, creating=True)
    key = cluster_key(schema, cluster_by)
    check_private(schema, checked, key)
    check_filtered(schema, checked)
    return TableFile(
        table_id=clock.new_id(),
        created_us=clock.now_us(),
        snapshot_id=clock.new_id(),
        schema=schema,
        cluster_key=key,
        properties=checked,
        grace_us=grace_us(checked),
    )


def claim_table_file(metadata: Metadata, table_file: TableFile) -> TableFile:
    """Put a table file; return the one that is then there: another call's if that was first."""
    try:
        metadata.store_table_file(table_file)
    except FuseError:
        # This call's own put may have succeeded in spite of the error; the table file shows it.
        if find_object(metadata.store, TABLE_KEY) is None:
            raise
        return metadata.load_table_file()
    return table_file


def check_folder_is_free(metadata: Metadata) -> None:
    """Raise if a new table would share its folder with something else; a table there is none.

    Raises:
        AlreadyExistsError: there are other files or tables; nothing was written.
    """
    found = find_other_files(metadata.store)
    if found is None:
        return
    raise AlreadyExistsError(
        f"this folder holds {found.kind}, and a table needs a folder of its own: use an empty or a "
        "new one. To bring such rows into a table, read them with Spark and write them there with "
        "fuse.write",
        path=metadata.store.url,
        found=found.names[:SHOWN],
        count=len(found.names),
    )


def finish_create(metadata: Metadata, table_file: TableFile) -> None:
    """Put version 0 of an existing table, unless it is there or has expired.

    A slot below a floor marker is never created again.
    """
    if not metadata.has_expired(MAIN, 0):
        put_version_0(metadata, table_file)


def put_version_0(metadata: Metadata, table_file: TableFile) -> None:
    """Put version 0 of a new table, unless it is there.

    Raises:
        CorruptObjectError: another version 0 is there.
    """
    key, data = slot_key(MAIN, 0), encode_snapshot(create_snapshot(table_file))
    try:
        metadata.store.put_if_absent(key, data)
    except FuseError as error:
        # The put may have succeeded in spite of the error, or another process finished the create.
        found = find_object(metadata.store, key)
        if found is None:
            raise
        if found != data:
            raise CorruptObjectError(
                f"version 0 is not the one that {TABLE_KEY} determines: one of the two was changed "
                "or is another table's; fuse-stream fsck says which, and how to repair it",
                key=key,
                path=metadata.store.url,
                table_file=table_file.table_id,
            ) from error


def probe_store(metadata: Metadata) -> int:
    """Probe the store; return how far its clock is ahead of this machine's, in microseconds.

    A process asks each server once: its other stores there are as good, and have the same clock.

    Raises:
        UnsupportedStorageError: the store cannot create an object exactly once.
    """
    clock, server = metadata.clock, metadata.store.server
    known = _probed.get((server, clock))
    if known is None:
        offset_us = probe(
            metadata.store, new_key=lambda: probe_key(clock.new_id()), now_us=clock.now_us
        )
        known = StoreClock(clock)
        known.learn(clock.now_us() + offset_us)
        if server is not None:
            _probed[server, clock] = known
    return known.now_us() - clock.now_us()


def check_clock(machine_us: int, store_us: int) -> None:
    """Raise if this machine's clock is too far ahead of the store's to date a snapshot.

    Times only grow on a branch: one such snapshot would set the time of every later one.

    Raises:
        ClockSkewError: the clock is more than 5 minutes ahead.
    """
    if machine_us - store_us > MAX_SKEW_US:
        raise ClockSkewError(
            "this machine's clock is more than 5 minutes ahead of the store's, and snapshots are "
            "found by time: set it right, then try again",
            machine_us=machine_us,
            store_us=store_us,
        )


def cluster_key(schema: Schema, names: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of the columns of a cluster key; errors of `column_ids`."""
    return column_ids(schema, names, argument="cluster_by")


def column_ids(schema: Schema, names: Sequence[str], *, argument: str) -> tuple[int, ...]:
    """Return the ids of the columns that an argument of this name lists.

    Raises:
        InvalidInputError: a column is not in the schema, is named twice, or is nested.
    """
    names = names_in(argument, names)
    known = {column.name: column for column in schema.columns}
    if len(set(names)) != len(names):
        raise InvalidInputError(f"{argument} names a column twice", **{argument: list(names)})
    for name in names:
        shown = [other for other in known if not is_hidden(other)]
        if name not in known:
            raise InvalidInputError(
                f"{argument} names columns of the table, but there is no such column",
                column=name,
                nearest=nearest(name, shown),
                columns=shown,
            )
        if known[name].children:
            raise InvalidInputError(
                f"{argument} names columns of the table that are not nested",
                column=name,
                columns=[other for other in shown if not known[other].children],
            )
    return tuple(known[name].id for name in names)
