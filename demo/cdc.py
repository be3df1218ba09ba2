"""A database's change log streams in through Debezium while the Spark driver is killed.

A shop's orders change in SQLite. Debezium's messages about it arrive late, twice and shuffled, some
of them broken; files stand for the Kafka topic. Three tables follow: bronze has the orders as they
are, silver the real ones in euros, gold what each customer has ordered. The driver is killed twice,
a bad deploy spoils all three tables, and one command takes them back. At the end each table is
held against SQLite, at the end of each round.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.cdc_database import Shop, replica
from demo.cdc_driver import MENDING, RIGHT, WRONG, rounds_in
from demo.cdc_tables import TABLES, Tables, counts_of, picture_of, rows_in, sums_of
from demo.cdc_topic import REASONS, UNIT, deliver, plan_deliveries
from demo.figures import find_replays
from demo.folder import add_folder_option, claim_folder
from demo.places import Places, batch_of
from demo.story import EXIT_INTERRUPTED, Story
from demo.supervise import PATIENCE_S, POLL_S, DriverFailedError, kill, start_driver

LEAST_ROUNDS, MOST_ROUNDS = 5, 20
SPOILED = "amount_cents > 50000"
"""Holds for no right order: none of them costs more than 500 euros."""
_SEED = 20_260_101
_MOST_RANDOM_S = 3.0
KILLS = {"auto": "; the driver is killed twice", "me": "; you kill the driver", "never": ""}
"""Who kills, and what the title of that part says."""


class Cdc:
    """A run of the demo."""

    def __init__(self, story: Story, kill_by: str) -> None:
        root, rounds = story.root, story.days
        self._story = story
        self._kill_by = kill_by
        self._places = Places(root)
        self._tables = Tables(root / "tables")
        self._checkpoints, self._forks = root / "checkpoints", root / "forks"
        self._database = root / "shop.sqlite"
        # The rounds after which the bad code is deployed, and noticed.
        self._bad, self._seen = rounds * 3 // 5, rounds * 4 // 5
        shop = Shop(self._database, _SEED, truncated_in=max(2, rounds * 2 // 5))
        self._log = [shop.run_round(number) for number in range(1, rounds + 1)]
        self._deliveries = plan_deliveries(self._log, _SEED, old_program_in=rounds - 2)
        self._delivered = 0
        self._drivers = 0

    def tell(self) -> None:
        """Go through all of it."""
        self._places.hold(0).parent.mkdir()
        self._introduce()
        self._run_killed()
        self._spoil()
        self._go_back()
        self._finish()
        self._show_picture()

    def _introduce(self) -> None:
        story = self._story
        ops = Counter(change.op for log in self._log for change in log)
        story.step(f"1. The shop: {len(self._log)} rounds of changes in SQLite, and their log")
        story.say(
            f"{ops['r']:,} orders at first, then {ops['c']:,} inserts, {ops['u']:,} updates, "
            f"{ops['d']:,} deletes, {ops['t']} truncate; ids change, deleted ids come again"
        )
        late = sum(delivery.late for delivery in self._deliveries)
        twice = sum(delivery.twice for delivery in self._deliveries)
        broken = sum(sum(delivery.poison.values()) for delivery in self._deliveries)
        events = sum(delivery.events for delivery in self._deliveries)
        story.say(
            f"Debezium's messages: {events:,} events in all, shuffled; {late:,} one or two rounds "
            f"late, {twice:,} twice, {broken} broken"
        )
        story.say("Parquet files with Kafka's columns stand for the topic: one a micro-batch")
        story.say(
            "Debezium -> bronze (the orders) -> silver (no tests, in euros) -> gold (by customer)"
        )

    def _run_killed(self) -> None:
        story, places = self._story, self._places
        what = self._deliver_through(self._bad)
        story.step(f"2. {what.capitalize()}{KILLS[self._kill_by]}")
        first = max(1, self._bad // 3)
        killed = False
        if self._kill_by != "never":
            places.hold(first).touch()
            with self._driver(self._checkpoints, RIGHT) as driver:
                killed = self._kill_at_gate(driver, first)
        if killed and self._kill_by == "auto":
            with self._driver(self._checkpoints, RIGHT) as driver:
                self._kill_anywhere(driver)
        self._run_to_the_end(self._checkpoints, RIGHT)
        replays = find_replays(places.log)
        for line in replays:
            story.say(re.sub(r" path=.*", "", line), style="cyan")
        if killed:
            story.check("Spark sent a round again, and bronze skipped it", holds=bool(replays))
        self._check_right(self._bad)

    def _kill_at_gate(self, driver: subprocess.Popen[bytes], number: int) -> bool:
        """Kill the driver, or let the reader do it, when it has committed a round to bronze."""
        story, gate = self._story, self._places.hold(number)
        _wait(driver, self._places.held(number).exists)
        commit = self._checkpoints / "bronze" / "commits" / str(batch_of(number))
        claim = f"round {number} is in bronze, but Spark has not noted it yet"
        story.check(claim, holds=self._rounds_in_bronze() == number and not commit.exists())
        if self._kill_by == "me":
            story.say(f"now, from another terminal: kill -9 {driver.pid}", style="bold red")
            story.say(f"the driver waits here for {PATIENCE_S:.0f} seconds")
            end_s = time.monotonic() + PATIENCE_S
            while driver.poll() is None and time.monotonic() < end_s:
                time.sleep(POLL_S)
        else:
            story.say(f"kill -9 {driver.pid}", style="red")
            kill(driver)
        gate.unlink()
        if driver.poll() is not None:
            return True
        story.say("nobody kills it; it continues")
        _wait_for_end(driver, self._places)
        return False

    def _kill_anywhere(self, driver: subprocess.Popen[bytes]) -> None:
        known = self._rounds_in_bronze()
        _wait(driver, lambda: self._rounds_in_bronze() > known)
        after_s = random.random() * _MOST_RANDOM_S  # not seeded: each run has another moment
        with _ignored_timeout():
            driver.wait(after_s)
        number = self._rounds_in_bronze()
        self._story.say(
            f"kill -9 {driver.pid}: {after_s:.1f} seconds after its first commit, round {number} "
            "is in bronze",
            style="red",
        )
        kill(driver)

    def _spoil(self) -> None:
        story, tables = self._story, self._tables
        what = self._deliver_through(self._seen)
        story.step(f"3. A bad deploy: cents are taken for euros. {what}")
        self._run_to_the_end(self._checkpoints, WRONG)
        right = self._expected(self._seen)
        story.show(sums_of(tables, right))
        wrong = all(tables.rows(name) != rows_in(right, name) for name in TABLES)
        story.check("all three tables are wrong", holds=wrong)
        table = tables.open("bronze")
        story.say(f'bronze.bisect("{SPOILED}"): {table.bisect(SPOILED)}')
        batches = []
        for commit in reversed(table.blame(SPOILED)):
            assert commit.batch is not None
            batches.append(commit.batch.batch_id)
            story.say(f"version {commit.version}, batch {batches[-1]}: {commit.row_count:,} rows")
        last_good = min(batches) - 1
        found = last_good == batch_of(self._bad)
        story.check(f"batch {last_good} was the last good one", holds=found)

    def _go_back(self) -> None:
        story = self._story
        story.step("4. Back: three tables, their quarantine and three checkpoints, by one command")
        command = ["rewind", *(str(self._tables.path(name)) for name in TABLES)]
        command += ["--app-id", "bronze", "--after-batch", str(batch_of(self._bad))]
        for name in TABLES:
            command += ["--checkpoint", str(self._checkpoints / name), str(self._forks / name)]
        story.run_command(*command, "-m", "cents were taken for euros")
        self._check_right(self._bad)

    def _finish(self) -> None:
        story, places = self._story, self._places
        last = len(self._log)
        what = self._deliver_through(last)
        story.step(f"5. The right code continues from the forks: the bad rounds again, and {what}")
        places.hold(MENDING).touch()
        with self._driver(self._forks, RIGHT) as driver:
            _wait(driver, places.held(MENDING).exists)
            self._check_right(last)
            self._show_quarantine()
            places.hold(MENDING).unlink()
            _wait_for_end(driver, places)
        kept = sum(len(delivery.mended) for delivery in self._deliveries)
        counts = self._tables.open("bronze").head().counts
        assert counts is not None
        story.say(
            f"the {kept} texts, mended and read again: {counts.applied} applied, "
            f"{counts.superseded + counts.duplicate} overtaken by later changes or known"
        )
        all_good = counts.events == kept and not counts.quarantined
        story.check("each of them could be applied or was overtaken", holds=all_good)

    def _show_quarantine(self) -> None:
        story = self._story
        story.step("6. The quarantine: no event is lost")
        bronze = self._tables.open("bronze")
        kept = bronze.to_arrow(side="quarantine", columns=["reason"])["reason"].to_pylist()
        texts = [reason for reason in kept if UNIT in reason]
        found = Counter(reason for reason in kept if UNIT not in reason)
        for reason, count in found.most_common():
            story.say(f"{count:>4}  {reason}")
        story.say(f"{len(texts):>4}  {texts[0]} and the like: an old program adds the unit")
        story.say(f"fuse-stream quarantine {self._tables.path('bronze')} shows them", "dim")
        put = Counter[str]()
        for delivery in self._deliveries:
            put.update({REASONS[kind]: count for kind, count in delivery.poison.items()})
        claim = "the quarantine has all broken messages, each for its own reason"
        story.check(claim, holds=found == put)

    def _show_picture(self) -> None:
        story, count = self._story, len(self._log)
        story.step("7. Every round, as the versions of the tables have it, beside SQLite")
        databases = [self._expected(number) for number in range(1, count + 1)]
        picture, all_same = picture_of(self._tables, self._deliveries, databases)
        story.show(picture)
        story.say("SQLite here has the changes that had arrived at the end of the round", "dim")
        story.say(self._about_truncate(), "dim")
        story.check("every table was right at the end of every round", holds=all_same)
        counts, all_counted = counts_of(self._tables, self._deliveries)
        story.show(counts)
        story.check("every event is counted once", holds=all_counted)
        story.step("8. The source database itself, all rows and all columns")
        with sqlite3.connect(self._database) as shop:
            story.show(sums_of(self._tables, shop))
            same = all(self._tables.rows(name) == rows_in(shop, name) for name in TABLES)
        shop.close()
        story.check("bronze, silver and gold are the same as SQLite", holds=same)

    def _about_truncate(self) -> str:
        made = [any(change.op == "t" for change in log) for log in self._log].index(True) + 1
        arrived = [any(one.op == "t" for one in each.changes) for each in self._deliveries]
        return (
            f"the truncate of round {made} arrives in round {arrived.index(True) + 1}: it deletes "
            "what is older, and nothing newer"
        )

    def _deliver_through(self, number: int) -> str:
        first = self._delivered + 1
        for each in range(first, number + 1):
            deliver(self._deliveries[each - 1], self._places.source, each)
        self._delivered = number
        return f"round {number}" if first == number else f"rounds {first} to {number}"

    def _expected(self, count: int) -> sqlite3.Connection:
        """Return a database in which the changes are made that arrive in the first rounds."""
        return replica(
            change for delivery in self._deliveries[:count] for change in delivery.changes
        )

    def _check_right(self, count: int) -> None:
        right = self._expected(count)
        self._story.show(sums_of(self._tables, right))
        same = all(self._tables.rows(name) == rows_in(right, name) for name in TABLES)
        self._story.check(f"each table has just what had arrived by round {count}", holds=same)

    def _rounds_in_bronze(self) -> int:
        return rounds_in(self._tables.path("bronze"))

    def _run_to_the_end(self, checkpoints: Path, code: str) -> None:
        with self._driver(checkpoints, code) as driver:
            _wait_for_end(driver, self._places)

    @contextmanager
    def _driver(self, checkpoints: Path, code: str) -> Iterator[subprocess.Popen[bytes]]:
        self._drivers += 1
        arguments = [str(checkpoints), code]
        with start_driver(self._places, "cdc_driver.py", arguments) as driver:
            self._story.say(f"driver {self._drivers}: pid {driver.pid}, {code} code", style="green")
            yield driver


@contextmanager
def _ignored_timeout() -> Iterator[None]:
    try:
        yield
    except subprocess.TimeoutExpired:
        return


def _wait(driver: subprocess.Popen[bytes], until: Callable[[], bool]) -> None:
    while not until():
        if driver.poll() is not None:
            raise DriverFailedError(f"the driver ended too early, with {driver.returncode}")
        time.sleep(POLL_S)


def _wait_for_end(driver: subprocess.Popen[bytes], places: Places) -> None:
    if driver.wait():
        raise DriverFailedError(f"the driver failed; the end of {places.log} says why")


def main() -> int:
    """Run the demo; it stops with an error where a claim does not hold."""
    options = _parse_options()
    # A shell starts background jobs with this one ignored; then Ctrl-C would leave the driver.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started_s = time.monotonic()
    story = Story(options.folder.resolve(), options.rounds, feed="")
    with claim_folder(story.root):
        try:
            Cdc(story, options.kill).tell()
        except KeyboardInterrupt:
            story.say(f"interrupted; nothing runs on, files are left in {story.root}")
            return EXIT_INTERRUPTED
        except DriverFailedError as error:
            story.say(str(error), style="red")
            return 1
        finally:
            shutil.rmtree(story.root / "scratch", ignore_errors=True)
    seconds = time.monotonic() - started_s
    story.step(f"{seconds:.0f} seconds; all files are left in {story.root}")
    return 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kill",
        choices=list(KILLS),
        default="auto",
        help="auto: the demo kills the driver, twice; me: it prints the pid, and you do; never",
    )
    parser.add_argument(
        "--rounds", type=int, default=10, help=f"of changes ({LEAST_ROUNDS} to {MOST_ROUNDS}; 10)"
    )
    add_folder_option(parser, "demo-cdc")
    options = parser.parse_args()
    if not LEAST_ROUNDS <= options.rounds <= MOST_ROUNDS:
        parser.error(f"--rounds is a number from {LEAST_ROUNDS} to {MOST_ROUNDS}")
    return options


if __name__ == "__main__":
    sys.exit(main())
