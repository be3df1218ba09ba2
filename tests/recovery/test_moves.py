"""Courses of a query that dies, changes its application, is forgotten, rewound and moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.recovery.move_courses import run_course

COURSES = range(6)
MOST_COURSES = 60
"""The number of courses to draw until one without the rule loses a row."""

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("expires", [False, True], ids=["kept", "expired"])
@pytest.mark.parametrize("tables", [1, 2])
def test_a_query_that_moves_and_changes_its_application_loses_and_doubles_nothing(
    tables: int, *, expires: bool
) -> None:
    worlds = [run_course(seed, tables=tables, expires=expires) for seed in COURSES]
    done = sum((world.done for world in worlds), Counter[str]())

    assert [loss for world in worlds for loss in world.losses] == []
    assert min(done[what] for what in ("run", "move", "publish", "go_back")) > 1
    assert done["run StreamIdentityError"] > 0


def without_other_applications(patch: Patch) -> None:
    patch.setattr("fuse_stream.commit.ledger._check_other_keys", lambda ledger, batch: None)


def without_other_branches(patch: Patch) -> None:
    patch.setattr("fuse_stream.commit.committer.check_other_branches", lambda *_: None)


@pytest.mark.parametrize("tables", [1, 2])
@pytest.mark.parametrize("take_out", [without_other_applications, without_other_branches])
def test_without_a_rule_rows_are_lost_or_doubled(
    take_out: Callable[[Patch], None], tables: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        take_out(patch)
        lost = next(
            (seed for seed in range(MOST_COURSES) if run_course(seed, tables=tables).losses), None
        )

    assert lost is not None, "no course found what the rule stops"
