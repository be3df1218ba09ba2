"""Consumers that have read past the target of a rewind, and the rows that undo what they read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.layout import lease_key
from fuse_stream.format.refs import Lease, Position
from fuse_stream.objects.leases import store_lease
from fuse_stream.recovery.losses import PassedConsumer
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from tests.recovery.histories import opened, rewind, rows

Create = Callable[..., Table]


@pytest.fixture
def table(create: Create) -> Table:
    """Version 1 has one row, 2 two, 3 replaced them by three, 4 has four."""
    table = create()
    table.append(rows(1))
    table.append(rows(2))
    table.overwrite(rows(3, 4, 5))
    table.append(rows(6))
    return table


def put_lease(table: Table, consumer: str, version: int, *, lease_us: int = 10**12) -> None:
    lease = Lease(
        consumer=consumer,
        owner_id="a" * 32,
        branch_id=table.committer.branch_id,
        forks=table.committer.branch.forks,
        version=version,
        resumes=(Position(version=version),),
        lease_us=lease_us,
    )
    store_lease(table.metadata, lease)


def passed(table: Table, version: int) -> dict[str, tuple[int, int | None, int | None]]:
    done = rewind(table.committer, Goal(version=version), dry_run=True)
    return {
        item.consumer: (item.version, item.deleted_rows, item.inserted_rows)
        for item in done.consumers
    }


def test_each_consumer_past_the_target_is_named_with_its_undoing_rows(table: Table) -> None:
    for version in range(5):
        put_lease(table, f"at-{version}", version)

    assert passed(table, 2) == {"at-3": (3, 3, 2), "at-4": (4, 4, 2)}
    assert passed(table, 1) == {"at-2": (2, 1, 0), "at-3": (3, 3, 1), "at-4": (4, 4, 1)}


def test_a_rewind_of_unread_versions_names_no_consumer(table: Table) -> None:
    put_lease(table, "nightly", 2)

    assert passed(table, 3) == {}


def test_a_consumer_of_another_branch_is_sent_nothing(table: Table) -> None:
    table.create_branch("trial")
    put_lease(table, "nightly", 4)
    trial = opened(table.metadata.store, "trial")
    trial.append(rows(7))

    done = rewind(trial.committer, Goal(version=2), dry_run=True)

    assert done.consumers == ()


def test_consumers_of_a_branch_without_commits_and_of_its_parent_are_distinguished(
    table: Table,
) -> None:
    table.create_branch("trial")
    trial = opened(table.metadata.store, "trial")
    put_lease(table, "nightly", 4)
    put_lease(trial, "trying", 4)

    assert passed(trial, 2) == {"trying": (4, 4, 2)}
    assert passed(table, 2) == {"nightly": (4, 4, 2)}


def test_a_lapsed_lease_is_reported_as_lapsed(table: Table) -> None:
    put_lease(table, "gone", 4, lease_us=1)
    put_lease(table, "here", 4)
    table.metadata.clock.sleep(1)
    done = rewind(table.committer, Goal(version=3), dry_run=True)

    assert [(item.consumer, item.is_live) for item in done.consumers] == [
        ("gone", False),
        ("here", True),
    ]
    assert isinstance(done.consumers[0], PassedConsumer)


def test_a_damaged_lease_stops_the_dry_run_and_not_the_rewind(table: Table) -> None:
    table.metadata.store.replace(lease_key("broken"), b"{}")

    with pytest.raises(CorruptObjectError, match="release the consumer"):
        rewind(table.committer, Goal(version=3), dry_run=True)
    assert rewind(table.committer, Goal(version=3)).snapshot is not None
