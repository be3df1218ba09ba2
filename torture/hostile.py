"""The campaign `hostile`: tables made to harm their readers.

A trial takes some tables made by hand, in turn, and random mutants of valid metadata. All hashes
are mended after a change, since whoever writes a table can compute them. Each verb must end with
an answer or a FuseError: in a second, in 256 MiB, and without a key that no table has.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from pathlib import Path

from tests.hostile.cases import Change, cases
from tests.hostile.mutants import random_mutant
from tests.hostile.tables import KINDS, made
from tests.hostile.trials import chosen_verbs, outcomes_on
from tests.hostile.watch import BrokenRuleError
from torture.campaign import Campaign, PromiseBrokenError

MUTANTS = 40
"""Mutants of a trial."""
BY_HAND = 20
"""Tables made by hand of a trial; 51 trials try all of them."""
VERBS_OF_EACH = 2
"""How many verbs each table is tried with, beside those that every one is."""

PROMISE = "a hostile table gives a reader an answer or a typed error, in bounded time and memory"


@cache
def _by_hand() -> tuple[tuple[str, Change], ...]:
    return tuple(sorted(cases().items()))


def trial(seed: int, folder: Path) -> Counter[str]:  # noqa: ARG001 - these tables are in memory
    """Try verbs on hostile tables; return how often each outcome was seen, one for each table.

    Raises:
        PromiseBrokenError: a verb crashed, took too long or too much, or left the table.
    """
    choose = random.Random(seed)
    seen: Counter[str] = Counter()
    listed = _by_hand()
    for number in range(BY_HAND):
        name, change = listed[(seed * BY_HAND + number) % len(listed)]
        seen[_outcome(name, change(made("plain")), choose)] += 1
    for _ in range(MUTANTS):
        said, mutant = random_mutant(made(choose.choice(KINDS)), choose)
        seen[_outcome(said, mutant, choose)] += 1
    return seen


def _outcome(said: str, objects: dict[str, bytes], choose: random.Random) -> str:
    """Return "refused" if a verb raised a FuseError, else "harmless"."""
    verbs = chosen_verbs(choose, VERBS_OF_EACH)
    try:
        outcomes = outcomes_on(objects, verbs)
    except BrokenRuleError as error:
        raise PromiseBrokenError(PROMISE, [f"table: {said[:500]}", str(error)]) from error
    return "harmless" if set(outcomes) == {"answer"} else "refused"


CAMPAIGN = Campaign(
    name="hostile",
    does="Metadata made to harm: a reader gets an answer or a typed error, and nothing leaves the "
    "table's folder.",
    unit="hostile tables",
    trial=trial,
    in_ci=3_000,
    in_night=1_000_000,
)
