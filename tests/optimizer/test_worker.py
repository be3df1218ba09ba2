"""Steps of a branch that are due run under the claim; those that fail are logged and wait."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import StorageError
from fuse_stream.optimize.claim import LEASE_US, BranchClaim
from fuse_stream.optimize.policy import FIRST_RETRY_US, Step
from fuse_stream.optimizer.worker import (
    MOST_STEPS,
    BranchWorker,
    StepFunction,
    StepResult,
)
from fuse_stream.storage.secrets import StorageOptions
from fuse_stream.table.handle import Table
from fuse_stream.table.location import TableLocation
from fuse_stream.testing.clock import ManualClock
from tests.conftest import SCHEMA

BLOCKS = 25


class Verbs:
    """Replaces the steps, and records which ones ran; the decision is the real one."""

    def __init__(self, act: Callable[[Table], StepResult]) -> None:
        self.done: list[Step] = []
        self._act = act

    def __call__(self) -> dict[Step, StepFunction]:
        def verb(step: Step) -> StepFunction:
            def do(table: Table) -> StepResult:
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
    """A clock that starts at the present time, which files have too."""
    return ManualClock(wall_us=SYSTEM_CLOCK.now_us())


def worker_of(table: Table, clock: ManualClock, verbs: Verbs, *, secret: str = "") -> BranchWorker:
    location = TableLocation(
        path=table.metadata.store.url, storage_options=StorageOptions({"key": secret})
    )
    return BranchWorker(location, clock, "a", verbs())


def nothing(_: Table) -> StepResult:
    return StepResult(changed=False)


def failing(_: Table) -> StepResult:
    raise StorageError("the disk is on fire", key="s3cr3t-key")


def fuse_records(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [record.__dict__["fuse"] for record in caplog.records if "fuse" in record.__dict__]


def test_what_is_due_is_done(table: Table, clock: ManualClock) -> None:
    verbs = Verbs(nothing)
    next_check_us = worker_of(table, clock, verbs).run_due()

    assert verbs.done == [Step.COMPACT]
    assert next_check_us is None


def test_a_run_without_effect_is_not_repeated_by_it_or_by_the_next_optimizer(
    table: Table, clock: ManualClock
) -> None:
    verbs = Verbs(nothing)
    branch = worker_of(table, clock, verbs)
    for _ in range(3):
        branch.run_due()
        worker_of(table, clock, verbs).run_due()

    assert verbs.done == [Step.COMPACT]
    append(table, BLOCKS)
    branch.run_due()
    assert verbs.done == [Step.COMPACT] * 2


def test_nothing_is_done_while_another_optimizer_has_the_claim(
    table: Table, clock: ManualClock
) -> None:
    verbs = Verbs(nothing)
    BranchClaim(table.metadata, "main", owner_id="another").take(clock.now_us())
    next_check_us = worker_of(table, clock, verbs).run_due()

    assert verbs.done == []
    assert next_check_us is not None
    assert 0 < next_check_us - clock.now_us() <= 2 * LEASE_US


def test_the_claim_is_released(table: Table, clock: ManualClock) -> None:
    worker_of(table, clock, Verbs(failing)).run_due()

    other = BranchClaim(table.metadata, "main", owner_id="another")
    assert other.take(clock.now_us()) is None


def test_a_failure_is_logged_without_secrets_and_tried_again_later(
    table: Table, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    verbs = Verbs(failing)
    branch = worker_of(table, clock, verbs, secret="s3cr3t-key")
    with caplog.at_level(logging.INFO, "fuse_stream"):
        first_us = branch.run_due()
        branch.run_due()

    assert verbs.done == [Step.COMPACT]
    assert first_us == clock.now_us() + FIRST_RETRY_US
    (facts,) = fuse_records(caplog)
    assert facts["service"] == "compact"
    assert facts["error"] == "StorageError"
    assert "the disk is on fire" in caplog.text
    assert "s3cr3t-key" not in caplog.text

    clock.advance(FIRST_RETRY_US / 1_000_000)
    assert branch.run_due() == clock.now_us() + 2 * FIRST_RETRY_US
    assert verbs.done == [Step.COMPACT] * 2


def test_a_table_that_is_not_there_is_looked_for_less_and_less_often(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    verbs = Verbs(nothing)
    branch = BranchWorker(TableLocation(path=str(tmp_path / "none")), clock, "a", verbs())
    for _ in range(5):
        branch.run_due()

    assert len(fuse_records(caplog)) == 1
    append(Table.create(tmp_path / "none", SCHEMA), BLOCKS)
    assert verbs.done == []
    clock.advance(FIRST_RETRY_US / 1_000_000)
    branch.run_due()
    assert verbs.done == [Step.COMPACT]


def test_what_was_done_is_one_line_in_the_log(
    table: Table, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    results = iter(
        [StepResult(changed=True, again=True, facts={"blocks_before": 25, "blocks_after": 1})]
    )
    verbs = Verbs(lambda _: next(results, StepResult(changed=False)))
    with caplog.at_level(logging.INFO, "fuse_stream"):
        worker_of(table, clock, verbs).run_due()

    (facts,) = fuse_records(caplog)
    assert facts["service"] == "compact"
    assert facts["path"] == table.metadata.store.url
    assert (facts["blocks_before"], facts["blocks_after"]) == (25, 1)
    assert f"version={BLOCKS}" in caplog.text


def test_a_step_runs_again_while_there_may_be_more(table: Table, clock: ManualClock) -> None:
    results = iter([StepResult(changed=True, again=True)] * 2)
    verbs = Verbs(lambda _: next(results, StepResult(changed=False)))
    worker_of(table, clock, verbs).run_due()

    assert verbs.done == [Step.COMPACT] * 3


def test_a_step_that_always_finds_more_leaves_other_tables_their_turn(
    table: Table, clock: ManualClock
) -> None:
    verbs = Verbs(lambda _: StepResult(changed=True, again=True))
    next_check_us = worker_of(table, clock, verbs).run_due()

    assert len(verbs.done) == MOST_STEPS
    assert next_check_us == clock.now_us()
