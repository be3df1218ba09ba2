"""The numbers of a branch as OpenMetrics text, for a scraper such as Prometheus.

Source: the OpenMetrics specification 1.0, sections "ABNF" and "Overall Structure". All metrics but
the one that names the table are gauges: a rewind, an expiry or a compaction lowers each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fuse_stream.cli.text import printable_lines
from fuse_stream.expiry.vacuum import VacuumReport
from fuse_stream.feed.consumers import ConsumerState
from fuse_stream.format.records import LedgerEntry, LedgerKey, Snapshot
from fuse_stream.table.stats import TableStats

_PREFIX = "fuse_"
_UNITS = ("seconds", "bytes")
_MICROSECONDS = 1_000_000

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What was read of a branch, at one time."""

    table_id: str
    path: str
    branch: str
    now_us: int
    head: Snapshot
    stats: TableStats
    ledger: Mapping[LedgerKey, LedgerEntry]
    consumers: tuple[ConsumerState, ...]
    garbage: VacuumReport | None = None
    """The report of a dry run of vacuum; None if it was not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric and its samples."""

    name: str
    """Without the prefix. It ends with the unit, if it has one."""
    help: str
    samples: tuple[tuple[Labels, float], ...]
    type: str = "gauge"
    suffix: str = field(default="")
    """Of the names of the samples."""

    def lines(self, place: Labels) -> Iterator[str]:
        """Yield the lines of the metric; each sample has the labels of `place`, too."""
        name = f"{_PREFIX}{self.name}"
        yield f"# TYPE {name} {self.type}"
        unit = next((unit for unit in _UNITS if name.endswith(f"_{unit}")), None)
        if unit:
            yield f"# UNIT {name} {unit}"
        yield f"# HELP {name} {_escaped(self.help)}"
        for labels, value in self.samples:
            texts = {**place, **labels}
            pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in texts.items())
            yield f"{name}{self.suffix}{{{pairs}}} {_number(value)}"


def openmetrics_text(observed: Observed) -> str:
    """Return the exposition of what was read."""
    place = {"path": observed.path, "branch": observed.branch}
    metrics = (
        *_of_table(observed),
        *_of_ledger(observed),
        *_of_consumers(observed),
        *_of_garbage(observed.garbage),
    )
    lines = (line for metric in metrics if metric.samples for line in metric.lines(place))
    return "".join(f"{line}\n" for line in (*lines, "# EOF"))


def _of_table(observed: Observed) -> Iterator[Metric]:
    stats, head = observed.stats, observed.head
    info = ({"table_id": observed.table_id}, 1)
    yield Metric(name="table", help="The table.", samples=(info,), type="info", suffix="_info")
    age_us = max(0, observed.now_us - head.timestamp_us)
    numbers: Iterable[tuple[str, str, float]] = (
        ("head_version", "The newest version.", stats.version),
        ("head_age_seconds", "Time since the newest commit.", age_us / _MICROSECONDS),
        ("rows", "Rows that can be read.", stats.row_count),
        ("hidden_rows", "Deleted rows that are still in blocks.", stats.hidden_rows),
        ("blocks", "Blocks of the newest version.", stats.block_count),
        ("small_blocks", "Blocks that compaction may merge.", stats.imperfect_block_count),
        ("segments", "Segments of the newest version.", stats.segment_count),
        ("deletion_files", "Deletion files of the newest version.", stats.deletion_files),
        ("live_bytes", "Stored bytes of the newest version's blocks.", stats.compressed_bytes),
        ("uncompressed_bytes", "Their bytes in memory.", stats.uncompressed_bytes),
        ("metadata_bytes", "Metadata of the newest version.", stats.metadata_bytes),
        ("retained_versions", "Versions that have not expired.", stats.retained_count),
    )
    for name, text, value in numbers:
        yield Metric(name=name, help=text, samples=(({}, value),))
    if stats.vacuumed_us is not None:
        yield Metric(
            name="vacuum_timestamp_seconds",
            help="When an optimizer last vacuumed, in Unix time.",
            samples=(({}, stats.vacuumed_us / _MICROSECONDS),),
        )


def _of_ledger(observed: Observed) -> Iterator[Metric]:
    entries = [
        ({"application": application, "writer": writer}, entry)
        for (application, writer), entry in sorted(observed.ledger.items())
    ]
    yield Metric(
        name="ledger_batch",
        help="The number of the last batch that was committed.",
        samples=tuple((labels, entry.batch_id) for labels, entry in entries),
    )
    yield Metric(
        name="ledger_batch_age_seconds",
        help="Time since the commit of the last batch.",
        samples=tuple(
            (labels, max(0, observed.now_us - entry.timestamp_us) / _MICROSECONDS)
            for labels, entry in entries
        ),
    )


def _of_consumers(observed: Observed) -> Iterator[Metric]:
    def gauge(name: str, text: str, found: Iterable[tuple[ConsumerState, float | None]]) -> Metric:
        return Metric(
            name=f"consumer_{name}",
            help=text,
            samples=tuple(
                ({"consumer": state.consumer, "reads": state.branch or ""}, value)
                for state, value in found
                if value is not None
            ),
        )

    states = observed.consumers
    yield gauge(
        "lag_versions",
        "Versions that a consumer has not read.",
        ((one, one.versions_behind) for one in states),
    )
    yield gauge(
        "lag_rows", "Rows that it has not read.", ((one, one.rows_to_read) for one in states)
    )
    yield gauge(
        "lag_seconds",
        "Time from the version that it has read to the newest.",
        ((one, _seconds(one.behind_us)) for one in states),
    )
    yield gauge(
        "lease_seconds",
        "Time until its lease ends; below zero, since it ended.",
        ((one, _seconds(one.lapses_us - observed.now_us)) for one in states),
    )


def _of_garbage(report: VacuumReport | None) -> Iterator[Metric]:
    if report is None:
        return
    kinds = {"deletable": report.deleted, "waiting": report.waiting}
    found = [
        ({"state": state, "kind": kind}, removed)
        for state, held in kinds.items()
        for kind, removed in held.items()
    ]
    yield Metric(
        name="garbage_objects",
        help="Objects that nothing names: a vacuum deletes them now, or later.",
        samples=tuple((labels, removed.object_count) for labels, removed in found),
    )
    yield Metric(
        name="garbage_bytes",
        help="Their bytes.",
        samples=tuple((labels, removed.byte_size) for labels, removed in found),
    )


def _seconds(time_us: int | None) -> float | None:
    return None if time_us is None else time_us / _MICROSECONDS


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


def _escaped(text: str) -> str:
    """Return a text as it is within a label or a help; control characters as their escapes."""
    return printable_lines(text).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
