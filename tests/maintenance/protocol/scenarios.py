"""Who meets whom: for each rule the smallest company in which its absence loses something."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

from tests.maintenance.protocol.commits import early_writer, next_of, rewinder, writer
from tests.maintenance.protocol.names import brancher, deleter, publisher, reader, tagger
from tests.maintenance.protocol.records import AGE, GRACE, MAIN, NEVER, Rules, Snapshot, slot, snapshot
from tests.maintenance.protocol.script import Again, Fact, Steps, in_turn
from tests.maintenance.protocol.search import Scenario
from tests.maintenance.protocol.store import Key, objects_of
from tests.maintenance.protocol.vacuums import expirer, vacuum


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A scenario under some rules, and the one rule that it is about."""

    rule: str
    """Whose absence loses something here."""
    loss: str
    """What is lost then; a part of the message."""
    fewest: int
    """States that a search with all rules visits at the least."""
    build: Callable[[Rules], Scenario]


class Past:
    """A table as it came to be before the scenario starts: a version a tick from 0."""

    def __init__(self, operations: str) -> None:
        """Make a version of main for each letter: `a`ppend or `o`verwrite."""
        self.items: list[tuple[Key, Hashable, int]] = []
        self.facts: list[Fact] = []
        self.head = snapshot(
            branch=MAIN,
            version=0,
            name="create",
            parent="",
            operation="create",
            blocks=frozenset[tuple[str, str]](),
            ledger=frozenset[str](),
            floor=0,
            epoch=1,
            raised_at=0,
            since=0,
            since_previous=NEVER,
        )
        self.versions = [self.head]
        self._add(self.head, 0)
        for letter in operations:
            self.commit(MAIN, letter)
            self.versions.append(self.head)

    def commit(self, branch: str, letter: str) -> None:
        version = self.head.version + 1
        batch = f"{branch}{version}"
        kept = frozenset[tuple[str, str]]() if letter == "o" else self.head.blocks
        self.items.append((("block", f"{batch}'0"), batch, NEVER))
        self.head = next_of(
            branch,
            self.head,
            batch,
            "overwrite" if letter == "o" else "append",
            blocks=kept | {(batch, f"{batch}'0")},
            ledger=self.head.ledger | {batch},
        )
        self._add(self.head, version)

    def name(self, kind: str, name: str, version: int) -> None:
        if kind == "branch":
            self.items.append((("made", name), True, 0))
        self.items.append(((kind, name), (MAIN, version), 0))
        self.facts.append((kind, name, version))

    def hint(self, version: int) -> None:
        self.items.append((("hint", MAIN), version, 0))

    def scenario(
        self,
        actors: dict[str, Again],
        *,
        now: int,
        sleeps: tuple[int, ...] = (),
        crashes: int = 0,
        lost_replies: int = 0,
    ) -> Scenario:
        return Scenario(
            objects=objects_of(self.items),
            facts=frozenset(self.facts),
            actors=tuple(actors.items()),
            now=now,
            sleeps=sleeps,
            crashes=crashes,
            lost_replies=lost_replies,
        )

    def _add(self, made: Snapshot, created: int) -> None:
        key = slot(made.branch, made.version)
        self.items.append((key, made, created))
        self.facts.append(("published", key, made))


def _act(act: Callable[..., Steps], *args: object, **named: object) -> Again:
    return Again(act, args, tuple(sorted(named.items())))


def _turns(*acts: Again) -> Again:
    return Again(in_turn, acts)


def _sleeper(rules: Rules, batch: str) -> Scenario:
    """A writer that looks for the head, and sleeps while its slot is taken and freed."""
    before = Past("")
    actors = {
        "sleeper": _act(writer, rules, (batch,)),
        "others": _turns(_act(writer, rules, ("x", "y")), _act(vacuum, rules, "v")),
    }
    return before.scenario(actors, now=0, sleeps=(GRACE,), lost_replies=1)


def _lost_hint(rules: Rules) -> Scenario:
    """A hint gone after an expiry, and a tag that keeps the slot where a search starts."""
    before = Past("aaaaa")
    before.name("tag", "t", 1)
    actors = {"writer": _act(writer, rules, ("w",)), "vacuum": _act(vacuum, rules, "v")}
    return before.scenario(actors, now=5, sleeps=(GRACE,))


def _two_expirers(rules: Rules) -> Scenario:
    before = Past("aaaa")
    before.hint(4)
    actors = {
        "expirer": _act(expirer, rules, "e"),
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=6, sleeps=(2,))


def _rewind(rules: Rules) -> Scenario:
    before = Past("aaoa")
    before.hint(4)
    actors = {
        "rewinder": _act(rewinder, rules, before.versions[2], "r"),
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=6, sleeps=(GRACE, AGE))


def _name(kind: str, rules: Rules) -> Scenario:
    before = Past("aaoa")
    before.hint(4)
    actors = {
        "tagger": _act(tagger, rules, kind, "t", 1),
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=6, sleeps=(GRACE, AGE))


def _slow_writer(rules: Rules) -> Scenario:
    """A writer that sleeps between any two of its calls, beside two that raise the epoch."""
    before = Past("a")
    before.hint(1)
    actors = {
        "writer": _act(writer, rules, ("w",)),
        "others": _turns(_act(expirer, rules, "e"), _act(vacuum, rules, "v")),
    }
    return before.scenario(actors, now=AGE, sleeps=(AGE, AGE))


def _early_writer(rules: Rules) -> Scenario:
    scenario = _slow_writer(rules)
    early = ("writer", _act(early_writer, rules, "w"))
    return dataclasses.replace(scenario, actors=(early, *scenario.actors[1:]))


def _reader(rules: Rules) -> Scenario:
    before = Past("aa")
    before.hint(2)
    actors = {
        "reader": _act(reader, rules),
        "others": _turns(_act(writer, rules, ("over",)), _act(vacuum, rules, "v")),
    }
    return before.scenario(actors, now=6, sleeps=(1, 2))


def _publish(rules: Rules) -> Scenario:
    """A branch is published to main while it is deleted and vacuum passes."""
    before = Past("a")
    before.hint(1)
    before.name("branch", "b", 1)
    before.commit("b", "o")
    actors = {
        "publisher": _act(publisher, rules, "b", "p"),
        "deleter": _act(deleter, rules, "b"),
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=AGE)


def _young_branch(rules: Rules) -> Scenario:
    before = Past("a")
    before.hint(1)
    actors = {
        "brancher": _act(brancher, rules, "b", 1),
        "writer": _act(writer, rules, ("w",), branch="b"),
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=AGE)


def _rewind_to_tag(rules: Rules) -> Scenario:
    """A rewind trusts a tag whose maker is about to withdraw it."""
    before = Past("aaoa")
    before.hint(4)
    actors = {
        "tagger": _act(tagger, rules, "tag", "t", 1),
        "rewinder": _act(rewinder, rules, before.versions[1], "r", tag="t"),
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=4 + GRACE)


def _publish_of_young_branch(rules: Rules) -> Scenario:
    """A publish trusts a branch whose maker is about to withdraw it."""
    before = Past("aaoa")
    before.hint(4)
    users = _turns(
        _act(writer, rules, ("w",), branch="b"), _act(publisher, rules, "b", "p")
    )
    actors = {
        "brancher": _act(brancher, rules, "b", 1),
        "users": users,
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=4 + GRACE)


def _branch_before_slow_fence(rules: Rules) -> Scenario:
    """A branch comes while a vacuum sleeps between its reading of the refs and its fences."""
    before = Past("a")
    before.hint(1)
    others = _turns(
        _act(brancher, rules, "b", 1),
        _act(writer, rules, ("w",), branch="b"),
    )
    return before.scenario(
        {"others": others, "vacuum": _act(vacuum, rules, "v")}, now=AGE, sleeps=(AGE,)
    )


SLEEPER = partial(_sleeper, batch="w")
CASES = [
    Case(rule="marker_before_freeing", loss="", fewest=1, build=SLEEPER),
    Case(rule="marker_before_belief", loss="", fewest=1, build=SLEEPER),
    Case(
        rule="unknown_without_ledger", loss="", fewest=1, build=partial(_sleeper, batch="plain")
    ),
    Case(rule="marker_before_freeing", loss="", fewest=1, build=_lost_hint),
    Case(rule="marker_before_end", loss="", fewest=1, build=_lost_hint),
    Case(rule="floor_in_snapshot", loss="", fewest=1, build=_two_expirers),
    Case(rule="floor_of_very_head", loss="", fewest=1, build=_rewind),
    Case(rule="look_again_after_ref", loss="", fewest=1, build=partial(_name, "tag")),
    Case(rule="fence_before_refs", loss="", fewest=1, build=partial(_name, "tag")),
    Case(rule="look_again_after_ref", loss="", fewest=1, build=partial(_name, "lease")),
    Case(rule="marks_from_lease", loss="", fewest=1, build=partial(_name, "lease")),
    Case(rule="age_from_epochs", loss="", fewest=1, build=_slow_writer),
    Case(rule="put_again_after_epochs", loss="", fewest=1, build=_slow_writer),
    Case(rule="base_before_objects", loss="", fewest=1, build=_early_writer),
    Case(rule="age_from_successor", loss="", fewest=1, build=_reader),
    Case(rule="source_of_very_head", loss="", fewest=1, build=_publish),
    Case(rule="fence_after_refs", loss="", fewest=1, build=_publish),
    Case(rule="floor_over_tags", loss="", fewest=1, build=_rewind_to_tag),
    Case(rule="made_branch", loss="", fewest=1, build=_publish_of_young_branch),
    Case(rule="fence_every_branch", loss="", fewest=1, build=_branch_before_slow_fence),
    Case(rule="bounds_before_refs", loss="", fewest=1, build=_branch_before_slow_fence),
    Case(rule="orphans_by_age", loss="", fewest=1, build=_young_branch),
]
