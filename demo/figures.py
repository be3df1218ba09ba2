"""What has landed, against what was delivered: counted from the files, without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import fuse_stream as fuse
from demo.places import Places
from demo.weeks import KEY

REPLAY = "outcome=replay"


@dataclass(frozen=True, slots=True)
class Landed:
    """What one of the two ways made of the stream."""

    rows: int
    twice: int
    """Rows beyond the first of their key."""
    missing: int
    exact: bool
    """Whether the rows are the delivered ones, value by value, each once."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """One line of the summary that followed the change feed."""

    code: str
    flights: int
    departed: int
    delay_minutes: int

    @property
    def mean_delay(self) -> float:
        return self.delay_minutes / self.departed if self.departed else 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """All that the demo ends with."""

    delivered: int
    table: Landed
    plain: Landed
    carriers: list[Carrier]
    """Latest first."""
    carriers_exact: bool
    replays: list[str]
    """The lines by which the sinks said that they skipped a replay."""

    @property
    def exact(self) -> bool:
        """Whether fuse_stream kept its word in both tables."""
        return self.table.exact and self.carriers_exact


def load_figures(places: Places) -> Figures:
    """Read and compare all that stands in the folders of a run."""
    delivered = ds.dataset(places.source).to_table()
    plain = ds.dataset(places.plain).to_table() if places.plain.exists() else delivered.slice(0, 0)
    carriers = carriers_of(fuse.Table.open(places.delays).to_arrow())
    return Figures(
        delivered=len(delivered),
        table=compare(delivered, fuse.Table.open(places.flights).to_arrow()),
        plain=compare(delivered, plain),
        carriers=carriers,
        carriers_exact=sorted(carriers, key=lambda carrier: carrier.code) == summarize(delivered),
        replays=find_replays(places.log),
    )


def compare(delivered: pa.Table, landed: pa.Table) -> Landed:
    """Hold what has landed against what was delivered."""
    # Spark writes times as INT96, which Arrow reads as nanoseconds without a zone.
    landed = landed.select(delivered.column_names).cast(delivered.schema)
    keys = landed.group_by(KEY).aggregate([])
    missing = delivered.select(KEY).join(keys, KEY, join_type="left anti")
    return Landed(
        rows=len(landed),
        twice=len(landed) - len(keys),
        missing=len(missing),
        exact=_sorted(landed).equals(_sorted(delivered)),
    )


def carriers_of(summary: pa.Table) -> list[Carrier]:
    """Return the lines of the summary, the latest carrier first."""
    names = ("carrier", "flights", "departed", "delay_minutes")
    carriers = [Carrier(*(row[name] for name in names)) for row in summary.to_pylist()]
    return sorted(carriers, key=lambda carrier: -carrier.mean_delay)


def summarize(delivered: pa.Table) -> list[Carrier]:
    """Return what the summary has to say, by code."""
    groups = delivered.group_by("carrier").aggregate(
        [([], "count_all"), ("dep_delay", "count"), ("dep_delay", "sum")]
    )
    columns = [groups[name] for name in groups.column_names]
    by_name = dict(zip(groups.column_names, columns, strict=True))
    names = ("carrier", "count_all", "dep_delay_count", "dep_delay_sum")
    rows = zip(*(by_name[name].to_pylist() for name in names), strict=True)
    return sorted((Carrier(*row) for row in rows), key=lambda carrier: carrier.code)


def find_replays(log: Path) -> list[str]:
    """Return the lines of a driver's log that report a skipped replay."""
    with log.open(errors="replace") as lines:
        return [line.strip() for line in lines if REPLAY in line]


def _sorted(table: pa.Table) -> pa.Table:
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in KEY])
    return table.take(order).replace_schema_metadata(None).combine_chunks()
