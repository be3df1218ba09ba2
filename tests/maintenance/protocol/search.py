"""Every course of events of a scenario, breadth first; or some, by chance, beyond that.

A step is a storage call of one actor, a sleep, the loss of a put's reply, or a crash: the actor
starts anew. States are met once, so the first broken promise found has the shortest way to it.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from tests.maintenance.protocol.promises import Facts, broken_promise, with_published
from tests.maintenance.protocol.records import LOST
from tests.maintenance.protocol.script import Again, Scripts
from tests.maintenance.protocol.store import Objects, PutIfAbsent, Timed
from tests.maintenance.protocol.store import name as name_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Who meets whom over which store."""

    objects: Objects
    facts: Facts
    actors: tuple[tuple[str, Again], ...]
    now: int = 0
    sleeps: tuple[int, ...] = ()
    """Ticks of each sleep that may come, in this order."""
    crashes: int = 0
    lost_replies: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """Everything at one moment."""

    objects: Objects
    actors: tuple[int, ...]
    facts: Facts
    now: int
    slept: int
    crashes: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A broken promise, and how it came to it."""

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
    """Whether there are no more states."""
    facts: frozenset[str]
    """The kinds of facts that were seen, to tell that what was searched is not empty."""


class Search:
    """The states of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._scripts = Scripts()

    def exhaust(self, *, most: int, end_s: float = math.inf) -> Found:
        """Visit every state, but at most so many and until then; stop at the first loss."""
        first = self._first()
        came: dict[State, tuple[State, str] | None] = {first: None}
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
                    loss = Loss(promise=promise, trace=tuple(reversed(trace)))
                    return Found(
                        states=len(came), loss=loss, is_whole=False, facts=frozenset(kinds)
                    )
                queue.append(after)
            if len(came) > most or (len(came) % 512 == 0 and time.monotonic() > end_s):
                break
        return Found(states=len(came), loss=None, is_whole=not queue, facts=frozenset(kinds))

    def walk(self, seed: int) -> Loss | None:
        """Go one way by chance, to its end or to a loss."""
        chance = random.Random(seed)
        state, trace = self._first(), list[str]()
        while steps := list(self._steps(state)):
            step, after = chance.choice(steps)
            trace.append(step)
            if promise := self._broken(state, after):
                return Loss(promise=promise, trace=tuple(trace))
            state = after
        return None

    def _first(self) -> State:
        scenario = self.scenario
        actors = tuple(self._scripts.start(start)[0] for _, start in scenario.actors)
        return State(scenario.objects, actors, scenario.facts, scenario.now, 0, 0, 0)

    def _broken(self, before: State, after: State) -> str | None:
        if before.objects is after.objects and before.facts is after.facts:
            return None
        return broken_promise(after.objects, after.facts, after.now)

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        scenario = self.scenario
        if not any(state.actors):
            return
        if state.slept < len(scenario.sleeps):
            ticks = scenario.sleeps[state.slept]
            now = state.now + ticks
            yield f"{ticks} ticks pass", replace(state, now=now, slept=state.slept + 1)
        for index, number in enumerate(state.actors):
            if number == 0:
                continue
            name, start = scenario.actors[index]
            call = self._scripts.nodes[number].call
            assert call is not None
            objects, reply = call.answer(state.objects, state.now)
            facts = state.facts
            plain = call.call if isinstance(call, Timed) else call
            if isinstance(plain, PutIfAbsent) and objects is not state.objects:
                facts = with_published(facts, plain.key, plain.value)
            told = f"{name}: {plain} -> {_told(reply, is_timed=isinstance(call, Timed))}"
            after = replace(state, objects=objects, facts=facts)
            yield told, self._moved(after, index, reply)
            is_slot = isinstance(plain, PutIfAbsent) and isinstance(call, Timed)
            if is_slot and state.lost < scenario.lost_replies:
                lost = replace(after, lost=state.lost + 1)
                yield f"{told}, but {LOST}", self._moved(lost, index, (LOST, state.now))
            if state.crashes < scenario.crashes and number != self._scripts.start(start)[0]:
                anew = self._scripts.start(start)[0]
                actors = (*state.actors[:index], anew, *state.actors[index + 1 :])
                yield (
                    f"{name} dies and starts anew",
                    replace(state, actors=actors, crashes=state.crashes + 1),
                )

    def _moved(self, state: State, index: int, reply: Hashable) -> State:
        number, notes = self._scripts.advance(state.actors[index], reply)
        actors = (*state.actors[:index], number, *state.actors[index + 1 :])
        facts = state.facts
        if not facts.issuperset(notes):
            facts = facts.union(notes)
        return replace(state, actors=actors, facts=facts)


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
