"""Which versions expire, as a function of values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fuse_stream.expiry.expire import Retention, choose_floor

TIMES = st.lists(st.integers(0, 100), min_size=1, max_size=12).map(sorted)
RETENTIONS = st.builds(
    Retention,
    older_than_us=st.none() | st.integers(1, 100),
    keep_last=st.none() | st.integers(1, 12),
)


@given(TIMES, RETENTIONS, st.integers(0, 12), st.integers(0, 120), st.integers(0, 50))
def test_exactly_the_versions_that_all_rules_allow_expire(
    times: list[int], retention: Retention, floor: int, now_us: int, grace_us: int
) -> None:
    newest = len(times) - 1
    floor = min(floor, newest)

    chosen = choose_floor(floor, enumerate(times), retention, now_us=now_us, grace_us=grace_us)

    def may_go(version: int) -> bool:
        age_us = now_us - times[version + 1]
        return (
            age_us >= grace_us
            and age_us >= (retention.older_than_us or 0)
            and version <= newest - (retention.keep_last or 1)
        )

    assert floor <= chosen <= newest
    assert all(may_go(version) for version in range(floor, chosen))
    assert chosen == newest or not may_go(chosen)


def test_a_version_whose_successor_is_not_listed_is_judged_by_the_next_listed_one() -> None:
    chosen = choose_floor(
        0, [(0, 0), (2, 50), (3, 60)], Retention(keep_last=1), now_us=100, grace_us=45
    )

    assert chosen == 2


def test_a_branch_without_slots_keeps_its_floor() -> None:
    assert choose_floor(7, [], Retention(keep_last=1), now_us=100, grace_us=0) == 7
