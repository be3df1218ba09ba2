"""Draw from a seed a course of a pipeline: bad deploys, deaths, rewinds that die at any call.

What must hold: when the bad rows are taken back and all queries have read all, each table has what
it has in an undisturbed run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.commit.committer import Committer
from fuse_stream.errors import FuseError, InvalidInputError
from fuse_stream.feed.views import NO_LIMITS, Limits
from fuse_stream.format.refs import BranchRef
from fuse_stream.recovery.branch_off import branch_tables
from fuse_stream.recovery.publish import publish_tables
from fuse_stream.recovery.rewind import PipelineRewind, rewind_tables
from fuse_stream.recovery.target import Goal
from fuse_stream.storage.base import Store
from fuse_stream.testing.faults import AT_ANY_CALL, Crash, FaultyStore
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.by_hand import compact
from tests.recovery.pipelines import Beside, Death, Disk, Stage, Work, first_of_key, keep_all

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
        if self.draw.random() < 0.2:
            self.take_back_first()
            if not self.disk.table("t0").ledger():  # it went back to before its first row
                self.start_again()
                return
        is_rehearsed = self.draw.random() < 0.3
        act = self.branch_off if is_rehearsed else self.rewind
        folders = {name: self.disk.new_folder(f"forks/{name}") for name in self.stages}
        if not self.insisted(lambda disk: act(disk, folders)):
            return
        for name, folder in folders.items():
            branch = self.branch if is_rehearsed else "main"
            self.stages[name] = replace(self.stages[name], folder=folder, branch=branch)
        if is_rehearsed:
            self.rehearse()
        self.done["rehearsed" if is_rehearsed else "taken back"] += 1

    def insisted(self, act: Callable[[Disk], object]) -> bool:
        """Do something that dies some times; return False if it is refused for good.

        The queries run on meanwhile, until they are refused.
        """
        for _ in range(self.draw.choice((0, 0, 1, 2, 3))):
            faulty = FaultyStore(
                self.disk.store,
                at_call=self.draw.randint(1, 400),
                fault=self.draw.choice(AT_ANY_CALL),
            )
            times = self.draw.choice((0, 0, 1, 5))
            at_calls = {self.draw.randint(1, 300) for _ in range(times)}
            try:
                act(replace(self.disk, store=Beside(faulty, at_calls, self.supervise)))
            except Crash:
                self.done["died"] += 1
            except FuseError as error:
                if self.is_refused(error):
                    return False
                self.done["failed"] += 1
            self.supervise()
        try:
            act(self.disk)
        except FuseError as error:
            if not self.is_refused(error):
                raise
            return False
        return True

    def take_back_first(self) -> None:
        """Rewind the first table alone, as if nothing were made from it; its query goes on."""
        folder = self.disk.new_folder("forks/q0")
        goal = Goal(application="q0", after_batch=self.last_good)
        first = self.stages["q0"]
        try:
            rewind_tables(
                [self.disk.table("t0").committer],
                goal,
                checkpoints=[(first.checkpoint, self.disk.checkpoint(folder))],
            )
        except FuseError as error:
            self.done[f"first alone: {type(error).__name__}"] += 1
            return
        self.stages["q0"] = replace(first, folder=folder)
        for _ in range(self.draw.randint(1, 3)):
            self.stages["q0"].trigger()
        self.last_good = load_checkpoint(self.stages["q0"].checkpoint).commits[-1]
        self.done["first alone"] += 1

    def rehearse(self) -> None:
        """Run the queries on the branches, publish these, and go on without them."""
        for _ in range(self.draw.randint(0, 12)):
            self.run(self.draw.choice(list(self.stages)))
        heads = [self.disk.table(name).head().version for name in self.order]
        stages = self.stages
        self.stages = {}  # stopped, as they should be
        self.insisted(lambda disk: self.publish(disk, heads))
        self.stages = {name: replace(stage, branch="main") for name, stage in stages.items()}

    def publish(self, disk: Disk, heads: list[int]) -> None:
        try:
            publish_tables(
                [disk.table(name).committer for name in self.order],
                self.branch,
                on_branch=self.on_branch(disk),
                expected_heads=heads,
                retire=["*"],
            )
        except InvalidInputError as error:
            if "nothing to publish" not in error.message:
                raise

    def branch_off(self, disk: Disk, folders: dict[str, str]) -> None:
        """Branch all tables off at the last good batch."""
        self.branch = f"fix-{min(folders.values()).rpartition('-')[2]}"
        branch_tables(
            [disk.table(name).committer for name in self.order],
            self.branch,
            Goal(application="q0", after_batch=self.last_good),
            on_branch=self.on_branch(disk),
            checkpoints=self.paths(disk, folders),
        )

    def on_branch(self, disk: Disk) -> Callable[[Committer, BranchRef], Committer]:
        names = {disk.table(name).metadata.store.url: name for name in self.tables}
        return lambda one, ref: disk.table(names[one.metadata.store.url], ref.name).committer

    def paths(self, disk: Disk, folders: dict[str, str]) -> list[tuple[Store, Store]]:
        return [
            (disk.checkpoint(self.stages[name].folder), disk.checkpoint(folder))
            for name, folder in folders.items()
        ]

    def is_refused(self, error: FuseError) -> bool:
        """True if the rewind would cut the first batch of a query; then all begins anew.

        So it does if a branch was made before its query has written at all.
        """
        if not any(part in error.message for part in ("startingVersion", "branches that an")):
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
        goal = Goal(application="q0", after_batch=self.last_good)
        return rewind_tables(committers, goal, checkpoints=self.paths(disk, folders))

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
