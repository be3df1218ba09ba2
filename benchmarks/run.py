"""Measure fuse_stream against plain Spark with its defaults, in one session.

make bench            everything, with its full sizes (about an hour on 2 cores)
make bench QUICK=1    small sizes, two minutes: whether it works, not how fast it is
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks import (
    api,
    batch,
    clustering,
    compaction,
    history,
    memory,
    metadata,
    optimiser,
    streams,
    vacuum,
)
from benchmarks.flights import copies, load_flights, write_files
from benchmarks.measure import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything."""

    copies: int
    runs: int
    batches: int
    stream_runs: int
    long_batches: int
    optimised_batches: int
    commits: int
    api_commits: int
    memory_times: int
    tiny_batches: int
    compactions: list[tuple[int, int]]
    """Blocks, and rows of each."""
    blocks: int


FULL = Sizes(
    copies=15,
    runs=5,
    batches=300,
    stream_runs=5,
    long_batches=5000,
    optimised_batches=2000,
    commits=1000,
    api_commits=10_000,
    memory_times=4,
    tiny_batches=100,
    compactions=[(500, 2_000), (50, 100_000)],
    blocks=100_000,
)
QUICK = Sizes(
    copies=1,
    runs=1,
    batches=10,
    stream_runs=1,
    long_batches=0,
    optimised_batches=60,
    commits=30,
    api_commits=300,
    memory_times=0,
    tiny_batches=0,
    compactions=[(20, 2_000)],
    blocks=2000,
)


def main() -> None:
    """Run what was asked for, print a table, write the samples."""
    options = _options()
    sizes = QUICK if options.quick else FULL
    work = options.folder.resolve()
    work.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 160)
    flights = load_flights()
    rows = work / f"flights_{sizes.copies}"
    write_files(copies(flights, sizes.copies), rows, 650_000)
    spark = _session()
    results: list[Result] = []
    try:
        for name, part in _parts(spark, flights, rows, work, sizes).items():
            if not options.only or name in options.only:
                console.print(f"[dim]{datetime.now(UTC):%H:%M:%S} {name} …[/dim]")
                results += part()
    finally:
        spark.stop()
    console.print(_table(results))
    _write(options, results)


def _parts(
    spark: SparkSession, flights: pa.Table, rows: Path, work: Path, sizes: Sizes
) -> dict[str, Callable[[], Iterable[Result]]]:
    def small_files(count: int) -> Path:
        folder = work / f"files_{count}"
        needed = -(-count * 2000 // len(flights))
        write_files(copies(flights, needed).slice(0, count * 2000), folder, 2000)
        return folder

    parts: dict[str, Callable[[], Iterable[Result]]] = {
        "append": lambda: [batch.append(spark, rows, work, runs=sizes.runs)],
        "scans": lambda: batch.scans(spark, rows, work, runs=sizes.runs),
        "lookup": lambda: [batch.lookup(spark, rows, work, runs=sizes.runs)],
        "micro-batches": lambda: streams.micro_batches(
            spark, small_files(sizes.batches), work, runs=sizes.stream_runs
        ),
        "feed": lambda: streams.feed(
            spark,
            sorted(small_files(sizes.commits).glob("*.parquet")),
            work,
            runs=max(sizes.runs, 1),
        ),
        "clustering": lambda: clustering.point_lookups(
            flights, work, commits=sizes.commits, runs=sizes.runs
        ),
        "compact": lambda: compaction.compactions(
            spark, flights, work, shapes=sizes.compactions, runs=sizes.runs
        ),
        "commits": lambda: api.commits(flights, work, count=sizes.api_commits),
        "first-use": lambda: api.first_use(work),
        "metadata": lambda: metadata.plans(flights, work, blocks=sizes.blocks, runs=sizes.runs),
        "history": lambda: [
            *history.rewinds(work, snapshots=sizes.api_commits, runs=sizes.runs),
            *history.reads(work, snapshots=sizes.api_commits),
            *history.diffs(flights, work, commits=sizes.commits, runs=sizes.runs),
        ],
    }
    if sizes.long_batches:
        parts["vacuum"] = lambda: vacuum.vacuum(work, objects=100_000, runs=sizes.runs)
        parts["long-stream"] = lambda: streams.long_stream(
            spark, small_files(sizes.long_batches), work
        )
    if sizes.optimised_batches:
        parts["optimiser"] = lambda: optimiser.beside_a_stream(
            spark,
            small_files(sizes.optimised_batches),
            work,
            warm_up=sizes.optimised_batches // 10,
            runs=sizes.runs,
        )
    if sizes.memory_times:
        parts["memory"] = lambda: [
            *memory.append(rows, work, times=sizes.memory_times),
            *memory.large_after_tiny(work, tiny=sizes.tiny_batches),
        ]
    return parts


def _session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _table(results: list[Result]) -> Table:
    table = Table(title="medians; a ratio is ours over theirs, in one session")
    for name in ("work", "ours", "theirs", "against", "ratio", "to reach", "note"):
        is_figure = name in {"ours", "theirs", "ratio", "to reach"}
        table.add_column(name, justify="right" if is_figure else "left")
    for row in map(_cells, results):
        table.add_row(*row)
    return table


def _cells(result: Result) -> list[str]:
    ratio, limit = result.ratio, result.limit
    theirs = f"{statistics.median(result.theirs):.4g} {result.unit}" if result.theirs else ""
    return [
        result.work,
        f"{statistics.median(result.ours):.4g} {result.unit}",
        theirs,
        result.against,
        "" if ratio is None else f"{ratio:.2f}",
        "" if limit is None else f"{limit:.2f}",
        result.note,
    ]


def _write(options: argparse.Namespace, results: list[Result]) -> None:
    machine = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "pyspark": pyspark.__version__,
        "pyarrow": pa.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    samples = [
        {name: getattr(result, name) for name in Result.__dataclass_fields__} for result in results
    ]
    text = json.dumps({"machine": machine, "results": samples}, indent=1)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(text + "\n")
    if options.markdown:
        lines = [
            "| work | ours | theirs | against | ratio | to reach | note |",
            "|---|---|---|---|---|---|---|",
            *("| " + " | ".join(_cells(result)) + " |" for result in results),
        ]
        about = ", ".join(f"{name} {value}" for name, value in machine.items())
        options.markdown.write_text(f"{about}\n\n" + "\n".join(lines) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, two minutes")
    parser.add_argument("--only", nargs="*", help="the parts to run; all if not given")
    parser.add_argument("--folder", type=Path, default=Path(".cache/bench"), help="for tables")
    parser.add_argument(
        "--json", type=Path, default=Path(".cache/bench/results.json"), help="for the raw samples"
    )
    parser.add_argument("--markdown", type=Path, help="for the table, as Markdown")
    return parser.parse_args()


if __name__ == "__main__":
    main()
