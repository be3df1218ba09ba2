"""The optimizer refreshes indexes when there are new large blocks."""

from __future__ import annotations

from pathlib import Path

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.optimizer.worker import BranchWorker
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from tests.kit.indexes import NAME, SCHEMA, SQL, answer, by_city, city_rows, covered


def test_an_optimizer_keeps_an_index_up_to_date(tmp_path: Path) -> None:
    clock = ManualClock(wall_us=SYSTEM_CLOCK.now_us())
    table = Table.create(tmp_path / "t", SCHEMA, properties={"fuse.block.rows": "20"})
    table.append(city_rows(0))
    table.create_aggregate(NAME, SQL)
    worker = BranchWorker(table.location, clock, "a")
    worker.run_due()
    assert covered(table) == 1
    version = table.head().version
    worker.run_due()
    BranchWorker(table.location, clock, "b").run_due()
    assert table.head().version == version
    for number in range(30):
        table.append(city_rows(100 + number, 1))
    worker.run_due()

    operations = [snapshot.operation for snapshot in table.log(3)]
    assert operations[:2] == ["index", "compact"]
    assert covered(table) == 2
    assert answer(table) == by_city(table.to_arrow())
