"""Exactly-once on real Spark: killed drivers, rivals, checkpoints lost, cut and restored.

A killed driver is another process; what starts the query again is the session of the tests.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from fuse_stream.spark.sink import FuseSink, fuse_sink
from fuse_stream.table.handle import Table
from tests.spark.driver import (
    AFTER,
    BEFORE,
    BETWEEN,
    COUNT,
    DISTINCT,
    EVENTS,
    KEYS,
    SPREAD,
    Driver,
    Job,
    frame_of,
    sink_of,
)
from tests.spark.streams import (
    PATIENCE_S,
    STOPPED_BY_RIVAL,
    deliver,
    deliver_table,
    drop_log,
    ids_delivered,
    ids_of,
    objects_of,
    read_stream,
    refusal_of,
    replace_folder,
    run,
    start,
    versions_of,
)

FILES = 4

ONCE = [
    *(Job(name=f"once-{point}-2", point=point, batch_id=2) for point in (BEFORE, BETWEEN, AFTER)),
    Job(name="once-count", point=AFTER, batch_id=1, plan=COUNT),
    Job(name="once-distinct", point=AFTER, batch_id=1, plan=DISTINCT),
    *(
        Job(name=f"once-events-{point}", point=point, batch_id=2, plan=EVENTS)
        for point in (BETWEEN, AFTER)
    ),
]
TWICE = [
    *(Job(name=f"twice-{point}-0", point=point, batch_id=0) for point in (BEFORE, BETWEEN, AFTER)),
    Job(name="twice-count", point=AFTER, batch_id=2, plan=COUNT),
]
SLEEPERS = [
    Job(name=f"sleeper-{point}-1", point=point, batch_id=1) for point in (BEFORE, BETWEEN, AFTER)
]
RACERS = [Job(name="racer", waits=True), Job(name="racer-events", waits=True, plan=EVENTS)]
RACE_FILES = 8
TALL = Job(name="tall")
WIDE = Job(name="wide", plan=SPREAD)


def names(jobs: list[Job]) -> list[str]:
    return [job.name for job in jobs]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenarios of `ONCE`, whose driver was killed at a chosen point."""
    return kill(tmp_path_factory.mktemp("killed"), ONCE, times=1)


@pytest.fixture(scope="module")
def killed_twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenarios of `TWICE`, whose first two drivers were killed at a chosen point."""
    return kill(tmp_path_factory.mktemp("killed_twice"), TWICE, times=2)


def kill(folder: Path, jobs: list[Job], *, times: int) -> Path:
    for job in jobs:
        deliver(folder / job.name, range(FILES))
    for _ in range(times):
        with Driver(folder, jobs) as driver:
            driver.wait_for(*(f"parked {job.name}" for job in jobs))
            driver.kill()
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Driver]]:
    """Another driver, alive: it sleeps at the points of `SLEEPERS`, then races as `RACERS`."""
    folder = tmp_path_factory.mktemp("rivals")
    for job in SLEEPERS:
        deliver(folder / job.name, range(FILES))
    for job in RACERS:
        deliver(folder / job.name, range(RACE_FILES))
    # Both are above the driver's limit on results, and below all limits of this package.
    deliver(folder / TALL.name, range(1))
    deliver_table(folder / TALL.name, 1, incompressible(1_000, 6_000))
    deliver_table(folder / WIDE.name, 0, incompressible(2_000, 6_000))
    with Driver(folder, [*SLEEPERS, *RACERS, TALL, WIDE]) as driver:
        yield folder, driver


@pytest.fixture(scope="module")
def undisturbed(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Return a function that returns the scenario of a plan whose driver was never killed."""

    @functools.cache
    def run_whole(plan: str) -> Path:
        folder = tmp_path_factory.mktemp("undisturbed")
        deliver(folder, range(FILES))
        frame, output_mode = frame_of(spark, folder, plan)
        sink = sink_of(folder, plan)
        run(frame, sink, folder / "checkpoint", output_mode=output_mode)
        return folder

    return run_whole


def incompressible(count: int, width: int) -> pa.Table:
    """Return `count` rows whose keys are random, so that no codec makes them smaller."""
    random = Random(count)
    keys = [random.randbytes(width // 2).hex() for _ in range(count)]
    return pa.table({"id": range(count), "key": keys})


def assert_delivered_once(table: Path, files: int) -> None:
    """Every row of the files is in the table once, and its history has no gap."""
    head = Table.open(table).head()
    assert ids_of(table) == ids_delivered(files)
    assert versions_of(table) == list(range(head.version + 1))
    assert head.version == files  # one snapshot a batch, beside the first


def assert_last_events(table: Path, files: int) -> None:
    """Each key has the row of its last event, and each batch of the files one snapshot."""
    head = Table.open(table).head()
    last = {sent % KEYS: sent for sent in ids_delivered(files)}
    rows = Table.open(table).to_arrow().sort_by("id").to_pylist()
    assert rows == [
        {"id": key, "key": f"key {sent % 3}", "seq": sent} for key, sent in sorted(last.items())
    ]
    assert versions_of(table) == list(range(files + 1))
    assert head.version == files


def outcomes(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """Return batch and outcome from the log records of the sinks."""
    reports = [record.__dict__["fuse"] for record in caplog.records if "fuse" in record.__dict__]
    return [(report["batch_id"], report["outcome"]) for report in reports]


def filled(spark: SparkSession, folder: Path, files: int = 3) -> FuseSink:
    """Stream `files` files into the table of a scenario; return a sink for what follows."""
    deliver(folder, range(files))
    run(read_stream(spark, folder), fuse_sink(str(folder / "table")), folder / "checkpoint")
    return fuse_sink(str(folder / "table"))


# ---- a killed driver


@pytest.mark.parametrize("job", [job for job in ONCE if not job.plan], ids=lambda job: job.name)
def test_a_killed_driver_restarts_with_each_row_once(
    spark: SparkSession, killed: Path, caplog: pytest.LogCaptureFixture, job: Job
) -> None:
    assert_restarts(spark, killed / job.name, caplog, job, kills=1)


@pytest.mark.long
@pytest.mark.night  # the campaign `drivers` kills twice, too
@pytest.mark.parametrize("job", [job for job in TWICE if not job.plan], ids=lambda job: job.name)
def test_a_driver_killed_twice_restarts_with_each_row_once(
    spark: SparkSession, killed_twice: Path, caplog: pytest.LogCaptureFixture, job: Job
) -> None:
    assert_restarts(spark, killed_twice / job.name, caplog, job, kills=2)


def assert_restarts(
    spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture, job: Job, *, kills: int
) -> None:
    """The driver was killed where the job says; its restart delivers each row once."""
    checkpoint = folder / "checkpoint"
    blocks_stored = len(list((folder / "table" / "_b").glob("*.parquet")))
    versions = versions_of(folder / "table")
    planned = (checkpoint / "offsets" / str(job.batch_id)).exists()
    done = (checkpoint / "commits" / str(job.batch_id)).exists()

    with caplog.at_level(logging.INFO):
        run(read_stream(spark, folder), fuse_sink(str(folder / "table")), checkpoint)

    # It was killed where the job says: the versions from 0 on, the blocks of this batch.
    assert (planned, done) == (True, False)
    is_created = job.batch_id > 0 or job.point != BEFORE
    committed = job.batch_id + (job.point == AFTER)
    assert versions == (list(range(committed + 1)) if is_created else [])
    assert blocks_stored == job.batch_id + {BEFORE: 0, BETWEEN: kills, AFTER: 1}[job.point]
    # And the restart continued.
    first = "replay" if job.point == AFTER else "committed"
    rest = [(batch_id, "committed") for batch_id in range(job.batch_id + 1, FILES)]
    assert outcomes(caplog) == [(job.batch_id, first), *rest]
    assert_delivered_once(folder / "table", FILES)


@pytest.mark.long
@pytest.mark.parametrize("job", [job for job in ONCE if job.plan], ids=lambda job: job.name)
def test_a_query_of_another_plan_is_killed_and_restarts(
    spark: SparkSession, killed: Path, undisturbed: Callable[[str], Path], job: Job
) -> None:
    assert_ends_like(spark, killed / job.name, undisturbed(job.plan), job)


@pytest.mark.long
@pytest.mark.night  # the campaign `drivers` kills twice, too
@pytest.mark.parametrize("job", [job for job in TWICE if job.plan], ids=lambda job: job.name)
def test_a_query_of_another_plan_is_killed_twice_and_restarts(
    spark: SparkSession, killed_twice: Path, undisturbed: Callable[[str], Path], job: Job
) -> None:
    assert_ends_like(spark, killed_twice / job.name, undisturbed(job.plan), job)


def assert_ends_like(spark: SparkSession, folder: Path, undisturbed: Path, job: Job) -> None:
    """A query that is started again ends with the rows of one that was never killed."""
    frame, output_mode = frame_of(spark, folder, job.plan)
    run(frame, sink_of(folder, job.plan), folder / "checkpoint", output_mode=output_mode)
    assert sorted_rows(folder) == sorted_rows(undisturbed)


def sorted_rows(folder: Path) -> list[dict[str, object]]:
    return sorted(Table.open(folder / "table").to_arrow().to_pylist(), key=repr)


# ---- checkpoints with losses


def test_a_lost_commit_entry_of_spark_doubles_no_row(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Peers: Delta and Iceberg in foreachBatch double the rows."""
    sink = filled(spark, tmp_path)
    drop_log(tmp_path / "checkpoint", "commits", 2)
    deliver(tmp_path, range(3, 5))

    with caplog.at_level(logging.INFO):
        run(read_stream(spark, tmp_path), sink, tmp_path / "checkpoint")

    assert outcomes(caplog) == [(2, "replay"), (3, "committed"), (4, "committed")]
    assert_delivered_once(tmp_path / "table", 5)


def test_an_app_id_that_is_changed_before_the_last_batch_has_ended_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = filled(spark, tmp_path)
    renamed = fuse_sink(str(tmp_path / "table"), app_id="flights")
    drop_log(tmp_path / "checkpoint", "commits", 2)
    deliver(tmp_path, range(3, 4))

    refusal = refusal_of(read_stream(spark, tmp_path), renamed, tmp_path / "checkpoint")
    assert "StreamIdentityError: this query has committed this batch under another" in refusal
    run(read_stream(spark, tmp_path), sink, tmp_path / "checkpoint")
    deliver(tmp_path, range(4, 5))
    run(read_stream(spark, tmp_path), renamed, tmp_path / "checkpoint")

    assert set(Table.open(tmp_path / "table").ledger()) == {("default", ""), ("flights", "")}
    assert_delivered_once(tmp_path / "table", 5)


def test_a_new_checkpoint_under_the_old_application_is_refused_with_the_choices(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Peers: Delta loses all new rows silently; Iceberg appends old ones again."""
    sink = filled(spark, tmp_path)
    (query_id,) = {entry.query_id for entry in Table.open(tmp_path / "table").ledger().values()}
    before = objects_of(tmp_path / "table")
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    deliver(tmp_path, range(3, 5))

    refusal = refusal_of(read_stream(spark, tmp_path), sink, tmp_path / "checkpoint")

    assert "StreamIdentityError" in refusal
    assert "app_id" in refusal
    assert "adopt=" in refusal
    assert f"written_by='{query_id}'" in refusal
    assert objects_of(tmp_path / "table") == before


def test_an_adopting_query_replaces_the_old_one_which_is_retired(
    spark: SparkSession, tmp_path: Path
) -> None:
    filled(spark, tmp_path)
    (entry,) = Table.open(tmp_path / "table").ledger().values()
    assert entry.query_id is not None
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    later = tmp_path / "later"  # rows that were not delivered yet
    deliver(later, range(3, 5))
    adopting = fuse_sink(str(tmp_path / "table"), adopt=entry.query_id)

    run(read_stream(spark, later), adopting, later / "checkpoint")
    assert_delivered_once(tmp_path / "table", 5)

    deliver(later, range(5, 6))
    again = fuse_sink(str(tmp_path / "table"), adopt=entry.query_id)  # has no effect any more
    run(read_stream(spark, later), again, later / "checkpoint")
    assert_delivered_once(tmp_path / "table", 6)

    deliver(tmp_path, range(3, 4))
    old = fuse_sink(str(tmp_path / "table"))
    refusal = refusal_of(read_stream(spark, tmp_path), old, tmp_path / "lost")
    assert "StreamIdentityError: this query was retired" in refusal
    assert_delivered_once(tmp_path / "table", 6)


def test_a_query_with_its_own_app_id_runs_beside_the_old_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    filled(spark, tmp_path)
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    later = tmp_path / "later"
    deliver(later, range(3, 5))

    run(
        read_stream(spark, later),
        fuse_sink(str(tmp_path / "table"), app_id="second"),
        later / "checkpoint",
    )

    assert set(Table.open(tmp_path / "table").ledger()) == {("default", ""), ("second", "")}
    assert_delivered_once(tmp_path / "table", 5)


def test_a_second_query_under_the_default_application_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = filled(spark, tmp_path)
    second = tmp_path / "second"
    deliver(second, range(3, 5))

    refusal = refusal_of(read_stream(spark, second), sink, second / "checkpoint")

    assert "StreamIdentityError: another query has written under this application" in refusal
    assert_delivered_once(tmp_path / "table", 3)


@pytest.mark.parametrize(
    ("first", "said"),
    [(2, "committed with other source offsets"), (1, "the checkpoint was set back")],
)
def test_a_checkpoint_cut_back_by_hand_is_refused(
    spark: SparkSession, tmp_path: Path, first: int, said: str
) -> None:
    sink = filled(spark, tmp_path)
    for log in ("offsets", "commits"):
        drop_log(tmp_path / "checkpoint", log, first)
    deliver(tmp_path, range(3, 5))
    before = objects_of(tmp_path / "table")

    refusal = refusal_of(read_stream(spark, tmp_path), sink, tmp_path / "checkpoint")

    assert "StreamIdentityError" in refusal
    assert said in refusal
    assert objects_of(tmp_path / "table") == before
    assert_delivered_once(tmp_path / "table", 3)


def test_a_checkpoint_restored_from_an_older_copy_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    filled(spark, tmp_path, 2)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    sink = filled(spark, tmp_path, 4)
    replace_folder(tmp_path / "checkpoint", tmp_path / "copy")
    before = objects_of(tmp_path / "table")

    refusal = refusal_of(read_stream(spark, tmp_path), sink, tmp_path / "checkpoint")

    assert "StreamIdentityError: the checkpoint was set back" in refusal
    assert "committed_batch=3" in refusal
    assert "arriving_batch=2" in refusal
    assert objects_of(tmp_path / "table") == before


# ---- rivals


@pytest.mark.long
def test_two_queries_of_two_applications_lose_no_batch(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    files = 8
    queries = []
    for half in range(2):
        folder = tmp_path / f"half {half}"
        deliver(folder, range(half * files, (half + 1) * files))
        sink = fuse_sink(str(table), app_id=f"half {half}")
        queries.append(start(read_stream(spark, folder), sink, folder / "checkpoint"))

    for query in queries:
        assert query.awaitTermination(PATIENCE_S)

    last_batches = {key[0]: entry.batch_id for key, entry in Table.open(table).ledger().items()}
    assert last_batches == {"half 0": files - 1, "half 1": files - 1}
    assert_delivered_once(table, 2 * files)


@pytest.mark.long
def test_a_driver_that_slept_while_its_rival_committed_commits_nothing_more(
    spark: SparkSession, other: tuple[Path, Driver]
) -> None:
    folder, driver = other
    driver.wait_for(*(f"parked {job.name}" for job in SLEEPERS))
    for job in SLEEPERS:
        scenario = folder / job.name
        sink = fuse_sink(str(scenario / "table"))
        run(read_stream(spark, scenario), sink, scenario / "checkpoint")
        assert_delivered_once(scenario / "table", FILES)

    for job in SLEEPERS:
        driver.let_go(job)
    endings = driver.wait_for(*(f"ended {job.name}" for job in SLEEPERS))

    for job, ending in zip(SLEEPERS, endings, strict=True):
        said = "CONCURRENT_STREAM_LOG_UPDATE" if job.point == AFTER else "StreamIdentityError"
        assert said in ending
        assert_delivered_once(folder / job.name / "table", FILES)


@pytest.mark.long
@pytest.mark.parametrize("job", RACERS, ids=names(RACERS))
def test_two_drivers_of_one_query_deliver_each_row_once(
    spark: SparkSession, other: tuple[Path, Driver], job: Job
) -> None:
    folder, driver = other
    scenario = folder / job.name
    sink = sink_of(scenario, job.plan)
    frame, _ = frame_of(spark, scenario, job.plan)
    driver.wait_for(f"parked {job.name}")
    driver.let_go(job)
    with contextlib.suppress(*STOPPED_BY_RIVAL):
        start(frame, sink, scenario / "checkpoint").awaitTermination(PATIENCE_S)
    driver.wait_for(f"ended {job.name}")

    run(frame, sink, scenario / "checkpoint")

    if job.plan == EVENTS:
        assert_last_events(scenario / "table", RACE_FILES)
    else:
        assert_delivered_once(scenario / "table", RACE_FILES)


@pytest.mark.long
def test_a_batch_over_sparks_limit_on_results_is_written_by_tasks(
    other: tuple[Path, Driver],
) -> None:
    folder, driver = other

    endings = driver.wait_for(f"ended {TALL.name}", f"ended {WIDE.name}")

    assert endings == [f'ended {TALL.name} ""', f'ended {WIDE.name} ""']
    assert ids_of(folder / TALL.name / "table") == sorted([*range(10), *range(1_000)])
    assert ids_of(folder / WIDE.name / "table") == list(range(2_000))
