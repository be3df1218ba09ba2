"""Draw from a seed a course of a pipeline: bad deploys, deaths, rewinds that die at any call.

What must hold: when the bad rows are taken back and all queries have read all, each table has what
it has in an undisturbed run.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.errors import FuseError
from fuse_stream.feed.views import NO_LIMITS, Limits
from fuse_stream.recovery.rewind import PipelineRewind, rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.by_hand import compact
from tests.recovery.pipelines import Death, Disk, Stage, Work, first_of_key, keep_all

FILES = 14
LIMITS = (NO_LIMITS, NO_LIMITS, Limits(rows=1), Limits(rows=4), Limits(commits=1))


@dataclass(frozen=True)
class Shape:
    """A query of a pipeline: what it reads, writes and does."""

    name: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    kind: str

    def truth(self, rows: dict[str, Counter[int]], own: Counter[int]) -> list[Counter[int]]:
        """Return what its tables have in an undisturbed run."""
        read = sum((rows[name] for name in self.sources), Counter(own))
        match self.kind:
            case "all":
                return [read]
            case "once":
                return [Counter(set(read))]
            case "odd":
                return [Counter({row: n for row, n in read.items() if row // 10 % 2})]
            case _:
                some = Counter({row: n for row, n in read.items() if row // 10 % 5 == 0})
                return [read, some]

    @property
    def work(self) -> Work:
        works: dict[str, Work] = {
            "all": keep_all,
            "once": first_of_key,
            "odd": lambda values, _state: [[v for v in values if v // 10 % 2]],
            "two": lambda values, _state: [values, [v for v in values if v // 10 % 5 == 0]],
        }
        return works[self.kind]


def draw_shapes(draw: random.Random) -> list[Shape]:
    """Return two to four tables, made from each other; the first query reads files alone."""
    shapes = [Shape("q0", (), ("t0",), "all")]
    tables = ["t0"]
    while len(tables) < draw.choice((2, 3, 3, 4, 4)):
        sources = tuple(sorted(draw.sample(tables, min(len(tables), draw.choice((1, 1, 1, 2))))))
        kind = draw.choice(("all", "once", "odd", "two"))
        if kind == "two" and len(tables) > 2:
            kind = "once"
        targets = tuple(f"t{len(tables) + n}" for n in range(2 if kind == "two" else 1))
        shapes.append(Shape(f"q{len(shapes)}", sources, targets, kind))
        tables += targets
    return shapes


@dataclass
class Course:
    """A pipeline with its queries, and what happened to it."""

    seed: int
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.disk = Disk(MemoryStore())
        self.shapes = draw_shapes(self.draw)
        self.tables = [name for shape in self.shapes for name in shape.targets]
        for name in self.tables:
            self.disk.new_table(name)
        self.files = self._draw_files(0)
        self.stages: dict[str, Stage] = {}
        for number, shape in enumerate(self.shapes):
            more = number > 0 and self.draw.random() < 0.2
            self.stages[shape.name] = Stage(
                disk=self.disk,
                name=shape.name,
                folder=self.disk.begin(shape.name),
                sources=shape.sources,
                targets=shape.targets,
                work=shape.work,
                files=self.files if number == 0 else self._draw_files(number) if more else {},
                has_state=shape.kind == "once",
                limits=self.draw.choice(LIMITS),
            )
        self.is_bad = False
        self.last_good = -1

    def _draw_files(self, number: int) -> dict[int, list[int]]:
        start = number * 10_000
        keys = iter(range(start, start + 100))
        return {
            entry: [10 * next(keys) for _ in range(self.draw.choice((0, 1, 2, 3)))]
            for entry in range(FILES)
        }

    def truth(self) -> dict[str, Counter[int]]:
        rows: dict[str, Counter[int]] = {}
        for shape in self.shapes:
            own = Counter(row for rows in self.stages[shape.name].files.values() for row in rows)
            rows |= dict(zip(shape.targets, shape.truth(rows, own), strict=True))
        return rows

    def play(self) -> None:
        for _ in range(self.draw.randint(20, 60)):
            match self.draw.choice(("run", "run", "run", "run", "deploy", "compact", "back")):
                case "run":
                    self.run(self.draw.choice(list(self.stages)))
                case "deploy" if not self.is_bad:
                    self.spoil()
                case "compact":
                    table = self.disk.table(self.draw.choice(self.tables))
                    if table.head().summary.row_count:
                        compact(table)
                case "back" if self.is_bad:
                    self.take_back()
        if self.is_bad:
            self.take_back()

    def run(self, name: str) -> None:
        """Run a batch; now and then the driver dies in it."""
        dies_after = self.draw.randrange(5) if self.draw.random() < 0.2 else None
        with suppress(Death):
            self.stages[name].trigger(dies_after=dies_after)

    def spoil(self) -> None:
        """Deploy a first query that writes bad rows, once its planned batch has ended."""
        first = self.stages["q0"]
        found = load_checkpoint(first.checkpoint)
        if found.offsets != found.commits:
            first.trigger()
            found = load_checkpoint(first.checkpoint)
        self.last_good = found.commits[-1] if found.commits else -1
        bad: Work = lambda values, _state: [[value + 1 for value in values]]  # noqa: E731
        self.stages["q0"] = replace(first, work=bad)
        self.is_bad = True

    def take_back(self) -> None:
        """Rewind all tables to the last good batch; the call may die, and is made again."""
        self.is_bad = False
        self.stages["q0"] = replace(self.stages["q0"], work=self.shapes[0].work)
        if self.last_good < 0 or not self.disk.table("t0").ledger():
            self.start_again()
            return
        self.order = [self.tables[0], *self.draw.sample(self.tables[1:], len(self.tables) - 1)]
        folders = {name: self.disk.new_folder(f"forks/{name}") for name in self.stages}
        for _ in range(self.draw.choice((0, 0, 1, 2, 3))):
            faulty = FaultyStore(
                self.disk.store,
                at_call=self.draw.randint(1, 400),
                fault=self.draw.choice(list(Fault)),
            )
            try:
                self.rewind(replace(self.disk, store=faulty), folders)
            except Crash:
                self.done["died"] += 1
            except FuseError as error:
                if self.is_refused(error):
                    return
                self.done["failed"] += 1
            self.supervise()
        try:
            self.rewind(self.disk, folders)
        except FuseError as error:
            if not self.is_refused(error):
                raise
            return
        self.done["taken back"] += 1
        for name, folder in folders.items():
            self.stages[name] = replace(self.stages[name], folder=folder)

    def is_refused(self, error: FuseError) -> bool:
        """True if the rewind would cut the first batch of a query; then all begins anew."""
        if "startingVersion" not in error.message:
            return False
        self.done["refused"] += 1
        self.start_again()
        return True

    def supervise(self) -> None:
        """A supervisor starts the queries again, on the old checkpoints."""
        for name in self.draw.sample(list(self.stages), len(self.stages)):
            if self.draw.random() < 0.5:
                with suppress(FuseError):
                    self.stages[name].trigger()

    def start_again(self) -> None:
        """Make new tables and checkpoints."""
        files = {name: stage.files for name, stage in self.stages.items()}
        seed, done = self.draw.randrange(10**9), self.done
        shapes = self.shapes
        self.disk = Disk(MemoryStore())
        for name in self.tables:
            self.disk.new_table(name)
        self.draw = random.Random(seed)
        self.done = done
        for shape in shapes:
            self.stages[shape.name] = replace(
                self.stages[shape.name],
                disk=self.disk,
                folder=self.disk.begin(shape.name),
                files=files[shape.name],
            )

    def rewind(self, disk: Disk, folders: dict[str, str]) -> PipelineRewind:
        committers = [disk.table(name).committer for name in self.order]
        paths = [
            (disk.checkpoint(self.stages[name].folder), disk.checkpoint(folder))
            for name, folder in folders.items()
        ]
        goal = Goal(application="q0", after_batch=self.last_good)
        return rewind_tables(committers, goal, checkpoints=paths)

    def drain(self) -> None:
        for _ in range(400):
            if not sum(stage.trigger() for stage in self.stages.values()):
                return
        raise AssertionError("the queries never end")


def run_course(seed: int) -> Counter[str]:
    """Play a course, and compare its end with an undisturbed run."""
    course = Course(seed)
    course.play()
    course.drain()
    for name, expected in course.truth().items():
        found = Counter(course.disk.content(name))
        assert found == expected, f"seed {seed}, {name}: {found - expected} more, less: " + str(
            expected - found
        )
    return course.done
