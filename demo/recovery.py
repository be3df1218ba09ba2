"""After a bad deploy: find the first bad version, set tables and checkpoints back, go on.

January's flights stream in by day: one query appends them to a table, one keeps mean delays by
carrier in another. A nightly job appends the cancelled flights. Half way through, new code writes
carriers in lower case. Two followers of the feeds see it all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import fuse_stream as fuse
from demo.days import deliver, load_days, read_days
from demo.follower import Follower, count_rows
from demo.story import Story, refusal_of, tell

BAD = "carrier >= 'a'"
"""Holds for codes in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The two queries of one deploy, and the nightly job beside them."""

    spark: SparkSession
    source: Path
    tables: Path
    checkpoints: Path
    code: Callable[[DataFrame], DataFrame]
    cancelled: list[pa.Table]
    """What the nightly job appends, by day."""

    def start_flights(self) -> StreamingQuery:
        """Start the query that appends: it takes all that is there, and ends."""
        sink = fuse.fuse_sink(str(self.tables / "flights"), app_id="flights")
        days = self.code(read_days(self.spark, self.source))
        writer = days.writeStream.foreachBatch(sink).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.checkpoints / "flights")).start()

    def start_delays(self) -> StreamingQuery:
        """Start the query with state: its table is written anew with each batch."""
        sink = fuse.fuse_sink(str(self.tables / "delays"), app_id="delays", mode="overwrite")
        days = self.code(read_days(self.spark, self.source))
        delays = days.groupBy("carrier").agg(
            f.count("*").alias("flights"), f.avg("delay").alias("mean_delay")
        )
        writer = delays.writeStream.foreachBatch(sink).trigger(availableNow=True)
        writer = writer.outputMode("complete")
        return writer.option("checkpointLocation", str(self.checkpoints / "delays")).start()

    def run(self, days: int) -> None:
        """Run both queries to the end of what is there, then the nightly job up to a day."""
        queries = self.start_flights(), self.start_delays()
        for query in queries:
            query.awaitTermination()
        flights = self.open("flights")
        last = flights.ledger().get(("cancelled", ""))  # the ledger knows which days are in
        for day in range(last.batch_id + 1 if last else 0, days):
            flights.append(self.cancelled[day], app_id="cancelled", batch_id=day, message="nightly")

    def open(self, name: str) -> fuse.Table:
        """Open one of the two tables."""
        return fuse.Table.open(self.tables / name)


def good(days: DataFrame) -> DataFrame:
    """Return the days as they should be."""
    return days


def bad(days: DataFrame) -> DataFrame:
    """Return what the bad deploy makes of them."""
    return days.withColumn("carrier", f.lower("carrier"))


def main() -> int:
    """Run the demo; it stops with an error where a claim does not hold."""
    with tell("demo-recovery", __doc__) as (story, spark):
        recover(story, spark)
    return 0


def recover(story: Story, spark: SparkSession) -> None:
    """Go through good days, bad days, the way back, and the days after."""
    root, days = story.root, load_days(story.days)
    flown = [day.filter(day["delay"].is_valid()) for day in days]
    deployed = len(days) // 2
    noticed = deployed + (len(days) - deployed + 1) // 2
    job = Job(
        spark=spark,
        source=root / "source",
        tables=root / "tables",
        checkpoints=root / "checkpoints",
        code=good,
        cancelled=[day.filter(day["delay"].is_null()) for day in days],
    )

    story.step(f"1. Days 1 to {deployed}: all is well")
    deliver(flown, job.source, range(deployed))
    job.run(deployed)
    followers = [
        Follower(spark, job.tables / name, root / "followers" / name)
        for name in ("flights", "delays")
    ]
    show_tables(story, job)

    story.step(f"2. Days {deployed + 1} to {noticed}: the new code writes carriers in lower case")
    deliver(flown, job.source, range(deployed, noticed))
    replace(job, code=bad).run(noticed)
    show_tables(story, job)
    check_followers(story, followers, job)

    last_good = find_last_good(story, job)
    story.check(f"batch {last_good} was the last good one", holds=last_good == deployed - 1)
    mended = replace(job, checkpoints=root / "forks")
    go_back(story, job, mended, last_good)

    story.step(f"6. Days up to {len(days)} are here, and somebody starts the old queries")
    deliver(flown, job.source, range(noticed, len(days)))
    for start in (job.start_flights, job.start_delays):
        refusal = refusal_of(start())
        story.say(refusal, style="yellow")
        story.check("it is refused", holds="this query was retired" in refusal)

    story.step(f"7. The mended code goes on from the forks: days {deployed + 1} to {len(days)}")
    mended.run(len(days))
    show_tables(story, job)

    story.step("8. The same days without the accident, and what everybody has now")
    calm = replace(job, tables=root / "calm", checkpoints=root / "calm" / "checkpoints")
    calm.run(len(days))
    for name in ("flights", "delays"):
        ours, theirs = (count_rows(of.open(name).to_arrow()) for of in (job, calm))
        story.check(f"{name}: the rows of the undisturbed run", holds=ours == theirs)
    once = count_rows(job.open("flights").to_arrow()) == count_rows(pa.concat_tables(days))
    story.check(f"{sum(map(len, days)):,} flights were delivered, each is there once", holds=once)
    check_followers(story, followers, job)
    for follower in followers:
        follower.stop()
    story.run_command("log", str(job.tables / "flights"), "--graph", "--limit", "40")


def find_last_good(story: Story, job: Job) -> int:
    """Return the last batch of the flights' query before the bad ones."""
    story.step("3. Since when, and who? bisect and blame")
    flights = job.open("flights")
    found = flights.bisect(BAD)
    story.say(f'flights.bisect("{BAD}"): {found}')
    batches = []
    for commit in reversed(flights.blame(BAD)):
        assert commit.batch is not None
        batches.append(commit.batch.batch_id)
        story.say(
            f"version {commit.version}, {commit.batch.application} batch {commit.batch.batch_id}: "
            f"{commit.row_count} rows"
        )
    return min(batches) - 1


def go_back(story: Story, old: Job, mended: Job, last_good: int) -> None:
    """Set both tables and their queries back to the last good batch."""
    story.step("4. What would going back do? rewind(dry_run=True)")
    table = old.tables / "flights"
    forks = {str(old.checkpoints / "flights"): str(mended.checkpoints / "flights")}
    plan = fuse.rewind(
        table, app_id="flights", after_batch=last_good, checkpoints=forks, dry_run=True
    )
    assert plan.target is not None
    story.say(f"back to version {plan.target.version}; followers get {plan.deleted_rows} deletes")
    for lost in plan.dropped:
        batches = f"batches {lost.first_batch} to {lost.last_batch}"
        story.say(f"no longer in the table: {lost.application}, {batches}, {lost.rows} rows")
    for obstacle in plan.obstacles:
        story.say(f"prevented: {obstacle}", style="yellow")

    story.step("5. Back. The nightly job has no checkpoint: retire=['cancelled']")
    fuse.rewind(
        table, app_id="flights", after_batch=last_good, checkpoints=forks, retire=["cancelled"]
    )
    first_bad = old.open("delays").bisect(BAD).snapshot  # this table counts its own versions
    assert first_bad is not None
    fuse.rewind(
        old.tables / "delays",
        version=first_bad.version - 1,
        checkpoints={str(old.checkpoints / "delays"): str(mended.checkpoints / "delays")},
    )
    show_tables(story, old)
    clean = not any(old.open(name).blame(BAD) for name in ("flights", "delays"))
    story.check("no bad row is left", holds=clean)


def show_tables(story: Story, job: Job) -> None:
    """Say what the tables hold."""
    flights, delays = (job.open(name).head() for name in ("flights", "delays"))
    story.say(
        f"flights: version {flights.version}, {flights.summary.row_count:,} rows; "
        f"delays: version {delays.version}, {delays.summary.row_count} carriers"
    )


def check_followers(story: Story, followers: list[Follower], job: Job) -> None:
    """See that the feeds add up to the tables."""
    same = all(
        follower.catch_up() == count_rows(job.open(name).to_arrow())
        for follower, name in zip(followers, ("flights", "delays"), strict=True)
    )
    story.check("both followers have what the tables have", holds=same)


if __name__ == "__main__":
    sys.exit(main())
