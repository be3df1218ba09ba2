"""Eight processes write one table, and are killed at random and started again until all is done.

Some applications have two processes that deliver the same batches. One process compacts. After it
the table has each batch once, whatever was killed; vacuum deletes what the dead have left, and
nothing else. The seed decides who writes what and when somebody is killed; the machine decides
what a kill hits.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random

from torture.campaign import Campaign, PromiseBrokenError
from torture.places import GRACE_S, has_s3, table_at
from torture.settled import Files, check_feed, check_settled
from torture.writers import COMMITTED, REFUSED, REPLAYED, Place, Work, start

WRITERS = 8
SHARED = 2
"""So many applications have two processes each."""
BATCHES = 20
ON_S3 = 6
"""One trial of so many is on S3."""
KILLS = 12
LONGEST_PAUSE_S = 0.25
PATIENCE_S = 240.0
"""A trial takes seconds; after so long a process hangs."""


@dataclass(slots=True)
class Writer:
    """One of the eight, and the process that it is now."""

    work: Work
    process: ForkServerProcess | None = None
    kills: list[int] = field(default_factory=list)
    """How many answers it had at each kill."""


def works_of(place: Place, folder: Path, random: Random) -> list[Work]:
    """Return what each of the processes has to do."""
    apps = [f"app {number}" for number in range(WRITERS - SHARED)]
    compacting = random.randrange(WRITERS)
    return [
        Work(
            place=place,
            app=app,
            batches=BATCHES,
            notes=folder / f"notes {number}",
            compacts_every=5 if number == compacting else 0,
        )
        for number, app in enumerate([*apps, *apps[:SHARED]])
    ]


def trial(seed: int, folder: Path) -> Counter[str]:
    """Write, kill, restart, and look; see `Trial`."""
    random = Random(seed)
    with table_at(folder, is_on_s3=seed % ON_S3 == 0 and has_s3()) as place:
        writers = [Writer(work) for work in works_of(place, folder, random)]
        try:
            run(writers, random)
        finally:
            for writer in writers:
                if writer.process is not None:
                    writer.process.kill()
                    writer.process.join()
        look(place, writers)
    return Counter(outcomes(writers))


def run(writers: Sequence[Writer], random: Random) -> None:
    """Kill processes and start them again until all their batches are noted."""
    end_s = time.monotonic() + PATIENCE_S
    kills = KILLS
    for writer in writers:
        writer.process = start(writer.work)
    while living := [writer for writer in writers if writer.process is not None]:
        pause_s = random.uniform(0, LONGEST_PAUSE_S) if kills else 1.0
        wait([process.sentinel for _, process in running(living)], pause_s)
        for writer, process in running(living):
            if not process.is_alive():
                reap(writer, process)
        living = [writer for writer in living if writer.process is not None]
        if time.monotonic() > end_s:
            raise PromiseBrokenError(f"processes hang: not done in {PATIENCE_S} s", story(writers))
        if kills and living:
            kills -= 1
            kill(random.choice(living))


def running(writers: Sequence[Writer]) -> Iterator[tuple[Writer, ForkServerProcess]]:
    for writer in writers:
        if writer.process is not None:
            yield writer, writer.process


def reap(writer: Writer, process: ForkServerProcess) -> None:
    """Note the end of a process that nobody has killed; raise if it was not done."""
    process.join()
    writer.process = None
    if process.exitcode:
        raise PromiseBrokenError(
            f"a process ended with code {process.exitcode}: {writer.work.failure()}",
            story([writer]),
        )


def kill(writer: Writer) -> None:
    """Kill a process at once, and start it again."""
    assert writer.process is not None
    writer.process.kill()
    writer.process.join()
    writer.kills.append(len(list(writer.work.answers())))
    writer.process = start(writer.work)


def look(place: Place, writers: Sequence[Writer]) -> None:
    """Raise unless the table has each batch once, before and after a vacuum."""
    batches = {writer.work.app: BATCHES for writer in writers}
    table = place.open()
    check_settled(table, place.folder, batches)
    check_feed(table, place.folder, batches)
    files = Files(place.folder)
    for writer in writers:
        for answer in writer.work.answers():
            held = files.batch_at(answer.version, writer.work.app)
            if held is None or held < answer.batch:
                raise PromiseBrokenError(
                    f"{writer.work.app} was told that batch {answer.batch} is {answer.what} at "
                    f"version {answer.version}, whose ledger has {held}",
                    [*story([writer]), *files.history()],
                )
    time.sleep(GRACE_S)
    table.expire(keep_last=1)
    for _ in range(2):
        table.vacuum()
    check_settled(place.open(), place.folder, batches)


def outcomes(writers: Sequence[Writer]) -> Iterator[str]:
    """Yield for each batch of each application what its processes were told."""
    told: dict[tuple[str, int], list[str]] = {}
    for writer in writers:
        for answer in writer.work.answers():
            told.setdefault((writer.work.app, answer.batch), []).append(answer.what)
    for answers in told.values():
        yield ", ".join(sorted(_TOLD[what] for what in answers))


_TOLD = {
    COMMITTED: "committed",
    REPLAYED: "proven replay",
    REFUSED: "refused as too late",
}


def story(writers: Sequence[Writer]) -> list[str]:
    """Return what the processes were told."""
    return [
        f"{writer.work.app}, {writer.work.notes.name}: "
        + ", ".join(f"{one.what} {one.batch} at {one.version}" for one in writer.work.answers())
        + f"; killed after {writer.kills} answers"
        for writer in writers
    ]


CAMPAIGN = Campaign(
    name="processes",
    does="8 processes write one table, on the disk and on S3, each killed at random and started "
    "again: each batch once",
    unit="commits",
    trial=trial,
    in_ci=2_000,
    in_night=50_000,
    needs=("s3",),
)
