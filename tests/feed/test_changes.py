"""The feed from the start to n adds up to the table at n, for any history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from fuse_stream.commit import rollup
from fuse_stream.errors import InvalidInputError, NotFoundError, StreamIdentityError
from fuse_stream.feed.changes import change_of
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.reading.history import load_history
from fuse_stream.table.handle import Table, create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import (
    ModelRefusalError,
    ModelTable,
    Row,
    Rows,
    assert_sound,
    rows_of,
)

Create = Callable[..., Table]
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
rows = st.lists(st.tuples(st.integers(0, 2), st.none() | st.sampled_from("ab")), max_size=3)
apps = st.sampled_from(["a", "b"])
writers = st.sampled_from(["", "w"])


def table_of(values: list[tuple[int, str | None]]) -> pa.Table:
    return pa.table(
        {"k": [value[0] for value in values], "s": [value[1] for value in values]}, schema=SCHEMA
    )


def replayed(changes: pa.Table) -> dict[int, Rows]:
    """Return what stands after each version in which something changed, from the feed alone."""
    names = ("_commit_version", "_change_type", "k", "s")
    standing = Counter[Row]()
    after: dict[int, Rows] = {}
    for version, kind, *row in zip(
        *(changes.column(name).to_pylist() for name in names), strict=True
    ):
        standing[tuple(row)] += 1 if kind == "insert" else -1
        after[version] = +standing
        assert min(standing.values()) >= 0 or kind == "delete"
    return after


class History(RuleBasedStateMachine):
    """Random calls on a table through two handles, and on the model of one."""

    handles = Bundle("handles")

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.model = ModelTable()
        self.handle_count = 0

    @initialize(target=handles, cluster=st.booleans())
    def first_handle(self, *, cluster: bool) -> Table:
        self.table = create_table(
            self.store,
            first_schema(columns_of_arrow(SCHEMA)),
            cluster_by=["k"] if cluster else [],
            clock=ManualClock(),
            probe_store=False,
        )
        return self.table

    @rule(target=handles)
    def another_handle(self) -> Table:
        self.handle_count += 1  # a seed of its own: two handles never draw the same id
        return open_table(self.store, clock=ManualClock(seed=self.handle_count), probe_store=False)

    @rule(table=handles, values=rows)
    def append(self, table: Table, values: list[tuple[int, str | None]]) -> None:
        table.append(table_of(values))
        self.model.write("append", values)

    @rule(table=handles, values=rows)
    def overwrite(self, table: Table, values: list[tuple[int, str | None]]) -> None:
        table.overwrite(table_of(values))
        self.model.write("overwrite", values)

    @rule(table=handles, values=rows, app=apps, writer=writers, number=st.integers(0, 4))
    def deliver(
        self,
        table: Table,
        values: list[tuple[int, str | None]],
        app: str,
        writer: str,
        number: int,
    ) -> None:
        try:
            self.model.write("append", values, batch=(app, writer, number))
        except ModelRefusalError:
            with pytest.raises(StreamIdentityError):
                table.append(table_of(values), app_id=app, writer=writer, batch_id=number)
        else:
            table.append(table_of(values), app_id=app, writer=writer, batch_id=number)

    @rule(table=handles, value=st.sampled_from("xyz"))
    def set_properties(self, table: Table, value: str) -> None:
        table.set_properties({"owner": value}, on_conflict="replan")
        self.model.set_properties({"owner": value})

    @rule(table=handles, app=apps)
    def forget(self, table: Table, app: str) -> None:
        if any(key[0] == app for key in self.model.ledger):
            table.forget(app, on_conflict="replan")
            self.model.forget(app)
        else:
            with pytest.raises(NotFoundError):
                table.forget(app)

    @invariant()
    def the_table_is_the_model(self) -> None:
        head = self.table.head()
        ledger = {key: entry.batch_id for key, entry in head.ledger.entries.items()}

        assert head.version == len(self.model.operations) - 1
        assert rows_of(self.table.to_arrow()) == self.model.rows
        assert ledger == self.model.ledger
        assert head.properties == self.model.properties

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        log = [item.operation for item in self.table.log()]
        last = len(log) - 1
        after = replayed(self.table.changes(0).read_all())
        standing: Rows = Counter()
        for version, expected in enumerate(self.model.versions):
            standing = after.get(version, standing)
            assert standing == expected
        if last > 2:
            part = self.table.changes(2, last - 1).read_all()
            versions = part.column("_commit_version").to_pylist()
            assert versions == sorted(versions)
            assert set(versions) <= set(range(2, last))
        assert log[::-1] == self.model.operations
        assert_sound(self.store, self.table)


@pytest.mark.parametrize("fan_in", [2, 16])
def test_any_history_is_the_models_and_its_feed_adds_up(
    monkeypatch: pytest.MonkeyPatch, fan_in: int
) -> None:
    monkeypatch.setattr(rollup, "FAN_IN", fan_in)
    run_state_machine_as_test(
        History,
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_roll_up_that_is_folded_into_an_append_is_not_in_the_feed(create: Create) -> None:
    table = create(SCHEMA)
    for number in range(40):
        table.append(table_of([(number, None)]))
    changes = table.changes(0).read_all()

    assert changes.column("k").to_pylist() == list(range(40))
    assert changes.column("_commit_version").to_pylist() == list(range(1, 41))
    assert set(changes.column("_change_type").to_pylist()) == {"insert"}
    assert max(ref.level for ref in table.segments()) == 1


def test_an_overwrite_deletes_what_stood_before_it_inserts(create: Create) -> None:
    table = create(SCHEMA)
    table.append(table_of([(1, "a"), (2, "b")]))
    table.overwrite(table_of([(1, "a")]))
    found = table.changes(2).read_all().select(["_change_type", "k"])

    assert found.to_pylist() == [
        {"_change_type": "delete", "k": 1},
        {"_change_type": "delete", "k": 2},
        {"_change_type": "insert", "k": 1},
    ]


def test_commits_without_rows_are_not_in_the_feed(create: Create) -> None:
    table = create(SCHEMA)
    table.append(table_of([]))
    table.set_properties({"a": "b"})
    table.overwrite(table_of([]))

    assert table.changes(0).read_all().num_rows == 0
    assert [item.data_change for item in table.log()] == [False] * 4


def test_the_feed_has_the_columns_and_times_of_spark(create: Create) -> None:
    table = create(SCHEMA)
    snapshot = table.append(table_of([(1, "a")]))
    found = table.changes(0).read_all()

    assert found.schema.names == ["k", "s", "_change_type", "_commit_version", "_commit_timestamp"]
    assert found.column("_commit_timestamp").cast(pa.int64()).to_pylist() == [snapshot.timestamp_us]
    assert [found.schema.field(name).nullable for name in found.schema.names[2:]] == [False] * 3


def test_old_commits_are_read_with_the_columns_of_the_end(create: Create) -> None:
    table = create(SCHEMA)
    table.append(table_of([(1, "a")]))
    table.append(pa.table({"k": [2], "s": ["b"], "new": [0.5]}), merge_schema=True)

    assert table.changes(0).read_all().column("new").to_pylist() == [None, 0.5]
    assert table.changes(0, 1).schema.names[:2] == ["k", "s"]
    assert "new" not in table.changes(0, 1).schema.names


def test_the_feed_can_be_filtered(create: Create) -> None:
    table = create(SCHEMA)
    for number in range(5):
        table.append(table_of([(number, "a"), (number, None)]))
    found = table.changes(2, 4, where="k >= 2 AND s IS NOT NULL", columns=["k"]).read_all()

    assert found.select(["k", "_commit_version"]).to_pylist() == [
        {"k": 2, "_commit_version": 3},
        {"k": 3, "_commit_version": 4},
    ]


def test_one_segment_is_opened_for_an_append(create: Create, store: MemoryStore) -> None:
    table = create(SCHEMA)
    for number in range(20):
        table.append(table_of([(number, None)]))
    snapshot = table.head()
    history = load_history(table.metadata, "main")

    assert [kind for kind, _ in change_of(history, snapshot).blocks] == ["insert"]
    assert snapshot.added == (snapshot.segments[-1].id,)


@pytest.mark.parametrize(
    ("start", "end", "error"),
    [
        (2, 1, InvalidInputError),
        (-1, 1, InvalidInputError),
        ("x", 1, NotFoundError),
        ("abc", 1, InvalidInputError),
        (0, 9, NotFoundError),
        (9, None, InvalidInputError),
    ],
)
def test_a_range_that_is_not_there_is_an_error(
    create: Create, start: object, end: object, error: type[Exception]
) -> None:
    table = create(SCHEMA)
    table.append(table_of([(1, "a")]))
    table.append(table_of([(2, "a")]))

    with pytest.raises(error):
        table.changes(start, end)  # type: ignore[arg-type]


def test_changes_are_lists_of_blocks(create: Create) -> None:
    table = create(SCHEMA)
    table.append(table_of([(1, "a"), (2, "b")]))
    table.overwrite(table_of([(3, "c")]))
    first, second = table.block_changes(1)

    assert [block.row_count for block in first.diff.inserted] == [2]
    assert second.diff.removed == first.diff.inserted
    assert table.block_diff(0, 2).inserted == second.diff.inserted
    with pytest.raises(InvalidInputError, match="past the last"):
        table.block_changes(2, 1)
