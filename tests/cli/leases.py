"""Leases of consumers, made by hand."""

from __future__ import annotations

from fuse_stream.format.refs import Lease, Position
from fuse_stream.objects.leases import store_lease
from fuse_stream.table.handle import Table

OWNER = "abcdef0123456789" * 2


def put_lease(
    table: Table, consumer: str, version: int, *, lease_us: int = 10**12, index: int = 0
) -> None:
    lease = Lease(
        consumer=consumer,
        owner_id=OWNER,
        branch_id=table.committer.branch_id,
        forks=table.committer.branch.forks,
        version=version,
        resumes=(Position(version=version, index=index),),
        lease_us=lease_us,
    )
    store_lease(table.metadata, lease)
    if lease_us < 1000:  # file times on a local disk are only as exact as the kernel's ticks
        table.metadata.clock.sleep(0.05)
