"""The source positions of a batch in the ledger: who carries them on, and the feature's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fuse_stream.commit.ledger import Batch, offsets_of
from fuse_stream.commit.plan import Intent
from fuse_stream.format.features import SOURCES
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.source_offset import Offset, SourcePosition
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from fuse_stream.table.verbs import clone
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.histories import opened, rewind, rows

Create = Callable[..., Table]


def positions(version: int) -> tuple[SourcePosition, ...]:
    offset = Offset(
        table_id="b" * 32, branch_id="main", version=version, snapshot_id="c" * 32, index=0
    )
    return (SourcePosition(offset=offset, path="/lake/bronze"), SourcePosition(offset=offset))


def deliver(
    table: Table,
    number: int,
    *,
    sources: tuple[SourcePosition, ...] | None,
    operation: Operation = Operation.APPEND,
    query: str = "q",
    adopt: str | None = None,
    text: str = "offsets",
) -> Snapshot:
    batch = Batch(
        query_id=query,
        batch_id=number,
        offsets=offsets_of(number, text),
        sources=sources,
        adopt=adopt,
    )
    intent = Intent(operation=operation, batch=batch)
    return table.commit_rows(intent, rows(number)).stored.snapshot


def sources_in(snapshot: Snapshot) -> tuple[SourcePosition, ...] | None:
    return snapshot.ledger.entries["default", ""].sources


def has_feature(snapshot: Snapshot) -> bool:
    return SOURCES in snapshot.required_features


def test_a_batch_without_tables_as_sources_needs_no_feature(create: Create) -> None:
    head = deliver(create(), 0, sources=None)

    assert sources_in(head) is None
    assert not has_feature(head)


def test_sources_are_those_of_the_newest_batch_and_the_feature_is_named_while_there_are_some(
    create: Create,
) -> None:
    table = create()
    first = deliver(table, 0, sources=positions(26))
    plain = table.append(rows(9))
    last = deliver(table, 1, sources=None)

    assert [sources_in(at) for at in (first, plain, last)] == [positions(26)] * 2 + [None]
    assert [has_feature(at) for at in (first, plain, last)] == [True, True, False]


def test_a_batch_with_sources_takes_no_more_calls_of_the_store(
    create: Create, store: MemoryStore
) -> None:
    def calls_of(number: int, sources: tuple[SourcePosition, ...] | None) -> list[str]:
        before = len(counted.calls)
        deliver(table, number, sources=sources)
        return [verb for verb, _ in counted.calls[before:]]

    create()
    counted = FaultyStore(store)
    table = opened(counted)
    deliver(table, 0, sources=positions(1))

    assert calls_of(1, positions(2)) == calls_of(2, None)


def test_sources_beside_long_offsets_stay_in_the_ledger(create: Create) -> None:
    head = deliver(create(), 0, sources=positions(26), text="x" * 5000)

    assert head.ledger.entries["default", ""].offsets[0].text is None
    assert sources_in(head) == positions(26)


def test_a_rewind_has_the_sources_of_its_target(create: Create) -> None:
    table = create()
    deliver(table, 0, sources=None)
    deliver(table, 1, sources=positions(26))
    rewind(table.committer, Goal(version=1), retire=("default",))
    undone = table.head()
    rewind(table.committer, Goal(version=2), retire=("default",))

    assert (sources_in(undone), has_feature(undone)) == (None, False)
    assert (sources_in(table.head()), has_feature(table.head())) == (positions(26), True)


def test_a_branch_that_is_published_brings_its_sources(create: Create, store: MemoryStore) -> None:
    main = create()
    deliver(main, 0, sources=None)
    main.create_branch("fix")
    deliver(opened(store, "fix"), 1, sources=positions(26))
    main.publish("fix")

    assert sources_in(main.head()) == positions(26)
    assert has_feature(main.head())


def test_a_clone_has_the_sources_of_its_origin(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "silver", rows(1).schema)
    deliver(table, 0, sources=positions(26))
    clone(tmp_path / "silver", tmp_path / "clone")
    head = Table.open(tmp_path / "clone", origins=[tmp_path / "silver"]).head()

    assert (sources_in(head), has_feature(head)) == (positions(26), True)


def test_who_adopts_a_batch_keeps_its_sources_and_paths(create: Create) -> None:
    table = create()
    deliver(table, 0, sources=positions(26))
    unknown = tuple(SourcePosition(offset=one.offset) for one in positions(26))
    head = deliver(table, 0, sources=unknown, operation=Operation.ALTER, query="heir", adopt="q")

    assert head.ledger.entries["default", ""].query_id == "heir"
    assert sources_in(head) == positions(26)


def test_an_application_that_is_forgotten_takes_the_feature_with_it(create: Create) -> None:
    table = create()
    deliver(table, 0, sources=positions(26))
    table.forget("default")

    assert not has_feature(table.head())
