"""A process is stopped in the middle of a commit, its batches go on elsewhere, and it wakes up.

What happens while it sleeps is drawn: another process takes its batches over, and perhaps another
application commits, history expires, and vacuum runs, which may delete what the sleeper has put.
Awake, it is told that its batch is a replay, or too late, or it commits it: nothing is lost or
doubled. Then both go on side by side.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random

import psutil

from torture.campaign import Campaign, PromiseBrokenError
from torture.places import GRACE_S, has_s3, table_at
from torture.settled import batch_of, check_feed, check_settled
from torture.writers import (
    COMMITTED,
    REFUSED,
    REPLAYED,
    TYPED,
    Moment,
    Place,
    Sleep,
    Work,
    deliver,
    start,
)

APP, OTHER = "app", "other"
BATCHES = 8
CALLS = 5
"""One more than the commit of a batch makes: the last one is in the next commit."""
VACUUMED = 3
"""In one trial of so many the sleeper has put objects, which vacuum takes for nobody's."""
ON_S3 = 5
"""One trial of so many is on S3."""
PATIENCE_S = 120.0
MAY_RAISE = ("ConflictError", "CommitStateUnknownError", "StorageError")
"""The errors with which a sleeper may end: its query starts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What happens while the process sleeps."""

    taken_over: int
    """How many batches another process commits, from that of the sleeper on."""
    others: int
    """How many batches another application commits."""
    expires: bool
    vacuums: int


def trial(seed: int, folder: Path) -> Counter[str]:
    """Stop a committer, go on without it, wake it, and look; see `Trial`."""
    random = Random(seed)
    is_vacuumed = seed % VACUUMED == 1
    sleep = Sleep(
        batch=random.randrange(BATCHES - 2),
        call=random.randint(2, 4) if is_vacuumed else random.randint(1, CALLS),
        moment=random.choice(list(Moment)),
    )
    night = Night(
        taken_over=0 if is_vacuumed else random.randint(0, 2),
        others=random.randint(0, 2),
        expires=random.random() < 0.3,
        vacuums=2 if is_vacuumed else random.randint(0, 3),
    )
    with table_at(folder, is_on_s3=seed % ON_S3 == 0 and has_s3()) as place:
        zombie = Work(place=place, app=APP, batches=BATCHES, notes=folder / "zombie", sleep=sleep)
        process = start(zombie)
        try:
            wait_until_stopped(process, zombie)
            slept_at = len(list(zombie.answers()))
            heir = Work(
                place=place, app=APP, batches=BATCHES, notes=folder / "heir", first=slept_at
            )
            pass_night(heir, night)
            wake(process, zombie, heir)
        finally:
            process.kill()
            process.join()
        try:
            look(place, night)
        except PromiseBrokenError as error:
            story = [f"{sleep}", f"{night}", *told(zombie, heir), *error.history]
            raise PromiseBrokenError(error.promise, story) from error
    return Counter([outcome(zombie, slept_at)])


def wait_until_stopped(process: ForkServerProcess, zombie: Work) -> None:
    """Return when the process has stopped itself."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_stopped(process):
        if not process.is_alive() or time.monotonic() > end_s:
            raise PromiseBrokenError(
                f"the process did not come to its call: {zombie.failure()}", told(zombie)
            )
        time.sleep(0.005)


def is_stopped(process: ForkServerProcess) -> bool:
    try:
        return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


def pass_night(heir: Work, night: Night) -> None:
    """Do what happens while the process sleeps."""
    table = heir.place.open()
    for batch in range(heir.first, min(heir.first + night.taken_over, BATCHES)):
        deliver(table, heir, batch)
    for batch in range(night.others):
        table.append(batch_of(OTHER, batch), app_id=OTHER, batch_id=batch)
    if night.expires:
        time.sleep(GRACE_S)
        table.expire(keep_last=1)
    for _ in range(night.vacuums):
        table.vacuum()


def wake(process: ForkServerProcess, zombie: Work, heir: Work) -> None:
    """Let the sleeper and its heir do the rest side by side; raise if one does not end well."""
    assert process.pid is not None
    process_of_heir = start(heir)
    try:
        os.kill(process.pid, signal.SIGCONT)
        for one, work, may_fail in ((process, zombie, True), (process_of_heir, heir, False)):
            one.join(PATIENCE_S)
            failure = work.failure() or ""
            is_typed = one.exitcode == TYPED and any(f".{name}: " in failure for name in MAY_RAISE)
            if one.exitcode != 0 and not (may_fail and is_typed):
                raise PromiseBrokenError(
                    f"a process hangs or failed (exit code {one.exitcode}): {failure}",
                    told(zombie, heir),
                )
    finally:
        process_of_heir.kill()
        process_of_heir.join()


def look(place: Place, night: Night) -> None:
    """Raise unless each batch is in the table once, also after a vacuum."""
    batches = {APP: BATCHES, **({OTHER: night.others} if night.others else {})}
    check_settled(place.open(), place.folder, batches)
    if not night.expires:
        check_feed(place.open(), place.folder, batches)
    for _ in range(2):
        place.open().vacuum()
    check_settled(place.open(), place.folder, batches)


def outcome(zombie: Work, slept_at: int) -> str:
    """Return what the sleeper was told about its batch."""
    answers = list(zombie.answers())
    if len(answers) > slept_at:
        return _TOLD[answers[slept_at].what]
    failure = zombie.failure() or ""
    return next(name for name in MAY_RAISE if f".{name}: " in failure)


_TOLD = {
    COMMITTED: "committed after it woke",
    REPLAYED: "a proven replay",
    REFUSED: "refused as too late",
}


def told(*works: Work) -> list[str]:
    """Return what the processes were told."""
    return [
        f"{work.notes.name}: "
        + ", ".join(f"{one.what} {one.batch} at {one.version}" for one in work.answers())
        for work in works
    ]


CAMPAIGN = Campaign(
    name="zombies",
    does="a committer is stopped at any call of a commit, its batches go on elsewhere, and it "
    "wakes up: nothing is lost or doubled",
    unit="zombies",
    trial=trial,
    in_ci=10,
    in_night=200,
    needs=("s3",),
)
