"""A longer random search: harms, queries, moves, streams, pipelines, orders of events, the model.

python -m tests.protocol.campaign --seconds 600 --seed 1
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from itertools import product

from fuse_stream.errors import FuseError
from tests.feed import line_courses
from tests.protocol.courses import run_course
from tests.protocol.harms import run_harm
from tests.protocol.model import __main__ as protocol
from tests.recovery import move_courses, pipeline_courses, query_courses

LAST_CALLS = 400
"""Number of example traces that are printed for a loss."""


def main() -> int:
    """Return 1 if anything is lost, and print the seed and the calls up to the loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds",
        type=float,
        default=600,
        help="in all: 0.1 each for harms, streams, pipelines and queries; 0.2 each for moves and "
        "the real code; then the model",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the first course; the next ones follow"
    )
    parser.add_argument(
        "--courses", type=int, help="number of courses of the real code; runs nothing else"
    )
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # mostly that batches are missing after a rewind
    if arguments.courses is None and (
        _harm(arguments.seconds / 10, arguments.seed)
        or _query(arguments.seconds / 10, arguments.seed)
        or _move(arguments.seconds * 2 / 10, arguments.seed)
        or _stream(arguments.seconds / 10, arguments.seed)
        or _pipeline(arguments.seconds / 10, arguments.seed)
    ):
        return 1
    end_s = time.monotonic() + arguments.seconds * 2 / 10
    seed = first = arguments.seed
    while seed - first != arguments.courses and time.monotonic() < end_s:
        course = run_course(seed)
        if course.losses:
            at = next(i for i, line in enumerate(course.trace) if line.startswith("LOST"))
            told = course.trace[max(0, at - LAST_CALLS) : at + 1]
            sys.stdout.write("\n".join([*told, *course.losses, f"seed {seed}", ""]))
            return 1
        seed += 1
    sys.stdout.write(f"{seed - first} courses of the real code, nothing lost\n")
    if arguments.courses is not None:
        return 0
    return protocol.search(arguments.seconds * 2 / 10, arguments.seed)


def _query(seconds: float, seed: int) -> bool:
    """True if queries that write several tables lose or double a row; print how."""
    end_s = time.monotonic() + seconds
    first = seed
    while time.monotonic() < end_s:
        world = query_courses.run_course(seed)
        if world.losses:
            sys.stdout.write("\n".join([*world.trace[-LAST_CALLS:], f"seed {seed}", ""]))
            return True
        seed += 1
    sys.stdout.write(f"{seed - first} courses of queries, nothing lost or doubled\n")
    return False


def _move(seconds: float, seed: int) -> bool:
    """True if a query that moves between branches loses or doubles a row; print how."""
    end_s = time.monotonic() + seconds
    first = seed
    while time.monotonic() < end_s:
        for tables, expires in product((1, 2), (False, True)):
            world = move_courses.run_course(seed, tables=tables, expires=expires)
            if world.losses:
                told = f"seed {seed}, tables {tables}, expires {expires}"
                sys.stdout.write("\n".join([*world.trace, told, ""]))
                return True
        seed += 1
    sys.stdout.write(f"{4 * (seed - first)} courses of moves, nothing lost or doubled\n")
    return False


def _play(
    run_one: Callable[[int], object], seconds: float, seed: int, *, name: str, held: str
) -> bool:
    """True if a course of `run_one` ends with an error; print how. `held` says what held else."""
    end_s = time.monotonic() + seconds
    first = seed
    while time.monotonic() < end_s:
        try:
            run_one(seed)
        except (AssertionError, FuseError) as error:
            sys.stdout.write(f"{error}\n{name}, seed {seed}\n")
            return True
        seed += 1
    sys.stdout.write(f"{seed - first} {held}\n")
    return False


def _stream(seconds: float, seed: int) -> bool:
    """True if a stream is sent what was undone, or other rows than the table's; print how."""
    held = "streams along the line, each sent the table"
    return _play(line_courses.run_course, seconds, seed, name="a stream", held=held)


def _pipeline(seconds: float, seed: int) -> bool:
    """True if a table of a pipeline ends other than in an undisturbed run; print how."""
    held = "pipelines taken back, each as in an undisturbed run"
    return _play(pipeline_courses.run_course, seconds, seed, name="a pipeline", held=held)


def _harm(seconds: float, seed: int) -> bool:
    """True if anything more is lost after slots were lost and names damaged; print what."""
    end_s = time.monotonic() + seconds
    first = seed
    while time.monotonic() < end_s:
        if losses := run_harm(seed).losses:
            sys.stdout.write("\n".join([*losses, ""]))
            return True
        seed += 1
    sys.stdout.write(f"{seed - first} harmed tables, nothing lost that could be put back\n")
    return False


if __name__ == "__main__":
    sys.exit(main())
