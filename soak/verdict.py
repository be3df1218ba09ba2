"""The verdict on a run: all rows are those that were written, and no curve grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import fuse_stream as fuse
from fuse_stream.format.layout import CHUNK_VERSIONS
from soak.places import FOLLOWERS, KILLED, Places, Settings
from soak.plot import Panel, svg
from soak.sample import Sample
from soak.tally import Tally, load_batches, tally_of, total
from soak.trend import Curve, Trend, tooth_of, trend_of

LEAST_MINUTES, LEAST_AGES = 20, 5
"""A run of fewer, or of fewer vacuum ages, is too short to judge growth: JVMs warm up for long."""
BEYOND, METADATA = "files beyond the live blocks", "metadata bytes per live block"


@dataclass(frozen=True, slots=True)
class Line:
    """One check."""

    what: str
    found: str
    holds: bool | None
    """None if it is not judged."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """All checks of a run."""

    lines: tuple[Line, ...]
    picture: str

    @property
    def holds(self) -> bool:
        return all(line.holds is not False for line in self.lines)


def judge(
    places: Places,
    settings: Settings,
    samples: Sequence[Sample],
    *,
    written: Tally,
    kills: int,
) -> Verdict:
    """Compare the rows, and fit lines through the curves."""
    table = fuse.Table.open(places.table)
    head = table.head()
    checked = table.fsck().is_sound
    ages = settings.minutes * 60 / settings.vacuum_age_s
    is_long = settings.minutes >= LEAST_MINUTES and ages >= LEAST_AGES
    lines = [
        Line("rows written", f"{written.rows:,}", None),
        _same("rows of the table", _tally_of_table(table), written),
        *(
            _same(f"feed of the {name}", load_batches(places.feed(name)), written)
            for name in FOLLOWERS
        ),
        Line("versions, of which expired", f"{head.version:,}, {head.floor:,}", head.floor > 0),
        Line("raises of the epoch", str(head.epoch), head.epoch > (1 if is_long else 0)),
        Line("fsck", "every object checked" if checked else "see fuse-stream fsck", checked),
        Line("live blocks", str(head.summary.block_count), None),
        Line("kills of a follower", str(kills), kills > 0),
    ]
    epochs = _curve(samples, lambda sample: float(sample.epoch))
    chunks = _curve(samples, lambda sample: float(sample.floor // CHUNK_VERSIONS))
    vacuum_teeth_s = [tooth_of(steps) for steps in (epochs, chunks)]
    vacuumed = {
        BEYOND: _curve(samples, lambda sample: float(sample.beyond)),
        METADATA: _curve(samples, lambda sample: sample.metadata_bytes_per_block),
    }
    memory = _memory(samples)
    trends: dict[str, Trend] = {}
    for name, curve in (vacuumed | memory).items():
        teeth_s = vacuum_teeth_s if name in vacuumed else [settings.slow_s]
        trend = trend_of(curve, teeth_s=teeth_s)
        if trend is not None:
            trends[name] = trend
            found = f"{trend.mean:,.1f}, rises by {trend.rise:+.2%}"
            # Each restart of the killed follower begins with an empty heap, whose content depends
            # on the current batch: the memory of the process is judged.
            is_asked = is_long and not name.startswith(KILLED) and not name.endswith("heap")
            lines.append(Line(name, found, trend.is_flat if is_asked else None))
    panels = (
        *(
            Panel(title=name, curves={name: curve}, trends=trends)
            for name, curve in vacuumed.items()
        ),
        Panel(
            title="files by kind",
            curves={
                kind: _curve(samples, _files_of(kind))
                for kind in (samples[0].files if samples else ())
            }
            | {"live blocks": _curve(samples, lambda sample: float(sample.live_blocks))},
        ),
        *(
            Panel(
                title=f"MiB: {part}",
                curves={name: curve for name, curve in memory.items() if name.endswith(part)},
                trends=trends,
            )
            for part in ("jvm", "heap", "python", "workers")
        ),
    )
    picture = svg("A soak: what grows", panels, samples[-1].seconds if samples else 0.0)
    return Verdict(tuple(lines), picture)


def render(verdict: Verdict, console: Console) -> None:
    """Print the checks."""
    table = Table(title="the soak")
    for name in ("what", "found", ""):
        table.add_column(name)
    for line in verdict.lines:
        mark = {True: "[green]holds[/green]", False: "[red]does not hold[/red]", None: ""}
        table.add_row(line.what, line.found, mark[line.holds])
    console.print(table)


def _same(what: str, found: Tally, written: Tally) -> Line:
    text = f"{found.rows:,}"
    if found.rows == written.rows and found != written:
        text += ", but they are others"
    return Line(what, text, found == written)


def _tally_of_table(table: fuse.Table) -> Tally:
    schema = table.head().schema
    return total(tally_of(pa.Table.from_batches([batch]), schema) for batch in table.scan())


def _files_of(kind: str) -> Callable[[Sample], float]:
    return lambda sample: float(sample.files[kind])


def _curve(samples: Sequence[Sample], value: Callable[[Sample], float]) -> Curve:
    return [(sample.seconds, value(sample)) for sample in samples]


def _memory(samples: Sequence[Sample]) -> dict[str, Curve]:
    names = dict.fromkeys(name for sample in samples for name in sample.memory)
    return {
        name: [(sample.seconds, sample.memory[name]) for sample in samples if name in sample.memory]
        for name in names
    }
