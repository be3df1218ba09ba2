"""A Spark driver is killed at five points of a batch, then anywhere, and restarted until done.

A driver takes long to start, so one runs five queries, and its death is a kill for each of them.
The first is killed where each query is at a point of its own: before the data of a batch, within
them, between data and commit, after the commit before its reply, and after the sink before Spark
notes the batch. The second is killed at any time after a batch of one query has landed; the third
does the rest. Then each row is in its table once, and each batch has one version.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from fuse_stream.table.handle import Table
from tests.spark.driver import EVENTS, KEYS, POINTS, SPREAD, Driver, Job
from tests.spark.streams import deliver, ids_delivered
from torture.campaign import Campaign, PromiseBrokenError

FILES = 8
"""Micro-batches of each query."""
PLANS = ("", "", SPREAD, EVENTS)
LONGEST_WAIT_S = 1.5
ANYWHERE = "killed anywhere"


def trial(seed: int, folder: Path) -> Counter[str]:
    """Kill a driver twice, let a third one end, and look; see `Trial`."""
    random = Random(seed)
    jobs = [
        Job(
            name=f"job-{number}",
            point=point,
            batch_id=random.randrange(FILES // 2),
            plan=random.choice(PLANS),
        )
        for number, point in enumerate(POINTS)
    ]
    story = [f"{job}" for job in jobs]
    for job in jobs:
        deliver(folder / job.name, range(FILES))
    found: Counter[str] = Counter()
    with Driver(folder, jobs) as driver:
        expect(driver, [f"parked {job.name}" for job in jobs], story)
        driver.kill()
    found.update(f"killed {job.point}" for job in jobs)
    freed = [Job(name=job.name, plan=job.plan) for job in jobs]
    before = heads(folder, jobs)
    with Driver(folder, freed) as driver:
        wait_for_a_batch(folder, jobs, before, driver, story)
        wait_s = random.uniform(0, LONGEST_WAIT_S)
        time.sleep(wait_s)
        driver.kill()
    story += [f"then killed {wait_s:.3f} s after a batch", f"heads {before}, {heads(folder, jobs)}"]
    found[ANYWHERE] += sum(head < FILES for head in heads(folder, jobs).values())
    with Driver(folder, freed) as driver:
        for line in expect(driver, [f"ended {job.name}" for job in jobs], story):
            if not line.endswith('""'):
                raise PromiseBrokenError(f"a restarted query failed: {line}", story)
    for job in jobs:
        look(folder / job.name, job, story)
    return found


def expect(driver: Driver, starts: Sequence[str], story: list[str]) -> list[str]:
    """Return the lines that the driver prints; raise if it ends without them."""
    try:
        return driver.wait_for(*starts)
    except AssertionError as error:
        raise PromiseBrokenError(f"a query did not come so far: {error}", story) from error


def heads(folder: Path, jobs: Sequence[Job]) -> dict[str, int]:
    """Return the number of commits of each query's table, as its files say."""
    found = {}
    for job in jobs:
        slots = (folder / job.name / "table" / "_ss" / "main").glob("*_v1.json")
        found[job.name] = max((int(slot.name.partition("_")[0]) for slot in slots), default=0)
    return found


def wait_for_a_batch(
    folder: Path, jobs: Sequence[Job], before: dict[str, int], driver: Driver, story: list[str]
) -> None:
    """Return when a query of the driver has committed a batch."""
    while heads(folder, jobs) == before:
        if not driver.is_alive():
            raise PromiseBrokenError("the restarted driver ended without a batch", story)
        time.sleep(0.02)


def look(folder: Path, job: Job, story: list[str]) -> None:
    """Raise unless the table of a query has each row once, and a version for each batch."""
    table = Table.open(folder / "table")
    told = [*story, *(f"{one.version}: {one.operation}" for one in table.log())]
    sent = ids_delivered(FILES)
    rows = table.to_arrow()
    found: list[object]
    wanted: list[object]
    if job.plan == EVENTS:
        ids, numbers = (rows.column(name).to_pylist() for name in ("id", "seq"))
        found = [*zip(ids, numbers, strict=True)]
        wanted = [*{number % KEYS: number for number in sent}.items()]
    else:
        found, wanted = rows.column("id").to_pylist(), [*sent]
    if Counter(found) != Counter(wanted):
        raise PromiseBrokenError(f"{job.name} has {found}, and not {wanted}", told)
    # A kill before Spark notes the offset of a batch lets the next one take two files.
    noted = len([*(folder / "checkpoint" / "commits").glob("[0-9]*")])
    batches = [one.version for one in table.log() if one.data_change]
    (last,) = {entry.batch_id for entry in table.ledger().values()}
    if not len(batches) == last + 1 == noted:
        raise PromiseBrokenError(
            f"{job.name} has {len(batches)} commits, the last of batch {last}, and Spark notes "
            f"{noted} batches",
            told,
        )
    report = table.fsck(deep=True)
    if not report.is_sound:
        raise PromiseBrokenError(f"fsck finds damage in {job.name}: {report}", told)


CAMPAIGN = Campaign(
    name="drivers",
    does="Spark drivers are killed at five points of a batch and anywhere, and started again until "
    "done: each row once",
    unit="kills",
    trial=trial,
    in_ci=10,
    in_night=300,
    needs=("spark",),
)
