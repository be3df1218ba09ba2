"""All actors on one table, in orders drawn from seeds: nothing is lost, and no garbage remains.

Writers that replay, compaction, clustering, expiry, vacuum, tags, branches that are published,
rewinds, streams with a lease and without, and readers, while time jumps, processes die and replies
are lost. The checks are in `witness.py` (at every commit and deletion), in `actors.py` (the errors
that each may get) and in `courses.py` (after a round, and after a pause).
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.protocol.actors import Actor
from tests.protocol.courses import Course, run_course

SEEDS = range(10)


@pytest.fixture(scope="module")
def courses() -> list[Course]:
    return [run_course(seed) for seed in SEEDS]


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_no_random_order_of_events_loses_rows_or_leaves_garbage(
    courses: list[Course], seed: int
) -> None:
    assert courses[seed].losses == ()


def test_every_actor_completes_some_operations(courses: list[Course]) -> None:
    done = sum((course.done for course in courses), Counter[str]())
    kinds = {kind.__name__ for kind in Actor.__subclasses__()}

    assert {kind for kind in kinds if done[kind] < len(SEEDS) / 3} == set()
    assert sum(course.deletions for course in courses) > 100
    assert sum(course.faults for course in courses) > 10


def test_a_seed_determines_the_order_of_events(courses: list[Course]) -> None:
    assert run_course(SEEDS[0]).trace == courses[0].trace
