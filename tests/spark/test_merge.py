"""`fuse.merge`, `fuse.delete` and `fuse.update`: Spark computes which rows change, and how."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from fuse_stream.errors import AmbiguousMergeError, InvalidInputError, SchemaMismatchError
from fuse_stream.format.records import Operation
from fuse_stream.table.handle import Table
from fuse_stream.testing.model import assert_sound

TABLE = "id BIGINT, part STRING, n INT"
Row = tuple[Any, ...]


def frame(spark: SparkSession, rows: list[Row], schema: str = TABLE) -> DataFrame:
    return spark.createDataFrame(rows, schema)


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """Three commits; block by block the ids 0 to 2, 3 to 5 and 6 to 8."""
    folder = str(tmp_path / "t")
    for first in (0, 3, 6):
        rows: list[Row] = [(at, "ab"[at % 2], at) for at in range(first, first + 3)]
        fuse.write(frame(spark, rows).coalesce(1), folder)
    return folder


def held(path: str, version: int | None = None) -> Counter[Row]:
    found = Table.open(path).to_arrow(version=version).to_pylist()
    return Counter(tuple(row.values()) for row in found)


def rows_to(end: int) -> Counter[Row]:
    return Counter((at, "ab"[at % 2], at) for at in range(end))


def test_a_delete_takes_any_expression_of_sparks(spark: SparkSession, path: str) -> None:
    spark.range(2, 5).createOrReplaceTempView("gone")

    result = fuse.delete(spark, path, "id IN (SELECT id FROM gone) OR pow(n, 2) = 64")

    assert (result.deleted, result.inserted, result.updated) == (4, 0, 0)
    assert sorted(row[0] for row in held(path)) == [0, 1, 5, 6, 7]
    assert Table.open(path).head().operation is Operation.DELETE


def test_a_delete_without_rows_commits_nothing(spark: SparkSession, path: str) -> None:
    assert fuse.delete(spark, path, "id > 100").snapshot is None
    assert Table.open(path).head().version == 3


def test_an_update_takes_expressions_on_the_row(spark: SparkSession, path: str) -> None:
    result = fuse.update(spark, path, "part = 'b'", {"n": "n * 10 + length(part)", "PART": "'c'"})

    assert result.updated == 4
    assert held(path) == Counter(
        (at, "c", at * 10 + 1) if at % 2 else (at, "a", at) for at in range(9)
    )
    kinds = Counter(Table.open(path).changes(4).read_all()["_change_type"].to_pylist())
    assert kinds == {"update_preimage": 4, "update_postimage": 4}


def test_a_number_that_does_not_fit_its_column_is_an_error(spark: SparkSession, path: str) -> None:
    for value in ("id + 3000000000", "1.5", "CAST('NaN' AS DOUBLE)"):
        with pytest.raises(InvalidInputError, match="does not fit the type of its column"):
            fuse.update(spark, path, "id = 1", {"n": value})
    with pytest.raises(SchemaMismatchError):
        fuse.update(spark, path, "id = 1", {"n": "part"})

    assert held(path) == rows_to(9)


def test_a_text_without_its_quotes_is_refused_with_the_remedy(
    spark: SparkSession, path: str
) -> None:
    with pytest.raises(InvalidInputError, match="in quotes of its own"):
        fuse.update(spark, path, "id = 1", {"part": "plain"})


@pytest.mark.parametrize(
    ("where", "values"),
    [("nothing = 1", {"n": "1"}), ("id = 1", {"nothing": "1"}), ("id = 1", {"n": "nothing + 1"})],
)
def test_an_unknown_column_is_refused(
    spark: SparkSession, path: str, where: str, values: dict[str, str]
) -> None:
    with pytest.raises(InvalidInputError, match=r"nothing|column"):
        fuse.update(spark, path, where, values)


def test_the_first_clause_that_fits_applies(spark: SparkSession, path: str) -> None:
    source = frame(
        spark,
        [(1, "x", 100, "d"), (2, "y", 200, "u"), (20, "z", 300, "u"), (21, "z", 0, "skip")],
        "id BIGINT, part STRING, n INT, op STRING",
    )
    made = fuse.merge(source, path, on="t.id = s.id").when_matched("s.op = 'd'").delete()
    made = made.when_matched().update_all().when_not_matched("s.op <> 'skip'").insert_all()
    result = made.when_not_matched_by_source("t.id >= 7").delete().execute()

    assert (result.inserted, result.updated, result.deleted) == (1, 1, 3)
    expected = rows_to(7) - Counter([(1, "b", 1), (2, "a", 2)])
    assert held(path) == expected + Counter([(2, "y", 200), (20, "z", 300)])
    kinds = Counter(Table.open(path).changes(4).read_all()["_change_type"].to_pylist())
    assert kinds == {"insert": 1, "update_preimage": 1, "update_postimage": 1, "delete": 3}


def test_a_merge_that_only_inserts_is_an_append(spark: SparkSession, path: str) -> None:
    source = frame(spark, [(1, "x", 1), (50, "x", 1)])
    fuse.merge(source, path, on="t.id = s.id").when_not_matched().insert_all().execute()

    assert Table.open(path).head().operation is Operation.APPEND
    assert held(path) == rows_to(9) + Counter([(50, "x", 1)])


def test_two_source_rows_that_act_on_one_row_are_refused(spark: SparkSession, path: str) -> None:
    source = frame(spark, [(1, "x", 1), (1, "y", 2), (2, "z", 3)])

    with pytest.raises(AmbiguousMergeError) as caught:
        fuse.merge(source, path, on="t.id = s.id").when_matched().update_all().execute()

    assert "'id': 1" in str(caught.value.context["row"])
    assert held(path) == rows_to(9)


def test_a_row_may_be_deleted_for_several_reasons(spark: SparkSession, path: str) -> None:
    source = frame(spark, [(1, "x", 1), (1, "y", 2)])
    result = fuse.merge(source, path, on="t.id = s.id").when_matched().delete().execute()

    assert result.deleted == 1


def test_a_merge_keeps_one_row_of_each_key(spark: SparkSession, path: str) -> None:
    Table.open(path).set_key(["id"])
    source = frame(spark, [(1, "x", 1)])
    insert = fuse.merge(source, path, on="false").when_not_matched().insert_all()
    move = fuse.merge(source, path, on="t.id = s.id").when_matched().update({"id": "t.id + 1"})

    for made in (insert, move):
        with pytest.raises(AmbiguousMergeError):
            made.execute()
    fuse.merge(source, path, on="t.id = s.id").when_matched().update({"id": "t.id + 100"}).execute()

    assert sorted(row[0] for row in held(path)) == [0, 2, 3, 4, 5, 6, 7, 8, 101]


def test_a_numbered_merge_is_repeated_safely(spark: SparkSession, path: str) -> None:
    source = frame(spark, [(1, "x", 1)])
    made = fuse.merge(source, path, on="t.id = s.id", app_id="m", batch_id=0)
    made = made.when_matched().update({"n": "t.n + 1"})
    first, again = made.execute(), made.execute()

    assert first.updated == 1
    assert again.snapshot is not None
    assert again.snapshot.replayed
    assert held(path)[1, "b", 2] == 1


def test_with_merge_schema_the_source_adds_columns(spark: SparkSession, path: str) -> None:
    source = frame(spark, [(1, 7.5), (30, 8.5)], "id BIGINT, price DOUBLE")
    made = fuse.merge(source, path, on="t.id = s.id", merge_schema=True)
    made.when_matched().update_all().when_not_matched().insert_all().execute()

    rows = {row["id"]: tuple(row.values()) for row in Table.open(path).to_arrow().to_pylist()}
    assert (rows[1], rows[30]) == ((1, "b", 1, 7.5), (30, None, None, 8.5))
    assert rows[2] == (2, "a", 2, None)


def test_a_source_without_a_column_is_refused(spark: SparkSession, path: str) -> None:
    source = frame(spark, [(1, 1)], "id BIGINT, n INT")

    with pytest.raises(InvalidInputError, match="lacks columns") as caught:
        fuse.merge(source, path, on="t.id = s.id").when_matched().update_all().execute()

    assert caught.value.context["missing"] == ["part"]


def test_a_merge_without_a_clause_is_refused(spark: SparkSession, path: str) -> None:
    with pytest.raises(InvalidInputError, match="clause"):
        fuse.merge(frame(spark, []), path, on="t.id = s.id").execute()


def test_rows_that_are_hidden_already_are_not_found_again(spark: SparkSession, path: str) -> None:
    Table.open(path).delete("id < 5")
    result = fuse.delete(spark, path, "id < 7")

    assert result.deleted == 2
    assert_sound(Table.open(path).metadata.store, Table.open(path))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_merges_do_what_a_dictionary_does(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    path = str(tmp_path / "t")
    fuse.write(frame(spark, [(at, "a", at) for at in range(30)]), path, cluster_by=["n"])
    expected = {at: ("a", at) for at in range(30)}
    for step in range(3):
        arriving = {draw.randrange(45): ("b", draw.randrange(100)) for _ in range(15)}
        source = frame(spark, [(at, *values) for at, values in arriving.items()]).repartition(2)
        made = fuse.merge(source, path, on="t.id = s.id").when_matched("s.n < 20").delete()
        made = made.when_matched().update_all().when_not_matched("s.n > 10").insert_all()
        made.when_not_matched_by_source("t.n % 7 = 0").update({"n": "t.n + 1"}).execute()
        for at in list(expected):
            if at in arriving:
                if arriving[at][1] < 20:
                    del expected[at]
                else:
                    expected[at] = arriving.pop(at)
                arriving.pop(at, None)
            elif expected[at][1] % 7 == 0:
                expected[at] = expected[at][0], expected[at][1] + 1
        expected |= {at: values for at, values in arriving.items() if values[1] > 10}
        if step == 1:
            Table.open(path).compact()

        assert held(path) == Counter((at, *values) for at, values in expected.items())
    assert_sound(Table.open(path).metadata.store, Table.open(path))


def test_statements_of_sql_do_the_same(spark: SparkSession, path: str) -> None:
    source = frame(
        spark, [(1, "x", 100, "d"), (2, "y", 200, "u"), (20, "z", 5, "u")], f"{TABLE}, op STRING"
    )
    source.createOrReplaceTempView("arriving")
    fuse.sql(spark, f"DELETE FROM fuse.`{path}` AS x WHERE x.id = 8 OR x.part IS NULL")
    fuse.sql(spark, f"UPDATE fuse.`{path}` SET n = n + 1, t.part = upper(part) WHERE id < 2")
    result = fuse.sql(
        spark,
        f"""MERGE INTO fuse.`{path}` AS old USING arriving ON old.id = arriving.id
        WHEN MATCHED AND arriving.op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET *
        WHEN NOT MATCHED THEN INSERT (id, n) VALUES (arriving.id, arriving.n * 2)
        WHEN NOT MATCHED BY SOURCE AND old.id = 7 THEN UPDATE SET n = 0""",
    )

    assert (result.inserted, result.updated, result.deleted) == (1, 2, 1)
    expected = [(0, "A", 1), (2, "y", 200), (7, "b", 0), (20, None, 10)]
    assert held(path) == Counter([*expected, *((at, "ab"[at % 2], at) for at in (3, 4, 5, 6))])


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("SELECT 1", "none of DELETE"),
        ("DELETE FROM elsewhere WHERE id = 1", "backticks"),
        ("DELETE FROM fuse.`{path}` WHERE nothing = 1", "nothing"),
        ("DELETE FORM fuse.`{path}`", "FORM"),
        ("UPDATE fuse.`{path}` SET n = 1, n = 2", "twice"),
        ("UPDATE fuse.`{path}` SET n.x = 1", "struct"),
    ],
)
def test_a_statement_that_cannot_run_is_refused(
    spark: SparkSession, path: str, statement: str, match: str
) -> None:
    with pytest.raises(InvalidInputError, match=match):
        fuse.sql(spark, statement.replace("{path}", path))

    assert held(path) == rows_to(9)
