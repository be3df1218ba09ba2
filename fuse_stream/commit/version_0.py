"""Version 0 of a table, which follows from its table file; and the table file from it. Pure."""

from __future__ import annotations

from fuse_stream.format.features import features_of
from fuse_stream.format.layout import MAIN
from fuse_stream.format.records import Ledger, Operation, Snapshot, Summary, TableFile


def create_snapshot(table: TableFile) -> Snapshot:
    """Return version 0 of a table: the same for every process that finishes the create."""
    return Snapshot(
        table_id=table.table_id,
        branch_id=MAIN,
        version=0,
        snapshot_id=table.snapshot_id,
        timestamp_us=table.created_us,
        clock_us=table.created_us,
        operation=Operation.CREATE,
        data_change=False,
        schema=table.schema,
        cluster_key=table.cluster_key,
        required_features=features_of(table.properties, table.schema),
        properties=table.properties,
        summary=Summary(),
        ledger=Ledger(),
    )


def table_file_of(
    oldest: Snapshot, grace_us: int, origins: tuple[tuple[str, str], ...]
) -> TableFile:
    """Return the table file rebuilt from the oldest snapshot; from version 0 it is exact."""
    return TableFile(
        table_id=oldest.table_id,
        created_us=oldest.timestamp_us,
        snapshot_id=oldest.snapshot_id,
        schema=oldest.schema,
        cluster_key=oldest.cluster_key,
        properties=oldest.properties,
        grace_us=grace_us,
        origins=origins,
    )
