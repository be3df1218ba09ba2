"""Take each rule of a rewind of several tables out: then rows are lost, doubled or bad."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any

import pytest

from fuse_stream.checkpoint.files import load_offsets
from fuse_stream.checkpoint.write_fork import finish_fork
from fuse_stream.errors import FuseError, StreamIdentityError
from fuse_stream.format.records import Ledger
from fuse_stream.format.source_offset import SourcePosition
from fuse_stream.recovery.closure import Closure, Planned
from fuse_stream.recovery.forks import Forking, sources_in
from fuse_stream.recovery.ledgers import set_back
from fuse_stream.recovery.pipeline import Member, Pipeline
from fuse_stream.recovery.target import Goal, Progress
from tests.recovery import test_branch_off, test_pipeline
from tests.recovery.pipeline_courses import run_course
from tests.recovery.pipelines import dying_before, keep_all
from tests.recovery.test_pipeline import GOOD, Chain, new_chain, spoiled

Shown = Callable[[], None]
"""Fails if the rule does not hold."""

DRAWN = 120
"""The most courses to draw until one is wrong."""


@dataclass(frozen=True)
class InCourses:
    """Shown by courses that are drawn from seeds; `first` is about where one goes wrong."""

    first: int = 0

    def __call__(self) -> None:
        for seed in range(self.first, self.first + DRAWN):
            run_course(seed)


def on_chain(test: Callable[[Chain], None]) -> Shown:
    return lambda: test(new_chain())


def spoiled_chain() -> tuple[Chain, Callable[[], object], dict[str, str]]:
    """Return a pipeline with bad rows, how to take them back, and the folders of the forks."""
    chain = new_chain()
    chain.run(4)
    chain.deploy("ingest", spoiled)
    chain.run(3)
    chain.deploy("ingest", keep_all)
    folders, goal = chain.new_folders(), Goal(application="ingest", after_batch=3)
    return chain, lambda: chain.rewind(goal, folders), folders


def old_queries_run_on() -> None:
    """A supervisor starts them again, and then their forks."""
    chain, rewind, folders = spoiled_chain()
    rewind()
    for stage in chain.stages.values():
        with suppress(FuseError):
            stage.drain()
    chain.restart(folders)
    chain.drain()
    assert chain.content() == [GOOD, GOOD, GOOD]


def old_queries_run_between() -> None:
    """A query is told that it was replaced; it does not meet the rows that its source lost."""
    chain, rewind, _ = spoiled_chain()
    with dying_before("silver"):
        rewind()
    with suppress(StreamIdentityError):
        chain.stages["ingest"].drain()
    with pytest.raises(StreamIdentityError):
        chain.run(2, "clean", "report")


def forks_run_between() -> None:
    chain, rewind, folders = spoiled_chain()
    old = {name: stage.folder for name, stage in chain.stages.items()}
    with dying_before("bronze"):
        rewind()
    with suppress(FuseError):
        chain.restart(folders)
        chain.stages["clean"].drain()
    chain.restart(old)
    rewind()
    chain.restart(folders)
    chain.drain()
    assert chain.content() == [GOOD, GOOD, GOOD]


def begins_at_latest() -> None:
    """The first batch of silver goes back; it began to read at the latest version."""
    chain = new_chain()
    chain.run(2, "ingest")
    chain.stages["clean"] = replace(chain.stages["clean"], start="latest")
    chain.run(2)
    with suppress(FuseError):
        folder = {"clean": chain.disk.new_folder("forks/clean")}
        chain.rewind(Goal(version=0), folder, "silver")
        chain.restart(folder)
    chain.run(3, "ingest")
    chain.drain()
    assert chain.content() == [GOOD, GOOD[9:], GOOD[9:]]


def always(instead: object) -> Callable[[Any], object]:
    return lambda _rule: instead


def nothing(*_args: object, **_options: object) -> None:
    pass


def by_rows_alone(follow: Callable[[Closure, Planned], None]) -> Callable[..., None]:
    """Let a query go back only if one of its tables has rows of it that go back."""

    def instead(self: Closure, planned: Planned) -> None:
        before = planned.cut, planned.goes_back
        follow(self, planned)
        entries = [
            entry
            for member in self._pipeline.members
            for entry in member.head.snapshot.ledger.entries.values()
            if entry.query_id == planned.query.checkpoint.query_id
        ]
        if all(entry.batch_id <= planned.cut.last_planned for entry in entries):
            planned.cut, planned.goes_back = before

    return instead


def read_at_its_start(self: Planned, batch: int) -> tuple[SourcePosition, ...]:
    return sources_in(load_offsets(self.query.source, max(batch - 1, 0)))


def sources_first(in_order: Callable[[Pipeline], tuple[Member, ...]]) -> Callable[..., object]:
    return lambda self: tuple(reversed(in_order(self)))


def finished_at_once(store: Callable[[Forking, Progress], None]) -> Callable[..., None]:
    def instead(self: Forking, progress: Progress) -> None:
        store(self, progress)
        finish_fork(self.query.target, self.query.query_id)

    return instead


def without_retiring(*args: object, **options: object) -> Ledger:
    return set_back(*args, **options | {"forks": {}})  # type: ignore[arg-type]


RULES: dict[str, tuple[str, Callable[[Any], object], Shown]] = {
    "a query goes back to what its sources keep": (
        "closure:Closure._follow_sources",
        always(nothing),
        InCourses(),
    ),
    "a query goes back also if no row of its tables does": (
        "closure:Closure._follow_sources",
        by_rows_alone,
        on_chain(
            test_pipeline.test_a_query_that_filtered_all_bad_rows_out_goes_back_with_its_state
        ),
    ),
    "a batch that has read past the target goes back whole": (
        "closure:Planned.read_by",
        always(read_at_its_start),
        InCourses(),
    ),
    "another writer of a table goes back with it": (
        "closure:batches_of",
        always(nothing),
        test_pipeline.test_another_writer_of_a_table_that_goes_back_goes_back_too,
    ),
    "a fork keeps the first offsets of its query": (
        "forks:sources_in",
        always(lambda _offsets: ()),
        begins_at_latest,
    ),
    "what a table is made from goes back after it": (
        "pipeline:Pipeline.sorted",
        sources_first,
        old_queries_run_between,
    ),
    "no fork can be started before all tables are back": (
        "forks:Forking.store",
        finished_at_once,
        forks_run_between,
    ),
    "the old queries are retired": (
        "rewind_plan:set_back",
        always(without_retiring),
        old_queries_run_on,
    ),
    "the same call takes the cuts that the first one chose": (
        "closure:OldQuery.claimed",
        always(None),
        InCourses(),
    ),
    "a tag keeps each target": (
        "rewind_plan:tag_target",
        always(nothing),
        test_pipeline.test_tags_keep_the_targets_while_the_rewind_is_not_finished,
    ),
    "a lease admits the fork": (
        "holds:Reading.admit_fork",
        always(nothing),
        on_chain(test_pipeline.test_a_named_consumer_goes_back_with_its_query),
    ),
    "a fork finds what it reads again": (
        "holds:Reading.check_kept",
        always(nothing),
        on_chain(test_pipeline.test_versions_that_a_fork_would_read_again_may_not_have_expired),
    ),
    "a fork reads the branches": (
        "closure:Closure.moved_offsets",
        always(lambda _self, _planned: {}),
        on_chain(test_branch_off.test_a_fork_reads_the_branches_and_the_ledger_says_so),
    ),
    "the ledger has the offsets of the fork": (
        "rewind_plan:RewindPlan._with_moved",
        always(lambda _self, ledger, _member: ledger),
        on_chain(test_branch_off.test_a_batch_that_had_not_ended_runs_again_on_the_branch),
    ),
    "a position on a published branch is a start": (
        "pipeline:was_published",
        always(lambda _history, _offset: False),
        InCourses(first=23),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_of_the_rewind_some_row_is_wrong(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, instead, shown = RULES[rule]
    rule_itself = resolve_name(f"fuse_stream.recovery.{place}")
    path = f"fuse_stream.recovery.{place.replace(':', '.')}"
    monkeypatch.setattr(path, instead(rule_itself))

    with pytest.raises((AssertionError, FuseError, pytest.fail.Exception)):
        shown()


@pytest.mark.parametrize("rule", RULES)
def test_with_the_rule_all_rows_are_right(rule: str) -> None:
    shown = RULES[rule][2]
    if not isinstance(shown, InCourses):
        shown()
