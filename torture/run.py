"""Break tables on purpose, and count what was lost.

make torture                              all campaigns, their share of CI: some minutes
make torture FAULTS=200000                campaigns that count faults aim at so many
make torture ARGS="--only model --seed 7" one trial again, exactly
make torture-night                        hours; a run that was stopped is continued

Each campaign is a number of trials, one a seed. A trial ends with counts of what happened, or with
a broken promise and the steps that lead to it. The exit code is 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console

from torture.campaign import Campaign, PromiseBrokenError
from torture.campaigns import load_campaigns, what_is_missing
from torture.kept import load_kept, store_kept
from torture.report import (
    Reached,
    as_json,
    as_markdown,
    described,
    print_broken,
    print_report,
)

NIGHT_FIRST = 1_000
"""The first seed of a night, so that it does not repeat those of CI."""
NIGHT_FILE = Path(".cache/torture/night.json")
PATIENCE_S = 1_800.0
"""The longest time of one trial; one that takes longer hangs."""
STOPPED = 130
"""The exit code of a run that was stopped by Ctrl-C."""
STDERR = 2
"""The descriptor: `sys.stderr` may be another stream."""
TELL_S = 20.0
"""How long a campaign runs without a line of progress."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A trial that ended: with counts, or with a broken promise."""

    seed: int
    seconds: float
    outcomes: Counter[str] = field(default_factory=Counter)
    broken: str = ""
    history: tuple[str, ...] = ()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen campaigns; return 1 if a promise is broken."""
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 140)
    campaigns = load_campaigns()
    unknown = set(options.only) - campaigns.keys()
    if unknown:
        console.print(f"no campaign {', '.join(sorted(unknown))}; there are {', '.join(campaigns)}")
        return 2
    chosen = [campaigns[name] for name in options.only] or list(campaigns.values())
    if options.list:
        for campaign in chosen:
            console.print(described(campaign), markup=False, highlight=False)
        return 0
    run = Run(options, console)
    all_reached = [Reached(campaign=one, aim=run.aim(one)) for one in chosen]
    is_stopped = False
    try:
        run.go(all_reached)
    except KeyboardInterrupt:  # its figures are worth as much as those of --minutes
        is_stopped = True
    print_report(all_reached, console)
    for file, render in ((options.json, as_json), (options.markdown, as_markdown)):
        if file is not None:
            file.write_text(render(all_reached))
    if is_stopped:
        return STOPPED
    return 1 if any(reached.broken for reached in all_reached) else 0


class Run:
    """One run of campaigns, one after another, each on several processes."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self._options = options
        self._console = console
        self._end_s = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")

    def go(self, all_reached: Sequence[Reached]) -> None:
        """Run campaigns until each has reached its aim or the time is up."""
        keeps = self._options.night and self._options.seed is None
        if keeps:
            load_kept(self._options.kept, all_reached)
        for number, reached in enumerate(all_reached):
            left = len(all_reached) - number
            reached.left_out = what_is_missing(reached.campaign)
            if not reached.left_out and reached.units < reached.aim:
                # What an earlier campaign leaves of its time the later ones share.
                end_s = time.monotonic() + (self._end_s - time.monotonic()) / left
                for _ in self._trials(reached, end_s):
                    if keeps:
                        store_kept(self._options.kept, [reached])
            if reached.broken:
                print_broken(reached, self._console)

    def aim(self, campaign: Campaign) -> int:
        """Return how many units a campaign has to reach."""
        options = self._options
        if options.seed is not None:
            return 1  # whatever the trial counts
        if options.faults is not None and campaign.unit == "faults":
            return int(options.faults)
        if options.night:
            return campaign.in_night
        # A campaign that is not part of CI runs where somebody asks for it.
        return campaign.in_ci or (1 if options.only else 0)

    def _seeds(self, reached: Reached) -> Iterator[int]:
        if self._options.seed is not None:
            return iter([self._options.seed])
        first = NIGHT_FIRST if self._options.night else 0
        return (seed for seed in count(first) if seed not in reached.seeds)

    def _trials(self, reached: Reached, end_s: float) -> Iterator[Ended]:
        """Run trials until the aim, a broken promise or the end; yield each that was counted."""
        # A session of Spark uses all cores.
        workers = 1 if "spark" in reached.campaign.needs else self._options.workers
        told_s = time.monotonic()
        context = get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin) as pool:
            for ended in _spread(pool, workers, reached, self._seeds(reached), end_s):
                reached.seconds += ended.seconds
                if ended.broken and not reached.broken:
                    reached.broken, reached.broken_seed = ended.broken, ended.seed
                    reached.history = list(ended.history)
                elif not ended.broken:
                    reached.outcomes += ended.outcomes
                    reached.seeds.add(ended.seed)
                yield ended
                if time.monotonic() - told_s > TELL_S:
                    told_s = time.monotonic()
                    self._tell(reached)
        self._tell(reached)

    def _tell(self, reached: Reached) -> None:
        name, unit = reached.campaign.name, reached.campaign.unit
        aim = "" if self._options.seed is not None else f" of {reached.aim:,}"
        self._console.print(
            f"[dim]{name}: {reached.units:,}{aim} {unit}, "
            f"{len(reached.seeds)} trials, {reached.seconds:.0f} s[/dim]",
            highlight=False,
        )


def _spread(
    pool: Executor, workers: int, reached: Reached, seeds: Iterator[int], end_s: float
) -> Iterator[Ended]:
    """Yield trials as they end, `workers` at a time, while any is still wanted."""
    running: dict[Future[Ended], int] = {}
    while True:
        wanted = reached.units < reached.aim and not reached.broken and time.monotonic() < end_s
        while wanted and len(running) < workers and (seed := next(seeds, None)) is not None:
            running[pool.submit(run_trial, reached.campaign.name, seed)] = seed
        if not running:
            return
        ready, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in ready:
            seed = running.pop(future)
            try:
                yield future.result()
            except BrokenProcessPool as error:  # of all trials that were running
                named = " or ".join(map(str, sorted({seed, *running.values()})))
                yield Ended(
                    seed=seed,
                    seconds=0.0,
                    broken=f"7: a process died, that of the trial of seed {named}: {error}",
                )


def _begin() -> None:
    logging.disable(logging.WARNING)  # of torn tables there is much to warn


def run_trial(name: str, seed: int) -> Ended:
    """Run one trial in a folder of its own."""
    campaign = load_campaigns()[name]
    start_s = time.monotonic()
    # A trial that hangs shows where, and ends its process.
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True, file=STDERR)
    with tempfile.TemporaryDirectory(prefix=f"torture-{name}-", ignore_cleanup_errors=True) as path:
        try:
            outcomes = campaign.trial(seed, Path(path))
        except PromiseBrokenError as error:
            return Ended(
                seed=seed,
                seconds=time.monotonic() - start_s,
                broken=error.promise,
                history=tuple(error.history),
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed must be told
            return Ended(
                seed=seed,
                seconds=time.monotonic() - start_s,
                broken=f"the trial failed: {error!r}",
                history=tuple("".join(traceback.format_exception(error)).splitlines()),
            )
        finally:
            faulthandler.cancel_dump_traceback_later()
    return Ended(seed=seed, seconds=time.monotonic() - start_s, outcomes=outcomes)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="CAMPAIGN", help="repeatable"
    )
    parser.add_argument("--seed", type=int, help="run the trial of this seed and no other")
    parser.add_argument("--faults", type=int, help="the aim of campaigns that count faults")
    parser.add_argument(
        "--minutes",
        type=float,
        help="begin no trial after this time, of which each campaign has its share",
    )
    parser.add_argument("--night", action="store_true", help="aim at a night's numbers, resumable")
    parser.add_argument(
        "--kept", type=Path, default=NIGHT_FILE, help="where a night keeps what it has reached"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes; 2 if not given")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    parser.add_argument("--markdown", type=Path, help="a file for the table")
    parser.add_argument(
        "--list", action="store_true", help="list the campaigns, with their aims, and stop"
    )
    options = parser.parse_args(arguments)
    if options.workers < 1 or (options.minutes is not None and options.minutes <= 0):
        parser.error("--workers is at least 1, and --minutes above 0")
    if options.kept != NIGHT_FILE and not options.night:
        parser.error("--kept goes with --night")
    for file in (options.json, options.markdown):
        if file is not None:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
            except OSError as error:  # told before a run of hours, not after it
                parser.error(f"{file} cannot be written: {error}")
    return options


if __name__ == "__main__":
    sys.exit(main())
