"""The end of the demo on screen: the log, the kills, the summary, the comparison."""

from __future__ import annotations

from collections.abc import Sequence

from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from demo.command import run_command
from demo.figures import Carrier, Figures, Landed
from demo.places import Places, batch_of
from demo.supervise import Life

SNAPSHOTS = 8


def show_report(
    console: Console,
    *,
    places: Places,
    lives: Sequence[Life],
    figures: Figures,
    airlines: dict[str, str],
) -> None:
    """Print everything that a reader should see of a finished run."""
    _title(console, f"The last {SNAPSHOTS} snapshots: every week is one")
    run_command(console, "log", str(places.flights), "--limit", str(SNAPSHOTS))
    _title(console, "The drivers")
    for number, life in enumerate(lives, 1):
        console.print(f"  driver {number}: {_end_of(life)}", soft_wrap=True)
    if figures.replays:
        _title(console, "Spark sent the week again; what the sink said")
        for line in figures.replays:
            console.print(Text(f"  {line}", style="cyan"), soft_wrap=True)
    _title(console, "Delay at departure, minutes on average: a second stream, fed by the changes")
    console.print(_indented(_delays(figures.carriers, airlines)))
    _title(console, "The same stream, the same kills")
    console.print(_indented(_comparison(figures)))


def _title(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2), expand=False)


def _end_of(life: Life) -> str:
    if not life.killed:
        return f"pid {life.pid}, streamed the rest and ended by itself"
    if not life.weeks:
        return f"pid {life.pid}, [red]killed[/] before the first week"
    return (
        f"pid {life.pid}, [red]killed[/] with week {life.weeks} "
        f"(batch {batch_of(life.weeks)}) the newest in the table"
    )


def _delays(carriers: Sequence[Carrier], airlines: dict[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    longest = max((carrier.mean_delay for carrier in carriers), default=1.0)
    for carrier in carriers:
        table.add_row(
            airlines.get(carrier.code, carrier.code),
            Text(f"{carrier.mean_delay:.1f}", justify="right"),
            Bar(longest, 0, max(carrier.mean_delay, 0.0), width=36, color="yellow"),
            Text(f"{carrier.flights:,} flights", style="dim", justify="right"),
        )
    return table


def _comparison(figures: Figures) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("")
    for name in ("rows", "there twice", "missing"):
        table.add_column(name, justify="right")
    table.add_row("delivered", f"{figures.delivered:,}", "", "", style="dim")
    table.add_row("plain Parquet", *_cells(figures.plain))
    table.add_row("fuse_stream", *_cells(figures.table), style="bold")
    return table


def _cells(landed: Landed) -> list[Text]:
    def count(number: int) -> Text:
        return Text(f"{number:,}", style="red") if number else Text("none", style="green")

    return [Text(f"{landed.rows:,}"), count(landed.twice), count(landed.missing)]
