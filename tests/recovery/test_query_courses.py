"""Courses of events of queries with several tables; and that each rule stops a loss in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fuse_stream.errors import StreamIdentityError
from fuse_stream.recovery.forks import ForkedQuery
from fuse_stream.recovery.ledgers import set_back
from tests.recovery.query_courses import run_course

COURSES = 25
MOST_COURSES = 150
"""Until a rule that is taken out has lost something."""

Patch = pytest.MonkeyPatch


def test_no_course_of_events_loses_or_doubles_a_row() -> None:
    done: Counter[str] = Counter()
    losses = []
    for seed in range(COURSES):
        world = run_course(seed)
        done += world.done
        losses += [f"seed {seed}: {loss}" for loss in world.losses]

    assert losses == []
    assert done["finished"] >= COURSES - 2
    assert min(done[what] for what in ("run", "copy", "rewind", "fork", "rebuild", "upkeep")) > 0


def without_continuity(patch: Patch) -> None:
    patch.setattr("fuse_stream.commit.ledger._check_continuity", lambda entry, batch: None)


def without_the_heir(patch: Patch) -> None:
    """A table that was rewound to before its first batch takes any fork."""
    patch.setattr("fuse_stream.commit.ledger._check_fork", lambda ledger, batch: None)


def without_epochs_of_blocks(patch: Patch) -> None:
    patch.setattr("fuse_stream.commit.stage.may_be_gone", lambda epoch, head: False)


def without_the_last_batch_again(patch: Patch) -> None:
    """The rebuilt checkpoint counts the last batch as done."""
    patch.setattr("fuse_stream.recovery.rebuilt.COMMITS", "nothing")


def without_the_own_line(patch: Patch) -> None:
    """A table is taken to hold what its ledger does not stand past, whoever wrote it."""

    def holds(query: Any, ledger: Any, batch: int) -> bool:
        return all(ledger.entries[key].batch_id <= batch for key in query.keys(ledger))

    patch.setattr(ForkedQuery, "holds", holds)


def without_retirement_everywhere(patch: Patch) -> None:
    """The old query is retired only where its entry goes back."""

    def alone(*args: Any, is_one_of_several: bool, **named: Any) -> Any:
        try:
            return set_back(*args, is_one_of_several=False, **named)
        except StreamIdentityError:
            return args[0]

    patch.setattr("fuse_stream.recovery.rewind.set_back", alone)


RULES: list[Callable[[Patch], None]] = [
    without_continuity,
    without_the_heir,
    without_epochs_of_blocks,
    without_the_last_batch_again,
    without_the_own_line,
    without_retirement_everywhere,
]


@pytest.mark.parametrize("take_out", RULES, ids=lambda rule: rule.__name__)
def test_without_a_rule_rows_are_lost_or_doubled(take_out: Callable[[Patch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        take_out(patch)
        lost = next((seed for seed in range(MOST_COURSES) if run_course(seed).losses), None)

    assert lost is not None, "no course found what the rule stops"
