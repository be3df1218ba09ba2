"""After a bad deploy: find the first bad version, set tables and checkpoints back, go on.

January's flights stream in by day, into a table of flights and, by a query with state, into one of
mean delays by carrier. A nightly job adds the cancelled flights. Half way through, new code writes
carrier codes in lower case. Two followers read everything along, the bad days too.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import fuse_stream as fuse
from demo.days import deliver, load_days, read_days
from demo.follower import Follower, count_rows
from demo.story import Story, tell

BAD = "carrier >= 'a'"
"""No carrier's code is in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The two queries of one deploy: its code, its checkpoints, and the tables."""

    spark: SparkSession
    source: Path
    tables: Path
    checkpoints: Path
    code: Callable[[DataFrame], DataFrame]

    def run(self) -> None:
        """Take all that is there, and end."""
        days = self.code(read_days(self.spark, self.source))
        flights = (
            days.writeStream.foreachBatch(
                fuse.fuse_sink(str(self.tables / "flights"), app_id="flights")
            )
            .option("checkpointLocation", str(self.checkpoints / "flights"))
            .trigger(availableNow=True)
            .start()
        )
        delays = (
            days.groupBy("carrier")
            .agg(f.count("*").alias("flights"), f.avg("delay").alias("mean_delay"))
            .writeStream.foreachBatch(
                fuse.fuse_sink(str(self.tables / "delays"), app_id="delays", mode="overwrite")
            )
            .outputMode("complete")
            .option("checkpointLocation", str(self.checkpoints / "delays"))
            .trigger(availableNow=True)
            .start()
        )
        flights.awaitTermination()
        delays.awaitTermination()


def good(days: DataFrame) -> DataFrame:
    """Return the days as they come: this code is right."""
    return days


def bad(days: DataFrame) -> DataFrame:
    """Return what the bad deploy makes of them."""
    return days.withColumn("carrier", f.lower("carrier"))


def run_nightly_job(table: fuse.Table, cancelled: list[pa.Table], days: int) -> None:
    """Append the cancelled flights up to a day; the ledger knows which days are in."""
    last = table.ledger().get(("cancelled", ""))
    for day in range(last.batch_id + 1 if last else 0, days):
        table.append(cancelled[day], app_id="cancelled", batch_id=day, message="nightly")


def main() -> int:
    """Run the demo; it ends with an error if a claim does not hold."""
    with tell("demo-recovery", __doc__) as (story, spark):
        recover(story, spark)
    return 0


def recover(story: Story, spark: SparkSession) -> None:
    """Tell the story, from the first day to the last."""
    root, days = story.root, load_days(story.days)
    cancelled = [day.filter(day["delay"].is_null()) for day in days]
    flown = [day.filter(day["delay"].is_valid()) for day in days]
    deployed = len(days) // 2  # days 1 to this one are good
    noticed = deployed + (len(days) - deployed + 1) // 2
    old = Job(
        spark=spark,
        source=root / "source",
        tables=root / "tables",
        checkpoints=root / "checkpoints",
        code=good,
    )

    story.step(f"1. Days 1 to {deployed}: two queries and a nightly job, all is well")
    deliver(flown, old.source, range(deployed))
    old.run()
    flights = fuse.Table.open(old.tables / "flights")
    delays = fuse.Table.open(old.tables / "delays")
    run_nightly_job(flights, cancelled, deployed)
    followers = [
        Follower(spark, old.tables / name, root / "followers" / name)
        for name in ("flights", "delays")
    ]
    _say_rows(story, flights, delays)

    story.step(f"2. Days {deployed + 1} to {noticed}: a bad deploy writes carriers in lower case")
    deliver(flown, old.source, range(deployed, noticed))
    dataclasses.replace(old, code=bad).run()
    run_nightly_job(flights, cancelled, noticed)
    _say_rows(story, flights, delays)
    _check_followers(story, followers, (flights, delays))

    story.step("3. Since when, and who? bisect and blame")
    found = flights.bisect(BAD)
    first_bad = found.snapshot
    assert first_bad is not None
    story.say(f'flights.bisect("{BAD}")  # {found}')
    blamed = flights.blame(BAD)
    for commit in reversed(blamed):
        assert commit.batch is not None
        story.say(
            f"blame: version {commit.version}, {commit.batch.application} batch "
            f"{commit.batch.batch_id}: {commit.row_count} rows"
        )
    last_good = min(commit.batch.batch_id for commit in blamed if commit.batch) - 1
    story.check(f"batch {last_good} was the last good one", holds=last_good == deployed - 1)

    story.step("4. What would going back do? rewind(dry_run=True)")
    forks = root / "forks"
    fork = {str(old.checkpoints / "flights"): str(forks / "flights")}
    path = old.tables / "flights"
    plan = fuse.rewind(
        path, app_id="flights", after_batch=last_good, checkpoints=fork, dry_run=True
    )
    story.say(f"back to version {plan.target.version}; followers get {plan.deleted_rows} deletes")
    for lost in plan.dropped:
        batches = f"batches {lost.first_batch} to {lost.last_batch}"
        story.say(f"no longer in the table: {lost.application}, {batches}, {lost.rows} rows")
    for obstacle in plan.obstacles:
        story.say(f"in the way: {obstacle}", style="yellow")

    story.step("5. Back: the query goes on from a fork, the nightly job will deliver again")
    fuse.rewind(
        path, app_id="flights", after_batch=last_good, checkpoints=fork, retire=["cancelled"]
    )
    first_bad = delays.bisect(BAD).snapshot  # another table has other versions
    assert first_bad is not None
    fuse.rewind(
        old.tables / "delays",
        version=first_bad.version - 1,
        checkpoints={str(old.checkpoints / "delays"): str(forks / "delays")},
    )
    _say_rows(story, flights, delays)
    clean = not any(table.blame(BAD) for table in (flights, delays))
    story.check("no bad row is left", holds=clean)

    story.step(f"6. Days {noticed + 1} to {len(days)} are here; somebody starts the old query")
    deliver(flown, old.source, range(noticed, len(days)))
    refusal = _refusal_of(old)
    story.say(refusal, style="yellow")
    story.check("it is refused", holds="StreamIdentityError" in refusal)

    story.step(f"7. The mended code goes on from the forks: days {deployed + 1} to {len(days)}")
    dataclasses.replace(old, checkpoints=forks).run()
    run_nightly_job(flights, cancelled, len(days))
    _say_rows(story, flights, delays)

    story.step("8. The same days without the accident, and what everybody has now")
    calm = dataclasses.replace(old, tables=root / "calm", checkpoints=root / "calm-checkpoints")
    calm.run()
    run_nightly_job(fuse.Table.open(calm.tables / "flights"), cancelled, len(days))
    for table, name in ((flights, "flights"), (delays, "delays")):
        undisturbed = fuse.Table.open(calm.tables / name).to_arrow()
        same = count_rows(table.to_arrow()) == count_rows(undisturbed)
        story.check(f"{name} has the rows of an undisturbed run", holds=same)
    once = count_rows(flights.to_arrow()) == count_rows(pa.concat_tables(days))
    story.check("every flight is there, once", holds=once)
    _check_followers(story, followers, (flights, delays))
    for follower in followers:
        follower.stop()
    story.run_command("log", str(path), "--graph")


def _say_rows(story: Story, flights: fuse.Table, delays: fuse.Table) -> None:
    late = sorted(delays.to_arrow().to_pylist(), key=lambda row: -row["flights"])[:3]
    carriers = ", ".join(f"{row['carrier']} {row['mean_delay']:.1f}" for row in late)
    rows = flights.head().summary.row_count
    story.say(f"{rows:,} flights, version {flights.head().version}; mean delays: {carriers}, …")


def _check_followers(
    story: Story, followers: Iterable[Follower], tables: Iterable[fuse.Table]
) -> None:
    same = all(
        follower.catch_up() == count_rows(table.to_arrow())
        for follower, table in zip(followers, tables, strict=True)
    )
    story.check("both followers have what the tables have", holds=same)


def _refusal_of(job: Job) -> str:
    """Run what must be refused, and return what it said."""
    try:
        job.run()
    except StreamingQueryException as error:
        return str(error)
    return "it ran"


if __name__ == "__main__":
    sys.exit(main())
