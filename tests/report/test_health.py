"""The health of a table: which line is a warning, and its remedy."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.report.facts import collect_facts
from fuse_stream.report.health import Check, Level, check_health, worst
from fuse_stream.table.handle import Table, create_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.cli.leases import put_lease

HOUR_S = 3600.0
SCHEMA = pa.schema([("id", pa.int64())])


def made(clock: ManualClock, **properties: str) -> Table:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return create_table(
        MemoryStore(clock=clock),
        first_schema(columns_of_arrow(SCHEMA)),
        cluster_by=["id"],
        properties=named,
        clock=clock,
        probe_store=False,
    )


def add(table: Table, *ids: int) -> None:
    table.append(pa.table({"id": ids}, schema=SCHEMA))


def checks_of(table: Table) -> dict[str, Check]:
    return {check.name: check for check in check_health(collect_facts(table, limit=100))}


def test_a_new_table_is_healthy(clock: ManualClock) -> None:
    table = made(clock)
    add(table, 1)

    assert worst(tuple(checks_of(table).values())) is Level.GOOD


def test_a_head_that_is_old_for_its_table_is_a_warning(clock: ManualClock) -> None:
    table = made(clock)
    for number in range(5):
        clock.advance(60)
        add(table, number)
    clock.advance(HOUR_S / 2)
    assert checks_of(table)["last commit"].level is Level.GOOD
    clock.advance(HOUR_S)

    late = checks_of(table)["last commit"]

    assert late.level is Level.WARNING
    assert "query that writes" in late.remedy


def test_a_table_that_is_seldom_written_is_not_late_after_an_hour(clock: ManualClock) -> None:
    table = made(clock)
    for number in range(5):
        clock.advance(24 * HOUR_S)
        add(table, number)
    clock.advance(30 * HOUR_S)

    assert checks_of(table)["last commit"].level is Level.GOOD


def test_many_small_blocks_are_a_warning(clock: ManualClock) -> None:
    table = made(clock, fuse_optimize_blocks="2")
    for number in range(3):
        add(table, number)
    assert checks_of(table)["small blocks"].level is Level.GOOD
    add(table, 9)

    many = checks_of(table)["small blocks"]

    assert (many.level, many.remedy) == (Level.WARNING, "fuse-stream compact PATH")


def test_many_deleted_rows_are_a_warning(clock: ManualClock) -> None:
    table = made(clock, fuse_deletes_rows="50%")
    add(table, 1, 2, 3, 4)
    table.delete("id = 1")
    assert checks_of(table)["deleted rows"].level is Level.GOOD
    table.delete("id = 2")

    assert checks_of(table)["deleted rows"].level is Level.WARNING


def test_a_deep_overlap_is_a_warning(clock: ManualClock) -> None:
    table = made(clock, fuse_cluster_depth="2")
    for _ in range(3):
        add(table, 1, 9)

    deep = checks_of(table)["order of rows"]

    assert (deep.level, deep.remedy) == (Level.WARNING, "fuse-stream recluster PATH")


def test_a_lapsed_lease_is_a_warning(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA)
    put_lease(table, "live", 0)
    put_lease(table, "gone", 0, lease_us=1)
    checks = checks_of(table)

    assert checks["consumer live"].level is Level.GOOD
    assert checks["consumer gone"].level is Level.WARNING
    assert worst(tuple(checks.values())) is Level.WARNING


def test_a_vacuum_that_is_overdue_is_a_warning(clock: ManualClock) -> None:
    table = made(clock, fuse_retain="30d")
    add(table, 1)
    assert checks_of(table)["last vacuum"].level is Level.GOOD
    clock.advance(40 * HOUR_S)
    assert checks_of(table)["last vacuum"].level is Level.WARNING
    table.vacuum()

    done = checks_of(table)["last vacuum"]

    assert (done.level, done.text) == (Level.GOOD, "0s ago; versions are kept 30d")


def test_without_retention_no_vacuum_is_due(clock: ManualClock) -> None:
    table = made(clock)
    clock.advance(1000 * HOUR_S)

    assert checks_of(table)["last vacuum"].level is Level.NOTE


def test_much_garbage_is_a_warning_until_it_is_deleted(clock: ManualClock) -> None:
    table = made(clock, fuse_grace="0s")
    table.append(pa.table({"id": range(20_000)}, schema=SCHEMA))
    table.overwrite(pa.table({"id": [1]}, schema=SCHEMA))
    assert checks_of(table)["garbage"].level is Level.GOOD
    clock.advance(HOUR_S)
    table.expire(keep_last=1)
    waiting = checks_of(table)["garbage"]
    for _ in range(2):
        clock.advance(30 * HOUR_S)
        table.vacuum()
    clock.advance(30 * HOUR_S)

    assert "more from" in waiting.text
    assert checks_of(table)["garbage"].text == "a vacuum now deletes 0 B"


def test_warnings_come_first(clock: ManualClock) -> None:
    table = made(clock, fuse_cluster_depth="1")
    add(table, 1, 9)
    add(table, 1, 9)

    first, *others = check_health(collect_facts(table, limit=100))

    assert first.level is Level.WARNING
    assert all(check.level is not Level.WARNING for check in others)
