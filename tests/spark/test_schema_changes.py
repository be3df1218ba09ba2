"""Spark reads each version of a table whose columns were renamed, dropped and given again.

Whole, and by a part of each nested column; with filters, which Spark tests by the names in files;
by `fuse.read`, by a table's name, by `format("fuse")` and by both streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import fuse_stream as fuse
from tests.spark.lakes import attached
from tests.spark.streams import EACH_DOOR, follow_table, refusal_of, run

INNER = pa.struct([("u", pa.int64()), ("w", pa.string())])
FIRST = pa.schema(
    [
        ("a", pa.int64()),
        ("s", pa.struct([("x", pa.int64()), ("y", INNER)])),
        ("l", pa.list_(INNER)),
        ("m", pa.map_(pa.string(), INNER)),
        ("k", pa.int64()),
    ]
)
OLD = [
    {
        "a": n if n % 2 else None,
        "s": {"x": n, "y": {"u": n, "w": f"w{n}"}} if n % 3 else None,
        "l": [{"u": n, "w": "l"}],
        "m": [("key", {"u": n, "w": "m"})],
        "k": n,
    }
    for n in range(6)
]
NEW = [
    {
        "a": "new" if n % 2 else None,
        "t": {"x": f"x{n}", "z": n, "v": {"u2": n, "w": f"w{n}"}},
        "r": [{"n": n, "w": "l"}],
        "q": [("key", {"n": n, "w": "m"})],
        "b": n,
        "k": n,
    }
    for n in range(10, 14)
]


@dataclass(frozen=True)
class Scene:
    path: str
    table: fuse.Table
    before: int
    """The version before the columns change."""


def changed_table(folder: Path) -> Scene:
    path = str(folder / "t")
    table = fuse.Table.create(path, FIRST)
    table.append(pa.Table.from_pylist(OLD, schema=FIRST))
    before = table.head().version
    with table.update_schema() as change:
        change.rename_column("a", "b")
        change.add_column("a", "string", first=True)
        change.rename_column("s.y.u", "u2")
        change.rename_column("s.y", "v")
        change.rename_column("s.x", "z")
        change.add_column("s.x", "string", first=True)
        change.rename_column("s", "t")
        change.rename_column("l.element.u", "n")
        change.rename_column("l", "r")
        change.rename_column("m.value.u", "n")
        change.rename_column("m", "q")
        change.move_after("b", "q")
    table.append(pa.Table.from_pylist(NEW, schema=table.schema))
    return Scene(path, table, before)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return changed_table(tmp_path_factory.mktemp("changed"))


@pytest.fixture(scope="module")
def hiding(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The same, with rows that are hidden in blocks of before and after."""
    scene = changed_table(tmp_path_factory.mktemp("hiding"))
    scene.table.delete("b = 1 OR b = 11")
    return scene


PARTS = [
    "a", "b", "t", "r", "q", "t.x", "t.z", "t.v", "t.v.u2", "t.v.w", "r[0].n", "r.n", "q['key'].n",
    "map_values(q).n", "k",
]  # fmt: skip
FILTERS = [
    "a IS NULL", "a IS NOT NULL", "a = 'new'", "b IS NULL", "b = 1", "b >= 3 AND b < 12",
    "t IS NULL", "t.x IS NULL", "t.z = 4", "t.v.u2 = 11", "t.v.w = 'w4'", "k = 10", "k IN (1, 12)",
]  # fmt: skip


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def local(spark: SparkSession, scene: Scene, version: int | None = None) -> DataFrame:
    """Return the rows as Spark computes on them without any file: what is right."""
    return spark.createDataFrame(scene.table.to_arrow(version=version))


def check(read: DataFrame, right: DataFrame) -> None:
    assert read.columns == right.columns
    assert rows(read) == rows(right)
    for part in PARTS:
        assert rows(read.selectExpr(part)) == rows(right.selectExpr(part)), part
    for where in FILTERS:
        chosen = ["a", "t.z", "r.n", "k"]
        found = read.where(where).selectExpr(*chosen)
        assert rows(found) == rows(right.where(where).selectExpr(*chosen)), where


def by_read(spark: SparkSession, scene: Scene) -> DataFrame:
    return fuse.read(spark, scene.path)


def by_format(spark: SparkSession, scene: Scene) -> DataFrame:
    return spark.read.format("fuse").load(scene.path)


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("scene", by_read),
        ("hiding", by_read),
        pytest.param("scene", by_format, marks=LONG),
        pytest.param("hiding", by_format, marks=LONG),
    ],
)
def test_a_read_has_the_rows_of_the_table(
    spark: SparkSession,
    request: pytest.FixtureRequest,
    name: str,
    read: Callable[[SparkSession, Scene], DataFrame],
) -> None:
    scene = request.getfixturevalue(name)

    check(read(spark, scene), local(spark, scene))


@pytest.mark.parametrize("name", ["scene", "hiding"])
def test_a_query_by_name_has_the_rows_of_the_table(
    spark: SparkSession, request: pytest.FixtureRequest, name: str
) -> None:
    scene = request.getfixturevalue(name)
    with attached(spark, Path(scene.path).parent) as lake:
        check(lake.spark.table("lake.t"), local(lake.spark, scene))


def test_where_of_a_read_goes_by_the_names_of_the_version(
    spark: SparkSession, scene: Scene
) -> None:
    right = local(spark, scene)
    for where in FILTERS:
        found = fuse.read(spark, scene.path, where=where)
        assert rows(found) == rows(right.where(where)), where
    before = fuse.read(spark, scene.path, version=scene.before, where="a IS NULL")
    assert rows(before) == rows(local(spark, scene, scene.before).where("a IS NULL"))
    old = fuse.read(spark, scene.path, version=scene.before)
    assert rows(old) == rows(local(spark, scene, scene.before))


@EACH_DOOR
@pytest.mark.parametrize("name", ["scene", pytest.param("hiding", marks=LONG)])
def test_a_stream_has_the_rows_of_the_table(
    spark: SparkSession,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    name: str,
    door: str,
) -> None:
    scene = request.getfixturevalue(name)
    for number, options in enumerate([{}, {"where": "a IS NULL"}, {"where": "t.z >= 4"}]):
        seen: list[str] = []
        stream = follow_table(spark, scene.path, door, feed="changes", **options)
        shown = stream.select(*local(spark, scene).columns)

        def take(frame: DataFrame, _: int, seen: list[str] = seen) -> None:
            seen.extend(rows(frame))

        run(shown, take, tmp_path / str(number))

        right = local(spark, scene)
        wanted = right.where(options["where"]) if options else right
        assert sorted(seen) == rows(wanted), options


@EACH_DOOR
def test_a_stream_stops_at_a_rename_and_goes_on_when_it_is_loaded_again(
    spark: SparkSession, tmp_path: Path, door: str
) -> None:
    path = tmp_path / "t"
    table = fuse.Table.create(path, pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    table.append(pa.table({"a": [1], "b": [1]}))
    seen: list[object] = []

    def take(frame: DataFrame, _: int) -> None:
        seen.extend(tuple(row)[:2] for row in frame.collect())

    run(follow_table(spark, path, door, feed="changes"), take, tmp_path / "c")
    with table.update_schema() as change:
        change.rename_column("a", "c")
    table.append(pa.table({"c": [2], "b": [None]}, schema=table.schema))
    run(follow_table(spark, path, door, feed="changes"), take, tmp_path / "c")
    assert seen == [(1, 1), (2, None)]
    with table.update_schema() as change:
        change.delete_column("b")
    with table.update_schema() as change:
        change.add_column("b", "long")
    table.append(pa.table({"c": [3], "b": [3]}))
    again = follow_table(spark, path, door, feed="changes")

    assert "another column" in refusal_of(again, take, tmp_path / "c")
    assert seen == [(1, 1), (2, None)]
