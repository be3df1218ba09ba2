"""Deleted and updated rows through every way of reading that Spark has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from fuse_stream.format.positions import positions_of
from fuse_stream.spark import hidden_rows
from fuse_stream.spark.compact import compact
from fuse_stream.spark.format import register
from fuse_stream.spark.hidden_rows import HiddenRows, first_words
from fuse_stream.spark.read import read
from fuse_stream.spark.types import quoted
from fuse_stream.spark.write import write
from fuse_stream.table.handle import Table
from tests.spark.streams import run

ROWS = 6000
BLOCK_ROWS = 500


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose settings a test may change."""
    session = spark.newSession()
    yield session
    session.catalog.clearCache()


@pytest.fixture(params=["in the plan", "joined"])
def bits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the bits of hidden rows are."""
    if request.param == "joined":
        monkeypatch.setattr(hidden_rows, "MOST_WORDS", 0)
    return str(request.param)


def rows_of(count: int, *, seed: int = 0) -> pa.Table:
    """Return rows with an id, a few texts and numbers, and a number from 0 to 99 for deletes."""
    random = Random(seed)
    item = pa.struct([("x", pa.int64()), ("t", pa.list_(pa.string()))])
    return pa.table(
        {
            "id": range(count),
            "h": [random.randrange(100) for _ in range(count)],
            "text": [random.choice(["a", "b", None, "c" * 50]) for _ in range(count)],
            "number": [random.choice([0.0, 1.5, None, -2.5]) for _ in range(count)],
            "item": pa.array(
                [random.choice([None, {"x": n, "t": ["a", None]}]) for n in range(count)], item
            ),
        }
    )


def table_of(path: Path, *parts: pa.Table, block_rows: int = BLOCK_ROWS) -> Table:
    properties = {"fuse.block.rows": str(block_rows)}
    table = Table.create(path, parts[0].schema, properties=properties)
    for part in parts:
        table.append(part, merge_schema=True)
    return table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Twelve blocks: one shows all its rows, one shows none, the others show some."""
    table = table_of(tmp_path_factory.mktemp("deleted") / "t", rows_of(ROWS))
    table.delete("h < 7 AND NOT id BETWEEN 1000 AND 1499")
    table.delete("id BETWEEN 3000 AND 3499")
    table.delete("id IN (0, 63, 64, 499, 5999)")
    table.delete("id BETWEEN 4000 AND 4400")
    return table


def path_of(table: Table) -> str:
    return table.metadata.store.url


def texts(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """Return rows as a multiset; they may hold lists."""
    return Counter(repr(row) for row in rows)


def found_in(df: DataFrame) -> Counter[str]:
    return texts(df.toArrow().to_pylist())


def expected_of(table: Table, **options: Any) -> Counter[str]:
    return texts(table.to_arrow(**options).to_pylist())


def plan_of(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001 - no other way


# ---- fuse.read


@pytest.mark.parametrize("hidden_in", ["one block", "some blocks", "all blocks", "whole blocks"])
def test_a_read_returns_the_rows_that_were_not_deleted(
    spark: SparkSession, tmp_path: Path, bits: str, hidden_in: str
) -> None:
    random = Random(hidden_in + bits)
    count = random.randrange(100, 2000)
    table = table_of(tmp_path / "t", rows_of(count), block_rows=random.randrange(30, 99))
    block = random.randrange(count // 30 - 1) * 30
    table.delete(
        {
            "one block": f"id IN ({block}, {block + 1})",
            "some blocks": f"h < 30 AND id BETWEEN {block} AND {block + 400}",
            "all blocks": f"h < {random.randrange(20, 99)}",
            "whole blocks": f"id >= {count // 3}",
        }[hidden_in]
    )

    df = read(spark, path_of(table))

    assert found_in(df) == expected_of(table), bits
    assert df.count() == table.head().summary.row_count


def test_all_rows_may_be_deleted(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", rows_of(10))
    table.delete("true")

    df = read(spark, path_of(table))

    assert df.collect() == []
    assert df.columns == ["id", "h", "text", "number", "item"]


SETTINGS = {
    "no codegen": {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    },
    "rows, not vectors": {"spark.sql.parquet.enableVectorizedReader": "false"},
    "filters of records": {
        "spark.sql.parquet.enableVectorizedReader": "false",
        "spark.sql.parquet.recordLevelFilter.enabled": "true",
    },
    "not ANSI": {"spark.sql.ansi.enabled": "false"},
    "split files": {
        "spark.sql.files.maxPartitionBytes": "2000",
        "spark.sql.files.openCostInBytes": "0",
    },
    "one task, case": {
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.files.openCostInBytes": "1g",
        "spark.sql.caseSensitive": "true",
    },
    "not adaptive, no broadcast": {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    },
    "small batches": {"spark.sql.parquet.columnarReaderBatchSize": "7"},
}


@pytest.mark.parametrize(
    ("bits", "settings"),
    [
        pytest.param(bits, name, marks=[] if number % 4 == turn else pytest.mark.long)
        for turn, bits in enumerate(["in the plan", "joined"])
        for number, name in enumerate(SETTINGS)
    ],
    indirect=["bits"],
)
def test_no_setting_brings_deleted_rows_back(
    session: SparkSession, table: Table, bits: str, settings: str
) -> None:
    for name, value in SETTINGS[settings].items():
        session.conf.set(name, value)
    path, where = path_of(table), "text = 'a' AND id > 450"

    df = read(session, path)

    assert found_in(df) == expected_of(table), bits
    assert df.where(where).count() == table.to_arrow(where=where).num_rows
    assert found_in(read(session, path, where=where)) == expected_of(table, where=where)


def test_all_blocks_are_one_scan_and_without_hidden_rows_no_row_is_tested(
    spark: SparkSession, table: Table
) -> None:
    path = path_of(table)

    whole = plan_of(read(spark, path, version=1))
    untouched = plan_of(read(spark, path, where="id BETWEEN 1000 AND 1499"))
    both = plan_of(read(spark, path))

    assert [plan.count("FileScan") for plan in (whole, untouched, both)] == [1, 1, 1]
    assert "row_index" not in whole + untouched
    assert both.count("row_index") > 0


def test_a_block_that_shows_no_row_is_not_read(spark: SparkSession, table: Table) -> None:
    assert len(read(spark, path_of(table)).inputFiles()) == 11


def test_columns_are_pruned_and_filters_reach_parquet(
    spark: SparkSession, table: Table, bits: str
) -> None:
    df = read(spark, path_of(table)).where("id > 450").select("id")
    plan = plan_of(df)

    # Through a join no filter reaches Parquet, so other blocks have a scan of their own.
    is_joined = bits == "joined"
    assert plan.count("ReadSchema: struct<id:bigint>") == int(is_joined)
    assert plan.count("ReadSchema: struct<id:bigint,_tmp_metadata_row_index:bigint>") == 1
    assert plan.count("PushedFilters: [IsNotNull(id), GreaterThan(id,450)]") == 1
    assert df.columns == ["id"]


def test_the_filter_is_generated_code(spark: SparkSession, table: Table) -> None:
    plan = plan_of(read(spark, path_of(table), where="id > 3499"))

    assert "*(1) Filter" in plan
    assert "Join" not in plan


@pytest.mark.parametrize("where", ["1 / zero > 0", "id > 5 AND 1 div zero = 1"])
def test_a_predicate_is_not_evaluated_for_deleted_rows(
    session: SparkSession, tmp_path: Path, bits: str, where: str
) -> None:
    session.conf.set("spark.sql.ansi.enabled", "true")
    table = table_of(tmp_path / "t", pa.table({"id": range(100), "zero": [0, 1] * 50}))
    table.delete("zero = 0")
    path = path_of(table)

    expected = table.to_arrow(where="id > 5" if "id > 5" in where else None).num_rows
    assert read(session, path, where=where).count() == expected
    assert read(session, path).where(where).count() == expected
    assert read(session, path).selectExpr("sum(1 / zero) AS n").collect() == [(50,)]


def test_frames_join_union_and_cache(session: SparkSession, table: Table, bits: str) -> None:
    rows = table.to_arrow()
    first = read(session, path_of(table))
    cached = read(session, path_of(table), where="id >= 2000").cache()
    first.createOrReplaceTempView("shown")
    late = sum(n >= 2000 for n in rows["id"].to_pylist())

    assert cached.count() == cached.count() == late
    assert first.join(cached, "id").count() == late
    assert first.unionAll(cached).select("id").distinct().count() == len(rows)
    assert first.join(first.select("id").alias("again"), "id").count() == len(rows)
    assert first.exceptAll(first).count() == 0
    ids = session.sql("SELECT min(id), max(id), count(*) FROM shown WHERE number > 1").collect()
    numbers = table.to_arrow(where="number > 1")["id"].to_pylist()
    assert ids == [(min(numbers), max(numbers), len(numbers))], bits


def test_the_rows_are_written_as_parquet_without_hidden_columns(
    spark: SparkSession, table: Table, tmp_path: Path, bits: str
) -> None:
    df = read(spark, path_of(table))
    df.write.parquet(str(tmp_path / "out"))

    again = spark.read.parquet(str(tmp_path / "out"))

    assert found_in(again) == expected_of(table), bits
    assert again.columns == df.columns == table.schema.names
    assert all(field.metadata == {} for field in df.schema)
    assert df.schema == read(spark, path_of(table), version=1).schema


def test_columns_may_have_the_names_that_the_filter_uses(
    session: SparkSession, tmp_path: Path, bits: str
) -> None:
    session.conf.set("spark.sql.caseSensitive", "true")
    names = ["_metadata", "file", "FILE", "file_", "words", "row_index", "a.b", "`", "file_name"]
    columns = {name: range(place, 100 + place) for place, name in enumerate(names[1:], 1)}
    taken = [{"row_index": 200 + n, "file_name": "x"} for n in range(100)]
    rows = session.createDataFrame(pa.table({"_metadata": taken, **columns}))
    write(rows.repartition(3), str(tmp_path / "t"))
    table = Table.open(tmp_path / "t")
    table.delete("row_index IN (5, 6, 50, 99)")
    path = path_of(table)

    df = read(session, path)

    assert found_in(df) == expected_of(table), bits
    assert df.columns == names
    taken_where = "_metadata.row_index > 290 AND FILE > file"
    chosen = read(session, path, where=taken_where, columns=["a.b", "FILE"])
    assert sorted(map(tuple, chosen.collect())) == [
        (n + 6, n + 2) for n in range(91, 100) if n != 94
    ]
    assert df.select(*map(quoted, names[1:4])).where("file_ < 10").count() == 5


def test_old_blocks_lack_columns_and_hide_rows(
    session: SparkSession, tmp_path: Path, bits: str
) -> None:
    old = pa.table({"a": pa.array(range(50), pa.int32()), "s": [{"x": n} for n in range(50)]})
    new = pa.table(
        {
            "a": pa.array(range(2**40, 2**40 + 50), pa.int64()),
            "s": [{"x": n, "y": "y"} for n in range(50)],
            "added": ["n"] * 50,
        }
    )
    table = table_of(tmp_path / "t", old, new)
    table.delete("s.x IN (1, 17, 49)")

    df = read(session, path_of(table))

    assert found_in(df) == expected_of(table), bits
    assert df.where("added IS NULL AND s.y IS NULL").count() == 47
    assert df.where("added = 'n' AND s.x = 17").count() == 0


def test_files_of_one_size_hide_their_own_rows(
    spark: SparkSession, tmp_path: Path, bits: str
) -> None:
    parts = [pa.table({"a": [number * 10 + digit for digit in range(8)]}) for number in range(40)]
    table = table_of(tmp_path / "t", *parts)
    gone = [number * 10 + number % 8 for number in range(40)]
    table.delete(f"a IN ({', '.join(map(str, gone))})")

    assert len({block.file_size for block in table.blocks()}) < 40
    assert found_in(read(spark, path_of(table))) == expected_of(table), bits


def test_an_old_version_shows_the_rows_that_were_deleted_later(
    spark: SparkSession, table: Table
) -> None:
    for version in (1, 2, 3, 5):
        assert found_in(read(spark, path_of(table), version=version)) == expected_of(
            table, version=version
        )


# ---- the words of bits


def hiding(row_count: int, *rows: int) -> HiddenRows:
    return HiddenRows(row_count=row_count, hidden=positions_of(np.array(rows)))


def test_each_hiding_file_has_words_of_its_own() -> None:
    files = [hiding(64, 0), hiding(65, 64), hiding(1, 0)]

    assert first_words(files) == [0, 1, 3]
    assert first_words([]) == []


def test_a_word_has_the_bits_of_its_rows() -> None:
    file = hiding(130, 0, 63, 64, 129)

    assert [int(word) % 2**64 for word in file.words()] == [1 | 1 << 63, 1, 2]


# ---- the format, feeds, compaction


def test_the_format_reads_what_was_not_deleted(spark: SparkSession, table: Table) -> None:
    df = spark.read.format("fuse").load(path_of(table))
    chosen = spark.read.format("fuse").option("where", "id > 450").option("columns", '["text"]')

    assert found_in(df) == expected_of(table)
    assert found_in(chosen.load(path_of(table))) == expected_of(
        table, where="id > 450", columns=["text"]
    )
    assert df.count() == table.head().summary.row_count


@pytest.fixture
def changed(tmp_path: Path) -> Table:
    """A delete, an update, and a delete of an updated row."""
    rows = pa.table({"id": range(20), "text": ["old"] * 20})
    table = table_of(tmp_path / "changed", rows, block_rows=8)
    table.delete("id IN (1, 9)")
    table.update("id BETWEEN 6 AND 9", {"text": "new"})
    table.delete("text = 'new' AND id = 7")
    return table


def kinds_of(rows: Iterable[Any]) -> Counter[tuple[Any, ...]]:
    return Counter((row._commit_version, row._change_type, row.id, row.text) for row in rows)  # noqa: SLF001


CHANGES = Counter(
    [
        *((1, "insert", n, "old") for n in range(20)),
        *((2, "delete", n, "old") for n in (1, 9)),
        *((3, "update_preimage", n, "old") for n in (6, 7, 8)),
        *((3, "update_postimage", n, "new") for n in (6, 7, 8)),
        (4, "delete", 7, "new"),
    ]
)


def test_the_feed_shows_deletes_and_updates(spark: SparkSession, changed: Table) -> None:
    feed = spark.read.format("fuse").option("feed", "changes").option("startingVersion", 1)
    blocks = spark.read.format("fuse").option("feed", "blocks").option("startingVersion", 3)

    assert kinds_of(feed.load(path_of(changed)).collect()) == CHANGES
    counts: Counter[tuple[int, str]] = Counter()
    for row in blocks.load(path_of(changed)).collect():
        counts[row._commit_version, row._change_type] += row.row_count  # noqa: SLF001
    assert counts == {(3, "update_preimage"): 3, (3, "update_postimage"): 3, (4, "delete"): 1}


@pytest.mark.parametrize("start", [pytest.param("1", marks=pytest.mark.long), None])
def test_a_stream_of_changes_sums_to_the_table(
    spark: SparkSession, changed: Table, tmp_path: Path, start: str | None
) -> None:
    register(spark)
    seen: list[Any] = []
    source = spark.readStream.format("fuse").option("feed", "changes")
    if start is not None:
        source = source.option("startingVersion", start)
    frame = source.option("maxCommitsPerTrigger", 1).load(path_of(changed))

    def follow() -> None:
        run(frame, lambda df, _: seen.extend(df.collect()), tmp_path / "checkpoint")

    follow()
    changed.update("id = 0", {"text": "last"})
    follow()

    sums: Counter[tuple[int, str]] = Counter()
    for row in seen:
        is_added = row._change_type in {"insert", "update_postimage"}  # noqa: SLF001 - Spark's name
        sums[row.id, row.text] += 1 if is_added else -1
    rows = changed.to_arrow().to_pylist()
    assert +sums == Counter((row["id"], row["text"]) for row in rows)
    assert not -sums
    assert [row._change_type for row in seen[-2:]] == ["update_preimage", "update_postimage"]  # noqa: SLF001


def test_a_compaction_in_tasks_folds(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", *(rows_of(40, seed=seed) for seed in range(5)))
    table.delete("h < 30")
    expected = expected_of(table)

    result = compact(spark, path_of(table))

    assert result.blocks_before == 5
    assert table.head().hidden_rows == 0
    assert table.head().stored_rows == sum(expected.values())
    assert expected_of(table) == found_in(read(spark, path_of(table))) == expected
