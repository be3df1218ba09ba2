"""Try verbs on a hostile table in memory; each on a copy of its own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping

from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.hostile.verbs import READS, WRITES, Verb
from tests.hostile.watch import WatchedStore, outcomes_of

VERBS = {**READS, **WRITES}
ALWAYS = ("open", "scan", "fsck")
"""Verbs that every table is tried with; between them they read every kind of object."""


def chosen_verbs(choose: random.Random, count: int) -> list[str]:
    """Return `ALWAYS` and so many others."""
    others = sorted(VERBS.keys() - set(ALWAYS))
    return [*ALWAYS, *choose.sample(others, min(count, len(others)))]


def outcomes_on(objects: Mapping[str, bytes], names: Iterable[str]) -> Counter[str]:
    """Return how often verbs on a table ended with an answer, or with which FuseError.

    Raises:
        BrokenRuleError: one did what none may do on a hostile table.
    """

    def tried(verb: Verb) -> None:
        clock = ManualClock()
        clock.advance(100_000)
        store = MemoryStore(clock=clock)
        for key, data in objects.items():
            store.replace(key, data)
        verb(WatchedStore(store), clock)

    return outcomes_of({name: lambda name=name: tried(VERBS[name]) for name in names})  # type: ignore[misc]  # a default argument binds the name
