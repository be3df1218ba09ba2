"""The care of a branch: what is due is done under the claim, what fails is logged and waits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import StorageError
from fuse_stream.optimize.claim import LEASE_US, BranchClaim
from fuse_stream.optimize.policy import FIRST_REST_US, Step
from fuse_stream.optimizer.worker import (
    MOST_STEPS,
    Care,
    Done,
    Verb,
)
from fuse_stream.storage.secrets import StorageOptions
from fuse_stream.table.handle import Table
from fuse_stream.table.location import TableLocation
from fuse_stream.testing.clock import ManualClock
from tests.conftest import SCHEMA

BLOCKS = 25


class Verbs:
    """Stands for the work, and notes what was asked for; the decision is the real one."""

    def __init__(self, act: Callable[[Table], Done]) -> None:
        self.done: list[Step] = []
        self._act = act

    def __call__(self) -> dict[Step, Verb]:
        def verb(step: Step) -> Verb:
            def do(table: Table) -> Done:
                self.done.append(step)
                return self._act(table)

            return do

        return {step: verb(step) for step in Step}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table.create(tmp_path / "table", SCHEMA)
    append(table, BLOCKS)
    return table


def append(table: Table, count: int) -> None:
    for number in range(count):
        table.append(pa.table({"k": [number]}))


@pytest.fixture
def clock() -> ManualClock:
    """Starts where the times of files are."""
    return ManualClock(wall_us=SYSTEM_CLOCK.now_us())


def care_of(table: Table, clock: ManualClock, verbs: Verbs, *, secret: str = "") -> Care:
    location = TableLocation(
        path=table.metadata.store.url, storage_options=StorageOptions({"key": secret})
    )
    return Care(location, clock, "a", verbs())


def nothing(_: Table) -> Done:
    return Done(changed=False)


def failing(_: Table) -> Done:
    raise StorageError("the disk is on fire", key="s3cr3t-key")


def fuse_records(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [record.__dict__["fuse"] for record in caplog.records if "fuse" in record.__dict__]


def test_what_is_due_is_done(table: Table, clock: ManualClock) -> None:
    verbs = Verbs(nothing)
    look_us = care_of(table, clock, verbs).tend()

    assert verbs.done == [Step.COMPACT]
    assert look_us is None


def test_a_run_without_effect_is_not_repeated_by_it_or_by_the_next_service(
    table: Table, clock: ManualClock
) -> None:
    verbs = Verbs(nothing)
    care = care_of(table, clock, verbs)
    for _ in range(3):
        care.tend()
        care_of(table, clock, verbs).tend()

    assert verbs.done == [Step.COMPACT]
    append(table, BLOCKS)
    care.tend()
    assert verbs.done == [Step.COMPACT] * 2


def test_nothing_is_done_while_another_service_has_the_claim(
    table: Table, clock: ManualClock
) -> None:
    verbs = Verbs(nothing)
    BranchClaim(table.metadata, "main", owner_id="another").take(clock.now_us())
    look_us = care_of(table, clock, verbs).tend()

    assert verbs.done == []
    assert look_us is not None
    assert 0 < look_us - clock.now_us() <= 2 * LEASE_US


def test_the_claim_is_given_back(table: Table, clock: ManualClock) -> None:
    care_of(table, clock, Verbs(failing)).tend()

    other = BranchClaim(table.metadata, "main", owner_id="another")
    assert other.take(clock.now_us()) is None


def test_a_failure_is_logged_without_secrets_and_tried_again_later(
    table: Table, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    verbs = Verbs(failing)
    care = care_of(table, clock, verbs, secret="s3cr3t-key")
    with caplog.at_level(logging.INFO, "fuse_stream"):
        first_us = care.tend()
        care.tend()

    assert verbs.done == [Step.COMPACT]
    assert first_us == clock.now_us() + FIRST_REST_US
    (facts,) = fuse_records(caplog)
    assert facts["service"] == "compact"
    assert facts["error"] == "StorageError"
    assert "the disk is on fire" in caplog.text
    assert "s3cr3t-key" not in caplog.text

    clock.advance(FIRST_REST_US / 1_000_000)
    assert care.tend() == clock.now_us() + 2 * FIRST_REST_US
    assert verbs.done == [Step.COMPACT] * 2


def test_a_table_that_is_not_there_is_looked_for_ever_more_seldom(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    verbs = Verbs(nothing)
    care = Care(TableLocation(path=str(tmp_path / "none")), clock, "a", verbs())
    for _ in range(5):
        care.tend()

    assert len(fuse_records(caplog)) == 1
    append(Table.create(tmp_path / "none", SCHEMA), BLOCKS)
    assert verbs.done == []
    clock.advance(FIRST_REST_US / 1_000_000)
    care.tend()
    assert verbs.done == [Step.COMPACT]


def test_what_was_done_is_one_line_in_the_log(
    table: Table, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    results = iter([Done(changed=True, again=True, facts={"blocks_before": 25, "blocks_after": 1})])
    verbs = Verbs(lambda _: next(results, Done(changed=False)))
    with caplog.at_level(logging.INFO, "fuse_stream"):
        care_of(table, clock, verbs).tend()

    (facts,) = fuse_records(caplog)
    assert facts["service"] == "compact"
    assert facts["path"] == table.metadata.store.url
    assert (facts["blocks_before"], facts["blocks_after"]) == (25, 1)
    assert f"version={BLOCKS}" in caplog.text


def test_a_step_goes_on_as_long_as_there_may_be_more(table: Table, clock: ManualClock) -> None:
    results = iter([Done(changed=True, again=True)] * 2)
    verbs = Verbs(lambda _: next(results, Done(changed=False)))
    care_of(table, clock, verbs).tend()

    assert verbs.done == [Step.COMPACT] * 3


def test_a_step_that_always_finds_more_leaves_other_tables_their_turn(
    table: Table, clock: ManualClock
) -> None:
    verbs = Verbs(lambda _: Done(changed=True, again=True))
    look_us = care_of(table, clock, verbs).tend()

    assert len(verbs.done) == MOST_STEPS
    assert look_us == clock.now_us()
