"""A separate driver process, to be killed: `python -m tests.spark.driver <jobs as JSON>`.

It runs every job as a query at once, and says `parked <name>` when one has come to its point, where
it stays. What a kill leaves behind then is what a kill at that very point leaves behind. The line
`<name>` on its standard input lets that job go on; `ended <name> <error>` follows.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fuse_stream.format.layout import MAIN, SEGMENTS_PREFIX, slot_key
from fuse_stream.spark.sink import FuseSink, fuse_sink
from fuse_stream.storage.local import LocalStore
from tests.spark import conftest, streams

ROOT = Path(__file__).parent.parent.parent

BEFORE = "before the data"
WITHIN = "within the data"
BETWEEN = "between data and commit"
CREATED = "after the commit, before its reply"
AFTER = "after the commit"
POINTS = (BEFORE, WITHIN, BETWEEN, CREATED, AFTER)
"""In the order of a batch. WITHIN is after its blocks, before its segment; AFTER is before Spark
notes the batch."""

COUNT = "count"
DISTINCT = "distinct"
SPREAD = "spread"
EVENTS = "events"

KEYS = 7
"""Of a job of events: the row of file n with the id i is an event of the key i % KEYS."""

MAX_RESULT_SIZE = "4m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One query over the scenario in the folder `name`, and where it stops."""

    name: str
    point: str = ""
    """Empty: it is not parked."""
    batch_id: int = 0
    plan: str = ""
    """COUNT and DISTINCT are stateful; SPREAD has many partitions; EVENTS are upserted; one of
    `streams.DOORS` follows the table in the folder `followed`, by commits."""
    waits: bool = False
    """It is parked before it starts."""


def frame_of(spark: SparkSession, folder: Path, plan: str) -> tuple[DataFrame, str]:
    """Return the stream of a scenario and its output mode."""
    if plan in streams.DOORS:
        options = {"feed": "append", "startingVersion": 1, "maxCommitsPerTrigger": 1}
        return streams.follow_table(spark, folder / "followed", plan, **options), "append"
    frame = streams.read_stream(spark, folder)
    if plan == COUNT:
        return frame.groupBy("key").count(), "update"
    if plan == DISTINCT:
        return frame.dropDuplicates(["id"]), "append"
    if plan == SPREAD:
        return frame.repartition(16), "append"
    if plan == EVENTS:
        return frame.selectExpr(f"id % {KEYS} AS id", "key", "id AS seq"), "append"
    return frame, "append"


def sink_of(folder: Path, plan: str) -> FuseSink:
    """Return the sink into the table of a scenario."""
    table = str(folder / "table")
    if plan == EVENTS:
        # Without compactions each snapshot is of a batch.
        return fuse_sink(table, mode="upsert", keys=["id"], sequence_by="seq", optimize="off")
    return fuse_sink(table)


class Driver:
    """The process, seen from a test. Killed at the latest when the block ends."""

    def __init__(self, folder: Path, jobs: Iterable[Job]) -> None:
        self._said: list[str] = []
        self._errors = (folder / "driver.log").open("a+")
        described = json.dumps([dataclasses.asdict(job) for job in jobs])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", str(folder), described],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,  # one kill takes the JVM too
        )
        self._watchdog = threading.Timer(streams.PATIENCE_S, self._kill_group)
        self._watchdog.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def wait_for(self, *starts: str) -> list[str]:
        """Return one line for each of `starts`, as soon as all were printed."""
        assert self._process.stdout is not None
        while not all(line_of(self._said, start) for start in starts):
            line = self._process.stdout.readline()
            if not line:
                self._errors.seek(0)
                said = self._errors.read()[-4000:]
                raise AssertionError(f"the driver ended early, after {self._said}: {said}")
            self._said.append(line.rstrip("\n"))
        return [line_of(self._said, start) for start in starts]

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def let_go(self, job: Job) -> None:
        """Let a parked job go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{job.name}\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Kill Python and the JVM at once, without cleaning up."""
        if self._errors.closed:
            return
        self._watchdog.cancel()
        self._kill_group()
        self._process.wait()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdout.read()  # ends when the JVM, which holds it too, is gone
        self._process.stdout.close()
        self._process.stdin.close()
        self._errors.close()

    def _kill_group(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, SIGKILL)


def line_of(said: list[str], start: str) -> str:
    """Return the line with this start; empty if there is none."""
    return next((line for line in said if line.startswith(f"{start} ")), "")


class _Parking:
    def __init__(self, jobs: list[Job]) -> None:
        self._released = {job.name: threading.Event() for job in jobs}

    def park(self, job: Job) -> None:
        say("parked", job)
        self._released[job.name].wait()

    def release_as_told(self) -> None:
        for line in sys.stdin:
            self._released[line.strip()].set()


def say(what: str, job: Job, more: str = "") -> None:
    # One write: the lines of several threads do not mix.
    sys.stdout.write(f"{what} {job.name} {json.dumps(more)}\n")
    sys.stdout.flush()


def main() -> None:
    folder = Path(sys.argv[1])
    jobs = [Job(**described) for described in json.loads(sys.argv[2])]
    builder = conftest.builder(folder / "warehouse")
    spark = builder.config("spark.driver.maxResultSize", MAX_RESULT_SIZE).getOrCreate()
    parking = _Parking(jobs)
    _park_in_commits(folder, jobs, parking)
    for job in jobs:
        threading.Thread(target=_run, args=(spark, folder, job, parking)).start()
    parking.release_as_told()


def _run(spark: SparkSession, folder: Path, job: Job, parking: _Parking) -> None:
    if job.waits:
        parking.park(job)
    try:
        _start(spark, folder, job, parking).awaitTermination()
        say("ended", job)
    except streams.STOPPED_BY_RIVAL as error:
        say("ended", job, str(error))


def _start(spark: SparkSession, folder: Path, job: Job, parking: _Parking) -> StreamingQuery:
    frame, output_mode = frame_of(spark, folder / job.name, job.plan)
    sink = sink_of(folder / job.name, job.plan)

    def deliver(df: DataFrame, batch_id: int) -> None:
        if (job.point, job.batch_id) == (BEFORE, batch_id):
            parking.park(job)
        sink(df, batch_id)
        if (job.point, job.batch_id) == (AFTER, batch_id):
            parking.park(job)

    checkpoint = folder / job.name / "checkpoint"
    return streams.start(frame, deliver, checkpoint, output_mode=output_mode)


def _park_in_commits(folder: Path, jobs: list[Job], parking: _Parking) -> None:
    """Stop a job before or after it creates the slot of its batch, or before the segment of it."""
    stops = {
        (folder / job.name / "table", slot_key(MAIN, job.batch_id + 1)): job
        for job in jobs
        if job.point in {BETWEEN, CREATED}
    }
    within = {folder / job.name / "table": job for job in jobs if job.point == WITHIN}
    put_if_absent, put = LocalStore.put_if_absent, LocalStore.put

    def create_or_park(store: LocalStore, key: str, data: bytes | memoryview) -> None:
        job = stops.get((store.root, key))
        if job is not None and job.point == BETWEEN:
            parking.park(job)
        put_if_absent(store, key, data)
        if job is not None and job.point == CREATED:
            parking.park(job)

    def put_or_park(store: LocalStore, key: str, data: bytes | memoryview) -> None:
        job = within.get(store.root)
        if job is not None and key.startswith(SEGMENTS_PREFIX):
            newest = slot_key(MAIN, job.batch_id)
            if (store.root / newest).exists():
                parking.park(job)
        put(store, key, data)

    setattr(LocalStore, "put_if_absent", create_or_park)  # noqa: B010 - a method, to mypy
    setattr(LocalStore, "put", put_or_park)  # noqa: B010 - the same


if __name__ == "__main__":
    main()
