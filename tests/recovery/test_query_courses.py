"""Courses of events of queries with several tables; without any one rule, rows are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fuse_stream.reading.history import History
from fuse_stream.recovery.ledgers import ForkedQuery
from tests.recovery.query_courses import run_course

FEW_COURSES = range(8)
MORE_COURSES = range(8, 25)
MOST_COURSES = 150
"""The number of courses to draw until one without the rule loses a row."""

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seeds", [FEW_COURSES, pytest.param(MORE_COURSES, marks=pytest.mark.long)])
def test_no_order_of_events_loses_or_doubles_a_row(seeds: range) -> None:
    done: Counter[str] = Counter()
    losses = []
    for seed in seeds:
        world = run_course(seed)
        done += world.done
        losses += [f"seed {seed}: {loss}" for loss in world.losses]

    assert losses == []
    assert done["finished"] >= len(seeds) * 0.6
    assert min(done[what] for what in ("run", "copy", "rewind", "fork", "rebuild", "maintain")) > 0


def without_continuity(patch: Patch) -> None:
    patch.setattr("fuse_stream.commit.ledger._check_continuity", lambda entry, batch: None)


def without_the_check_of_forks(patch: Patch) -> None:
    """A table that was rewound to before its first batch accepts any fork."""
    patch.setattr("fuse_stream.commit.ledger._check_fork", lambda ledger, batch: None)


def without_epochs_of_blocks(patch: Patch) -> None:
    patch.setattr("fuse_stream.commit.stage.may_be_gone", lambda epoch, head: False)


def without_the_last_batch_again(patch: Patch) -> None:
    """The rebuilt checkpoint counts the last batch as done."""
    patch.setattr("fuse_stream.recovery.rebuild_checkpoint.COMMITS", "nothing")


def without_the_check_of_rebuilt_queries(patch: Patch) -> None:
    patch.setattr("fuse_stream.commit.ledger._check_rebuilt", lambda ledger, batch: None)


def without_the_check_of_writers(patch: Patch) -> None:
    """A table counts as holding all batches up to its ledger's last one, whoever wrote them."""

    def holds(query: Any, ledger: Any, batch: int) -> bool:
        return all(ledger.entries[key].batch_id <= batch for key in query.keys(ledger))

    patch.setattr(ForkedQuery, "holds", holds)


def without_the_origins_history(patch: Patch) -> None:
    """Version 0 of a clone counts as empty, although its queries had written rows."""
    patch.setattr(History, "is_cloned", lambda history, at: False)


def without_the_first_batch_that_is_seen(patch: Patch) -> None:
    """A version whose ledger does not name a query counts as holding none of its batches."""
    patch.setattr("fuse_stream.recovery.target.is_told", lambda oldest, first, last: True)


def without_the_check_of_tables_that_are_added(patch: Patch) -> None:
    """A rewind that an earlier call has begun takes other tables along without a look at them."""
    patch.setattr("fuse_stream.recovery.rewind_plan.check_continued", lambda *_all: None)


RULES: dict[Callable[[Patch], None], int] = {
    without_continuity: 0,
    without_the_check_of_forks: 396,
    without_epochs_of_blocks: 0,
    without_the_last_batch_again: 37,
    without_the_check_of_writers: 7,
    without_the_check_of_rebuilt_queries: 67,
    without_the_origins_history: 45,
    without_the_first_batch_that_is_seen: 520,
    without_the_check_of_tables_that_are_added: 1017,
}
"""By rule, the seed of a course that loses a row without it; later seeds are tried too."""


@pytest.mark.parametrize("take_out", RULES, ids=lambda rule: rule.__name__)
def test_without_a_rule_rows_are_lost_or_doubled(take_out: Callable[[Patch], None]) -> None:
    first = RULES[take_out]
    with pytest.MonkeyPatch.context() as patch:
        take_out(patch)
        seeds = range(first, first + MOST_COURSES)
        lost = next((seed for seed in seeds if run_course(seed).losses), None)

    assert lost is not None, "no course found what the rule stops"
