"""The service's loop: told or watching, it tends each table and ends when it is idle."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import psutil
import pyarrow as pa
import pytest

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.optimizer import worker as loop
from fuse_stream.optimizer.worker import MIN_PAUSE_US, BranchWorker, Stop, Worker
from fuse_stream.table.location import TableLocation


@pytest.fixture
def tended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return where the looks go that are noted instead of made."""
    paths: list[str] = []

    def run_due(branch: BranchWorker) -> None:
        paths.append(branch.location.path)

    monkeypatch.setattr(BranchWorker, "run_due", run_due)
    return paths


def test_what_it_was_told_twice_before_it_had_time_is_looked_at_once(tended: list[str]) -> None:
    worker = Worker(idle_s=0.05)
    for path in ("a", "b", "a"):
        worker.notify(TableLocation(path=path))
    worker.run()

    assert tended == ["a", "b"]


def test_it_ends_when_nothing_was_said_for_a_while(tended: list[str]) -> None:
    worker = Worker(idle_s=0.1)
    threading.Timer(0.05, worker.notify, [TableLocation(path="late")]).start()
    worker.run()

    assert tended == ["late"]


def test_what_is_watched_is_looked_at_again_and_again(
    monkeypatch: pytest.MonkeyPatch, tended: list[str]
) -> None:
    monkeypatch.setattr(loop, "CHECK_EVERY_S", 0.01)
    ends = iter(range(5))
    look = BranchWorker.run_due

    def run_due(branch: BranchWorker) -> int | None:
        if next(ends, None) is None:
            raise Stop
        return look(branch)

    monkeypatch.setattr(BranchWorker, "run_due", run_due)
    with pytest.raises(Stop):
        Worker([TableLocation(path="a")], idle_s=0.0).run()

    assert tended == ["a"] * 5


def test_a_look_that_is_due_at_once_each_time_leaves_a_rest_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []

    def run_due(branch: BranchWorker) -> int:
        looks.append(SYSTEM_CLOCK.now_us())
        if len(looks) == 5:
            raise Stop
        return 0

    monkeypatch.setattr(BranchWorker, "run_due", run_due)
    with pytest.raises(Stop):
        Worker([TableLocation(path="a")], idle_s=0.0).run()

    assert all(later - sooner >= MIN_PAUSE_US for sooner, later in pairwise(looks))


def test_memory_goes_back_when_a_look_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
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
