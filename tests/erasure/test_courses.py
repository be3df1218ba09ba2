"""Whatever was done to a table, an erasure takes the rows out of every head and out of no other.

The courses are those of `tests/dml/row_courses.py`, with erasures among the operations. At the end
all that keeps older versions is released, and after the vacuums only slots below the floor show
anything of the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import slot_of
from fuse_stream.format.records import ColumnStats
from fuse_stream.format.stats import merge_stats
from fuse_stream.table.handle import Table
from tests.dml.row_courses import AGE_S, GRACE_S, Course, small_limits
from tests.dml.row_model import Rows, Where, matching
from tests.erasure.contents import all_rows
from tests.kit.strides import others_at_night

QUICK, LONG = range(6), range(200, 260)


class ErasingCourse(Course):
    """A course in which rows are erased now and then."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.moves += ["erase"] * max(2, len(self.moves) // 6)
        self.erased = 0
        self.erased_hidden = 0

    def do_erase(self, table: Table) -> None:
        self.erase(table, self.any_where(table))

    def erase(self, table: Table, where: Where) -> None:
        meanwhile, met = self.meanwhile(table), table.head().version

        def progress(task: str, done: int, total: int) -> None:
            if task == f"searching {table.branch}":
                meanwhile(done, total)

        try:
            report = table.erase(where.sql, progress=progress)
        except InvalidInputError:
            assert where.names_n
            assert "n" not in table.schema.names
            return
        assert report.unreadable == ()
        for done in report.branches:
            gone = matching(self.rows[done.branch], where)
            if done.snapshot is None and done.branch == table.branch:
                if self.opened(done.branch).head().version == met:
                    assert not gone
                continue
            assert done.row_count == gone.total()
            self.rows[done.branch] = self.rows[done.branch] - gone
            self.settle(done.branch)
            self.erased += done.row_count
            self.erased_hidden += done.hidden_count
            self.check_erased(self.opened(done.branch), where)

    def check_erased(self, table: Table, where: Where) -> None:
        """Check that no block has a row, and that all bounds come from the blocks."""
        assert matching(stored_rows(table), where) == Counter()
        head = table.head()
        blocks = table.blocks()
        exact = merge_stats((block.col_stats, block.row_count) for block in blocks)
        assert bounds(head.summary.col_stats) == bounds(exact)
        for ref in head.segments:
            segment = table.metadata.load_segment(ref, head.schema.leaf_types)
            parts = merge_stats((one.col_stats, one.row_count) for one in segment.blocks)
            assert bounds(segment.summary.col_stats) == bounds(parts)

    def purge(self) -> None:
        """Erase rows, release all that keeps older versions, vacuum, and verify."""
        table = self.opened("main")
        for tag in table.tags():
            table.delete_tag(tag.name)
        for pin in table.clones():
            table.unpin(pin.table_id)
        for branch in [name for name in self.rows if name != "main"]:
            table.delete_branch(branch)
            del self.rows[branch]
        where = self.any_where(table)
        self.erase(table, where)
        table = self.opened("main")
        table.erase(where.sql)  # what came meanwhile
        self.clock.advance(GRACE_S + 1)
        table.expire(keep_last=1)
        for _ in range(3):
            self.clock.advance(AGE_S + 1)
            table.vacuum()
        verification = table.erase(where.sql, verify=True).verification
        assert verification is not None
        assert verification.unreadable == ()
        floor = table.head().floor
        for item in verification.findings:
            place = slot_of(item.key)
            assert place is not None, item
            assert place[1] < floor or place[0] != "main", item


def stored_rows(table: Table) -> Rows:
    return Counter((row["k"], row["v"], row.get("n")) for row in all_rows(table))  # type: ignore[misc]


def bounds(stats: Mapping[int, ColumnStats]) -> dict[int, tuple[object, object]]:
    return {
        column: (item.min, item.max)
        for column, item in stats.items()
        if item.min is not None or item.max is not None
    }


def run_course(seed: int, *, steps: int) -> ErasingCourse:
    with small_limits(fan_in=2 + seed % 3):
        course = ErasingCourse(seed)
        course.play(steps)
        course.check_all()
        course.purge()
    return course


@pytest.mark.parametrize("seed", QUICK)
def test_erasures_among_all_other_operations_erase_the_rows_of_the_model(seed: int) -> None:
    course = run_course(seed, steps=25)

    assert any(": erase" in step for step in course.trace)


@pytest.mark.long
@pytest.mark.parametrize("seed", others_at_night(LONG, 20))
def test_long_courses_with_erasures_have_the_rows_of_the_model(seed: int) -> None:
    run_course(seed, steps=60)
