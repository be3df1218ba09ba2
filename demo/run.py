"""Stream a year of flights into a table while the Spark driver is killed, and count what landed.

The flights that left New York in 2013 stream in week by week, into a fuse_stream table and, beside
it, into plain Parquet. A second stream follows the table's changes. The driver is killed between
the table's commit and Spark's own, then started again.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pyarrow.parquet as pq

from demo.figures import Figures, load_figures
from demo.folder import add_folder_option, claim_folder
from demo.places import WEEK_FILES, Places
from demo.report import show_report
from demo.screen import Screen
from demo.supervise import DriverFailedError, Life, Plan, run_drivers
from demo.weeks import copy_weeks, load_airlines, store_weeks

LOG_LINES = 30
EXIT_INTERRUPTED = 130


def main() -> int:
    """Run the demo; return 0 if fuse_stream's figures are exact."""
    options = parse_options()
    # A shell starts background jobs with this one ignored; then Ctrl-C would leave the driver.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started_s = time.monotonic()
    files = store_weeks(WEEK_FILES)[: options.weeks]
    places = Places(options.folder.resolve())
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    screen = Screen(weeks=len(files), rows=rows)
    plan = plan_kills(options.kill, len(files))
    with claim_folder(places.root):
        copy_weeks(files, places.source)
        screen.say(opening(rows, len(files), plan))
        try:
            with screen:
                lives = run_drivers(places, plan, screen)
        except KeyboardInterrupt:
            screen.say(f"interrupted; nothing runs on, files are left in {places.root}")
            return EXIT_INTERRUPTED
        except DriverFailedError as error:
            screen.say(f"[red]{error}[/]")
            show_log_end(places)
            return 1
        finally:
            shutil.rmtree(places.scratch, ignore_errors=True)
        return close(screen, places, lives, load_figures(places), time.monotonic() - started_s)


def close(
    screen: Screen, places: Places, lives: list[Life], figures: Figures, seconds: float
) -> int:
    """Show what came of it; return the exit code."""
    show_report(
        screen.console, places=places, lives=lives, figures=figures, airlines=load_airlines()
    )
    screen.say(f"\n[dim]{seconds:.0f} seconds; all files are left in {places.root}[/]")
    if not figures.exact:
        screen.say("[bold red]fuse_stream's tables are not what was delivered: this is a bug[/]")
        return 1
    return 0


def plan_kills(kill: str, weeks: int) -> Plan:
    """Return after which weeks a driver is to die."""
    first, second = max(1, weeks * 2 // 5), max(2, weeks * 3 // 4)
    match kill:
        case "never":
            return Plan(())
        case "me":
            return Plan((first,), by_reader=True)
    return Plan((first, second))


def opening(rows: int, weeks: int, plan: Plan) -> str:
    """Return what a reader should know before it starts."""
    who = "You kill" if plan.by_reader else "We kill"
    what = (
        f"{who} the Spark driver just after a week was written, before Spark has noted it: after "
        "the restart Spark sends that week again."
        if plan.weeks
        else "Nobody kills the driver this time."
    )
    return (
        f"{rows:,} flights stream in, {weeks} weeks of 2013: into a fuse_stream table and, beside "
        f"it, into plain Parquet (df.write.parquet in foreachBatch). {what}\n"
    )


def show_log_end(places: Places) -> None:
    """Print the end of the drivers' log."""
    if places.log.exists():
        print(*places.log.read_text(errors="replace").splitlines()[-LOG_LINES:], sep="\n")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kill",
        choices=["auto", "me", "never"],
        default="auto",
        help="auto: the demo kills the driver, twice; me: it prints the pid, and you do; never",
    )
    parser.add_argument("--weeks", type=int, default=53, help="stream fewer weeks (4 to 53)")
    add_folder_option(parser, "demo")
    options = parser.parse_args()
    if not 4 <= options.weeks <= 53:
        parser.error("--weeks is a number from 4 to 53")
    return options


if __name__ == "__main__":
    sys.exit(main())
