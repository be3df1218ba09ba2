"""After a bad deploy: take a pipeline of three tables back with its checkpoints, and go on.

January's flights stream in by day, through three queries: bronze has them as they are delivered,
silver has each flight once, gold what the late ones cost. Twice, bad code of the first query spoils
all three tables, and what silver's query remembers. Each time one command takes all of it back.

With `--feed=changes` silver and gold are copies that follow bronze, without memory. Then the second
command takes back bronze alone, and the two others follow; at last rows are deleted from bronze.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from rich.table import Table
from rich.text import Text

from demo.days import deliver, load_days
from demo.follower import Follower, count_rows
from demo.pipeline import (
    APPEND,
    CHANGES,
    SUMMED,
    TABLES,
    Code,
    Pipeline,
    a_year_ahead,
    expected,
    in_folder,
    in_seconds,
    with_repeats,
)
from demo.story import Story, refusal_of, tell
from demo.weeks import KEY

AIRLINE = "B6"
"""Whose flights are deleted, if silver and gold follow deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCode:
    """The code of a bad deploy of the first query."""

    code: Code
    what: str
    """What it does."""
    spoiled: str
    """A condition that holds for some rows of each day that it writes, and for no right row."""
    remembered: str
    """What of it silver's query remembers."""


SECONDS = BadCode(
    code=in_seconds,
    what="writes delays in seconds",
    spoiled="delay > 1440",  # minutes: no flight in these days is a day late
    remembered="it has seen these flights, so it would drop the right rows as repeated ones",
)
YEAR = BadCode(
    code=a_year_ahead,
    what="writes times that are a year ahead",
    spoiled="time_hour >= TIMESTAMP '2014-01-01 00:00:00'",
    remembered="its watermark is in 2014, so it would drop every right row as too late",
)


class Days:
    """The days of a run: the flights of each, and how many are delivered."""

    def __init__(self, story: Story) -> None:
        self._flights = load_days(story.days)
        self._deliveries = with_repeats(self._flights)
        self.source = story.root / "source"
        self._delivered = 0

    def deliver_through(self, day: int) -> str:
        """Deliver the days up to this one, the first being 1; return which these are."""
        deliver(self._deliveries, self.source, range(self._delivered, day))
        first, self._delivered = self._delivered + 1, day
        return f"day {day}" if first == day else f"days {first} to {day}"

    def expected(self, count: int, feed: str, without: str = "") -> dict[str, pa.Table]:
        """Return what must be in each table after the first days: `demo.pipeline.expected`."""
        return expected(self._flights[:count], feed, without)


class Recovery:
    """A run of the demo: good days, two bad deploys, the way back from each, the days after."""

    def __init__(self, story: Story, spark: SparkSession) -> None:
        root, count = story.root, story.days
        self._story = story
        self._days = Days(story)
        self._pipeline = Pipeline(
            spark,
            source=self._days.source,
            tables=root / "tables",
            checkpoints=in_folder(root / "checkpoints"),
            feed=story.feed,
        )
        self._are_copies = story.feed == CHANGES
        self._on_forks = self._pipeline.on_forks(root / "forks")
        # Copies follow a rewind by themselves.
        self._back_alone = TABLES[:1] if self._are_copies else TABLES
        self._on_newer_forks = self._on_forks.on_forks(root / "newer-forks", self._back_alone)
        self._follower_checkpoint = root / "follower"
        # The days after which bad code is deployed, and noticed.
        self._first, self._first_seen, self._second = (count * n // 5 for n in (2, 3, 4))
        self._second_seen = (self._second + count + 1) // 2

    def tell(self) -> None:
        """Go through all of it."""
        story, pipeline = self._story, self._pipeline
        story.step(f"1. All is well: {self._days.deliver_through(self._first)}")
        pipeline.start()
        self._check_right(self._first)
        story.run_command("lineage", str(pipeline.table("gold")))
        gold = pipeline.table("gold")
        follower = Follower(pipeline.spark, gold, self._follower_checkpoint)

        self._undo_seconds()
        self._start_old()
        self._undo_year()
        story.run_command("log", str(pipeline.table("silver")), "--graph", "--limit", "40")

        story.step("9. What is there, beside what the raw days say")
        self._check_right(story.days)
        if self._are_copies:
            self._delete_an_airline()
        else:
            self._check_once()
        same = follower.catch_up() == count_rows(pipeline.open("gold").to_arrow())
        story.check("a follower of gold has what gold has", holds=same)
        follower.stop()
        self._on_newer_forks.stop()

    def _check_once(self) -> None:
        silver = self._pipeline.open("silver").to_arrow()
        once = len(silver.group_by(KEY).aggregate([])) == len(silver)
        claim = f"{len(silver):,} flights were flown, each is in silver once"
        self._story.check(claim, holds=once)

    def _delete_an_airline(self) -> None:
        story, bronze = self._story, self._pipeline.open("bronze")
        where = f"carrier = '{AIRLINE}'"
        story.say(f'bronze.delete("{where}"): {bronze.delete(where).deleted:,} rows deleted')
        self._on_newer_forks.catch_up()
        right = self._are_right(story.days, without=AIRLINE)
        story.check(f"silver and gold have no flight of {AIRLINE} either", holds=right)

    def _undo_seconds(self) -> None:
        story, old, new = self._story, self._pipeline, self._on_forks
        self._run_bad("2. Bad code for bronze", old, SECONDS, until=self._first_seen)
        story.step("3. Since when? bisect and blame")
        last_good = self._find_last_good(SECONDS)
        story.check(f"batch {last_good} was the last good one", holds=last_good == self._first - 1)
        story.step("4. Back, three tables and three checkpoints with one command: a dry run first")
        command = rewind_command(old, new, TABLES, last_good)
        story.run_command(*command, "--dry-run")
        story.run_command(*command, "-m", f"bronze {SECONDS.what}")
        self._check_right(self._first)

    def _start_old(self) -> None:
        story = self._story
        story.step("5. Somebody starts the old queries")
        days = self._days.deliver_through(self._second)
        for name in TABLES:
            story.say(f"{name}: {refusal_of(self._pipeline.start_one(name))}", style="yellow")
        right = self._are_right(self._first)
        story.check("they are refused, and have written nothing", holds=right)
        story.step(f"6. The right code goes on from the forks: the bad days again, and {days}")
        self._on_forks.start()
        self._on_forks.catch_up()
        self._check_right(self._second)

    def _undo_year(self) -> None:
        story, old, new = self._story, self._on_forks, self._on_newer_forks
        self._run_bad("7. Other bad code for bronze", old, YEAR, until=self._second_seen)
        last_good = self._find_last_good(YEAR)
        story.check(f"batch {last_good} was the last good one", holds=last_good == self._second - 1)
        command = rewind_command(old, new, self._back_alone, last_good)
        story.run_command(*command, "-m", f"bronze {YEAR.what}")
        if self._are_copies:
            story.say("silver and gold follow bronze, on the checkpoints that they have")
            new.follow()
        self._check_right(self._second)
        story.step("8. The right code goes on from the newer forks, to the last day")
        self._days.deliver_through(story.days)
        new.start()
        new.catch_up()

    def _run_bad(self, title: str, pipeline: Pipeline, bad: BadCode, *, until: int) -> None:
        """Run bad code up to a day, see it in gold, and stop the queries."""
        story = self._story
        pipeline.deploy(bad.code)  # first: the right code would take what is delivered before
        story.step(f"{title} {bad.what}: {self._days.deliver_through(until)}")
        pipeline.catch_up()
        pipeline.stop()
        right = self._days.expected(until, pipeline.feed)
        story.show(sums_of(pipeline, right))
        story.check("somebody sees that gold is wrong", holds=is_wrong(pipeline, right))
        if not self._are_copies:
            story.say(f"silver's query remembers the bad rows, too: {bad.remembered}")

    def _find_last_good(self, bad: BadCode) -> int:
        """Return the last batch of bronze's query before the bad ones."""
        story, bronze = self._story, self._pipeline.open("bronze")
        story.say(f'bronze.bisect("{bad.spoiled}"): {bronze.bisect(bad.spoiled)}')
        batches = []
        for commit in reversed(bronze.blame(bad.spoiled)):
            assert commit.batch is not None
            batches.append(commit.batch.batch_id)
            story.say(f"version {commit.version}, batch {batches[-1]}: {commit.row_count:,} rows")
        return min(batches) - 1

    def _check_right(self, count: int) -> None:
        """Show the sums, and see that the tables have just the rows of the first days."""
        right = self._days.expected(count, self._pipeline.feed)
        self._story.show(sums_of(self._pipeline, right))
        claim = f"each table has just the rows of days 1 to {count}"
        self._story.check(claim, holds=self._are_right(count))

    def _are_right(self, count: int, *, without: str = "") -> bool:
        right = self._days.expected(count, self._pipeline.feed, without)
        return all(
            count_rows(self._pipeline.open(name).to_arrow()) == count_rows(rows)
            for name, rows in right.items()
        )


def main() -> int:
    """Run the demo; it stops with an error where a claim does not hold."""
    with tell("demo-recovery", __doc__, feeds=(APPEND, CHANGES)) as (story, spark):
        Recovery(story, spark).tell()
    return 0


def rewind_command(old: Pipeline, new: Pipeline, names: Sequence[str], last_good: int) -> list[str]:
    """Return the command that takes some tables back, and forks their checkpoints."""
    command = ["rewind", *(str(old.table(name)) for name in names)]
    command += ["--app-id", "bronze", "--after-batch", str(last_good)]
    for name in names:
        command += ["--checkpoint", str(old.checkpoint(name)), str(new.checkpoint(name))]
    return command


def is_wrong(pipeline: Pipeline, right: Mapping[str, pa.Table]) -> bool:
    """Return whether gold has other rows than the right ones."""
    return count_rows(pipeline.open("gold").to_arrow()) != count_rows(right["gold"])


def sums_of(pipeline: Pipeline, right: Mapping[str, pa.Table]) -> Table:
    """Return the counts and sums of the tables beside the right ones, and whether the rows are."""
    grid = Table(box=None)
    for heading in ("table", ">version", ">rows", ">right", "sum of", ">sum", ">right", ""):
        grid.add_column(heading.removeprefix(">"), justify="right" if ">" in heading else "left")
    for name, rows in right.items():
        table = pipeline.open(name)
        found = table.to_arrow()
        numbers = len(found), len(rows), sum_of(name, found), sum_of(name, rows)
        count, right_count, total, right_total = (f"{number:,}" for number in numbers)
        is_equal = count_rows(found) == count_rows(rows)
        mark = Text("equal", style="green") if is_equal else Text("differs", style="red")
        version = str(table.head().version)
        grid.add_row(name, version, count, right_count, SUMMED[name], total, right_total, mark)
    return grid


def sum_of(name: str, rows: pa.Table) -> int:
    """Return the sum of the column of a table that is summed."""
    return int(pc.sum(rows[SUMMED[name]]).as_py())


if __name__ == "__main__":
    sys.exit(main())
