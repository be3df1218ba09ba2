"""MERGE, UPDATE and DELETE in a catalog, by rows and by whole blocks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from fuse_stream.format.layout import BLOCKS_PREFIX
from fuse_stream.spark import change_rows, change_writer, compared_rows
from fuse_stream.spark.jvm import java_classes, row_groups
from fuse_stream.spark.jvm.row_operations import REWRITES
from fuse_stream.spark.write import write
from fuse_stream.table.handle import Table
from fuse_stream.testing.model import assert_sound
from tests.kit.strides import NIGHT
from tests.spark.lakes import FAILURES, Lake, attached

BOOM = "IF(id = 77000, raise_error('boom'), 1)"
PROGRAM = Path(__file__).with_name("cluster_merge.py")


@pytest.fixture(params=["rows", "blocks"])
def lake(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    """A catalog whose statements change rows alone, or rewrite blocks."""
    with attached(spark, tmp_path / "lake") as lake:
        lake.spark.conf.set(REWRITES, str(request.param == "blocks").lower())
        yield lake


def open_table(lake: Lake, name: str = "t") -> Table:
    return Table.open(lake.root / name)


def staged_files(lake: Lake) -> list[str]:
    return [path.name for path in (lake.root / "t" / "_staged").glob("*")]


def stored_blocks(lake: Lake) -> set[str]:
    return {info.key for info in open_table(lake).metadata.store.list(BLOCKS_PREFIX)}


# ---- against a model

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("v", pa.int32())])
Row = tuple[Any, ...]
"""id, name, v"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """A clause of a merge: what it says, and what it does to a row of each side."""

    rows: str
    condition: str
    holds: Callable[[Row | None, Row | None], bool]
    action: str
    act: Callable[[Row | None, Row | None], Row | None]

    def sql(self) -> str:
        return f"WHEN {self.rows} AND {self.condition} THEN {self.action}"


def _is_even(row: Row | None, _source: Row | None) -> bool:
    return row is not None and row[2] is not None and row[2] % 2 == 0


MATCHED = (
    Clause(
        rows="MATCHED",
        condition="s.name = 'd'",
        holds=lambda _t, s: s is not None and s[1] == "d",
        action="DELETE",
        act=lambda _t, _s: None,
    ),
    Clause(
        rows="MATCHED",
        condition="t.v % 2 = 0",
        holds=_is_even,
        action="UPDATE SET v = t.v + s.v, name = concat(t.name, s.name)",
        act=lambda t, s: (t[0], t[1] and t[1] + s[1], t[2] + s[2]) if t and s else None,
    ),
    Clause(
        rows="MATCHED",
        condition="true",
        holds=lambda _t, _s: True,
        action="UPDATE SET *",
        act=lambda _t, s: s,
    ),
)
NOT_MATCHED = (
    Clause(
        rows="NOT MATCHED",
        condition="s.v > 5",
        holds=lambda _t, s: s is not None and s[2] > 5,
        action="INSERT (id, v) VALUES (s.id, -s.v)",
        act=lambda _t, s: (s[0], None, -s[2]) if s else None,
    ),
    Clause(
        rows="NOT MATCHED",
        condition="s.id % 3 <> 0",
        holds=lambda _t, s: s is not None and s[0] % 3 != 0,
        action="INSERT *",
        act=lambda _t, s: s,
    ),
)
BY_SOURCE = (
    Clause(
        rows="NOT MATCHED BY SOURCE",
        condition="t.v < -3",
        holds=lambda t, _s: t is not None and t[2] is not None and t[2] < -3,
        action="DELETE",
        act=lambda _t, _s: None,
    ),
    Clause(
        rows="NOT MATCHED BY SOURCE",
        condition="t.v % 2 = 0",
        holds=_is_even,
        action="UPDATE SET v = t.v + 1",
        act=lambda t, _s: (t[0], t[1], t[2] + 1) if t else None,
    ),
)


def merged(rows: list[Row], source: list[Row], clauses: list[Clause]) -> list[Row]:
    """Return the rows of a table after a merge by id."""
    by_id = {row[0]: row for row in source}
    found: list[Row] = []
    sides: list[tuple[Row | None, Row | None, str]] = [
        (row, by_id.get(row[0]), "MATCHED" if row[0] in by_id else "NOT MATCHED BY SOURCE")
        for row in rows
    ]
    known = {row[0] for row in rows}
    sides += [(None, row, "NOT MATCHED") for row in source if row[0] not in known]
    for row, other, kind in sides:
        clause = next((c for c in clauses if c.rows == kind and c.holds(row, other)), None)
        after = row if clause is None else clause.act(row, other)
        if after is not None:
            found.append(after)
    return found


def drawn_clauses(draw: Random) -> list[Clause]:
    """Return some clauses, at least one; more often than not with an insert."""
    kinds = (MATCHED, NOT_MATCHED, BY_SOURCE)
    found = [[each for each in kind if draw.random() < 0.6] for kind in kinds]
    if draw.random() < 0.5:
        found[2] = []
    return [each for kind in found for each in kind] or [MATCHED[2]]


def drawn_rows(draw: Random, count: int) -> list[Row]:
    ids = draw.sample(range(20), count)
    return [(number, draw.choice(["a", "b", "d", "ü"]), draw.randrange(-9, 10)) for number in ids]


def check_statement(lake: Lake, draw: Random, rows: list[Row]) -> list[Row]:
    """Run a random statement on the table and on `rows`; return what the rows are then."""
    table = open_table(lake)
    kind = draw.choice(["merge", "merge", "merge", "update", "delete"])
    if kind == "merge":
        source, clauses = drawn_rows(draw, draw.randrange(1, 9)), drawn_clauses(draw)
        frame = lake.spark.createDataFrame(source, "id BIGINT, name STRING, v INT")
        frame.createOrReplaceTempView("arriving")
        text = " ".join(clause.sql() for clause in clauses)
        lake.sql(f"MERGE INTO lake.t t USING arriving s ON t.id = s.id {text}")
        expected = merged(rows, source, clauses)
    elif kind == "update":
        bound = draw.randrange(-9, 10)
        lake.sql(f"UPDATE lake.t SET v = v + 10 WHERE v > {bound} AND id % 2 = 0")
        expected = [
            (n, name, v + 10) if v is not None and v > bound and n % 2 == 0 else (n, name, v)
            for n, name, v in rows
        ]
    else:
        last = draw.randrange(20)
        lake.sql(f"DELETE FROM lake.t WHERE id % 4 = 1 AND id < (SELECT {last})")
        expected = [row for row in rows if not (row[0] % 4 == 1 and row[0] < last)]
    found = Counter(tuple(row.values()) for row in table.to_arrow().to_pylist())
    assert found == Counter(expected)
    return expected


def check_feed(lake: Lake) -> None:
    """Check that the feed sums to the table at each version, and shows no row that stays."""
    table = open_table(lake)
    feed = lake.spark.read.format("fuse").option("feed", "changes").option("startingVersion", 1)
    changes = feed.load(str(lake.root / "t")).collect()
    known: Counter[Row] = Counter()
    for version in range(1, table.head().version + 1):
        gone: Counter[Row] = Counter()
        came: Counter[Row] = Counter()
        for row in (each for each in changes if each["_commit_version"] == version):
            side = gone if row["_change_type"] in {"delete", "update_preimage"} else came
            side[row["id"], row["name"], row["v"]] += 1
        rows = table.to_arrow(version=version).to_pylist()
        now = Counter((row["id"], row["name"], row["v"]) for row in rows)
        assert gone <= known
        assert known - gone + came == now
        assert gone & came == Counter()
        known = now


def check_history(lake: Lake, seed: int, steps: int) -> None:
    draw = Random(seed)
    lake.sql("CREATE TABLE lake.t (id BIGINT, name STRING, v INT)")
    table = open_table(lake)
    rows: list[Row] = []
    ids = list(range(20))
    draw.shuffle(ids)
    for first in range(0, 15, 5):  # some blocks
        part = [(number, f"n{number}", number - 8) for number in ids[first : first + 5]]
        table.append(
            pa.Table.from_pylist(
                [dict(zip(SCHEMA.names, row, strict=True)) for row in part], SCHEMA
            )
        )
        rows += part
    for step in range(steps):
        rows = check_statement(lake, draw, rows)
        if step % 5 == 4:
            table.compact()
    check_feed(lake)
    assert_sound(table.metadata.store, table)
    assert staged_files(lake) == []


@pytest.mark.long
def test_random_statements_leave_the_rows_of_a_model(lake: Lake) -> None:
    check_history(lake, seed=1, steps=8)


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [*range(2, 4), *(pytest.param(seed, marks=NIGHT) for seed in range(4, 12))]
)
def test_more_random_statements_leave_the_rows_of_a_model(lake: Lake, seed: int) -> None:
    check_history(lake, seed, steps=20)


# ---- what statements do


def test_a_statement_hides_the_changed_rows_and_rewrites_no_block(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(10)")
    before = [block.id for block in open_table(lake).blocks()]
    lake.sql("UPDATE lake.t SET v = -1 WHERE id % 5 = 0")

    blocks = list(open_table(lake).blocks())
    assert [block.id for block in blocks[:-1]] == before
    assert [block.live_rows for block in blocks] == [8, 2]
    assert str(open_table(lake).head().operation) == "update"


def test_a_statement_without_an_effect_commits_nothing(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(3)")
    lake.sql("UPDATE lake.t SET v = 1 WHERE id % 7 = 6")
    lake.sql("DELETE FROM lake.t WHERE id IN (SELECT 9L)")
    lake.sql("MERGE INTO lake.t USING (SELECT 9L k) s ON t.id = s.k WHEN MATCHED THEN DELETE")

    assert open_table(lake).head().version == 1
    assert staged_files(lake) == []


def test_columns_of_every_kind_are_written(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE lake.t AS SELECT id, 'a' `odd name.x`, 1.5D x, 2.5F y, 1.25 d, "
        "DATE '2020-02-29' day, TIMESTAMP '1500-01-01 00:00:01.5' at, "
        "TIMESTAMP_NTZ '2020-01-01 00:00:00' local, X'00FF' bytes, array(1, NULL) list, "
        "map('k', 1) pairs, named_struct('a', 1, 'b', 'x') item FROM range(3)"
    )
    (row,) = lake.sql("SELECT * FROM lake.t WHERE id = 1")
    lake.sql("UPDATE lake.t SET id = id + 10, x = -0.0D WHERE id % 2 = 1")

    assert lake.sql("SELECT * FROM lake.t WHERE id = 11") == [(11, row[1], 0.0, *row[3:])]
    lake.sql("UPDATE lake.t SET x = 0.0D WHERE id % 2 = 1")
    lake.sql("UPDATE lake.t SET x = -0.0D WHERE id % 2 = 1")
    assert open_table(lake).head().version == 4  # the zeros differ


def test_a_row_that_several_rows_of_the_source_match_is_refused_by_spark(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(5)")
    source = "(SELECT explode(array(1L, 1L)) k) s ON t.id = s.k"

    lake.refuses(
        f"MERGE INTO lake.t USING {source} WHEN MATCHED THEN UPDATE SET v = 7",
        "MERGE_CARDINALITY_VIOLATION",
    )
    lake.sql(f"MERGE INTO lake.t USING {source} WHEN MATCHED THEN DELETE")
    assert sorted(lake.sql("SELECT id FROM lake.t")) == [0, 2, 3, 4]


def test_the_source_may_be_the_table_itself(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(5)")
    lake.sql("DELETE FROM lake.t WHERE id = 4")
    lake.sql(
        "MERGE INTO lake.t t USING lake.t s ON t.id = s.id + 1 WHEN MATCHED THEN UPDATE "
        "SET v = s.v * 10 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id + 1, -1)"
    )

    assert sorted(lake.sql("SELECT * FROM lake.t")) == [(0, 0), (1, 0), (2, 10), (3, 20), (4, -1)]


def test_python_functions_decide_which_rows_change(lake: Lake) -> None:
    lake.spark.udf.register("is_odd", lambda number: number % 2 == 1, "boolean")
    lake.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(5)")
    lake.sql("UPDATE lake.t SET v = 0 WHERE is_odd(id)")
    lake.sql("DELETE FROM lake.t WHERE NOT is_odd(id)")

    assert sorted(lake.sql("SELECT * FROM lake.t")) == [(1, 0), (3, 0)]


def test_a_merge_adds_columns_only_with_schema_evolution(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, CAST(id AS INT) AS v FROM range(2)")
    text = (
        "INTO lake.t USING (SELECT 1L id, 5000000000L v, 'x' extra) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    lake.sql(f"MERGE WITH SCHEMA EVOLUTION {text}")

    assert sorted(lake.sql("SELECT * FROM lake.t")) == [(0, 0, None), (1, 5000000000, "x")]
    assert [str(one.operation) for one in open_table(lake).log()][:2] == ["merge", "alter"]
    before = open_table(lake).head().version
    lake.refuses(
        "MERGE WITH SCHEMA EVOLUTION INTO lake.t USING (SELECT 1L id, 'text' v, 'x' extra) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
        "can only become a wider one",
    )
    assert open_table(lake).head().version == before


def test_a_null_is_not_written_into_a_column_that_is_not_null(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t (id BIGINT NOT NULL, v INT)")
    lake.sql("INSERT INTO lake.t VALUES (1, 1), (2, 2)")

    lake.refuses("UPDATE lake.t SET id = IF(v > 1, NULL, id) WHERE v % 1 = 0", "NULL")
    lake.refuses(
        "MERGE INTO lake.t USING (SELECT 1 AS k) s ON t.v = s.k WHEN MATCHED THEN UPDATE "
        "SET id = IF(s.k > 0, NULL, 1)",
        "NULL",
    )
    assert open_table(lake).head().version == 1


def test_rows_of_a_table_with_a_key_stay_unique(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(4)")
    open_table(lake).set_key(["id"])
    lake.refuses("UPDATE lake.t SET id = 1 WHERE v % 2 = 0", "AmbiguousMergeError")
    insert = "ON t.id = s.k WHEN NOT MATCHED THEN INSERT (id) VALUES (s.k)"
    lake.refuses(
        f"MERGE INTO lake.t USING (SELECT explode(array(8L, 8L)) k) s {insert}",
        "AmbiguousMergeError",
    )
    before = open_table(lake).head().version
    lake.sql("UPDATE lake.t SET id = 3 - id WHERE v % 1 = 0")
    lake.sql(f"MERGE INTO lake.t USING (SELECT explode(array(3L, 8L)) k) s {insert}")

    assert sorted(lake.sql("SELECT * FROM lake.t")) == [(0, 3), (1, 2), (2, 1), (3, 0), (8, None)]
    assert open_table(lake).head().version == before + 2


def test_rows_of_events_are_updated_by_rows_and_keep_their_sequences(lake: Lake) -> None:
    path = str(lake.root / "t")
    events = partial(write, path=path, mode="upsert", keys=["k"], sequence_by="seq")
    events(lake.spark.sql("SELECT 1 AS k, 'old' AS v, 5L AS seq"))
    if lake.spark.conf.get(REWRITES) == "true":
        lake.refuses("UPDATE lake.t SET v = 'new' WHERE k % 1 = 0", "hidden columns")
        return
    lake.sql("UPDATE lake.t SET v = 'new' WHERE k % 1 = 0")
    events(lake.spark.sql("SELECT 1 AS k, 'late' AS v, 4L AS seq"))

    assert lake.sql("SELECT k, v FROM lake.t") == [(1, "new")]
    lake.refuses(
        "MERGE INTO lake.t USING (SELECT 1 AS j) s ON t.k = s.j WHEN MATCHED THEN UPDATE "
        "SET v = 'merged'",
        "SchemaMismatchError",
    )


def test_a_cached_table_shows_what_statements_changed(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(3)")
    lake.sql("CACHE TABLE lake.t")
    assert sorted(lake.sql("SELECT v FROM lake.t")) == [0, 1, 2]
    lake.sql("UPDATE lake.t SET v = v + 10 WHERE id % 2 = 0")
    assert sorted(lake.sql("SELECT v FROM lake.t")) == [1, 10, 12]
    lake.sql("MERGE INTO lake.t USING (SELECT 0L k) s ON t.id = s.k WHEN MATCHED THEN DELETE")

    assert sorted(lake.sql("SELECT v FROM lake.t")) == [1, 12]


def test_the_writers_of_dataframes_merge_into_a_table(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(3)")
    source = lake.spark.sql("SELECT 2L id, 20L v UNION ALL SELECT 5L, 50L").alias("s")
    merge = source.mergeInto("lake.t", expr("lake.t.id = s.id"))
    merge.whenMatched().updateAll().whenNotMatched().insertAll().merge()

    assert sorted(lake.sql("SELECT * FROM lake.t")) == [(0, 0), (1, 1), (2, 20), (5, 50)]


# ---- failures


@pytest.mark.long
@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE lake.t SET v = {BOOM} WHERE id % 2 = 0",
        f"DELETE FROM lake.t WHERE {BOOM} = 1 AND id % 2 = 0",
        (
            "MERGE INTO lake.t USING (SELECT id k FROM range(90000)) s ON t.id = s.k "
            f"WHEN MATCHED THEN UPDATE SET v = {BOOM}"
        ),
    ],
)
def test_a_failed_task_leaves_the_table_as_it_was(lake: Lake, statement: str) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(80000)")
    before = stored_blocks(lake)
    lake.refuses(statement, "boom")

    assert open_table(lake).head().version == 1
    assert lake.sql("SELECT sum(v) FROM lake.t") == [80000 * 79999 // 2]
    assert stored_blocks(lake) == before
    assert staged_files(lake) == []


def test_of_two_merges_at_once_the_later_one_conflicts_and_runs_again(
    lake: Lake, tmp_path: Path
) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(4)")
    started, free = tmp_path / "started", tmp_path / "free"

    def wait(number: int) -> int:
        started.touch()
        while not free.exists():
            pass
        return number

    lake.spark.udf.register("wait", wait, "bigint")
    slow = (
        "MERGE INTO lake.t USING (SELECT wait(1L) k) s ON t.id = s.k WHEN MATCHED THEN "
        "UPDATE SET v = v + 10 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.k)"
    )
    failures: list[Exception] = []

    def run() -> None:
        try:
            lake.sql(slow)
        except FAILURES as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not started.exists():
        thread.join(0.05)
        assert thread.is_alive()
    # Not by SQL: the tasks of the first merge may hold all of Spark's cores.
    open_table(lake).update("id = 1", {"v": 100})
    blocks = stored_blocks(lake)
    free.touch()
    thread.join()

    assert [str(each).startswith("ConflictError: another writer") for each in failures] == [True]
    assert stored_blocks(lake) == blocks
    assert staged_files(lake) == []
    assert open_table(lake).head().version == 2
    lake.sql(slow)
    assert sorted(lake.sql("SELECT * FROM lake.t"))[1] == (1, 110)


def test_a_merge_that_only_inserts_conflicts_too(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(4)")
    statement = (
        "MERGE INTO lake.t USING (SELECT explode(array(3L, 9L)) k) s ON t.id = s.k "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.k, 7)"
    )
    gathered = change_writer.gathered

    def late(writer: Any, rows: Any) -> Any:
        monkeypatch.undo()
        open_table(lake).append(pa.table({"id": [9], "v": [1]}))
        return gathered(writer, rows)

    monkeypatch.setattr(change_rows, "gathered", late)
    lake.refuses(statement, "ConflictError")
    lake.sql(statement)

    assert sorted(lake.sql("SELECT * FROM lake.t")) == [(0, 0), (1, 1), (2, 2), (3, 3), (9, 1)]


# ---- the two ways


def plan_of(lake: Lake, statement: str) -> str:
    return str(lake.sql(f"EXPLAIN {statement}")[0])


def test_without_classes_of_java_blocks_are_rewritten(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = "UPDATE lake.t SET v = 7 WHERE id % 2 = 1"
    monkeypatch.setattr(java_classes, "_found", {})
    with attached(spark, tmp_path / "lake") as lake:
        lake.sql("CREATE TABLE lake.t AS SELECT id, id AS v FROM range(4)")
        assert "WriteDelta" in plan_of(lake, statement)
        java_classes._found.clear()  # noqa: SLF001 - as in a new application
        monkeypatch.setattr(java_classes, "_SOURCE", "Missing.java")

        assert "ReplaceData" in plan_of(lake, statement)
        assert lake.catalog.doors["rows"] is None
        lake.sql(statement)
        assert sorted(lake.sql("SELECT * FROM lake.t")) == [(0, 0), (1, 7), (2, 2), (3, 7)]


def test_only_blocks_with_a_row_that_changes_are_rewritten(
    spark: SparkSession, tmp_path: Path
) -> None:
    with attached(spark, tmp_path / "lake") as lake:
        lake.spark.conf.set(REWRITES, "true")
        lake.sql("CREATE TABLE lake.t (id BIGINT, v BIGINT)")
        for first in range(0, 40, 10):
            open_table(lake).append(pa.table({"id": range(first, first + 10), "v": [0] * 10}))
        read: list[int] = []
        find = compared_rows.find_changes

        def noted(metadata: Any, head: Any, ids: Any, written: Any) -> Any:
            read.append(len(ids))
            return find(metadata, head, ids, written)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(row_groups, "find_changes", noted)
            lake.sql(
                "MERGE INTO lake.t USING (SELECT explode(array(12L, 33L)) k) s ON t.id = s.k "
                "WHEN MATCHED THEN UPDATE SET v = 1 WHEN NOT MATCHED THEN INSERT (id) VALUES (k)"
            )

        assert read == [2]
        assert lake.sql("SELECT count(*), sum(v) FROM lake.t") == [(40, 2)]


@pytest.mark.long
@pytest.mark.parametrize("mode", [pytest.param("false", marks=NIGHT), "true"])
def test_statements_run_on_executors_of_a_cluster(tmp_path: Path, mode: str) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path), mode],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "[(0, 1), (1, -7), (2, 2), (3, 5), (9, 9)]"
