"""What a snapshot stages that holds what another one held."""

from __future__ import annotations

from fuse_stream.commit.plan import Content, Staged
from fuse_stream.format.evolve import succeed
from fuse_stream.format.records import Ledger, Parent, Snapshot
from fuse_stream.objects.metadata import Stored


def content_of(head: Snapshot, target: Stored, ledger: Ledger) -> Staged:
    """Return what takes the content of `target` on top of `head`, with that ledger."""
    held = target.snapshot
    return Staged(
        schema=succeed(head.schema, held.schema),
        content=Content(
            segments=held.segments,
            summary=held.summary,
            cluster_key=held.cluster_key,
            required_features=held.required_features,
            ledger=ledger,
            target=parent_of(target),
            after_us=held.timestamp_us,
        ),
    )


def parent_of(stored: Stored) -> Parent:
    """Return how another snapshot names this one."""
    snapshot = stored.snapshot
    return Parent(branch_id=snapshot.branch_id, version=snapshot.version, sha256=stored.sha256)
