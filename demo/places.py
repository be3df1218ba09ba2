"""Where the demo keeps what: parent and driver agree on it here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".cache"
WEEK_FILES = CACHE / "flights_by_week"
"""The flights as files, one a week; written once and kept."""


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of one run."""

    root: Path

    @property
    def source(self) -> Path:
        """The weeks that this run streams."""
        return self.root / "source"

    @property
    def flights(self) -> Path:
        """The fuse_stream table."""
        return self.root / "flights"

    @property
    def plain(self) -> Path:
        """The control: the same weeks as plain Parquet."""
        return self.root / "plain_parquet"

    @property
    def delays(self) -> Path:
        """The summary that follows the table's change feed, a table of its own."""
        return self.root / "delays"

    @property
    def flights_checkpoint(self) -> Path:
        return self.root / "checkpoints" / "flights"

    @property
    def delays_checkpoint(self) -> Path:
        return self.root / "checkpoints" / "delays"

    @property
    def log(self) -> Path:
        """What the drivers print and log."""
        return self.root / "driver.log"

    @property
    def scratch(self) -> Path:
        """Spark's temporary files, which a killed driver leaves behind."""
        return self.root / "scratch"

    def commit(self, week: int) -> Path:
        """What Spark writes once it has noted that a week is done."""
        return self.flights_checkpoint / "commits" / str(batch_of(week))

    def hold(self, week: int) -> Path:
        """While this file is there, the driver waits between its writes and Spark's note."""
        return self.root / "hold" / str(week)

    def held(self, week: int) -> Path:
        """The driver's answer: here it waits."""
        return self.root / "hold" / f"{week}.reached"


def batch_of(week: int) -> int:
    """Return the micro-batch that brings a week: weeks count from 1, batches from 0."""
    return week - 1


def week_of(batch_id: int) -> int:
    """Return the week that a micro-batch brings."""
    return batch_id + 1
