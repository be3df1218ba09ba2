"""Run everything together for a while, then check that no row was lost and nothing has grown.

make soak                 half an hour, with the grace at 2 and the vacuum age at 4 minutes
make soak MINUTES=3       shorter: whether the rows add up; too short to tell what grows
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
from rich.console import Console

import fuse_stream as fuse
from demo.folder import claim_folder
from soak.flights import pieces, put_file
from soak.places import FOLLOWERS, KILLED, MAINTENANCE, OPTIMIZER, WRITERS, Places, Settings
from soak.processes import Processes, SoakFailedError
from soak.sample import Sample, take_sample
from soak.tally import Tally
from soak.verdict import judge, render

PATIENCE_S = 300.0
"""Time limit for the first commits, and for the end of each process."""


def main() -> None:
    """Run, judge and print; the exit code is 1 if any check fails."""
    options = _options()
    settings = Settings(
        minutes=options.minutes, **json.loads(options.settings) if options.settings else {}
    )
    console = Console(width=None if sys.stdout.isatty() else 140)
    with claim_folder(options.folder.resolve()):
        places = Places(options.folder.resolve())
        places.store_settings(settings)
        soak = Soak(places, settings, console, seed=options.seed)
        try:
            soak.go()
        except SoakFailedError as error:
            console.print(f"[red]{error}[/red]", markup=True, highlight=False)
            raise SystemExit(1) from None
        finally:
            shutil.rmtree(places.scratch, ignore_errors=True)
            _store_samples(options.json or places.root / "samples.json", settings, soak)
        verdict = judge(places, settings, soak.samples, written=soak.written, kills=soak.kills)
    render(verdict, console)
    picture = options.plot or places.root / "soak.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(verdict.picture)
    raise SystemExit(0 if verdict.holds else 1)


class Soak:
    """The supervisor: feeds the writers, kills the follower, takes samples."""

    def __init__(
        self, places: Places, settings: Settings, console: Console, *, seed: int | None
    ) -> None:
        self.samples: list[Sample] = []
        self.written = Tally()
        self.kills = 0
        self._places = places
        self._settings = settings
        self._console = console
        self._random = Random(seed)
        self._files = 0
        self._rows: Iterator[pa.Table] = pieces(settings.rows)
        self._first = next(self._rows)
        self._table = fuse.Table.create(
            places.table,
            self._first.schema,
            properties={
                "fuse.grace": f"{settings.grace_s}s",
                "fuse.vacuum.age": f"{settings.vacuum_age_s}s",
                "fuse.block.rows": str(settings.block_rows),
            },
        )

    def go(self) -> None:
        """Run for the set time, and then until all rows have been read.

        Raises:
            SoakFailedError: a process failed.
        """
        places, settings = self._places, self._settings
        with Processes(places) as processes:
            self._feed()
            for name in (*WRITERS, *FOLLOWERS, OPTIMIZER, MAINTENANCE):
                processes.start(name)
            self._wait_for_writers(processes)
            self._console.print(f"[dim]{places.root}: all run; {settings.minutes:g} minutes[/dim]")
            self._run(processes)
            places.no_more_rows.touch()
            processes.wait_for_end(WRITERS, PATIENCE_S)
            places.no_more_commits.touch()
            processes.wait_for_end(FOLLOWERS, PATIENCE_S)
            places.over.touch()
            processes.wait_for_end((OPTIMIZER, MAINTENANCE), PATIENCE_S)

    def _feed(self) -> None:
        schema = self._table.head().schema
        for writer in WRITERS:
            rows, self._first = self._first, next(self._rows)
            name = f"{self._files:06}"
            put = put_file(rows, self._places.source(writer), name, schema)
            self.written = self.written.plus(put)
            self._files += 1

    def _wait_for_writers(self, processes: Processes) -> None:
        until = time.monotonic() + PATIENCE_S
        while {name for name, _ in self._table.ledger()} < set(WRITERS):
            processes.check()
            if time.monotonic() > until:
                raise SoakFailedError("the writers commit nothing")
            time.sleep(0.5)

    def _run(self, processes: Processes) -> None:
        settings = self._settings
        start = time.monotonic()
        fed = sampled = told = 0.0
        born, dies = time.time(), math.inf
        while (now := time.monotonic() - start) < settings.minutes * 60:
            processes.check()
            if now >= fed:
                self._feed()
                fed += settings.beat_s
            if dies == math.inf and self._has_read_since(born):
                dies = now + self._random.uniform(*settings.lives_s)
            if now >= dies:
                processes.kill(KILLED)
                born, dies = time.time(), math.inf
                processes.start(KILLED)
                self.kills += 1
            if now >= sampled:
                sample = take_sample(self._places, self._table, processes.pids, now)
                self.samples.append(sample)
                sampled += settings.sample_s
                if now >= told:
                    self._tell(sample)
                    told += 60
            time.sleep(0.1)

    def _has_read_since(self, born_s: float) -> bool:
        """True if the killed follower has made progress: it must within the grace."""
        feed = self._places.feed(KILLED)
        return feed.exists() and feed.stat().st_mtime > born_s

    def _tell(self, sample: Sample) -> None:
        self._console.print(
            f"[dim]{sample.seconds / 60:5.1f} min  {sample.rows:,} of {self.written.rows:,} rows, "
            f"{sample.live_blocks} blocks, {sample.beyond} files beyond; version {sample.version}, "
            f"floor {sample.floor}, epoch {sample.epoch}; {self.kills} kills[/dim]",
            highlight=False,
        )


def _store_samples(file: Path, settings: Settings, soak: Soak) -> None:
    document = {
        "settings": dataclasses.asdict(settings),
        "kills": soak.kills,
        "samples": [dataclasses.asdict(sample) for sample in soak.samples],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--settings", help="others than the defaults, as JSON (soak/places.py)")
    parser.add_argument("--seed", type=int, help="of the kills' times")
    parser.add_argument(
        "--folder", type=Path, default=Path(".cache/soak"), help="for the run, emptied at the start"
    )
    parser.add_argument("--json", type=Path, help="for the samples")
    parser.add_argument("--plot", type=Path, help="for the picture, an SVG")
    return parser.parse_args()


if __name__ == "__main__":
    main()
