"""What a run of campaigns reached, as a table for the terminal, JSON or Markdown."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from torture.campaign import Campaign


@dataclass(kw_only=True)
class Reached:
    """What one campaign has reached so far."""

    campaign: Campaign
    aim: int
    """How many units it is to reach."""
    outcomes: Counter[str] = field(default_factory=Counter)
    seeds: set[int] = field(default_factory=set)
    """Those of the trials that ended."""
    seconds: float = 0.0
    """How long its trials took, all added up."""
    broken: str = ""
    """The promise that did not hold; empty if none was broken."""
    broken_seed: int | None = None
    history: list[str] = field(default_factory=list)
    left_out: str = ""
    """Why the campaign did not run; empty if it did."""

    @property
    def units(self) -> int:
        return self.outcomes.total()

    @property
    def state(self) -> str:
        """In one word or a few: whether the promises held."""
        if self.broken:
            return "BROKEN"
        if self.left_out:
            return f"not run: {self.left_out}"
        return "held" if self.units >= self.aim else "held, aim not reached"

    def replay(self) -> str:
        """Return the command that runs the trial again which broke a promise."""
        seed, name = self.broken_seed, self.campaign.name
        return f'make torture ARGS="--only {name} --seed {seed}"'


def described(campaign: Campaign) -> str:
    """Return what a campaign does, its aims and its needs, in lines of 100 columns."""
    needs = f"; needs {' and '.join(campaign.needs)}" if campaign.needs else ""
    text = (
        f"{campaign.does[:1].upper()}{campaign.does[1:].rstrip('.')}. Aims at {campaign.in_ci:,} "
        f"{campaign.unit}, in a night at {campaign.in_night:,}{needs}."
    )
    return textwrap.fill(
        text, 100, initial_indent=f"{campaign.name:<12} ", subsequent_indent=" " * 13
    )


def as_json(all_reached: Iterable[Reached]) -> str:
    """Return all figures as one JSON document."""
    return json.dumps([_document(reached) for reached in all_reached], indent=2) + "\n"


def _document(reached: Reached) -> dict[str, Any]:
    campaign = reached.campaign
    return {
        "campaign": campaign.name,
        "does": campaign.does,
        "unit": campaign.unit,
        "reached": reached.units,
        "aim": reached.aim,
        "state": reached.state,
        "outcomes": dict(sorted(reached.outcomes.items())),
        "seconds": round(reached.seconds, 1),
        "seeds": _ranges(reached.seeds),
        "broken": reached.broken,
        "broken_seed": reached.broken_seed,
        "history": reached.history,
    }


def as_markdown(all_reached: Iterable[Reached]) -> str:
    """Return a table, one campaign a line, and a list of outcomes for each campaign."""
    found = list(all_reached)
    lines = [
        "| campaign | reached | aim | promises | seconds | seeds |",
        "|---|---|---|---|---|---|",
    ]
    for reached in found:
        cells = [f"{cell}".replace("|", "\\|") for cell in _cells(reached)]
        lines.append(f"| {' | '.join(cells)} |")
    for reached in found:
        lines += ["", f"**{reached.campaign.name}**: {reached.campaign.does}.", ""]
        lines += [f"- {count:,} {outcome}" for outcome, count in sorted(reached.outcomes.items())]
    return "\n".join(lines) + "\n"


def print_report(all_reached: Sequence[Reached], console: Console) -> None:
    """Print the table, the outcomes of each campaign and every broken promise."""
    for reached in all_reached:
        if reached.outcomes:
            console.print(f"\n[bold]{reached.campaign.name}[/bold]: {reached.campaign.does}")
            for outcome, count in sorted(reached.outcomes.items()):
                console.print(f"{count:>10,}  {outcome}", highlight=False, markup=False)
    console.print()
    table = Table("campaign", "reached", "aim", "promises", "seconds", "seeds")
    for reached in all_reached:
        table.add_row(*_cells(reached))
    console.print(table)
    for reached in all_reached:
        if reached.broken:
            print_broken(reached, console)


def print_broken(reached: Reached, console: Console) -> None:
    """Print a broken promise, the steps that show it and the command that repeats it."""
    console.print(
        f"\n[red]{reached.campaign.name}, seed {reached.broken_seed}: a promise is broken[/red]"
    )
    for line in (reached.broken, *(f"  {step}" for step in reached.history)):
        console.print(line, markup=False, highlight=False)
    console.print(f"again: {reached.replay()}", markup=False, highlight=False)


def _cells(reached: Reached) -> list[str]:
    return [
        reached.campaign.name,
        f"{reached.units:,} {reached.campaign.unit}",
        f"{reached.aim:,}",
        reached.state,
        f"{reached.seconds:,.0f}",
        _ranges(reached.seeds),
    ]


def _ranges(seeds: Iterable[int]) -> str:
    """Return seeds as text: `0-4, 7`."""
    spans: list[list[int]] = []
    for seed in sorted(seeds):
        if spans and spans[-1][1] == seed - 1:
            spans[-1][1] = seed
        else:
            spans.append([seed, seed])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in spans)
