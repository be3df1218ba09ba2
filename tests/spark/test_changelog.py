"""`CHANGES` of Spark's SQL over random histories, in each mode; and streams of changes."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

import fuse_stream as fuse
from fuse_stream.errors import FuseError
from fuse_stream.spark.jvm import planned_scan
from fuse_stream.spark.jvm.changelog import Changelog
from fuse_stream.spark.jvm.micro_batches import PlannedStream
from fuse_stream.spark.jvm.planned_scan import PlannedScan, PlannedScanBuilder
from fuse_stream.table.handle import Table
from tests.kit.strides import NIGHT
from tests.spark.lake_tables import SCHEMA, Row, collected, create, missing_methods, rows, run
from tests.spark.lakes import attached

PLAIN = {"update_preimage": "delete", "update_postimage": "insert"}
MARKED = "k, v, _change_type, _commit_version"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    with attached(spark, tmp_path) as found:
        yield found.spark


@pytest.fixture
def only_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no Python worker read a row."""

    def refuse(_spark: SparkSession) -> None:
        raise AssertionError("tasks of Python would read the rows")

    monkeypatch.setattr(planned_scan, "register_tasks", refuse)


def changes(
    lake: SparkSession, span: str, *, mode: str = "none", updates: bool = False, what: str = MARKED
) -> list[Row]:
    options = f"deduplicationMode = '{mode}', computeUpdates = '{str(updates).lower()}'"
    return collected(lake.sql(f"SELECT {what} FROM lake.t CHANGES FROM {span} WITH ({options})"))


def marked(found: pa.Table) -> list[Row]:
    names = [name for name in (*MARKED.split(", "),) if name in found.column_names]
    return list(zip(*(found[name].to_pylist() for name in names), strict=True))


def feed(table: Table, first: int, last: int | None = None) -> list[Row]:
    return marked(table.changes(first, last).read_all())


def as_two_rows(found: list[Row]) -> list[Row]:
    return [(k, v, PLAIN.get(kind, kind), version) for k, v, kind, version in found]


def summed(found: list[Row]) -> Counter[Row]:
    """Return rows as deleted and inserted ones, minus what one commit both deleted and inserted."""
    sums: Counter[Row] = Counter()
    for k, v, kind, version in as_two_rows(found):
        sums[k, v, version] += 1 if kind == "insert" else -1
    return Counter({row: n for row, n in sums.items() if n})


# ---- batches


def step(table: Table, rng: random.Random, *, keyed: bool) -> None:
    """Commit something at random; a commit that cannot be made here is left out."""
    keys = rng.sample(range(30), rng.randint(1, 8))
    new = pa.table([keys, [rng.randint(0, 2) for _ in keys]], schema=SCHEMA)
    head, path = table.head().version, table.location.path
    choices: list[Callable[[], object]] = [
        lambda: table.upsert(new) if keyed else table.append(new),
        lambda: table.upsert(new) if keyed else table.append(new),
        lambda: table.delete(f"k % 5 = {rng.randint(0, 4)}"),
        lambda: table.update(f"k % 3 = {rng.randint(0, 2)}", {"v": rng.randint(0, 2)}),
        lambda: table.overwrite(new),
        table.compact,
        lambda: fuse.rewind(path, version=rng.randint(0, head)),
        lambda: table.revert(rng.randint(max(0, head - 3), head)),
    ]
    try:
        rng.choice(choices)()
    except FuseError as error:
        if not isinstance(error, ValueError | RuntimeError | LookupError):
            raise


@pytest.mark.parametrize(
    ("seed", "keyed"),
    [
        (1, False),
        (2, True),
        *(
            pytest.param(seed, keyed, marks=pytest.mark.long if seed < 12 else NIGHT)
            for seed in range(10, 18)
            for keyed in (False, True)
        ),
    ],
)
def test_each_mode_agrees_with_the_table(
    lake: SparkSession, tmp_path: Path, seed: int, *, keyed: bool
) -> None:
    rng = random.Random(seed)
    table = create(tmp_path)
    if keyed:
        table.set_key(["k"])
    for _ in range(12):
        step(table, rng, keyed=keyed)
    head = table.head().version
    keyed = bool(table.head().key)  # a rewind takes the key back, too
    first = rng.randint(1, head)
    span = f"VERSION {first} TO VERSION {head}"
    told = feed(table, first, head)

    assert Counter(changes(lake, span)) == Counter(as_two_rows(told))
    assert summed(changes(lake, span, mode="dropCarryovers")) == summed(told)
    net = [row[:3] for row in changes(lake, span, mode="netChanges")]
    assert Counter(net) == Counter(marked(table.diff(first - 1, head).read_all()))
    if not keyed:
        assert Counter(changes(lake, span, updates=True)) == Counter(told)
    else:
        labelled = changes(lake, span, mode="netChanges", updates=True)
        assert Counter(as_two_rows(labelled)) == Counter(changes(lake, span, mode="netChanges"))
        twice = {k for k, count in Counter(row[0] for row in labelled).items() if count == 2}
        assert {row[0] for row in labelled if row[2] in PLAIN} == twice
    assert summed(changes(lake, span, updates=True)) == summed(told)


def test_appended_rows_are_read_by_sparks_reader(
    lake: SparkSession, tmp_path: Path, only_files: None
) -> None:
    table = create(tmp_path)
    table.append(rows([1, 2]))
    table.append(rows([3]))

    assert sorted(changes(lake, "VERSION 1")) == [
        (1, 0, "insert", 1),
        (2, 0, "insert", 1),
        (3, 0, "insert", 2),
    ]
    assert changes(lake, "VERSION 1", what="count(*)") == [(3,)]
    assert sorted(changes(lake, "VERSION 1", what="v, _commit_timestamp")) == sorted(
        (
            0,
            dt.datetime.fromtimestamp(table.snapshot(n).timestamp_us / 1e6, dt.UTC).replace(
                tzinfo=None
            ),
        )
        for n in (1, 1, 2)
    )


def test_blocks_from_before_a_column_are_read_by_sparks_reader(
    lake: SparkSession, tmp_path: Path, only_files: None
) -> None:
    table = create(tmp_path)
    table.append(rows([1]))
    table.append(pa.table({"k": [2], "v": [0], "w": ["a"]}), merge_schema=True)

    found = changes(lake, "VERSION 1", what="k, w, _commit_version")

    assert sorted(found) == [(1, None, 1), (2, "a", 2)]


def test_blocks_from_before_a_column_that_a_rewind_removed_are_read_by_sparks_reader(
    lake: SparkSession, tmp_path: Path, only_files: None
) -> None:
    table, found = create(tmp_path), list[Row]()
    table.append(rows([1]))
    table.append(pa.table({"k": [2], "v": [0], "w": ["a"]}), merge_schema=True)
    fuse.rewind(table.location.path, version=1)
    table.append(pa.table({"k": [3], "v": [0], "x": ["b"]}), merge_schema=True)  # not the id of w

    stream = lake.readStream.option("startingVersion", 1).changes("lake.t")
    run(stream.select("k", "x", "_commit_version"), tmp_path / "checkpoint", found)

    assert sorted(found) == [(1, None, 1), (3, "b", 4)]


def test_large_files_are_split_and_small_ones_are_read_together(
    lake: SparkSession, tmp_path: Path, only_files: None
) -> None:
    table = create(tmp_path)
    for number in range(20):
        table.append(rows([number]))
    lake.conf.set("spark.sql.files.minPartitionNum", "1")
    frame = lake.sql("SELECT * FROM lake.t CHANGES FROM VERSION 1")

    assert frame.rdd.getNumPartitions() == 1
    lake.conf.set("spark.sql.files.maxPartitionBytes", "300")
    lake.conf.set("spark.sql.files.openCostInBytes", "0")
    split = lake.sql("SELECT * FROM lake.t CHANGES FROM VERSION 1")
    assert split.rdd.getNumPartitions() > 20
    assert split.count() == 20


def test_rows_are_compared_in_columns_that_are_not_selected(
    lake: SparkSession, tmp_path: Path
) -> None:
    table = create(tmp_path)
    table.append(rows([1]))
    table.update("k = 1", {"v": 5})

    found = changes(lake, "VERSION 2", updates=True, what="k, _change_type")

    assert sorted(found) == [(1, "update_postimage"), (1, "update_preimage")]


@pytest.mark.parametrize(
    ("span", "versions"),
    [
        ("VERSION 2 TO VERSION 3", [2, 3]),
        ("VERSION 2 EXCLUSIVE TO VERSION 3 INCLUSIVE", [3]),
        ("VERSION 2 TO VERSION 3 EXCLUSIVE", [2]),
        ("VERSION 2 EXCLUSIVE TO VERSION 3 EXCLUSIVE", []),
        ("VERSION 3 EXCLUSIVE", [4]),
        ("VERSION 4 EXCLUSIVE", []),
        ("VERSION 'second'", [2, 3, 4]),
        ("TIMESTAMP '2020-01-01'", [1, 2, 3, 4]),
        ("TIMESTAMP '2020-01-01' TO TIMESTAMP '2020-01-02'", []),
        ("TIMESTAMP '2100-01-01'", []),
        ("TIMESTAMP '{2}' TO TIMESTAMP '{3}'", [2, 3]),
        ("TIMESTAMP '{2}' EXCLUSIVE TO TIMESTAMP '{4}' EXCLUSIVE", [3]),
    ],
)
def test_bounds_are_versions_tags_or_times(
    lake: SparkSession, tmp_path: Path, span: str, versions: list[int]
) -> None:
    table = create(tmp_path)
    for number in range(4):
        table.append(rows([number]))
    table.create_tag("second", 2)
    times = [
        dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=each.timestamp_us)
        for each in reversed(list(table.log()))
    ]

    found = changes(lake, span.format(*(time.isoformat(" ") for time in times)))

    assert sorted(row[3] for row in found) == versions


@pytest.mark.parametrize(
    ("span", "mode", "message"),
    [
        ("VERSION 2 TO VERSION 1", "none", "InvalidInputError: the first version is past the last"),
        ("VERSION 1 TO VERSION 9", "none", "NotFoundError: this version is past the head"),
        (
            "TIMESTAMP '2021-01-01' TO TIMESTAMP '2020-01-01'",
            "none",
            "InvalidInputError: the changes end before they start",
        ),
        (
            "VERSION 1",
            "netChanges",
            "InvalidInputError: netChanges finds updates by the table's key",
        ),
    ],
)
def test_an_error_begins_with_its_class_and_message(
    lake: SparkSession, tmp_path: Path, span: str, mode: str, message: str
) -> None:
    table = create(tmp_path)
    table.append(rows([1]))
    table.append(rows([2]))

    with pytest.raises(IllegalArgumentException) as caught:
        changes(lake, span, mode=mode, updates=True)

    assert str(caught.value).startswith(message)


def test_a_dataframe_has_the_changes_of_its_analysis(lake: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    table.append(rows([1]))
    frame = lake.read.option("startingVersion", 1).changes("lake.t")
    table.append(rows([2]))

    assert frame.count() == frame.count() == 1
    assert lake.read.option("startingVersion", 1).changes("lake.t").count() == 2


def test_a_missing_table_is_sparks_own_error(lake: SparkSession) -> None:
    with pytest.raises(Exception, match=r"no fuse_stream table here|TABLE_OR_VIEW_NOT_FOUND"):
        lake.read.option("startingVersion", 1).changes("lake.nope").count()


# ---- streams


@pytest.mark.parametrize("updates", [False, True])
def test_a_stream_goes_on_after_a_restart(
    lake: SparkSession, tmp_path: Path, *, updates: bool
) -> None:
    table, found = create(tmp_path), list[Row]()
    table.append(rows([1, 2, 3]))
    table.update("k = 2", {"v": 5})

    def follow() -> None:
        reader = lake.readStream.option("startingVersion", 1).option("maxCommitsPerTrigger", 1)
        reader = reader.option("computeUpdates", str(updates).lower())
        frame = reader.changes("lake.t").select(*MARKED.split(", "))
        run(frame, tmp_path / "checkpoint", found)

    follow()
    first = list(found)
    table.delete("k = 3")
    table.append(rows([4]))
    follow()
    follow()

    told = feed(table, 1)
    assert Counter(found) == Counter(told if updates else as_two_rows(told))
    assert {row[3] for row in first} == {1, 2}


def test_a_stream_without_a_start_has_the_table_first(lake: SparkSession, tmp_path: Path) -> None:
    table, found = create(tmp_path), list[Row]()
    table.append(rows([1, 2]))
    table.delete("k = 1")

    def follow() -> None:
        frame = lake.readStream.changes("lake.t").select(*MARKED.split(", "))
        run(frame, tmp_path / "checkpoint", found)

    follow()
    table.append(rows([3]))
    follow()

    assert found == [(2, 0, "insert", 2), (3, 0, "insert", 3)]


def test_a_stream_after_the_head_has_what_comes_next(lake: SparkSession, tmp_path: Path) -> None:
    table, found = create(tmp_path), list[Row]()
    table.append(rows([1]))
    reader = lake.readStream.option("startingVersion", 1).option("startingBoundInclusive", "false")
    frame = reader.changes("lake.t").select(*MARKED.split(", "))
    table.append(rows([2]))

    run(frame, tmp_path / "checkpoint", found)

    assert found == [(2, 0, "insert", 2)]


def test_net_changes_of_a_stream_are_those_of_each_batch(
    lake: SparkSession, tmp_path: Path
) -> None:
    table, found = create(tmp_path), list[Row]()
    table.append(rows([1, 2]))

    def follow() -> None:
        reader = lake.readStream.option("startingVersion", 1)
        reader = reader.option("deduplicationMode", "netChanges")
        run(reader.changes("lake.t").select(*MARKED.split(", ")), tmp_path / "checkpoint", found)

    table.delete("k = 2")
    follow()
    table.append(rows([3]))
    table.update("k = 1", {"v": 1})
    table.delete("k = 3")
    follow()

    assert sorted(found) == [(1, 0, "delete", 4), (1, 0, "insert", 1), (1, 1, "insert", 4)]


def test_a_stream_refuses_an_option_that_it_does_not_know(
    lake: SparkSession, tmp_path: Path
) -> None:
    create(tmp_path).append(rows([1]))
    frame = lake.readStream.option("maxRowPerTrigger", 1).changes("lake.t")

    with pytest.raises(Exception, match=r"InvalidInputError: .*maxRowsPerTrigger"):
        run(frame, tmp_path / "checkpoint", [])


def test_the_proxies_have_all_methods_of_their_interfaces(spark: SparkSession) -> None:
    proxies = (Changelog, PlannedScan, PlannedScanBuilder, PlannedStream)

    assert {proxy.__name__: missing_methods(spark, proxy) for proxy in proxies} == {
        proxy.__name__: set() for proxy in proxies
    }
