"""A follower's batch is planned, and before its rows are read every verb changes the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from fuse_stream.table.handle import Table
from tests.spark.streams import EACH_DOOR, follow_table, run

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string())])

Act = Callable[[Table], object]
Row = tuple[Any, ...]


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys), "name": [f"n{key}" for key in keys]}, SCHEMA)


def on_a_branch(table: Table) -> Table:
    """Return a handle of a new branch with a commit of its own."""
    name = f"fix-{table.head().version}"
    table.create_branch(name)
    branch = Table.open(table.location.path, branch=name)
    branch.append(rows(1000 + branch.head().version))
    return branch


def publish(table: Table) -> None:
    table.publish(on_a_branch(table).location.branch)


def publish_over_new_commits(table: Table) -> None:
    """Publish a branch that lacks the last commit: the feed takes its rows back."""
    name = on_a_branch(table).location.branch
    table.append(rows(2000 + table.head().version))
    table.publish(name, expected_head=table.head().version)


def expire_all(table: Table) -> None:
    """Let everything expire that may, and delete what nothing needs, as two vacuums do."""
    table.expire(keep_last=1)
    table.vacuum()
    table.vacuum()


def rewind_and_go_on(table: Table) -> None:
    table.revert(table.head().version)
    table.append(rows(3000 + table.head().version))


ACTS: dict[str, Act] = {
    "compact": Table.compact,
    "expire and vacuum": expire_all,
    "publish": publish,
    "publish over new commits": publish_over_new_commits,
    "delete": lambda table: table.delete("name LIKE '%2'"),
    "update": lambda table: table.update("k < 20", {"name": "changed"}),
    "revert": rewind_and_go_on,
    "overwrite, compact, expire and vacuum": lambda table: (
        table.overwrite(rows(*range(5000, 5010))),
        table.append(rows(5010)),
        table.compact(),
        table.expire(keep_last=1),
        table.vacuum(),
        table.vacuum(),
    ),
}
PROPERTIES = {"fuse.grace": "0s", "fuse.vacuum.age": "0s", "fuse.block.rows": "30"}


def content(table: Table) -> Counter[Row]:
    return Counter(tuple(row.values()) for row in table.to_arrow().to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table.create(tmp_path / "table", SCHEMA, properties=PROPERTIES)
    for first in range(0, 50, 10):
        table.append(rows(*range(first, first + 10)))
    return table


@EACH_DOOR
@pytest.mark.parametrize("where", ["at the start", "from a checkpoint"])
def test_what_changes_the_table_during_a_batch_loses_and_doubles_no_row(
    spark: SparkSession, table: Table, tmp_path: Path, door: str, where: str
) -> None:
    acts = list(ACTS.values())
    total: Counter[Row] = Counter()

    def take(frame: DataFrame, _batch_id: int) -> None:
        if acts:
            acts.pop(0)(table)
        for row in frame.collect():
            total[row.k, row.name] += 1 if row["_change_type"] in INSERTS else -1

    def follow(most: int) -> None:
        frame = follow_table(
            spark,
            tmp_path / "table",
            door,
            consumer="nightly",
            startingVersion=0,
            maxCommitsPerTrigger=most,
        )
        run(frame, take, tmp_path / "checkpoint")

    if where == "from a checkpoint":
        kept, acts = acts, []
        follow(100)
        acts = kept
        table.append(rows(*range(60, 70)))
    for _ in range(2 * len(ACTS)):
        follow(1)
        if not acts:
            break
        table.append(rows(100 + len(acts)))
    follow(100)

    assert not acts
    assert +total == content(table)
    assert not -total
    assert table.fsck(deep=True).is_sound


INSERTS = {"insert", "update_postimage"}
