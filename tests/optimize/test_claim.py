"""The claim of a service: who has it, when it is dead, and that damage stops nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuse_stream.format.codec import decode_claim, encode_claim
from fuse_stream.format.layout import service_key
from fuse_stream.format.refs import Past, ServiceClaim
from fuse_stream.optimize import claim as claims
from fuse_stream.optimize.claim import LEASE_US, BranchClaim
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.conftest import SCHEMA, Create

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture
def table(create: Create) -> Table:
    return create()


def test_its_bytes_are_those_of_the_format() -> None:
    past = Past(
        settled_blocks=7,
        clustered_rows=3_000_000,
        clustered_bytes=104_857_600,
        clustered_key=(3, 1),
        expired_us=1_700_000_000_000_000,
        vacuumed_us=1_700_000_000_000_001,
    )
    claim = ServiceClaim(branch_id="main", owner_id="1" * 32, lease_us=LEASE_US, past=past)
    golden = (GOLDEN / "service_claim.json").read_bytes()

    assert encode_claim(claim) == golden
    assert decode_claim(golden) == claim


def claim_of(table: Table, owner: str, branch_id: str = "main") -> BranchClaim:
    return BranchClaim(table.metadata, branch_id, owner_id=owner)


def test_one_service_at_a_time_has_the_claim(table: Table, clock: ManualClock) -> None:
    first, second = claim_of(table, "a"), claim_of(table, "b")

    assert first.take(clock.now_us()) is None
    assert second.take(clock.now_us()) == clock.now_us() + LEASE_US
    assert first.take(clock.now_us()) is None


def test_a_claim_that_was_given_back_is_free_and_tells_what_was_done(
    table: Table, clock: ManualClock
) -> None:
    first, second = claim_of(table, "a"), claim_of(table, "b")
    first.take(clock.now_us())
    first.past = Past(settled_blocks=7, expired_us=5, clustered_key=(3, 1))
    first.release()

    assert second.take(clock.now_us()) is None
    assert second.past == first.past


def test_a_dead_claim_is_taken_over(table: Table, clock: ManualClock) -> None:
    claim_of(table, "a").take(clock.now_us())
    clock.advance(LEASE_US / 1_000_000 - 1)
    second = claim_of(table, "b")

    assert second.take(clock.now_us()) == clock.now_us() + 1_000_000
    clock.advance(1)
    assert second.take(clock.now_us()) is None


def test_who_lost_the_claim_does_not_give_it_back(table: Table, clock: ManualClock) -> None:
    first, second = claim_of(table, "a"), claim_of(table, "b")
    first.take(clock.now_us())
    clock.advance(LEASE_US / 1_000_000)
    second.take(clock.now_us())
    first.release()

    assert claim_of(table, "c").take(clock.now_us()) is not None


def test_age_is_the_stores(table: Table, store: MemoryStore, clock: ManualClock) -> None:
    store.clock = ManualClock(wall_us=clock.now_us() + 3600 * 1_000_000)
    claim_of(table, "a").take(store.clock.now_us())

    assert claim_of(table, "b").take(store.clock.now_us()) is not None


def test_a_branch_has_a_claim_of_its_own(table: Table, clock: ManualClock) -> None:
    claim_of(table, "a").take(clock.now_us())

    assert claim_of(table, "b", "5" * 32).take(clock.now_us()) is None


@pytest.mark.parametrize(
    "data",
    [
        b"not JSON",
        b'{"format_version":1}',
        b'{"format_version":9}',
        b'{"branch_id":"main","format_version":1,"lease_us":true,"owner_id":"a","past":{}}',
    ],
)
def test_a_damaged_claim_is_nobodys(
    table: Table, store: MemoryStore, clock: ManualClock, data: bytes
) -> None:
    store.replace(service_key("main"), data)

    assert claim_of(table, "b").take(clock.now_us()) is None


@pytest.mark.parametrize("lease_us", [LEASE_US + LEASE_US // 2, 10**18])
def test_nobody_can_lock_others_out_for_longer_than_a_lease(
    table: Table, store: MemoryStore, clock: ManualClock, lease_us: int
) -> None:
    greedy = ServiceClaim(branch_id="main", owner_id="a", lease_us=lease_us)
    store.replace(service_key("main"), encode_claim(greedy))
    clock.advance(LEASE_US / 1_000_000)

    assert claim_of(table, "b").take(clock.now_us()) is None


def test_it_is_renewed_while_its_owner_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LEASE_US", 300_000)
    table = Table.create(tmp_path / "table", SCHEMA)
    first, second = claim_of(table, "a"), claim_of(table, "b")
    clock = table.metadata.clock

    assert first.take(clock.now_us()) is None
    with first.renewing():
        for _ in range(8):
            clock.sleep(0.1)
            assert second.take(clock.now_us()) is not None
    clock.sleep(0.4)
    assert second.take(clock.now_us()) is None
