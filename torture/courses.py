"""The random courses of the tests, as a campaign: many processes work on tables at the same time.

`python -m tests.protocol.campaign` runs the same for a time. A seed draws one course of each kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from fuse_stream.errors import FuseError
from tests.dml import row_courses
from tests.feed import line_courses
from tests.protocol.courses import run_course
from tests.protocol.harms import run_harm
from tests.recovery import move_courses, pipeline_courses, query_courses
from torture.campaign import Campaign, PromiseBrokenError

LAST_CALLS = 400
"""How much of a trace is told."""


def trial(seed: int, _folder: Path) -> Counter[str]:
    """Run one course of each kind."""
    outcomes: Counter[str] = Counter()
    for name, play in KINDS.items():
        try:
            losses, trace = play(seed)
        except (AssertionError, FuseError) as error:
            raise PromiseBrokenError(f"{name}: {error}", [name, f"seed {seed}"]) from error
        if losses:
            raise PromiseBrokenError(f"{name}: {losses[0]}", [*trace][-LAST_CALLS:])
        outcomes[f"{name}: nothing lost or doubled"] += 1
    return outcomes


def _protocol(seed: int) -> tuple[list[str], list[str]]:
    course = run_course(seed)
    return list(course.losses), list(course.trace)


def _harm(seed: int) -> tuple[list[str], list[str]]:
    return list(run_harm(seed).losses), [f"seed {seed} of tests/protocol/harms.py"]


def _queries(seed: int) -> tuple[list[str], list[str]]:
    world = query_courses.run_course(seed)
    return list(world.losses), list(world.trace)


def _moves(seed: int) -> tuple[list[str], list[str]]:
    world = move_courses.run_course(seed, tables=1 + seed % 2, expires=seed // 2 % 2 == 1)
    return list(world.losses), list(world.trace)


def _stream(seed: int) -> tuple[list[str], list[str]]:
    line_courses.run_course(seed)
    return [], []


def _pipeline(seed: int) -> tuple[list[str], list[str]]:
    pipeline_courses.run_course(seed)
    return [], []


def _rows(seed: int) -> tuple[list[str], list[str]]:
    row_courses.run_course(seed)
    return [], []


KINDS: dict[str, Callable[[int], tuple[list[str], list[str]]]] = {
    "thirteen actors on one table": _protocol,
    "a harmed table": _harm,
    "queries that write several tables": _queries,
    "a query that moves between branches": _moves,
    "a stream along the line": _stream,
    "a pipeline taken back": _pipeline,
    "rows that change": _rows,
}

CAMPAIGN = Campaign(
    name="courses",
    does="many processes with faults work on tables at the same time, in random orders: writers, "
    "optimizers, expiries, vacuums, rewinds, queries, streams; nothing is lost or doubled",
    unit="courses",
    trial=trial,
    in_ci=70,
    in_night=14_000,
)
