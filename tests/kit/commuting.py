"""Which interleavings of two actors end alike, so that a sweep needs to run only one of them.

Two neighbouring calls of different actors commute if neither changes what the other one sees: both
read, or their keys have nothing to do with each other. If the order of two such calls is changed,
each call returns what it returned before, so the actors do the same, and the store ends the same.
That needs actors which share nothing but the store, and whose clocks only they move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import le

from tests.kit.interleave import Call

LISTS = frozenset({"list", "names", "leftovers"})
"""The verbs that read all keys with a prefix."""
READS = frozenset({"get", "open_input"}) | LISTS

Pair = tuple[int, int]
"""A schedule: the first actor makes so many calls, the second so many, then each runs out."""


def commute(one: Call, other: Call) -> bool:
    """Return whether the order of two calls of different actors makes no difference."""
    if one.verb in READS and other.verb in READS:
        return True
    if one.verb in LISTS:
        return not other.key.startswith(one.key)
    if other.verb in LISTS:
        return not one.key.startswith(other.key)
    return one.key != other.key


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """The calls of a schedule: the first actor's, the second's, and what each runs out with."""

    first: list[Call]
    second: list[Call]
    rest_of_first: list[Call]
    rest_of_second: list[Call]


class Equivalents:
    """The schedules that end like one that was run."""

    def __init__(self, first: int, second: int) -> None:
        """Both are the greatest numbers of calls in a schedule."""
        self._most = first, second
        self._run: dict[Pair, Pair] = {}

    def find(self, pair: Pair) -> Pair | None:
        """Return the schedule that was run and ends like this one, if there is one."""
        return self._run.get(pair)

    def note(self, run: Pair, trace: Sequence[Call]) -> None:
        """Note a schedule that was run, with its calls, and all that end like it."""
        self._run[run] = run
        found = [(run, _course(run, trace))]
        for (first, second), course in found:  # grows meanwhile
            for pair, other in (
                ((first + 1, second), _with_first(course)),
                ((first, second + 1), _with_second(course)),
            ):
                is_new = pair not in self._run and all(map(le, pair, self._most))
                if other is not None and is_new:
                    self._run[pair] = run
                    found.append((pair, other))


def _course(pair: Pair, trace: Sequence[Call]) -> _Course:
    first = list(takewhile(lambda call: call.actor == 0, trace[: pair[0]]))
    after = trace[len(first) :]
    second = list(takewhile(lambda call: call.actor == 1, after[: pair[1]]))
    after = after[len(second) :]
    return _Course(
        first=first,
        second=second,
        rest_of_first=[call for call in after if call.actor == 0],
        rest_of_second=[call for call in after if call.actor == 1],
    )


def _with_first(course: _Course) -> _Course | None:
    """Return the course in which the first actor makes a call more before the second begins.

    None if that may end otherwise.
    """
    if not course.rest_of_first:
        return course
    call, *rest = course.rest_of_first
    if not all(commute(call, other) for other in course.second):
        return None
    return replace(course, first=[*course.first, call], rest_of_first=rest)


def _with_second(course: _Course) -> _Course | None:
    """Return the course in which the second actor makes a call more before the first goes on.

    None if that may end otherwise.
    """
    if not course.rest_of_second:
        return course
    call, *rest = course.rest_of_second
    if not all(commute(call, other) for other in course.rest_of_first):
        return None
    return replace(course, second=[*course.second, call], rest_of_second=rest)
