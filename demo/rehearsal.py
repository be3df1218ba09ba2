"""Rehearse a fix on a branch, while production goes on; then publish it and move the query over.

January's flights stream in by day. Half way through, new code writes delays in hours. The fix runs
on a branch first, from a fork of the query's checkpoint, and only then on main.
"""

from __future__ import annotations

import sys
from collections import Counter
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
from demo.weeks import KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The query of one deploy: its code, its checkpoint, and the branch that it writes to."""

    spark: SparkSession
    source: Path
    table: Path
    checkpoint: Path
    code: Callable[[DataFrame], DataFrame]
    branch: str = "main"

    def start(self) -> StreamingQuery:
        """Start it: it takes all that is there, and ends."""
        sink = fuse.fuse_sink(str(self.table), branch=self.branch)
        days = self.code(read_days(self.spark, self.source))
        writer = days.writeStream.foreachBatch(sink).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.checkpoint)).start()


def good(days: DataFrame) -> DataFrame:
    """Return the days with delays in minutes, as they come."""
    return days


def bad(days: DataFrame) -> DataFrame:
    """Return them with delays in hours."""
    return days.withColumn("delay", f.expr("delay div 60").cast("int"))


def main() -> int:
    """Run the demo; it stops with an error where a claim does not hold."""
    with tell("demo-rehearsal", __doc__) as (story, spark):
        rehearse(story, spark)
    return 0


def rehearse(story: Story, spark: SparkSession) -> None:
    """Go through the bad deploy, the rehearsal, the publish, and the day after."""
    root, days = story.root, load_days(story.days)
    deployed, noticed = len(days) // 2, len(days) - 2
    old = Query(
        spark=spark,
        source=root / "source",
        table=root / "flights",
        checkpoint=root / "checkpoint",
        code=good,
    )

    story.step(f"1. Days 1 to {deployed} are right; then new code writes delays in hours")
    deliver(days, old.source, range(deployed))
    old.start().awaitTermination()
    deliver(days, old.source, range(deployed, noticed))
    production = replace(old, code=bad)
    production.start().awaitTermination()
    main = fuse.Table.open(old.table)
    story.say(f"main: version {main.head().version}, {main.head().summary.row_count:,} rows")
    follower = Follower(spark, old.table, root / "follower")

    rehearsal = replace(old, branch="rehearsal", checkpoint=root / "checkpoint-mended")
    rehearse_on_branch(story, main, (old, rehearsal), last_good=deployed - 1)
    branch = fuse.Table.open(old.table, branch="rehearsal")
    right = count_rows(branch.to_arrow()) == count_rows(pa.concat_tables(days[:noticed]))
    story.check(f"rehearsal: every flight of {noticed} days, once and in minutes", holds=right)
    show_difference(story, main)

    story.step(f"4. Day {noticed + 1} comes. Production still writes hours, the rehearsal minutes")
    deliver(days, old.source, [noticed])
    for query in (production, rehearsal):
        query.start().awaitTermination()
    publish(story, main)

    story.step(f"5. Day {len(days)} comes. The mended query writes to main, on its checkpoint")
    deliver(days, old.source, range(noticed + 1, len(days)))
    refusal = refusal_of(production.start())
    story.say(refusal, style="yellow")
    story.check("the old query is refused", holds="this query was retired" in refusal)
    replace(rehearsal, branch="main").start().awaitTermination()
    rows, delivered = count_rows(main.to_arrow()), count_rows(pa.concat_tables(days))
    story.check(
        f"{delivered.total():,} flights were delivered, each is there once", holds=rows == delivered
    )
    story.check("a follower of main has what main has", holds=follower.catch_up() == rows)
    follower.stop()
    story.run_command("log", str(old.table), "--graph", "--limit", "40")


def rehearse_on_branch(
    story: Story, main: fuse.Table, queries: tuple[Query, Query], *, last_good: int
) -> None:
    """Make the branch and the fork, and run the mended code there."""
    old, rehearsal = queries
    before = main.head()
    story.step(f"2. A branch, set back to batch {last_good}, and a fork of the checkpoint")
    main.create_branch("rehearsal")
    back = fuse.rewind(
        old.table,
        branch="rehearsal",
        after_batch=last_good,
        checkpoints={str(old.checkpoint): str(rehearsal.checkpoint)},
    )
    assert back.target is not None
    story.say(f"rehearsal: back to version {back.target.version}, on {back.forks[0].new}")

    story.step("3. The mended code runs there, over the bad days again")
    rehearsal.start().awaitTermination()
    story.check("main is as it was", holds=main.head() == before)


def show_difference(story: Story, main: fuse.Table) -> None:
    """Say what the mended code does otherwise."""
    net = main.diff("main@", "rehearsal@").read_all()
    kinds = Counter(net["_change_type"].to_pylist())
    come, go = kinds["insert"], kinds["delete"]
    story.say(f"main.diff('main@', 'rehearsal@'): {go:,} rows go, {come:,} come")
    pairs = net.sort_by([(name, "ascending") for name in [*KEY, "_change_type"]])
    for row in pairs.slice(0, 6).to_pylist():
        sign = "-" if row["_change_type"] == "delete" else "+"
        flight = f"{row['carrier']} {row['flight']} {row['origin']} {row['dest']}"
        story.say(f"  {sign} {row['time_hour']:%d %b %H:%M} UTC  {flight:<16} {row['delay']:>4}")


def publish(story: Story, main: fuse.Table) -> None:
    """Give main what the branch has, over the bad day that came in between."""
    try:
        main.publish("rehearsal")
    except fuse.ConflictError as error:
        story.say(f"main.publish('rehearsal'): {error}", style="yellow")
    else:
        raise SystemExit("this is a bug: a commit was replaced that nobody had named")
    seen = main.head().version
    done = main.publish("rehearsal", expected_head=seen, message="delays in minutes again")
    story.say(f"main.publish('rehearsal', expected_head={seen}): version {done.snapshot.version}")
    for lost in done.lost:
        story.say(f"replaced: version {lost.version}, the bad day")


if __name__ == "__main__":
    sys.exit(main())
