"""Measure fuse_stream against plain Spark with its defaults.

Both sides of a ratio are measured in one session. Each part has its own session: a JVM
gets faster while it runs, and the figures of a part must not depend on the parts before it.

make bench            everything, with its full sizes (about two hours on 2 cores)
make bench QUICK=1    small sizes, two minutes: whether it works, not how fast it is
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks import (
    aggregates,
    api,
    batch,
    catalog,
    changes,
    clustering,
    compaction,
    contention,
    events,
    filters,
    history,
    memory,
    merge,
    metadata,
    native_stream,
    optimiser,
    streams,
    vacuum,
)
from benchmarks.flights import copies, load_flights, write_files
from benchmarks.measure import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of a run."""

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
    """Pairs of a block count and the rows per block."""
    blocks: int
    lookup_blocks: int
    keyed: list[int]
    """The rows of the tables that are upserted into."""
    sequenced: list[int]
    """The rows of the tables that get events."""
    event_batches: int
    followed: int
    """Commits that a running query follows."""


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
    lookup_blocks=1000,
    keyed=[1_000_000, 10_000_000],
    sequenced=[1_000_000, 10_000_000],
    event_batches=40,
    followed=30,
)
QUICK = Sizes(
    copies=1,
    runs=1,
    batches=10,
    stream_runs=1,
    long_batches=0,
    optimised_batches=30,
    commits=30,
    api_commits=300,
    memory_times=0,
    tiny_batches=0,
    compactions=[(20, 2_000)],
    blocks=2000,
    lookup_blocks=20,
    keyed=[100_000],
    sequenced=[100_000],
    event_batches=6,
    followed=3,
)


def main() -> None:
    """Run the chosen parts, print a table, write the samples."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 160)
    options.folder.mkdir(parents=True, exist_ok=True)
    parts = _parts(options.folder.resolve(), QUICK if options.quick else FULL)
    names = options.only or list(parts)
    if unknown := set(names) - parts.keys():
        sys.exit(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    results: list[Result] = []
    for name in names:
        if len(names) > 1 and not options.quick:
            results += _in_a_session_of_its_own(name, options)
        else:
            console.print(f"[dim]{datetime.now(UTC):%H:%M:%S} {name} …[/dim]")
            results += parts[name]()
    console.print(_table(results))
    _write(options, results)


def _in_a_session_of_its_own(name: str, options: argparse.Namespace) -> list[Result]:
    samples = options.json.with_name(f"{options.json.stem}-{name}.json")
    command = [sys.executable, "-m", "benchmarks.run", "--only", name]
    command += ["--folder", str(options.folder), "--json", str(samples)]
    subprocess.run(command, check=True)
    return [Result(**result) for result in json.loads(samples.read_text())["results"]]


def _parts(work: Path, sizes: Sizes) -> dict[str, Callable[[], Iterable[Result]]]:
    flights = load_flights()
    rows = work / f"flights_{sizes.copies}"
    write_files(copies(flights, sizes.copies), rows, 650_000)

    def small_files(count: int) -> Path:
        folder = work / f"files_{count}"
        needed = -(-count * 2000 // len(flights))
        write_files(copies(flights, needed).slice(0, count * 2000), folder, 2000)
        return folder

    parts: dict[str, Callable[[], Iterable[Result]]] = {
        "append": lambda: [batch.append(_session(), rows, work, runs=sizes.runs)],
        "scans": lambda: batch.scans(_session(), rows, work, runs=sizes.runs),
        "deleted-rows": lambda: batch.deleted_rows(
            _session(), copies(flights, sizes.copies), work, runs=sizes.runs
        ),
        "catalog": lambda: catalog.statements(_session(), rows, work, runs=sizes.runs),
        "lookup": lambda: [
            batch.lookup(_session(), rows, work, runs=sizes.runs),
            batch.late_lookup(_session(), work, blocks=sizes.lookup_blocks, runs=sizes.runs),
        ],
        "aggregate": lambda: aggregates.aggregate(
            _session(), work, blocks=sizes.lookup_blocks, runs=sizes.runs
        ),
        "filters": lambda: [
            *filters.lookups(work, blocks=sizes.lookup_blocks, runs=sizes.runs, session=_session),
            filters.append(_session(), rows, work, runs=sizes.runs),
        ],
        "micro-batches": lambda: streams.micro_batches(
            _session(), small_files(sizes.batches), work, runs=sizes.stream_runs
        ),
        "feed": lambda: streams.feed(
            _session(),
            _sorted(small_files(sizes.commits)),
            work,
            runs=max(sizes.runs, 1),
        ),
        "native-stream": lambda: [
            *native_stream.scans(_session(), rows, work, runs=sizes.runs),
            native_stream.many_commits(
                _session(), _sorted(small_files(sizes.commits)), work, runs=sizes.runs
            ),
            native_stream.latency(
                _session(), _sorted(small_files(sizes.batches)), work, count=sizes.followed
            ),
        ],
        "clustering": lambda: clustering.point_lookups(
            flights, work, commits=sizes.commits, runs=sizes.runs
        ),
        "compact": lambda: compaction.compactions(
            _session(), flights, work, shapes=sizes.compactions, runs=sizes.runs
        ),
        "commits": lambda: api.commits(flights, work, count=sizes.api_commits),
        "contention": lambda: contention.contention(commits=sizes.commits),
        "first-use": lambda: api.first_use(work, runs=min(sizes.runs, 3)),
        "metadata": lambda: metadata.plans(flights, work, blocks=sizes.blocks, runs=sizes.runs),
        "changes": lambda: [
            *changes.upserts(_session(), work, sizes=sizes.keyed, runs=sizes.runs),
            *changes.feed(_session(), work, size=sizes.keyed[0], runs=sizes.runs),
            *changes.compaction_beside(work, size=sizes.keyed[0]),
        ],
        "merge": lambda: merge.merges(_session(), work, size=sizes.keyed[0], runs=sizes.runs),
        "events": lambda: [
            *events.sinks(
                _session(),
                work,
                sizes=sizes.sequenced,
                batches=sizes.event_batches,
                runs=sizes.stream_runs,
            ),
            *events.debezium(_session(), work, batches=sizes.event_batches // 2),
        ],
        "history": lambda: [
            *history.rewinds(work, snapshots=sizes.api_commits, runs=sizes.runs),
            *history.pipelines(work, snapshots=sizes.api_commits, runs=sizes.runs),
            *history.reads(work, snapshots=sizes.api_commits),
            *history.diffs(flights, work, commits=sizes.commits, runs=sizes.runs),
        ],
    }
    if sizes.long_batches:
        parts["vacuum"] = lambda: vacuum.vacuum(work, objects=100_000, runs=sizes.runs)
        parts["long-stream"] = lambda: streams.long_stream(
            _session(), small_files(sizes.long_batches), work
        )
    if sizes.optimised_batches:
        parts["optimiser"] = lambda: optimiser.beside_a_stream(
            _session(),
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


def _sorted(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


@cache
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
