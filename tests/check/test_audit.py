"""Audit reports where a table and its query's checkpoint differ, and no seeming differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fuse_stream.check.audit import AuditKind, AuditReport, audit_stores
from fuse_stream.commit.ledger import Batch
from fuse_stream.commit.plan import Intent
from fuse_stream.errors import CorruptObjectError, InvalidInputError, NotFoundError
from fuse_stream.format.layout import slot_key
from fuse_stream.format.records import Operation
from fuse_stream.recovery.result import Rewind
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.checkpoints import offsets_text, put
from tests.recovery.histories import opened, raise_floor, rewind, rows
from tests.recovery.streams import Query

Create = Callable[..., Table]
OLD, NEW = "old", "new"
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def query(create: Create) -> Query:
    """Five batches, number n at version n + 1."""
    query = Query(create()).begin(OLD)
    query.run(5)
    return query


def audited(query: Query, checkpoint: Store | None = None, **options: str) -> AuditReport:
    return audit_stores(
        query.table.metadata.store,
        query.checkpoint if checkpoint is None else checkpoint,
        **options,
    )


def told(report: AuditReport) -> list[tuple[AuditKind, tuple[int, ...], tuple[int, ...]]]:
    return [(finding.kind, finding.batches, finding.versions) for finding in report.findings]


def back(query: Query, goal: Goal, new: Store) -> Rewind:
    return rewind(query.table.committer, goal, checkpoints=((query.checkpoint, new),))


def commit(query: Query, number: int, *, query_id: str | None = OLD) -> int:
    """Commit a batch past the checkpoint, as another tool or a wrong checkpoint would."""
    batch = Batch(query_id=query_id, batch_id=number)
    intent = Intent(operation=Operation.APPEND, batch=batch)
    return query.table.commit_rows(intent, rows(number)).stored.snapshot.version


def end_batch(query: Query, number: int, text: str) -> None:
    """Let the checkpoint mark a batch as done that the table never got."""
    put(query.checkpoint, {f"offsets/{number}": text, f"commits/{number}": COMMIT})


def test_a_table_and_its_checkpoint_agree(query: Query) -> None:
    report = audited(query)

    assert report.agrees
    assert (report.query_id, report.head, report.first_version) == (OLD, 5, 0)
    (writer,) = report.writers
    assert (writer.writer, writer.batch_count, writer.row_count) == ("", 5, 5)
    assert (writer.last_batch, writer.empty) == (4, ())
    assert not report.planned
    assert not report.notes


def test_an_audit_changes_nothing(query: Query) -> None:
    store = query.table.metadata.store
    assert isinstance(store, MemoryStore)
    assert isinstance(query.checkpoint, MemoryStore)
    before = dict(store.objects), dict(query.checkpoint.objects)
    audited(query)

    assert (store.objects, query.checkpoint.objects) == before


# ---- batches without a snapshot


def test_an_empty_batch_before_a_committed_one_is_proven_empty(query: Query) -> None:
    query.run_batch(5, empty=True)
    query.run_batch(6)
    report = audited(query)

    assert report.agrees
    assert report.writers[0].empty == (5,)


def test_a_later_batch_whose_source_offsets_advanced_is_missing(query: Query) -> None:
    query.run_batch(5, empty=True)
    query.run_batch(6, empty=True)

    assert told(audited(query)) == [(AuditKind.MISSING, (5, 6), ())]


def test_a_later_batch_whose_source_offsets_did_not_advance_is_empty(query: Query) -> None:
    end_batch(query, 5, offsets_text({"logOffset": 4}))
    report = audited(query)

    assert report.agrees
    assert report.writers[0].empty == (5,)


def test_a_later_batch_in_which_only_the_watermark_advanced_is_missing(query: Query) -> None:
    end_batch(query, 5, offsets_text({"logOffset": 4}, watermark_ms=7))

    assert told(audited(query)) == [(AuditKind.MISSING, (5,), ())]


def test_a_later_batch_whose_offsets_cannot_be_read_is_missing(query: Query) -> None:
    end_batch(query, 5, "junk")

    assert told(audited(query)) == [(AuditKind.MISSING, (5,), ())]


@pytest.mark.parametrize("source", ["-", {"logOffset": 0}])
def test_a_first_batch_is_empty_if_no_source_has_delivered(create: Create, source: object) -> None:
    query = Query(create()).begin(OLD)
    end_batch(query, 0, offsets_text(source))

    assert audited(query).agrees == (source == "-")


@pytest.mark.parametrize("committed", [False, True])
def test_a_planned_batch_may_be_in_the_table_or_not(query: Query, *, committed: bool) -> None:
    put(query.checkpoint, {"offsets/5": offsets_text({"logOffset": 5})})
    if committed:
        query.commit(5)
    report = audited(query)

    assert report.agrees
    assert report.planned == (5,)
    assert report.writers[0].last_batch == 4 + committed


def test_batches_before_the_first_in_the_table_are_noted(create: Create) -> None:
    query = Query(create()).begin(OLD)
    query.run_batch(0, empty=True)
    query.run_batch(1)
    report = audited(query)

    assert report.agrees
    assert "number 1" in report.notes[0]


# ---- what differs


def test_a_truncated_checkpoint_is_behind(query: Query) -> None:
    for number in (3, 4):
        query.checkpoint.delete(f"offsets/{number}")
        query.checkpoint.delete(f"commits/{number}")

    assert told(audited(query)) == [(AuditKind.BEHIND, (3, 4), (4, 5))]


def test_offsets_that_differ_from_the_checkpoint_are_reported(query: Query) -> None:
    put(query.checkpoint, {"offsets/2": offsets_text({"logOffset": 7})})

    assert told(audited(query)) == [(AuditKind.OFFSETS_DIFFER, (2,), (3,))]


def test_a_batch_committed_twice_is_reported_with_its_versions(query: Query) -> None:
    query.table.forget("default")
    version = commit(query, 4)

    assert told(audited(query)) == [(AuditKind.DOUBLED, (4,), (5, version))]


def test_batches_out_of_order_are_reported(query: Query) -> None:
    query.run_batch(5, empty=True)
    query.run_batch(6)
    query.table.forget("default")
    version = commit(query, 5)

    assert (AuditKind.OUT_OF_ORDER, (6, 5), (6, version)) in told(audited(query))


@pytest.mark.parametrize("other", ["other", None])
def test_batches_of_another_query_are_foreign(query: Query, other: str | None) -> None:
    query.table.forget("default")
    version = commit(query, 0, query_id=other)

    assert (AuditKind.FOREIGN, (0,), (version,)) in told(audited(query))


def test_other_applications_and_writers_are_not_judged(query: Query) -> None:
    other = Query(query.table, application="night", writers=("a", "b")).begin("night query")
    other.run(3)
    put(other.checkpoint, {"commits/3": COMMIT, "offsets/3": offsets_text({"logOffset": 3})})

    assert audited(query).agrees
    assert [w.writer for w in audited(other, app_id="night").writers] == ["a", "b"]
    assert len(told(audited(other, app_id="night"))) == 2
    assert len(told(audited(other, app_id="night", writer="b"))) == 1


def test_the_application_of_a_query_is_found_by_its_id(create: Create) -> None:
    orders = Query(create(), application="orders").begin(OLD)
    orders.run(3)
    report = audited(orders)

    assert report.agrees
    assert (report.application, report.writers[0].batch_count) == ("orders", 3)
    orders.table.forget("orders")
    assert (audited(orders).application, audited(orders).writers[0].batch_count) == ("orders", 3)


def test_a_query_found_under_another_application_than_the_named_one_is_reported(
    create: Create,
) -> None:
    orders = Query(create(), application="orders").begin(OLD)
    orders.run(3)
    (finding,) = audited(orders, app_id="night").findings

    assert (finding.kind, finding.batches) == (AuditKind.MISSING, (0, 1, 2))
    assert "orders" in finding.wrong
    assert "app_id" in finding.remedy
    assert "rewind" not in finding.remedy


def test_a_query_of_several_applications_needs_an_app_id(create: Create) -> None:
    query = Query(create(), application="orders").begin(OLD)
    query.run(1)
    replace(query, application="returns").run_batch(1)

    with pytest.raises(InvalidInputError, match="several applications") as caught:
        audited(query)
    assert caught.value.context["known"] == ["orders", "returns"]
    assert audited(query, app_id="returns").agrees
    replace(query, application="default").run_batch(2)
    assert audited(query).application == "default"


def test_all_batches_are_missing_if_the_table_holds_none_of_the_checkpoint(
    query: Query, create: Create
) -> None:
    empty = create(at=MemoryStore())

    assert told(audit_stores(empty.metadata.store, query.checkpoint)) == [
        (AuditKind.MISSING, (0, 1, 2, 3, 4), ())
    ]


# ---- rewinds, adoptions, branches, expiry


def test_batches_that_a_rewind_undid_do_not_count(query: Query) -> None:
    new = MemoryStore()
    back(query, Goal(after_batch=2), new)
    fork = Query(query.table, new, plus=100)
    fork.run(2)
    report = audited(fork)

    assert report.agrees
    assert (report.writers[0].batch_count, report.writers[0].last_batch) == (5, 4)


def test_a_rewound_query_is_retired_and_its_fork_is_named(query: Query) -> None:
    new = MemoryStore()
    done = back(query, Goal(after_batch=2), new)
    (finding,) = audited(query).findings

    assert done.snapshot is not None
    assert (finding.kind, finding.versions) == (AuditKind.RETIRED, (done.snapshot.version,))
    assert str(done.forks[0].query_id) in finding.wrong


def test_a_query_that_adopted_an_entry_is_judged_by_its_own_batches(query: Query) -> None:
    heir = Query(query.table).begin(NEW)
    batch = Batch(query_id=NEW, batch_id=0, adopt=OLD, offsets=None)
    intent = Intent(operation=Operation.APPEND, batch=batch)
    heir.table.commit_rows(intent, rows(50))
    put(heir.checkpoint, {"offsets/0": offsets_text({"logOffset": 0}), "commits/0": COMMIT})

    assert audited(heir).agrees
    assert audited(heir).writers[0].batch_count == 1
    assert [kind for kind, _, _ in told(audited(query))] == [AuditKind.RETIRED]


def test_published_batches_are_counted_once(query: Query) -> None:
    query.table.create_branch("next")
    there = Query(opened(query.table.metadata.store, "next"), query.checkpoint)
    there.run(2)
    main = opened(query.table.metadata.store)
    main.publish("next")

    assert audited(query).agrees
    assert audited(query).writers[0].batch_count == 7
    assert audited(query, branch="next").agrees


def publish_rewound(query: Query) -> Query:
    """Rewind a branch, run the fork on it, and publish it over a `main` that has moved."""
    store = query.table.metadata.store
    query.table.create_branch("next")
    fork = Query(opened(store, "next"), MemoryStore(), plus=100)
    goal = Goal(after_batch=1)
    rewind(fork.table.committer, goal, checkpoints=((query.checkpoint, fork.checkpoint),))
    fork.run(3)
    query.run(1)
    query.table.publish("next", expected_head=6)
    return fork


def test_a_published_fork_counts_the_batches_of_the_query_before_it(query: Query) -> None:
    fork = publish_rewound(query)
    report = audited(fork)

    assert report.agrees
    assert (report.writers[0].batch_count, report.writers[0].last_batch) == (5, 4)
    assert (report.writers[0].empty, report.notes) == ((), ())


def test_a_batch_that_a_published_fork_lost_is_missing(query: Query) -> None:
    fork = publish_rewound(query)
    end_batch(fork, 5, offsets_text({"logOffset": 5}))

    assert told(audited(fork)) == [(AuditKind.MISSING, (5,), ())]


def test_a_query_that_adopted_on_a_published_branch_is_judged_by_its_own_batches(
    query: Query,
) -> None:
    query.table.create_branch("next")
    heir = Query(opened(query.table.metadata.store, "next"), adopt=OLD).begin(NEW)
    heir.run(2)
    query.table.publish("next")

    assert audited(heir).writers[0].batch_count == 2


def test_expired_batches_are_not_judged(query: Query) -> None:
    raise_floor(query.table, 3)
    query.table.metadata.store.delete(slot_key("main", 2))
    report = audited(query)

    assert report.agrees
    assert report.first_version == 3
    assert report.writers[0].batch_count == 3
    assert "before version 3" in report.notes[-1]


def test_the_last_batch_is_known_from_a_ledger_entry_older_than_the_history(query: Query) -> None:
    for key in (7, 8):
        query.table.append(rows(key))
    raise_floor(query.table, 7)
    report = audited(query)

    assert report.agrees
    assert (report.writers[0].batch_count, report.writers[0].last_batch) == (0, 4)


def test_a_lost_snapshot_is_an_error(query: Query) -> None:
    query.table.metadata.store.delete(slot_key("main", 3))

    with pytest.raises(CorruptObjectError, match="fsck"):
        audited(query)


def test_a_missing_checkpoint_or_table_is_an_error(query: Query) -> None:
    with pytest.raises(NotFoundError, match="checkpoint"):
        audited(query, MemoryStore())
    with pytest.raises(NotFoundError, match="table"):
        audit_stores(MemoryStore(), query.checkpoint)
