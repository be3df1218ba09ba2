"""CREATE, ALTER, DROP and SHOW in a catalog of the tables in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from fuse_stream.table.handle import Table
from fuse_stream.table.verbs import clone
from tests.spark.lakes import Lake, attached


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    with attached(spark, tmp_path / "lake") as lake:
        yield lake


def open_table(lake: Lake, name: str = "t") -> Table:
    return Table.open(lake.root / name)


# ---- create


def test_create_table_keeps_columns_not_null_properties_and_the_cluster_key(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE lake.t (id BIGINT NOT NULL, s STRUCT<x: INT, y: ARRAY<STRING>>, "
        "d DECIMAL(10, 2), at TIMESTAMP) USING fuse CLUSTER BY (id) "
        "TBLPROPERTIES ('fuse.block.rows' = '500', 'own' = 'x')"
    )

    table = open_table(lake)
    assert table.schema == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("s", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
            ("d", pa.decimal128(10, 2)),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    assert table.properties == {"fuse.block.rows": "500", "own": "x"}
    assert table.head().cluster_key == (1,)


def test_what_show_create_table_says_creates_such_a_table(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE lake.t (id BIGINT NOT NULL, `a b` STRING) CLUSTER BY (id) "
        "TBLPROPERTIES ('fuse.block.rows' = '500')"
    )
    before = open_table(lake)
    described = before.schema, before.properties, before.head().cluster_key
    (statement,) = lake.sql("SHOW CREATE TABLE lake.t")
    lake.sql("DROP TABLE lake.t")
    lake.sql(statement)

    after = open_table(lake)
    assert (after.schema, after.properties, after.head().cluster_key) == described
    assert after.table_id != before.table_id


def test_create_table_again_is_refused_unless_it_says_if_not_exists(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t (id BIGINT)")

    lake.refuses("CREATE TABLE lake.t (id BIGINT)", "TABLE_OR_VIEW_ALREADY_EXISTS")
    lake.sql("CREATE TABLE IF NOT EXISTS lake.t (other STRING)")
    assert open_table(lake).schema.names == ["id"]


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("CREATE TABLE lake.t (a INT, b INT) PARTITIONED BY (b)", "CLUSTER BY"),
        ("CREATE TABLE lake.t (a INT, b INT) PARTITIONED BY (bucket(4, b))", "CLUSTER BY"),
        ("CREATE TABLE lake.t (a INT, b DATE) PARTITIONED BY (days(b))", "CLUSTER BY"),
        ("CREATE TABLE lake.t (a INT) LOCATION '/elsewhere'", "leave LOCATION out"),
        ("CREATE TABLE lake.t (a INT) USING orc", "USING fuse"),
        ("CREATE TABLE lake.t (a INT) TBLPROPERTIES ('fuse.nope' = '1')", "property"),
        ("CREATE TABLE lake.t (_fuse_a INT)", "reserved"),
        ("CREATE TABLE lake.t (a INTERVAL DAY)", "UnsupportedTypeError"),
        ("CREATE TABLE lake._t (a INT)", "name of a folder"),
        ("CREATE TABLE lake.`a/b` (a INT)", "name of a folder"),
        ("CREATE VIEW lake.v AS SELECT 1 AS a", "tables alone"),
    ],
)
def test_what_a_table_cannot_have_is_refused_with_what_to_do(
    lake: Lake, statement: str, remedy: str
) -> None:
    lake.refuses(statement, remedy)

    assert lake.sql("SHOW TABLES IN lake") == []


def test_create_table_as_select_has_the_rows(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t CLUSTER BY (id) AS SELECT id, id * 2 AS v FROM range(5)")

    assert sorted(lake.sql("SELECT * FROM lake.t")) == [(n, 2 * n) for n in range(5)]
    assert open_table(lake).head().cluster_key == (1,)


def test_a_failed_create_table_as_select_leaves_no_table(lake: Lake) -> None:
    lake.refuses(
        "CREATE TABLE lake.t AS SELECT CAST(raise_error('boom') AS INT) AS a FROM range(3)", "boom"
    )

    assert lake.sql("SHOW TABLES IN lake") == []
    assert not (lake.root / "t").exists()


# ---- replace


def test_replace_table_is_one_commit_that_keeps_the_history(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")
    lake.sql("CREATE OR REPLACE TABLE lake.t AS SELECT id FROM range(2)")

    assert sorted(lake.sql("SELECT id FROM lake.t")) == [0, 1]
    assert len(lake.sql("SELECT id FROM lake.t VERSION AS OF 1")) == 5
    assert [str(one.operation) for one in open_table(lake).log()] == [
        "overwrite",
        "append",
        "create",
    ]


def test_replace_table_sets_properties_and_the_cluster_key(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t (id BIGINT, v INT) TBLPROPERTIES ('own' = '1')")
    lake.sql("INSERT INTO lake.t VALUES (1, 1)")
    lake.sql("REPLACE TABLE lake.t (id BIGINT, v INT) CLUSTER BY (v) TBLPROPERTIES ('other' = '2')")

    table = open_table(lake)
    assert lake.sql("SELECT * FROM lake.t") == []
    assert table.properties == {"own": "1", "other": "2"}
    assert table.head().cluster_key == (2,)


def test_a_table_is_not_replaced_by_one_with_other_columns(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")

    lake.refuses(
        "CREATE OR REPLACE TABLE lake.t AS SELECT id AS other FROM range(2)",
        "SchemaMismatchError",
        "ALTER TABLE",
        "DROP",
    )
    assert len(lake.sql("SELECT id FROM lake.t")) == 5


def test_a_failed_replace_leaves_the_table_as_it_was(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")

    lake.refuses(
        "CREATE OR REPLACE TABLE lake.t TBLPROPERTIES ('own' = '1') AS "
        "SELECT IF(id > 0, raise_error('boom'), id) AS id FROM range(2)",
        "boom",
    )
    assert open_table(lake).head().version == 1
    assert open_table(lake).properties == {}


# ---- alter


def test_alter_table_adds_a_column_that_is_null_in_older_rows(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(2)")
    lake.sql("ALTER TABLE lake.t ADD COLUMNS (a STRING, s STRUCT<x: INT>)")
    lake.sql("INSERT INTO lake.t VALUES (9, 'new', named_struct('x', 1))")

    assert sorted(lake.sql("SELECT id, a, s.x FROM lake.t")) == [
        (0, None, None),
        (1, None, None),
        (9, "new", 1),
    ]


def test_alter_table_widens_a_type(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT 7 AS a, 1.5F AS f")
    lake.sql("ALTER TABLE lake.t ALTER COLUMN a TYPE BIGINT")
    lake.sql("ALTER TABLE lake.t ALTER COLUMN f TYPE DOUBLE")
    lake.sql("INSERT INTO lake.t VALUES (5000000000, 0.1D)")

    assert sorted(lake.sql("SELECT * FROM lake.t")) == [(7, 1.5), (5000000000, 0.1)]


def test_alter_table_sets_and_removes_properties_and_the_cluster_key(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t (id BIGINT) TBLPROPERTIES ('own' = '1', 'fuse.retain' = '7d')")
    lake.sql("ALTER TABLE lake.t SET TBLPROPERTIES ('fuse.block.rows' = '100', 'x' = 'y')")
    lake.sql("ALTER TABLE lake.t UNSET TBLPROPERTIES ('own', 'fuse.retain')")
    lake.sql("ALTER TABLE lake.t CLUSTER BY (id)")

    assert lake.sql("SHOW TBLPROPERTIES lake.t") == [("fuse.block.rows", "100"), ("x", "y")]
    assert open_table(lake).properties == {"fuse.block.rows": "100", "x": "y"}
    assert open_table(lake).head().cluster_key == (1,)
    lake.sql("ALTER TABLE lake.t UNSET TBLPROPERTIES ('fuse.block.rows')")
    assert open_table(lake).properties["fuse.block.rows"] == "1000000"
    lake.sql("ALTER TABLE lake.t CLUSTER BY NONE")
    assert open_table(lake).head().cluster_key == ()


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("ALTER TABLE lake.t RENAME COLUMN s.x TO _change_type.y", "PARSE_SYNTAX_ERROR"),
        ("ALTER TABLE lake.t RENAME COLUMN a TO _change_type", "the change feed uses"),
        ("ALTER TABLE lake.t DROP COLUMN s.x", "at least one column"),
        ("ALTER TABLE lake.t ADD COLUMN z INT NOT NULL", "older rows"),
        ("ALTER TABLE lake.t ALTER COLUMN a SET NOT NULL", "nullable column to non-nullable"),
        ("ALTER TABLE lake.t ALTER COLUMN a TYPE STRING", "wider"),
        ("ALTER TABLE lake.t SET TBLPROPERTIES ('fuse.nope' = '1')", "property"),
        ("ALTER TABLE lake.t UNSET TBLPROPERTIES ('nope')", "no such property"),
        ("ALTER TABLE lake.t RENAME TO lake.z", "fuse.clone"),
    ],
)
def test_a_change_that_the_format_lacks_is_refused_and_changes_nothing(
    lake: Lake, statement: str, remedy: str
) -> None:
    lake.sql("CREATE TABLE lake.t (a INT, s STRUCT<x: INT>)")

    message = lake.refuses(statement, remedy)
    assert "\tat " not in message
    assert open_table(lake).head().version == 0


def test_alter_table_renames_drops_adds_and_moves_columns(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE lake.t AS SELECT id AS a, named_struct('x', id, 'y', 'y') AS s, 'b' AS b "
        "FROM range(2)"
    )
    lake.sql("ALTER TABLE lake.t RENAME COLUMN a TO c")
    lake.sql("ALTER TABLE lake.t RENAME COLUMN s.x TO z")
    lake.sql("ALTER TABLE lake.t DROP COLUMNS (b, s.y)")
    lake.sql("ALTER TABLE lake.t ADD COLUMNS (a STRING FIRST, b INT AFTER c)")
    lake.sql("ALTER TABLE lake.t ADD COLUMN s.x STRING FIRST")
    lake.sql("ALTER TABLE lake.t DROP COLUMN IF EXISTS nothing")
    lake.sql("INSERT INTO lake.t VALUES ('new', 9, 7, named_struct('x', 'n', 'z', 9))")
    lake.sql("ALTER TABLE lake.t ALTER COLUMN c AFTER s")

    assert lake.spark.table("lake.t").columns == ["a", "b", "s", "c"]
    assert sorted(lake.sql("SELECT c, a, b, s.x, s.z FROM lake.t")) == [
        (0, None, None, None, 0),
        (1, None, None, None, 1),
        (9, "new", 7, "n", 9),
    ]
    assert lake.sql("SELECT c FROM lake.t WHERE a IS NULL AND b IS NULL AND c = 1") == [1]
    assert lake.sql("SELECT s.x FROM lake.t VERSION AS OF 1 WHERE b = 'b' AND a = 1") == [1]


def test_rows_change_by_the_new_names(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id AS a, named_struct('x', id) AS s FROM range(4)")
    lake.sql("ALTER TABLE lake.t RENAME COLUMN a TO b")
    lake.sql("ALTER TABLE lake.t RENAME COLUMN s.x TO z")
    lake.sql("ALTER TABLE lake.t ADD COLUMN a STRING")
    lake.sql("UPDATE lake.t SET a = 'updated' WHERE b = 1")
    lake.sql("DELETE FROM lake.t WHERE b = 2")
    lake.sql(
        "MERGE INTO lake.t USING (SELECT id AS b FROM range(3, 5)) AS n ON t.b = n.b "
        "WHEN MATCHED THEN UPDATE SET a = 'merged', s.z = 30 "
        "WHEN NOT MATCHED THEN INSERT (a, b, s) VALUES ('added', n.b, named_struct('z', 40L))"
    )

    wanted = [(0, None, 0), (1, "updated", 1), (3, "merged", 30), (4, "added", 40)]
    assert sorted(lake.sql("SELECT b, a, s.z FROM lake.t")) == wanted
    assert sorted(lake.sql("SELECT b, a, s.z FROM lake.t WHERE a IS NOT NULL")) == wanted[1:]
    assert open_table(lake).fsck(deep=True).is_sound


def test_comments_are_kept_and_shown(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t (a INT COMMENT 'first', s STRUCT<x: INT COMMENT 'inner'>)")
    lake.sql("ALTER TABLE lake.t ALTER COLUMN a COMMENT 'second'")
    lake.sql("ALTER TABLE lake.t ADD COLUMN b INT COMMENT 'third'")

    shown = lake.sql("DESCRIBE lake.t")
    assert shown[0] == ("a", "int", "second")
    assert shown[2] == ("b", "int", "third")
    assert '"comment":"inner"' in lake.spark.table("lake.t").schema.json()


def test_not_null_is_dropped(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t (a BIGINT NOT NULL, b BIGINT)")
    lake.sql("INSERT INTO lake.t VALUES (0, 1)")
    lake.refuses("INSERT INTO lake.t VALUES (NULL, 1)", "NULL")
    lake.sql("ALTER TABLE lake.t ALTER COLUMN a DROP NOT NULL")
    lake.sql("INSERT INTO lake.t VALUES (NULL, 1)")
    assert lake.sql("SELECT count(*) FROM lake.t WHERE a IS NULL") == [1]


# ---- drop


def test_drop_table_deletes_the_folder(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")
    lake.sql("DROP TABLE lake.t")

    assert not (lake.root / "t").exists()
    assert lake.sql("SHOW TABLES IN lake") == []
    lake.refuses("DROP TABLE lake.t", "TABLE_OR_VIEW_NOT_FOUND")
    lake.sql("DROP TABLE IF EXISTS lake.t PURGE")


def test_drop_table_leaves_files_that_are_not_the_tables(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")
    note = lake.root / "t" / ".notes" / "mine.txt"
    note.parent.mkdir()
    note.write_text("keep")
    lake.sql("DROP TABLE lake.t")

    assert [path for path in (lake.root / "t").rglob("*") if path.is_file()] == [note]


def test_a_table_with_clones_is_not_dropped(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT id FROM range(5)")
    copy = lake.root / "copy"
    clone(lake.root / "t", copy)

    lake.refuses("DROP TABLE lake.t", "ConflictError", str(copy))
    assert len(lake.sql("SELECT * FROM lake.t")) == 5


# ---- namespaces, and what SHOW and DESCRIBE say


def test_a_namespace_is_a_folder(lake: Lake) -> None:
    lake.sql("CREATE NAMESPACE lake.raw")
    lake.sql("CREATE TABLE lake.raw.t AS SELECT 1 AS a")
    lake.sql("CREATE TABLE lake.top AS SELECT 2 AS a")

    assert lake.sql("SHOW NAMESPACES IN lake") == ["default", "raw"]
    assert lake.sql("SHOW TABLES IN lake.raw") == [("raw", "t", False)]
    assert [name for _, name, _ in lake.sql("SHOW TABLES IN lake.default")] == ["top"]
    assert lake.sql("SELECT * FROM lake.raw.t") == [1]
    assert (lake.root / "raw" / "t" / "_fuse.json").exists()
    lake.refuses("SHOW TABLES IN lake.nope", "SCHEMA_NOT_FOUND")
    lake.refuses("DROP NAMESPACE lake.raw CASCADE", "not empty")
    lake.sql("DROP TABLE lake.raw.t")
    lake.sql("DROP NAMESPACE lake.raw")
    assert lake.sql("SHOW NAMESPACES IN lake") == ["default"]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE lake.t.history (a INT)",
        "CREATE TABLE lake.t.x.y AS SELECT 1 AS a",
        "CREATE NAMESPACE lake.t",
        "CREATE NAMESPACE lake.t.x",
    ],
)
def test_nothing_is_created_inside_a_table(lake: Lake, statement: str) -> None:
    lake.sql("CREATE TABLE lake.t (a INT)")
    before = sorted(path.name for path in (lake.root / "t").iterdir())

    lake.refuses(statement, "InvalidInputError", "this name is a table")
    assert sorted(path.name for path in (lake.root / "t").iterdir()) == before


def test_use_makes_the_catalog_the_current_one(lake: Lake) -> None:
    lake.sql("CREATE TABLE lake.t AS SELECT 3 AS a")
    lake.sql("USE lake")

    assert lake.sql("SELECT * FROM t") == [3]
    assert lake.sql("SELECT current_catalog(), current_schema()") == [("lake", "default")]


@pytest.mark.parametrize("hides", [False, True])
def test_describe_shows_columns_cluster_key_and_place(lake: Lake, *, hides: bool) -> None:
    lake.sql("CREATE TABLE lake.t (id BIGINT NOT NULL, v INT) CLUSTER BY (id)")
    lake.sql("INSERT INTO lake.t VALUES (1, 1), (2, 2), (3, 3)")
    if hides:
        lake.sql("DELETE FROM lake.t WHERE id = 2")

    said = {name: value for name, value, _ in lake.sql("DESCRIBE EXTENDED lake.t")}
    assert said["id"] == "bigint"
    assert said["Provider"] == "fuse"
    assert said["Type"] == "MANAGED"
    assert said["Location"] == str(lake.root / "t")
    assert said["Statistics"].endswith("2 rows" if hides else "3 rows")
    assert lake.sql("SHOW COLUMNS IN lake.t") == ["id", "v"]
