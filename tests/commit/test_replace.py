"""Rewritten blocks are committed on the newest head or dropped; no writer fails because of them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import pytest

from fuse_stream.commit.replace import ReplaceResult, commit_groups
from fuse_stream.commit.stage import Rewritten
from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import Operation
from fuse_stream.optimize.rewrite import Group, Rewriter
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.model import assert_sound, rows_of
from tests.commit.test_interleaving import (
    errors_of,
    interleavings,
    made,
    opened,
    rows,
)
from tests.recovery.histories import put_next, rewind


def rewritten(table: Table, *groups: Sequence[int]) -> list[Rewritten]:
    """Rewrite groups of blocks, named by their places."""
    head, blocks = table.head(), table.blocks()
    rewriter = Rewriter(
        store=table.metadata.store,
        schema=head.schema,
        cluster_key=head.cluster_key,
        target=block_target(head.properties),
        clock=table.metadata.clock,
    )
    return [rewriter.run(Group(inputs=tuple(blocks[at] for at in group))) for group in groups]


def commit(
    table: Table, done: Sequence[Rewritten], *, epoch: int = 0, in_order: bool = True
) -> ReplaceResult:
    return commit_groups(
        table.committer,
        done,
        operation=Operation.COMPACT if in_order else Operation.RECLUSTER,
        message=lambda groups: f"{len(groups)} groups",
        epoch=epoch,
        in_order=in_order,
    )


def table_of(appends: int) -> Table:
    return opened(made(appends), seed=5)


def keys(table: Table) -> list[int]:
    return table.to_arrow()["k"].to_pylist()  # type: ignore[no-any-return]


def test_new_blocks_take_the_position_of_the_first_input() -> None:
    table = table_of(6)
    result = commit(table, rewritten(table, [1, 2], [3, 4]))

    assert keys(table) == [0, 1, 2, 3, 4, 5]
    assert [block.row_count for block in table.blocks()] == [1, 2, 2, 1]
    assert result.snapshot is not None
    assert result.snapshot.message == "2 groups"
    assert_sound(table.metadata.store, table)


def test_inputs_from_anywhere_become_one_where_order_does_not_count() -> None:
    table = table_of(6)
    commit(table, rewritten(table, [5, 1, 3]), in_order=False)

    assert keys(table) == [0, 5, 1, 3, 2, 4]
    assert table.head().operation is Operation.RECLUSTER
    assert table.changes(7).read_all().num_rows == 0
    assert_sound(table.metadata.store, table)


def test_in_order_inputs_that_are_not_neighbours_are_dropped() -> None:
    table = table_of(6)
    done = rewritten(table, [1, 3], [4, 5])
    result = commit(table, done)

    assert (result.committed, result.dropped) == ((done[1],), (done[0],))
    assert keys(table) == [0, 1, 2, 3, 4, 5]


def test_a_group_whose_input_is_gone_is_dropped_and_the_rest_lands() -> None:
    table = table_of(6)
    done = rewritten(table, [1, 2], [3, 4])
    opened(table.metadata.store, 9).revert(3)  # the commit of row 2, which is block 2
    result = commit(table, done)

    assert (result.committed, result.dropped) == ((done[1],), (done[0],))
    assert result.snapshot is not None
    assert result.snapshot.message == "1 groups"
    assert keys(table) == [0, 1, 3, 4, 5]


def test_where_no_group_is_left_nothing_is_committed() -> None:
    table = table_of(3)
    done = rewritten(table, [0, 1, 2])
    table.overwrite(rows(9))
    result = commit(table, done)

    assert result == ReplaceResult(snapshot=None, dropped=tuple(done))
    assert table.head().operation is Operation.OVERWRITE


def test_what_was_written_for_another_schema_is_dropped() -> None:
    table = table_of(2)
    table.append(rows(5, late=[0.5]), merge_schema=True)
    done = rewritten(table, [0, 1])
    rewind(
        table.committer,
        Goal(version=2),
    )
    result = commit(table, done)

    assert result.snapshot is None
    assert keys(table) == [0, 1]


@pytest.mark.parametrize(("epoch", "lands"), [(0, False), (1, True), (2, True)])
def test_two_epochs_later_nothing_lands(epoch: int, *, lands: bool) -> None:
    table = table_of(3)
    done = rewritten(table, [0, 1, 2])
    put_next(table, Operation.EXPIRE, epoch=2)

    assert (commit(table, done, epoch=epoch).snapshot is not None) == lands


class _Overtaken(FaultyStore):
    """Another writer appends just before the first slot is put."""

    def put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        if not any(verb == "put_if_absent" for verb, _ in self.calls):
            opened(self.store, 77).append(rows(1000))
        super().put_if_absent(key, data)


def test_a_segment_that_was_written_serves_the_next_attempt() -> None:
    store = _Overtaken(made(40))
    table = opened(store, 5)
    done = rewritten(table, range(30))
    result = commit(table, done)
    put = [key for verb, key in store.calls if verb == "put" and key.startswith("_sg/")]

    assert result.snapshot is not None
    assert result.snapshot.version == 42
    assert len(put) == 1
    assert_sound(store, table)


def test_rows_that_were_lost_are_not_committed() -> None:
    table = table_of(3)
    (done,) = rewritten(table, [0, 1, 2])
    (fewer,) = rewritten(table, [0, 1])
    lossy = dataclasses.replace(done, outputs=fewer.outputs)

    with pytest.raises(CorruptObjectError, match="would break the table"):
        commit(table, [lossy])


def compact(table: Table) -> object:
    return table.compact()


def test_a_compaction_meets_an_append() -> None:
    for table, _, results in interleavings(made(3), compact, lambda t: t.append(rows(20))):
        blocks = Counter(block.row_count for block in table.blocks())

        assert errors_of(results) == []
        assert sorted(keys(table)) == [0, 1, 2, 20]
        assert blocks in (Counter({3: 1, 1: 1}), Counter({4: 1}))
        assert table.changes(0).read_all().num_rows == 4


def test_a_compaction_meets_an_overwrite() -> None:
    dropped = set()
    for table, _, results in interleavings(made(3), compact, lambda t: t.overwrite(rows(20))):
        dropped.add(results[0].snapshot is None)  # type: ignore[attr-defined]

        assert errors_of(results) == []
        assert keys(table) == [20]

    assert dropped == {True, False}


def test_a_compaction_meets_another() -> None:
    landings = Counter[int]()
    for table, _, results in interleavings(made(4), compact, compact):
        done = [result.snapshot for result in results]  # type: ignore[attr-defined]
        landings[sum(snapshot is not None for snapshot in done)] += 1

        assert errors_of(results) == []
        assert keys(table) == [0, 1, 2, 3]
        assert len(table.blocks()) == 1

    assert set(landings) == {1}


def test_a_compaction_meets_a_rewind_and_a_revert() -> None:
    def set_back(table: Table) -> None:
        rewind(table.committer, Goal(version=2), replan=True)

    for table, _, results in interleavings(made(3), compact, set_back):
        assert errors_of(results) == []
        assert keys(table) == [0, 1]
    for table, _, results in interleavings(
        made(3), compact, lambda t: t.revert(2, on_conflict="replan")
    ):
        refused = isinstance(results[1], BaseException)  # its block was rewritten first

        assert not isinstance(results[0], BaseException)
        assert keys(table) == ([0, 1, 2] if refused else [0, 2])


def test_a_compaction_meets_a_wider_schema() -> None:
    for table, _, results in interleavings(
        made(3), compact, lambda t: t.append(rows(20, late=[0.5]), merge_schema=True)
    ):
        assert errors_of(results) == []
        assert sorted(rows_of(table.to_arrow()), key=repr) == [
            (0, None),
            (1, None),
            (2, None),
            (20, 0.5),
        ]
