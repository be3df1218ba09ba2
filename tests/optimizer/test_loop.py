"""The optimizer's loop checks notified and watched tables, and ends when it is idle."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import psutil
import pyarrow as pa
import pytest

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.optimizer import worker as worker_module
from fuse_stream.optimizer.worker import MIN_PAUSE_US, BranchWorker, Stop, Worker
from fuse_stream.table.location import TableLocation


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each check adds its path, instead of running steps."""
    paths: list[str] = []

    def run_due(branch: BranchWorker) -> None:
        paths.append(branch.location.path)

    monkeypatch.setattr(BranchWorker, "run_due", run_due)
    return paths


def test_a_table_that_is_notified_twice_is_checked_once(checked: list[str]) -> None:
    worker = Worker(idle_s=0.05)
    for path in ("a", "b", "a"):
        worker.notify(TableLocation(path=path))
    worker.run()

    assert checked == ["a", "b"]


def test_it_ends_when_it_is_not_notified_for_a_while(checked: list[str]) -> None:
    worker = Worker(idle_s=0.1)
    threading.Timer(0.05, worker.notify, [TableLocation(path="late")]).start()
    worker.run()

    assert checked == ["late"]


def test_a_watched_table_is_checked_again_and_again(
    monkeypatch: pytest.MonkeyPatch, checked: list[str]
) -> None:
    monkeypatch.setattr(worker_module, "CHECK_EVERY_S", 0.01)
    ends = iter(range(5))
    check = BranchWorker.run_due

    def run_due(branch: BranchWorker) -> int | None:
        if next(ends, None) is None:
            raise Stop
        return check(branch)

    monkeypatch.setattr(BranchWorker, "run_due", run_due)
    with pytest.raises(Stop):
        Worker([TableLocation(path="a")], idle_s=0.0).run()

    assert checked == ["a"] * 5


def test_a_check_that_is_always_due_at_once_still_waits_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks: list[int] = []

    def run_due(branch: BranchWorker) -> int:
        checks.append(SYSTEM_CLOCK.now_us())
        if len(checks) == 5:
            raise Stop
        return 0

    monkeypatch.setattr(BranchWorker, "run_due", run_due)
    with pytest.raises(Stop):
        Worker([TableLocation(path="a")], idle_s=0.0).run()

    assert all(later - sooner >= MIN_PAUSE_US for sooner, later in pairwise(checks))


def test_memory_is_given_back_after_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    def run_due(branch: BranchWorker) -> None:
        buffers = [pa.allocate_buffer(256 * 1024) for _ in range(400)]
        for buffer in buffers:
            np.frombuffer(buffer, np.uint8).fill(1)
        held.append(resident())

    monkeypatch.setattr(BranchWorker, "run_due", run_due)
    worker = Worker(idle_s=0.01)
    worker.notify(TableLocation(path="a"))
    worker.run()

    assert resident() < held[0] - 50 * 1024 * 1024


def resident() -> int:
    return psutil.Process().memory_info().rss
