"""Every order of events of a scenario, breadth first; or some random ones, beyond that.

A step is a storage call of one actor, a sleep, the loss of a put's reply, or a crash: the actor
starts anew. States are visited once, so the first broken promise found has the shortest trace.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.protocol.model.promises import Facts, broken_promise, with_published
from tests.protocol.model.records import LOST
from tests.protocol.model.script import Again, Scripts
from tests.protocol.model.store import Call, Objects, PutIfAbsent, Timed
from tests.protocol.model.store import name as name_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The actors of a search, and their store."""

    objects: Objects
    facts: Facts
    actors: tuple[tuple[str, Again], ...]
    now: int = 0
    sleeps: tuple[int, ...] = ()
    """The ticks of each possible sleep, in this order."""
    crashes: int = 0
    lost_replies: int = 0
    promise: Callable[[Objects, Facts, int], str | None] = broken_promise
    """Describes what is lost in a state of the store; None if nothing is."""


class State(NamedTuple):
    """The state of store, actors and clock at one time."""

    objects: Objects
    actors: tuple[int, ...]
    facts: Facts
    now: int
    slept: int
    crashes: int
    lost: int


class Step(NamedTuple):
    """The step from one state to the next; put into words only if it leads to a loss."""

    actor: str
    """The actor that makes a call; None while time passes."""
    call: Call | None = None
    """None: the actor dies."""
    reply: Hashable = None
    is_lost: bool = False

    def __str__(self) -> str:
        if not self.actor:
            return f"{self.reply} ticks pass"
        if self.call is None:
            return f"{self.actor} dies and starts anew"
        is_timed = isinstance(self.call, Timed)
        told = f"{self.actor}: {self.call} -> {_told(self.reply, is_timed=is_timed)}"
        return f"{told}, but {LOST}" if self.is_lost else told


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A broken promise, and the steps that led to it."""

    promise: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        steps = (f"{number:3}. {step}" for number, step in enumerate(self.trace, 1))
        return "\n".join([*steps, f"     {self.promise}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The end of a search."""

    states: int
    loss: Loss | None
    is_whole: bool
    """True if there are no more states."""
    facts: frozenset[str]
    """The kinds of recorded facts, which show that the search was not empty."""


class Search:
    """The states of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._scripts = Scripts()

    def exhaust(self, *, most: int, end_s: float = math.inf) -> Found:
        """Visit every state, at most `most` and until `end_s`; stop at the first loss."""
        first = self._first()
        came: dict[State, tuple[State, Step] | None] = {first: None}
        queue = deque([first])
        kinds: set[str] = set()
        while queue:
            state = queue.popleft()
            for step, after in self._steps(state):
                if after in came:
                    continue
                came[after] = (state, step)
                if after.facts is not state.facts:
                    kinds.update(str(fact[0]) for fact in after.facts)
                if promise := self._broken(state, after):
                    trace = [step]
                    at = state
                    while (way := came[at]) is not None:
                        at = way[0]
                        trace.append(way[1])
                    loss = Loss(promise=promise, trace=tuple(map(str, reversed(trace))))
                    return Found(
                        states=len(came), loss=loss, is_whole=False, facts=frozenset(kinds)
                    )
                queue.append(after)
            if len(came) > most or (len(came) % 512 == 0 and time.monotonic() > end_s):
                break
        return Found(states=len(came), loss=None, is_whole=not queue, facts=frozenset(kinds))

    def walk(self, seed: int) -> Loss | None:
        """Follow one random path, to its end or to a loss."""
        chance = random.Random(seed)
        state, trace = self._first(), list[Step]()
        while steps := list(self._steps(state)):
            step, after = chance.choice(steps)
            trace.append(step)
            if promise := self._broken(state, after):
                return Loss(promise=promise, trace=tuple(map(str, trace)))
            state = after
        return None

    def _first(self) -> State:
        scenario = self.scenario
        actors = tuple(self._scripts.start(start)[0] for _, start in scenario.actors)
        return State(scenario.objects, actors, scenario.facts, scenario.now, 0, 0, 0)

    def _broken(self, before: State, after: State) -> str | None:
        if before.objects is after.objects and before.facts is after.facts:
            return None
        return self.scenario.promise(after.objects, after.facts, after.now)

    def _steps(self, state: State) -> Iterator[tuple[Step, State]]:
        scenario = self.scenario
        if not any(state.actors):
            return
        objects, actors, facts, now, slept, crashes, lost = state
        if slept < len(scenario.sleeps):
            ticks = scenario.sleeps[slept]
            later = State(objects, actors, facts, now + ticks, slept + 1, crashes, lost)
            yield Step("", reply=ticks), later
        for index, number in enumerate(actors):
            if number == 0:
                continue
            name, start = scenario.actors[index]
            call = self._scripts.nodes[number].call
            assert call is not None
            stored, reply = call.answer(objects, now)
            told = facts
            plain = call.call if isinstance(call, Timed) else call
            is_put = isinstance(plain, PutIfAbsent)
            if isinstance(plain, PutIfAbsent) and stored is not objects:
                told = with_published(facts, plain.key, plain.value)
            after = State(stored, actors, told, now, slept, crashes, lost)
            yield Step(name, call, reply), self._moved(after, index, reply)
            if is_put and isinstance(call, Timed) and lost < scenario.lost_replies:
                unheard = State(stored, actors, told, now, slept, crashes, lost + 1)
                step = Step(name, call, reply, is_lost=True)
                yield step, self._moved(unheard, index, (LOST, now))
            if crashes < scenario.crashes and number != self._scripts.start(start)[0]:
                anew = (*actors[:index], self._scripts.start(start)[0], *actors[index + 1 :])
                yield Step(name), State(objects, anew, facts, now, slept, crashes + 1, lost)

    def _moved(self, state: State, index: int, reply: Hashable) -> State:
        objects, actors, facts, now, slept, crashes, lost = state
        number, notes = self._scripts.advance(actors[index], reply)
        if not facts.issuperset(notes):
            facts = facts.union(notes)
        moved = (*actors[:index], number, *actors[index + 1 :])
        return State(objects, moved, facts, now, slept, crashes, lost)


def _told(reply: object, *, is_timed: bool) -> str:
    if is_timed and isinstance(reply, tuple):
        reply = reply[0]
    match reply:
        case True:
            return "done"
        case False:
            return "taken"
        case None:
            return "nothing"
        case tuple() if reply and isinstance(reply[0], tuple):
            return ", ".join(name_of(item[0]) for item in reply)
    return str(reply)
