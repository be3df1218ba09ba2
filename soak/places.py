"""The paths of a run, and the settings of its processes."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The pace of a run. Times are in seconds."""

    minutes: float
    grace_s: int = 120
    vacuum_age_s: int = 240
    beat_s: float = 0.8
    """Between two files of a writer. Slots of expired versions are deleted by thousands: at two
    or three commits a second, several times in half an hour."""
    rows: int = 500
    """Rows of a file."""
    block_rows: int = 20_000
    """Rows of a perfect block: small, so that a table of some million rows has many."""
    maintenance_s: float = 25.0
    """Between two runs of expiry and vacuum. With a vacuum age of 240 seconds every tenth of them
    raises the epoch, never the ninth or eleventh."""
    slow_s: float = 125.0
    """Between two batches of the slow follower: longer than the grace, so its lease counts; and in
    step with the epoch, or what both keep would swell and shrink over an hour."""
    lives_s: tuple[float, float] = (0.0, 90.0)
    """The shortest and longest life of the killed follower after its first batch."""
    killed_has_lease: bool = False
    """For a grace that is shorter than a start of Spark."""
    sample_s: float = 5.0


WRITERS = ("writer-1", "writer-2")
SLOW, KILLED = "slow-follower", "killed-follower"
FOLLOWERS = (SLOW, KILLED)
OPTIMIZER, MAINTENANCE = "optimizer", "maintenance"


@dataclass(frozen=True, slots=True)
class Places:
    """The folder of a run."""

    root: Path

    @property
    def table(self) -> Path:
        return self.root / "table"

    def source(self, writer: str) -> Path:
        return self.root / "source" / writer

    def checkpoint(self, name: str) -> Path:
        return self.root / "checkpoints" / name

    def feed(self, follower: str) -> Path:
        return self.root / "feeds" / follower

    def heap(self, name: str) -> Path:
        """The file in which a driver writes what its JVM held after its last collection."""
        return self.root / "heaps" / name

    def log(self, name: str) -> Path:
        return self.root / "logs" / f"{name}.log"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def no_more_rows(self) -> Path:
        """Exists once the last file has been put: writers end when they have read all."""
        return self.root / "no-more-rows"

    @property
    def no_more_commits(self) -> Path:
        """Exists once the writers have ended: followers end when they have read all."""
        return self.root / "no-more-commits"

    @property
    def over(self) -> Path:
        """Exists once the followers have ended."""
        return self.root / "over"

    def store_settings(self, settings: Settings) -> None:
        write_whole(self.root / "settings.json", json.dumps(dataclasses.asdict(settings)))

    def load_settings(self) -> Settings:
        return Settings(**json.loads((self.root / "settings.json").read_text()))


def write_whole(file: Path, text: str) -> None:
    """Write a file so that every process, also after a kill, sees all of it or none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    staged = file.with_name(f".{file.name}-{os.getpid()}")
    staged.write_text(text)
    staged.replace(file)
