"""Scenarios: for each rule the smallest group of actors that lose something without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

from tests.protocol.model.commits import Head, early_writer, next_of, rewinder, writer
from tests.protocol.model.lines import Planned, driver
from tests.protocol.model.names import brancher, deleter, publisher, reader, tagger
from tests.protocol.model.records import (
    AGE,
    GRACE,
    MAIN,
    NEVER,
    Rules,
    Snapshot,
    slot,
    snapshot,
)
from tests.protocol.model.script import Again, Fact, Steps, in_turn
from tests.protocol.model.search import Scenario
from tests.protocol.model.store import Key, objects_of
from tests.protocol.model.vacuums import expirer, vacuum

Build = Callable[[Rules], Scenario]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A scenario under some rules, and the one rule that it is about."""

    rule: str
    """The rule without which something is lost here."""
    loss: str
    """A part of the message about that loss."""
    fewest: int
    """The least number of states in a search with all rules; 0: too many for a test."""
    build: Build


class Past:
    """A table before the scenario starts: one version per tick, from 0."""

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

    @property
    def known(self) -> Head:
        """The head, as a process has it that read it long ago."""
        return Head(self.head, NEVER)

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
        target = (MAIN, version, 0) if kind == "branch" else (MAIN, version)
        self.items.append(((kind, name), target, 0))
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


def _without_publish(rules: Rules) -> Rules:
    """Leave the second fence out: only content from another branch needs it."""
    return dataclasses.replace(rules, fence_after_refs=False)


def _turns(*acts: Again) -> Again:
    return Again(in_turn, acts)


def _sleeper(rules: Rules, batch: str, lost_replies: int = 0) -> Scenario:
    """A writer that looks for the head, and sleeps while its slot is taken and freed."""
    rules = _without_publish(rules)
    before = Past("")
    actors = {
        "sleeper": _act(writer, rules, (batch,)),
        "others": _turns(_act(writer, rules, ("x", "y")), _act(vacuum, rules, "v")),
    }
    return before.scenario(actors, now=0, sleeps=(GRACE,), lost_replies=lost_replies)


def _old_handle(rules: Rules) -> Scenario:
    """A writer whose head is superseded, expires and is freed, while it sleeps."""
    rules = _without_publish(rules)
    before = Past("")
    actors = {
        "writer": _act(writer, rules, ("w",), known=Head(before.head, 0)),
        "others": _turns(_act(writer, rules, ("x", "y")), _act(vacuum, rules, "v")),
    }
    return before.scenario(actors, now=0, sleeps=(GRACE,))


def _slow_search(rules: Rules) -> Scenario:
    """A writer that sleeps within its search for the head, while two versions come and expire."""
    rules = _without_publish(rules)
    before = Past("a")
    before.hint(1)
    actors = {
        "writer": _act(writer, rules, ("w",)),
        "others": _turns(_act(writer, rules, ("x", "y", "z")), _act(vacuum, rules, "v")),
    }
    return before.scenario(actors, now=1, sleeps=(GRACE,))


def _lost_hint(rules: Rules) -> Scenario:
    """A hint lost after an expiry, and a tag that keeps the slot at which a search starts."""
    rules = _without_publish(rules)
    before = Past("aaaaa")
    before.name("tag", "t", 1)
    actors = {"writer": _act(writer, rules, ("w",)), "vacuum": _act(vacuum, rules, "v")}
    return before.scenario(actors, now=5, sleeps=(GRACE,))


def _two_expirers(rules: Rules) -> Scenario:
    rules = _without_publish(rules)
    before = Past("aaaa")
    before.hint(4)
    actors = {
        "expirer": _act(expirer, rules, "e"),
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=6, sleeps=(2,))


def _rewind(rules: Rules) -> Scenario:
    rules = _without_publish(rules)
    before = Past("aaoa")
    before.hint(4)
    actors = {
        "rewinder": _act(rewinder, rules, before.versions[2], "r"),
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=6, sleeps=(GRACE, AGE))


def _name(kind: str, rules: Rules) -> Scenario:
    rules = _without_publish(rules)
    before = Past("aaoa")
    before.hint(4)
    actors = {
        "tagger": _act(tagger, rules, kind, "t", 1),
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=6, sleeps=(GRACE, AGE))


def _slow_writer(rules: Rules) -> Scenario:
    """A writer that sleeps between any two of its calls, beside two that raise the epoch."""
    rules = _without_publish(rules)
    before = Past("a")
    before.hint(1)
    actors = {
        "writer": _act(writer, rules, ("w",), known=before.known),
        "others": _turns(
            _act(expirer, rules, "e", known=before.known),
            _act(vacuum, rules, "v", known=before.known),
        ),
    }
    return before.scenario(actors, now=AGE, sleeps=(AGE, AGE))


def _early_writer(rules: Rules) -> Scenario:
    scenario = _slow_writer(rules)
    early = ("writer", _act(early_writer, rules, "w", Past("a").known))
    return dataclasses.replace(scenario, actors=(early, *scenario.actors[1:]))


def _reader(rules: Rules) -> Scenario:
    rules = _without_publish(rules)
    before = Past("aa")
    before.hint(2)
    actors = {
        "reader": _act(reader, rules),
        "others": _turns(_act(writer, rules, ("over",)), _act(vacuum, rules, "v")),
    }
    return before.scenario(actors, now=6, sleeps=(1, 2))


def _publish(rules: Rules) -> Scenario:
    """A branch is published to main while it is deleted and a vacuum runs."""
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


def _publish_between_fences(rules: Rules) -> Scenario:
    """What is published is superseded, and expires, while a vacuum sleeps between two fences."""
    before = Past("a")
    before.hint(1)
    before.name("branch", "b", 1)
    before.commit("b", "o")
    actors = {
        "publisher": _act(publisher, rules, "b", "p"),
        "writer": _act(writer, rules, ("over",), branch="b"),
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=AGE, sleeps=(GRACE,))


def _young_branch(rules: Rules, past: str = "a", fork: int = 1) -> Scenario:
    """A branch is created and gets its first commit while a vacuum runs."""
    before = Past(past)
    before.hint(len(past))
    actors = {
        "brancher": _act(brancher, rules, "b", fork),
        "writer": _act(writer, rules, ("w",), branch="b"),
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=len(past) + GRACE)


def _rewind_to_tag(rules: Rules) -> Scenario:
    """A rewind trusts a tag whose creator is about to undo it."""
    before = Past("aaoa")
    before.hint(4)
    actors = {
        "tagger": _act(tagger, rules, "tag", "t", 1),
        "rewinder": _act(rewinder, rules, before.versions[1], "r", tag="t"),
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=4 + GRACE)


def _publish_of_young_branch(rules: Rules) -> Scenario:
    """A publish trusts a branch whose creator is about to undo it."""
    before = Past("aaoa")
    before.hint(4)
    users = _turns(_act(writer, rules, ("w",), branch="b"), _act(publisher, rules, "b", "p"))
    actors = {
        "brancher": _act(brancher, rules, "b", 1),
        "users": users,
        "vacuum": _act(vacuum, rules, "v"),
    }
    return before.scenario(actors, now=4 + GRACE)


def _branch_before_slow_fence(rules: Rules, *, further: tuple[str, ...] = ()) -> Scenario:
    """A branch is created while a vacuum sleeps between its reading of the refs and its fences."""
    before = Past("a")
    before.hint(1)
    others = _turns(
        _act(brancher, rules, "b", 1),
        _act(writer, rules, ("w",), branch="b"),
        *(_act(expirer, rules, name) for name in further),
    )
    return before.scenario(
        {"others": others, "vacuum": _act(vacuum, rules, "v")}, now=AGE, sleeps=(AGE,)
    )


def _copied_checkpoint(rules: Rules) -> Scenario:
    """A query runs on two copies of a checkpoint, which plan the next batch differently."""
    before = Past("")
    first = Planned(0, 0, 3)
    one = (first, Planned(1, 3, 4, is_empty=True), Planned(2, 4, 7))
    other = (first, Planned(1, 3, 6), Planned(2, 6, 9))
    actors = {
        "one": _act(driver, rules, one, done=0),
        "other": _act(driver, rules, other, done=0),
    }
    return before.scenario(actors, now=0, crashes=1, lost_replies=1)


def everything(rules: Rules) -> Scenario:
    """All of them together: searched only by random walks."""
    before = Past("aao")
    before.hint(3)
    actors = {
        "writer": _act(writer, rules, ("x", "over-x", "y")),
        "other writer": _act(writer, rules, ("x", "z")),
        "expirer": _turns(_act(expirer, rules, "e1"), _act(expirer, rules, "e2")),
        "other expirer": _turns(_act(expirer, rules, "f1"), _act(expirer, rules, "f2")),
        "vacuum": _turns(_act(vacuum, rules, "v1"), _act(vacuum, rules, "v2")),
        "other vacuum": _turns(_act(vacuum, rules, "u1"), _act(vacuum, rules, "u2")),
        "tagger": _act(tagger, rules, "tag", "t", 2),
        "consumer": _act(tagger, rules, "lease", "l", 2),
        "rewinder": _act(rewinder, rules, before.versions[2], "r"),
        "brancher": _act(brancher, rules, "b", 3),
        "user": _turns(_act(writer, rules, ("w",), branch="b"), _act(publisher, rules, "b", "p")),
        "deleter": _act(deleter, rules, "b"),
        "reader": _act(reader, rules),
    }
    return before.scenario(
        actors, now=4, sleeps=(1, 1, 2, GRACE, 1, AGE, 2, AGE, 1, GRACE), crashes=2, lost_replies=2
    )


SLEEPER = partial(_sleeper, batch="w")
PLAIN_SLEEPER = partial(_sleeper, batch="plain", lost_replies=1)
TAG, LEASE = partial(_name, "tag"), partial(_name, "lease")
OLD_FORK = partial(_young_branch, past="aaa", fork=3)
WITH_EXPIRER = partial(_branch_before_slow_fence, further=("e",))

TWICE = "was told that it is version"
GONE = "is gone"
CASES = [
    Case(rule="marker_before_freeing", build=SLEEPER, loss=TWICE, fewest=20_000),
    Case(rule="marker_before_belief", build=SLEEPER, loss=TWICE, fewest=20_000),
    Case(rule="unknown_without_ledger", build=PLAIN_SLEEPER, loss="twice", fewest=0),
    Case(rule="marker_before_freeing", build=_lost_hint, loss=TWICE, fewest=8_000),
    Case(rule="marker_before_end", build=_lost_hint, loss=TWICE, fewest=8_000),
    Case(rule="marker_after_slot", build=_lost_hint, loss=TWICE, fewest=8_000),
    Case(rule="marker_when_late", build=_old_handle, loss=TWICE, fewest=10_000),
    Case(rule="marker_before_belief", build=_slow_search, loss=TWICE, fewest=20_000),
    Case(rule="floor_in_snapshot", build=_two_expirers, loss="retained", fewest=8_000),
    Case(rule="floor_of_very_head", build=_rewind, loss="retained", fewest=15_000),
    Case(rule="look_again_after_ref", build=TAG, loss="tag t needs", fewest=25_000),
    Case(rule="fence_before_refs", build=TAG, loss="tag t needs", fewest=25_000),
    Case(rule="look_again_after_ref", build=LEASE, loss="lease t needs", fewest=0),
    Case(rule="marks_from_lease", build=LEASE, loss="lease t needs", fewest=0),
    Case(rule="age_from_epochs", build=_slow_writer, loss="the block w'0", fewest=0),
    Case(rule="put_again_after_epochs", build=_slow_writer, loss="the block w'0", fewest=0),
    Case(rule="base_before_objects", build=_early_writer, loss="the block w'0", fewest=0),
    Case(rule="age_from_successor", build=_reader, loss="a reader needs", fewest=15_000),
    Case(rule="source_of_very_head", build=_publish, loss="the block b2'0", fewest=3_000),
    Case(rule="fence_after_refs", build=_publish, loss="the block b2'0", fewest=3_000),
    Case(rule="floor_over_tags", build=_rewind_to_tag, loss="main1'0", fewest=8_000),
    Case(rule="made_branch", build=_publish_of_young_branch, loss="main1'0", fewest=25_000),
    Case(rule="bounds_before_refs", build=_branch_before_slow_fence, loss=GONE, fewest=30_000),
    Case(rule="floor_in_branch", build=OLD_FORK, loss="retained part of b", fewest=1_000),
    Case(rule="fence_every_branch", build=WITH_EXPIRER, loss=GONE, fewest=0),
    Case(rule="continuity", build=_copied_checkpoint, loss="of the source are in", fewest=500),
    Case(rule="orphans_by_age", build=_young_branch, loss="b@2", fewest=1_500),
]
BIG: list[Build] = [_slow_writer, LEASE, PLAIN_SLEEPER, WITH_EXPIRER, _publish_between_fences]
"""Too many states for a test; `python -m tests.protocol.model` visits them."""
