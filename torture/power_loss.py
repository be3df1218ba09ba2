"""The power is cut at any moment of a history on a local disk; what was acknowledged is there.

A history is carried out in a local folder while all writes, syncs, links and renames are recorded.
For moments of the record the disk is put together as a power cut may leave it: with nothing that
was not synced, with all of it, or with any part. The table is opened there, and the step that was
under way is delivered again.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fuse_stream.errors import FuseError
from fuse_stream.storage.local import LocalStore
from fuse_stream.testing.clock import ManualClock
from tests.oracle.reader import Oracle
from torture.campaign import Campaign, PromiseBrokenError
from torture.checks import (
    BrokenError,
    check,
    check_history,
    check_package,
    check_tags,
    is_as,
    sound_oracle,
)
from torture.disk import Acknowledged, Disk, Event, Recorder
from torture.histories import (
    CLOCKS,
    READING,
    RESTARTED,
    START_US,
    Drawer,
    Expected,
    Player,
    Site,
    Stage,
    create,
)

CUTS = 150
"""How often one trial cuts the power; equal states are opened once."""
LENGTH = (2, 7)
"""How many steps a history has."""
TABLE = "table"


class FolderClock(ManualClock):
    """A clock that makes the files of a folder older where it goes forward."""

    def __init__(self, root: Path) -> None:
        super().__init__(wall_us=START_US)
        self._root = root

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        for path in self._root.rglob("*"):
            status = path.stat()
            os.utime(path, (status.st_atime - seconds, status.st_mtime - seconds))


class OneByOne(LocalStore):
    """A local store whose calls keep their order, so that a seed repeats its record."""

    overlaps = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A history, and what it asked of the disk."""

    seed: int
    cluster: bool
    stages: tuple[Stage, ...]
    events: tuple[Event, ...]

    def stage(self, number: int) -> Stage | None:
        """Return the step of this number, None past the end."""
        return self.stages[number] if number < len(self.stages) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A moment at which the power is cut, and what is left of what was not synced."""

    at: int
    """How many events happened before."""
    keeps: float
    """How likely each thing is on the disk."""
    seed: str


def trial(seed: int, folder: Path) -> Counter[str]:
    """Cut the power at many moments of the seed's history."""
    chance = random.Random(f"power loss {seed}")
    recorded = _record(seed, chance, folder / "live" / TABLE)
    outcomes: Counter[str] = Counter()
    seen: set[int] = set()
    for cut in _cuts(recorded, chance):
        files, done, is_synced = _left(recorded, cut)
        if (state := hash((frozenset(files.items()), done))) in seen:
            continue
        seen.add(state)
        try:
            outcome = _open_again(recorded, files, done, folder / "cut")
        except BrokenError as error:
            raise PromiseBrokenError(str(error), _told(recorded, cut, done, files)) from error
        finally:
            shutil.rmtree(folder / "cut", ignore_errors=True)
        left = "all was synced" if is_synced else _LEFT.get(cut.keeps, "a part was left")
        outcomes[f"{left}: {outcome}"] += 1
    return outcomes


_LEFT = {0.0: "nothing unsynced was left", 1.0: "all unsynced was left"}


def _record(seed: int, chance: random.Random, root: Path) -> Recorded:
    root.parent.mkdir(parents=True)
    site = Site(OneByOne(root), FolderClock(root))
    recorder = Recorder(root)
    drawer = Drawer(random.Random(seed))
    stages = []
    with recorder.recording():
        player = Player(seed, cluster=drawer.cluster, site=site)
        recorder.acknowledge(0)
        for number in range(chance.randint(*LENGTH)):
            step = drawer.step(player.model, player.floor, player.head) if number else drawer.rows()
            stages.append(player.take(step))
            recorder.acknowledge(number + 1)
    _check_record(recorder, root)
    return Recorded(
        seed=seed,
        cluster=drawer.cluster,
        stages=tuple(stages),
        events=tuple(recorder.events),
    )


def _check_record(recorder: Recorder, root: Path) -> None:
    """Check that the record leads to the files that are there: else it has missed something."""
    disk = Disk()
    for event in recorder.events:
        disk.happen(event)
    chance = random.Random(0)
    recorded = {
        path.removeprefix(f"{TABLE}/"): data
        for path, data in disk.state(lambda: True, chance).items()
    }
    found = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }
    if recorded != found:
        raise RuntimeError(f"the record of the disk has missed {recorded.keys() ^ found.keys()}")


def _cuts(recorded: Recorded, chance: random.Random) -> list[Cut]:
    """Return moments of all kinds; those right after an acknowledgement are the hardest."""
    ends = [n + 1 for n, event in enumerate(recorded.events) if isinstance(event, Acknowledged)]
    cuts = []
    for number in range(CUTS):
        after_ack = number < 2 * len(ends)
        at = ends[number // 2] if after_ack else chance.randint(0, len(recorded.events))
        keeps = number % 2 / 2 if after_ack else chance.choice((0.0, 1.0, 0.2, 0.5, 0.5, 0.8))
        cuts.append(Cut(at=at, keeps=keeps, seed=f"{recorded.seed} {number}"))
    return cuts


def _left(recorded: Recorded, cut: Cut) -> tuple[dict[str, bytes], int | None, bool]:
    """Return the files that a cut leaves, the last acknowledged step, and if all was synced."""
    disk, done = Disk(), None
    for event in recorded.events[: cut.at]:
        disk.happen(event)
        if isinstance(event, Acknowledged):
            done = event.number
    chance = random.Random(cut.seed)
    files = disk.state(lambda: chance.random() < cut.keeps, chance)
    return files, done, disk.is_synced


def _open_again(recorded: Recorded, files: dict[str, bytes], done: int | None, folder: Path) -> str:
    """Check the table that a cut has left; return what was found."""
    for path, data in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    root = folder / TABLE
    root.mkdir(parents=True, exist_ok=True)
    site = Site(LocalStore(root), FolderClock(root))
    site.clock.wall_us = START_US + 3_600_000_000
    if done is None:
        _finish_create(recorded, site)
        return "not created yet"
    before = recorded.stages[done - 1].after if done else _fresh()
    under_way = recorded.stage(done)
    landed = _check_left(site, before, under_way)
    if under_way is not None:
        try:
            under_way.step.deliver_again(site.opened(seed=_clock(recorded, RESTARTED)))
        except FuseError as error:
            raise BrokenError(f"2: the step cannot be delivered again: {error}") from error
    after = before if under_way is None else under_way.after
    oracle = sound_oracle(_objects(site))
    check(is_as(oracle, after), "2: after the restart the table is not as the model says")
    check_history(oracle, before, max(before.at))
    table = site.opened(seed=_clock(recorded, READING))
    check_tags(table, before)
    check_package(table, oracle, max(*before.at, oracle.floor))
    return landed


def _check_left(site: Site, before: Expected, under_way: Stage | None) -> str:
    oracle = sound_oracle(_objects(site))
    is_before = is_as(oracle, before)
    is_after = under_way is not None and is_as(oracle, under_way.after)
    check(is_before or is_after, "1: what was acknowledged is not in the table")
    if is_before and is_after:
        return "all that was acknowledged, and the rows as they were"
    return "all that was acknowledged" + (", and the step under way" if is_after else "")


def _finish_create(recorded: Recorded, site: Site) -> None:
    """Check that a create that was not acknowledged is done by then, or can be done now."""
    try:
        site.opened(seed=_clock(recorded, READING)).head()
    except FuseError:
        create(site.store, seed=_clock(recorded, RESTARTED), cluster=recorded.cluster)
    oracle = sound_oracle(_objects(site))
    check(not oracle.rows(), "6: a table that was not filled has rows")


def _objects(site: Site) -> dict[str, bytes]:
    assert isinstance(site.store, LocalStore)
    return dict(Oracle.of_folder(site.store.root).objects)


def _fresh() -> Expected:
    model = Expected()
    model.note(0, 0)
    return model


def _clock(recorded: Recorded, number: int) -> int:
    return recorded.seed * CLOCKS + number


def _told(recorded: Recorded, cut: Cut, done: int | None, files: dict[str, bytes]) -> list[str]:
    """Return the steps up to the cut, and what the disk lost."""
    steps = ["create", *(stage.step.name for stage in recorded.stages)]
    acknowledged = [f"{step}: acknowledged" for step in steps[: 0 if done is None else done + 1]]
    under_way = [f"{step}: under way" for step in steps[len(acknowledged) :][:1]]
    return [
        *acknowledged,
        *under_way,
        f"the power is cut after event {cut.at} of {len(recorded.events)}",
        f"each thing that was not synced is left with probability {cut.keeps}",
        f"files that are left: {len(files)}",
        *(f"{path}: {len(data)} bytes" for path, data in sorted(files.items())),
    ]


CAMPAIGN = Campaign(
    name="power-loss",
    does="the power is cut at any moment of a history on a local disk, and what was not synced is "
    "there, missing or torn; what was acknowledged is in the table",
    unit="states",
    trial=trial,
    in_ci=500,
    in_night=20_000,
)
