"""The line of a version, against a walk from source to source through all snapshots."""

from __future__ import annotations

import random

import pytest

from fuse_stream.commit import plan
from fuse_stream.errors import FuseError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.records import Snapshot
from fuse_stream.reading.history import History
from fuse_stream.reading.line import Line, load_line
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import SCHEMA
from tests.recovery.histories import opened, rewind, rows

COURSES = 60


def new_table() -> Table:
    schema = first_schema(columns_of_arrow(SCHEMA))
    return create_table(MemoryStore(), schema, clock=ManualClock(), probe_store=False)


def play(seed: int) -> tuple[Table, list[str]]:
    """Return a table with a random history, and the names of its branches."""
    draw = random.Random(seed)
    table, names = new_table(), ["main"]
    for number in range(draw.randint(4, 20)):
        name = draw.choice(names[-2:] + names)
        on = opened(table.metadata.store, name)
        head = on.head().version
        try:
            match draw.choice(("append", "append", "rewind", "branch", "publish", "publish")):
                case "append":
                    on.append(rows(number))
                case "rewind":
                    rewind(on.committer, Goal(version=draw.randint(0, head)))
                case "branch":
                    if len(names) == 1 or seed % 2:
                        on.create_branch(f"fix{number}", draw.randint(0, head))
                        names.append(f"fix{number}")
                case "publish":
                    on.publish(draw.choice(names), expected_head=head)
        except FuseError:
            continue
    return table, names


def history_of(table: Table) -> History:
    return History(table.metadata, table.committer.head())


def walked(history: History, end: Snapshot) -> list[int]:
    """Return the versions of a history on the line of `end`, by a walk through all sources."""
    found = []
    at: Snapshot | None = end
    while at is not None:
        if history.contains(at):
            found.append(at.version)
        named = at.source
        at = None
        if named is not None:
            at = history.metadata.load_snapshot(named.branch_id, named.version).snapshot
    return found[::-1]


@pytest.fixture(params=[True, False], ids=["named", "not named"])
def is_named(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether snapshots name the start of their line, as an earlier release did not."""
    if not request.param:
        monkeypatch.setattr(plan, "_line_after", lambda _head, _intent, _staged: None)


@pytest.mark.usefixtures("is_named")
@pytest.mark.parametrize("seed", range(COURSES))
def test_a_line_is_the_walk_from_source_to_source(seed: int) -> None:
    """A line that leads over three branches may be shorter than the walk."""
    table, names = play(seed)
    for name in names:
        history = history_of(opened(table.metadata.store, name))
        for end in history.iter_back():
            right = walked(history, end.snapshot)
            for start in range(-1, end.snapshot.version + 1):
                line = load_line(history, start, end)
                known = {*line.iter_back(), start}
                assert known - {start} <= {*right}
                if len(names) > 2:
                    right = [version for version in right if version in known]
                check_line(line, end.snapshot.version, right)


def test_the_courses_publish_branches_that_were_rewound() -> None:
    played = (play(seed) for seed in range(COURSES))
    heads = (opened(table.metadata.store, name) for table, names in played for name in names)
    made = [stored.snapshot for table in heads for stored in history_of(table).iter_back()]
    bases = [each.line.base for each in made if each.line and each.operation == "publish"]
    assert len(bases) > 40
    assert len(set(bases)) > 3


def check_line(line: Line, end: int, right: list[int]) -> None:
    """Check a line against all versions on the line of `end`."""
    after = [version for version in right if version > line.start]
    assert [*line.iter_back()] == after[::-1]
    steps = [*line.iter_steps(end)]
    assert [step.version for step in steps] == after
    assert [step.base for step in steps] == [line.start, *after[:-1]][: len(after)]
    for at in range(line.start, end + 1):
        assert line.find_after(at) == min((each for each in after if each > at), default=None)
