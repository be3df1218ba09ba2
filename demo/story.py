"""What the two demos of going back print: steps, commands, and claims that are checked."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from demo.command import run_command
from demo.folder import add_folder_option, claim_folder
from demo.session import spark_session

LEAST_DAYS, MOST_DAYS = 5, 28
EXIT_INTERRUPTED = 130
_PATIENCE_S = 60


class Story:
    """The console of one run, where it keeps its files, and how far it streams."""

    def __init__(self, root: Path, days: int, feed: str) -> None:
        self.root = root
        self.days = days
        self.feed = feed
        """The feed by which the tables follow one another; empty if the demo has no choice."""
        self._console = Console(highlight=False)
        if not self._console.is_terminal:
            self._console.width = max(self._console.width, 100)

    def step(self, title: str) -> None:
        """Begin a part of the story."""
        self._console.print()
        self._console.print(Text(title, style="bold"))

    def say(self, text: str, style: str = "") -> None:
        """Print a line of it."""
        self._console.print(Text(f"  {text}", style=style), soft_wrap=True)

    def show(self, part: RenderableType) -> None:
        """Print a table of it."""
        self._console.print(Padding(part, (0, 0, 0, 1), expand=False))

    def check(self, claim: str, *, holds: bool) -> None:
        """Print what holds; end the run if it does not."""
        if not holds:
            raise SystemExit(f"this is a bug, it does not hold: {claim} (see {self.root})")
        self._console.print(Text.assemble("  ", ("ok", "green"), f"  {claim}"), soft_wrap=True)

    def run_command(self, *arguments: str) -> None:
        """Run `fuse-stream` as a reader would, and show it."""
        run_command(self._console, *arguments)


@contextmanager
def tell(
    name: str, about: str | None, *, feeds: Sequence[str] = ()
) -> Iterator[tuple[Story, SparkSession]]:
    """Read the command line, claim the folder of the run and start Spark in it.

    Args:
        name: the demo's name, and that of its folder.
        about: what `--help` says.
        feeds: the feeds of which `--feed` names one; the first one is the default.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--days", type=int, default=10, help=f"of January ({LEAST_DAYS} to {MOST_DAYS}; 10)"
    )
    if feeds:
        parser.add_argument("--feed", choices=feeds, default=feeds[0], help="between the tables")
    add_folder_option(parser, name)
    options = parser.parse_args()
    if not LEAST_DAYS <= options.days <= MOST_DAYS:
        parser.error(f"--days is a number from {LEAST_DAYS} to {MOST_DAYS}")
    started_s = time.monotonic()
    # The story shows the refusals itself.
    logging.getLogger("fuse_stream.spark.sink").setLevel(logging.CRITICAL)
    story = Story(options.folder.resolve(), options.days, options.feed if feeds else "")
    with claim_folder(story.root):
        story.say("Spark starts …", style="dim")
        try:
            with spark_session(story.root) as spark:
                yield story, spark
        except KeyboardInterrupt:
            story.say(f"interrupted; files are left in {story.root}")
            raise SystemExit(EXIT_INTERRUPTED) from None
    seconds = time.monotonic() - started_s
    story.step(f"{seconds:.0f} seconds; all files are left in {story.root}")


def refusal_of(query: StreamingQuery) -> str:
    """Wait for a query that must fail, and return what fuse_stream said."""
    try:
        query.awaitTermination(_PATIENCE_S)
    except StreamingQueryException as error:
        found = [line for line in str(error).splitlines() if line.startswith("fuse_stream.errors.")]
        return found[-1] if found else str(error)
    finally:
        query.stop()
    raise SystemExit("this is a bug: a query ran that had to be refused")
