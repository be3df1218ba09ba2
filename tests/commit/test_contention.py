"""Writers of one table at the same time, on a store with the latency of an object store."""

from __future__ import annotations

from benchmarks.contention import contend


def test_no_writer_of_four_waits_much_longer_than_the_others() -> None:
    seen = contend(writers=4, commits=60)

    assert seen.p99_s < 5 * seen.p50_s


def test_one_writer_waits_for_nobody() -> None:
    seen = contend(writers=1, commits=40)

    assert seen.p50_s < 0.2
    assert seen.requests / len(seen.commit_s) < 5
