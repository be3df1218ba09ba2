"""Actors: plain generators that yield their storage calls, run as immutable state machines.

A generator cannot be copied, so the state of an actor is the list of its answers so far: a node
of a tree, identified by its number. The generator is run again to learn its next call, once
for each node. `Again` starts it with other arguments and forgets the answers before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass

from tests.protocol.model.store import Call

Fact = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """A fact that the actor now knows, or a promise; not a call."""

    fact: Fact


@dataclass(frozen=True)
class Again:
    """Continue as this actor, with these arguments."""

    act: Callable[..., Steps]
    args: tuple[object, ...]
    named: tuple[tuple[str, object], ...] = ()


Steps = Generator["Call | Note", "object", "Again | None"]


def in_turn(first: Again, *rest: Again) -> Steps:
    """Run several actors, one after the other."""
    again = yield from first.act(*first.args, **dict(first.named))
    left = rest if again is None else (again, *rest)
    return Again(in_turn, left) if left else None


@dataclass(frozen=True, slots=True)
class Node:
    """A state of an actor."""

    start: Again | None
    replies: tuple[Hashable, ...] = ()
    call: Call | None = None
    """The next step; None at the end."""


Arrival = tuple[int, tuple[Fact, ...]]
"""The number of a state, and the facts recorded on the path to it."""


class Scripts:
    """The states of all actors that were reached so far, by number."""

    def __init__(self) -> None:
        self.nodes: list[Node] = [Node(None)]
        """The first one is the end of every actor."""
        self._starts: dict[Again, Arrival] = {}
        self._next: dict[tuple[int, Hashable], Arrival] = {}

    def start(self, again: Again) -> Arrival:
        if again not in self._starts:
            self._starts[again] = self._arrive(again, ())
        return self._starts[again]

    def advance(self, number: int, reply: Hashable) -> Arrival:
        if (number, reply) not in self._next:
            node = self.nodes[number]
            assert node.start is not None
            self._next[number, reply] = self._arrive(node.start, (*node.replies, reply))
        return self._next[number, reply]

    def _arrive(self, start: Again, replies: tuple[Hashable, ...]) -> Arrival:
        call, notes, again = _run(start, replies)
        if again is not None:
            number, further = self.start(again)
            return number, (*notes, *further)
        if call is None:
            return 0, notes
        self.nodes.append(Node(start, replies, call))
        return len(self.nodes) - 1, notes


def _run(
    start: Again, replies: tuple[Hashable, ...]
) -> tuple[Call | None, tuple[Fact, ...], Again | None]:
    steps = start.act(*start.args, **dict(start.named))
    notes: list[Fact] = []
    pending = iter(replies)
    try:
        step = next(steps)
        while True:
            if isinstance(step, Note):
                notes.append(step.fact)
                step = next(steps)
                continue
            try:
                reply = next(pending)
            except StopIteration:
                return step, tuple(notes), None
            notes.clear()
            step = steps.send(reply)
    except StopIteration as end:
        return None, tuple(notes), end.value
