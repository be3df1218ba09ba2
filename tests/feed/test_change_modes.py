"""The modes of Spark's `CHANGES`, compared with the feed and with the net difference."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import get_args

import pyarrow as pa
import pytest

from fuse_stream.errors import FuseError, InvalidInputError
from fuse_stream.feed.change_modes import (
    ChangeMode,
    Deduplication,
    plan_changes,
    read_changes_task,
)
from fuse_stream.feed.changes import feed_schema, iter_units
from fuse_stream.feed.offsets import Batch
from fuse_stream.feed.views import Request, Views
from fuse_stream.reading.history import History
from fuse_stream.reading.scan import select
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from tests.recovery.histories import rewind

Create = Callable[..., Table]
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
PLAIN = {"update_preimage": "delete", "update_postimage": "insert"}
Row = tuple[object, ...]


def changes(table: Table, first: int, last: int, mode: ChangeMode) -> list[Row]:
    """Return (change type, commit version, k, v) of each row that a plan delivers."""
    history = History(table.metadata, table.committer.head())
    selection = select(table.snapshot(last).schema)
    units = tuple(iter_units(history, first, last, Views(Request(), selection)))
    batch = Batch(selection=selection, units=units)
    schema, store = feed_schema(selection.schema), table.metadata.store
    found = [
        batch
        for task in plan_changes(batch, mode).as_tasks(selection)
        for batch in read_changes_task(store, task, mode, schema)
    ]
    return rows_of(pa.Table.from_batches(found, schema))


def rows_of(found: pa.Table) -> list[Row]:
    names = [
        name for name in ("_change_type", "_commit_version", "k", "v") if name in found.schema.names
    ]
    return list(zip(*(found[name].to_pylist() for name in names), strict=True))


def feed_rows(table: Table, first: int, last: int) -> list[Row]:
    return rows_of(table.changes(first, last).read_all())


def carried_over(rows: list[Row]) -> Counter[Row]:
    """Return rows as deleted and inserted ones, minus what one commit both removed and inserted."""
    sums: Counter[Row] = Counter()
    for kind, *row in rows:
        sums[tuple(row)] += 1 if kind in {"insert", "update_postimage"} else -1
    return Counter(
        {("insert" if n > 0 else "delete", *row): abs(n) for row, n in sums.items() if n}
    )


def step(table: Table, rng: random.Random, *, keyed: bool) -> None:
    """Commit something at random; a commit that cannot be made here is left out."""
    keys = rng.sample(range(30), rng.randint(1, 8))
    rows = pa.table([keys, [rng.randint(0, 2) for _ in keys]], schema=SCHEMA)
    head = table.head().version
    choices: list[Callable[[], object]] = [
        lambda: table.upsert(rows) if keyed else table.append(rows),
        lambda: table.upsert(rows) if keyed else table.append(rows),
        lambda: table.delete(f"k % 5 = {rng.randint(0, 4)}"),
        lambda: table.update(f"k % 3 = {rng.randint(0, 2)}", {"v": rng.randint(0, 2)}),
        lambda: table.overwrite(rows),
        table.compact,
        lambda: rewind(table.committer, Goal(version=rng.randint(0, head))),
        lambda: table.revert(rng.randint(max(0, head - 3), head)),
    ]
    try:
        rng.choice(choices)()
    except FuseError as error:
        if not isinstance(error, ValueError | RuntimeError | LookupError):
            raise


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_each_mode_agrees_with_the_feed_and_with_the_difference(
    create: Create, seed: int, *, keyed: bool
) -> None:
    rng = random.Random(seed)
    table = create(SCHEMA)
    if keyed:
        table.set_key(["k"])
    for _ in range(14):
        step(table, rng, keyed=keyed)
    head = table.head().version
    first = rng.randint(1, head)
    feed = feed_rows(table, first, head)
    key = ("k",) if keyed else ()

    def found(mode: Deduplication, *, computes_updates: bool = False) -> list[Row]:
        return changes(
            table,
            first,
            head,
            ChangeMode(deduplication=mode, computes_updates=computes_updates, key=key),
        )

    plain = Counter((PLAIN.get(row[0], row[0]), *row[1:]) for row in feed)  # type: ignore[call-overload]
    net = Counter(rows_of(table.diff(first - 1, head).read_all()))
    assert Counter(found("none")) == plain
    assert Counter(found("dropCarryovers")) == carried_over(feed)
    assert Counter((kind, k, v) for kind, _, k, v in found("netChanges")) == net
    if not keyed:
        assert Counter(found("none", computes_updates=True)) == Counter(feed)
    for mode in get_args(Deduplication):
        if mode == "netChanges" and not keyed:
            continue
        labelled = found(mode, computes_updates=True)
        assert carried_over(labelled) == carried_over(found(mode))
        if keyed:
            commits = [row[2] if mode == "netChanges" else row[1:3] for row in labelled]
            both = Counter(commits)
            for row, commit in zip(labelled, commits, strict=True):
                is_update = str(row[0]).startswith("update_")
                assert is_update == (both[commit] == 2) or mode == "none"


def test_net_changes_have_the_first_commit_that_removed_and_the_last_that_inserted(
    create: Create,
) -> None:
    table = create(SCHEMA)
    table.append(pa.table([[1, 2], [0, 0]], schema=SCHEMA))
    table.update("k = 1", {"v": 1})
    table.update("k = 1", {"v": 2})
    table.delete("k = 2")
    table.append(pa.table([[3], [0]], schema=SCHEMA))

    found = changes(table, 2, 5, ChangeMode(deduplication="netChanges"))

    assert sorted(found) == [
        ("delete", 2, 1, 0),
        ("delete", 4, 2, 0),
        ("insert", 3, 1, 2),
        ("insert", 5, 3, 0),
    ]


def test_a_row_that_commits_only_move_is_no_net_change(create: Create) -> None:
    table = create(SCHEMA)
    table.append(pa.table([[1, 2], [0, 0]], schema=SCHEMA))
    table.update("k = 1", {"v": 1})
    table.update("k = 1", {"v": 0})

    assert changes(table, 2, 3, ChangeMode(deduplication="netChanges")) == []


def test_rows_that_are_only_inserted_are_read_as_they_are(create: Create) -> None:
    table = create(SCHEMA)
    for number in range(3):
        table.append(pa.table([[number], [0]], schema=SCHEMA))
    table.delete("k = 2")
    history = History(table.metadata, table.committer.head())
    selection = select(table.snapshot().schema)
    units = tuple(iter_units(history, 1, 4, Views(Request(), selection)))

    plan = plan_changes(
        Batch(selection=selection, units=units), ChangeMode(deduplication="netChanges")
    )

    assert plan.tasks == ()
    assert [piece.version for piece in plan.plain] == [1, 2]


def test_updates_across_commits_need_a_key(create: Create) -> None:
    mode = ChangeMode(deduplication="netChanges", computes_updates=True)

    with pytest.raises(InvalidInputError, match="by the table's key"):
        plan_changes(Batch(selection=select(create(SCHEMA).snapshot().schema)), mode)


def test_a_key_names_the_updates_of_a_rewind(create: Create) -> None:
    table = create(SCHEMA)
    table.set_key(["k"])
    table.upsert(pa.table([[1, 2, 3], [0, 0, 0]], schema=SCHEMA))
    table.upsert(pa.table([[3, 4], [1, 0]], schema=SCHEMA))
    table.delete("k = 1")
    rewind(table.committer, Goal(version=2))
    mode = ChangeMode(computes_updates=True, key=("k",))

    assert sorted(changes(table, 5, 5, mode)) == [
        ("delete", 5, 4, 0),
        ("insert", 5, 1, 0),
        ("update_postimage", 5, 3, 0),
        ("update_preimage", 5, 3, 1),
    ]


def test_rows_that_an_overwrite_writes_again_are_carried_over(create: Create) -> None:
    table = create(SCHEMA)
    table.append(pa.table([[1, 1, 2], [0, 0, 0]], schema=SCHEMA))
    table.overwrite(pa.table([[1, 2, 3], [0, 0, 0]], schema=SCHEMA))

    assert len(changes(table, 2, 2, ChangeMode())) == 6
    assert sorted(changes(table, 2, 2, ChangeMode(deduplication="dropCarryovers"))) == [
        ("delete", 2, 1, 0),
        ("insert", 2, 3, 0),
    ]
