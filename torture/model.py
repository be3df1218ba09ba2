"""A table and a model of it in memory take the same steps; after each, every promise is checked.

Hypothesis draws the steps and shortens those that break a promise. Beside the verbs there are
replays, a stream that reads, writers that sleep between two calls while others work, clocks that
jump, and a query whose checkpoint is deleted, cut and copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fuse_stream.commit.ledger import Verdict
from fuse_stream.commit.plan import Intent
from fuse_stream.errors import (
    ClockSkewError,
    CommitStateUnknownError,
    ConflictError,
    FuseError,
    StreamIdentityError,
)
from fuse_stream.format.records import Operation
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.checkpoints import batch_files
from tests.recovery.streams import Query
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
from torture.follow import Stream
from torture.histories import (
    STEP_S,
    Expected,
    Site,
    Step,
    alter,
    append,
    compact,
    create,
    data,
    delete,
    expire,
    overwrite,
    recluster,
    rewind,
    row,
    tag,
    update,
    upsert,
    vacuum,
)
from torture.stalling import StallingStore

HISTORIES = 20
"""How many histories a trial draws."""
STEPS, NIGHT_STEPS = 30, 100
NIGHT = 1_000
"""The seeds from here on, those of a night, make histories of `NIGHT_STEPS`."""
SKEW_S = 300
"""How far a writer's clock may be ahead."""
JUMPS_S = (-86_400, -3_600, 0, 0, 240, 400, 86_400)
"""How far the clock of a writer is ahead of the store's after a jump."""
WORDS = st.sampled_from(["red", "green", "blue"])
UPKEEP = ("compact", "recluster", "expire", "vacuum", "tag", "alter")
SMALL = st.integers(0, 40)


class TableMachine(RuleBasedStateMachine):
    """One history: the table, its model, and who works on it."""

    outcomes: ClassVar[Counter[str]] = Counter()
    """Of all histories of a trial."""
    latest: ClassVar[list[str]] = []
    """The steps of the last history; after a broken promise, of the shortest that shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.site = Site.of({})
        self.model = Expected()
        self.model.note(0, 0)
        self.history: list[str] = []
        type(self).latest = self.history
        self.keyed = self.cluster = False
        self.head = 0
        self.number = self.key = 0
        self.ahead_s = 0
        self.processes = 1
        self.last: tuple[int, Callable[[int, list[int]], Step]] | None = None
        """The last numbered batch, and what makes it with a number and more keys."""
        self.handle: Table | None = None
        """A process that lives on; it has caches."""
        self.stream = Stream("reader")
        self.generation = 0
        self.query: Query
        self.done = -1
        """The last batch of the query that is in the table."""

    # ---- what happens

    @initialize(keyed=st.booleans(), cluster=st.booleans())
    def begin(self, keyed: bool, cluster: bool) -> None:  # noqa: FBT001 - hypothesis draws them
        self.keyed, self.cluster = keyed, cluster
        create(self.site.store, seed=0, cluster=cluster)
        self.history.append(f"create{', with a cluster key' if cluster else ''}")
        self._begin_query()

    @precondition(lambda self: not self.keyed)
    @rule(count=st.integers(1, 6), wide=st.integers(0, 6))
    def append(self, count: int, wide: int) -> None:
        keys = self._new_keys(count)

        def again(number: int, more: list[int]) -> Step:
            return append(number, keys + more, wide=wide == 0)

        self._take(again(self._batch(again), []))

    @precondition(lambda self: not self.keyed)
    @rule(count=st.integers(1, 4))
    def overwrite(self, count: int) -> None:
        keys = self._new_keys(count)

        def again(number: int, more: list[int]) -> Step:
            return overwrite(number, keys + more)

        self._take(again(self._batch(again), []))

    @precondition(lambda self: self.keyed)
    @rule(count=st.integers(1, 4), old=st.sets(SMALL, max_size=3), text=WORDS)
    def upsert(self, count: int, old: set[int], text: str) -> None:
        keys = sorted({*(key for key in old if key < self.key), *self._new_keys(count)})

        def again(number: int, more: list[int]) -> Step:
            return upsert(number, keys + more, text)

        self._take(again(self._batch(again), []))

    @rule(first=SMALL, more=st.integers(0, 6))
    def delete(self, first: int, more: int) -> None:
        self._take(delete(first, first + more))

    @rule(first=SMALL, more=st.integers(0, 6), text=WORDS)
    def update(self, first: int, more: int, text: str) -> None:
        self._take(update(first, first + more, text))

    @rule(what=st.sampled_from(UPKEEP), keep=st.integers(1, 5))
    def maintain(self, what: str, keep: int) -> None:
        match what:
            case "alter":
                self._take(alter(f"owner {keep}"))
            case "compact":
                self._take(compact())
            case "recluster" if self.cluster:
                self._take(recluster())
            case "expire":
                self._take(expire(keep))
            case "tag" if len(self.model.tags) < 4:
                self._take(tag(f"tag-{len(self.history)}"))
            case _:
                self._take(vacuum())

    @rule(back=st.integers(1, 8))
    def rewind(self, back: int) -> None:
        version = self.head - back
        floor = self._opened().head().floor
        if version < max(floor, 1) or version not in self.model.at:
            return
        writer = self._application, ""
        before = self.model.ledger.get(writer)
        if self._take(rewind(version, f"rewind {len(self.history)}")):
            self.last = None
            if before != self.model.ledger.get(writer):
                self._refuse_query("of a query that was retired", self._run_query)
                self._begin_query()

    @precondition(lambda self: self.last is not None)
    @rule(other=st.booleans(), lower=st.booleans())
    def replay(self, other: bool, lower: bool) -> None:  # noqa: FBT001
        """Deliver the last numbered batch again: as it was, with other rows, or an older one."""
        assert self.last is not None
        number, again = self.last
        if self.model.ledger.get(("pipe", "")) != number:
            return
        step = again(number - lower, self._new_keys(1) if other else [])
        self.history.append(f"again: {step.name}")
        before = self._opened().head().version
        try:
            step.act(self._opened())
            check(not (other or lower), "2: another batch under a number that is taken")
            self._count("replay: told right")
        except StreamIdentityError as error:
            check(other or lower, f"2: a replay was refused: {error}")
            self._count("replay of other rows: StreamIdentityError")
        except ClockSkewError:
            self._check_skew()
        check(self._opened().head().version == before, "2: a replay was committed")
        self._check_all()

    @rule(live=st.booleans())
    def restart(self, live: bool) -> None:  # noqa: FBT001
        """Let a process live on, or begin a new one for each step; restart the stream."""
        self.history.append(f"the writer {'lives on' if live else 'restarts'}")
        self.handle = self._opened() if live else None
        self.stream.restart()

    @rule(seconds=st.sampled_from(JUMPS_S))
    def jump(self, seconds: int) -> None:
        """Let the clock of the writers jump."""
        self.history.append(f"the writers' clocks are {seconds} s ahead")
        self.ahead_s = seconds
        self.handle = None

    @rule()
    def read_stream(self) -> None:
        self.history.append("the stream reads")
        try:
            version = self.stream.read(self.site, self._clock())
        except FuseError as error:
            raise BrokenError(f"5: a stream with a lease cannot read: {error}") from error
        if version is not None and version in self.model.at:
            found, wanted = Counter(self.stream.sum), self.model.at[version][0]
            check(found == wanted, f"4: the stream's rows are not those of version {version}")
        self._count("stream read: told right")

    @rule(
        at_call=st.integers(1, 14),
        pause_s=st.sampled_from([0, 2, 9, 90]),
        others=st.lists(st.sampled_from(["rows", "compact", "expire", "vacuum"]), max_size=4),
    )
    def stall(self, at_call: int, pause_s: int, others: list[str]) -> None:
        """Let a writer sleep within its commit, while others work; the batch comes again then."""
        keys = self._new_keys(2)

        def again(number: int, more: list[int]) -> Step:
            rows = keys + more
            return upsert(number, rows, "mine") if self.keyed else append(number, rows)

        step = again(self._batch(again), [])
        told = f"before its call {at_call} the writer sleeps {pause_s} s; meanwhile: {others}"
        self.history += [step.name, told]
        self.ahead_s = min(self.ahead_s, 0)

        clock = self._clock()

        def meanwhile() -> None:
            for one in (self.site.clock, clock):
                one.advance(pause_s)
            for other in others:
                self._work(other)

        store = StallingStore(self.site.store, at_call, meanwhile)
        try:
            step.act(self.site.opened(store, clock=clock))
            outcome = "acknowledged"
        except (ConflictError, CommitStateUnknownError) as error:
            outcome = type(error).__name__
        if outcome != "acknowledged":
            step.deliver_again(self._opened())
        step.expect(self.model)
        self.head = self._opened().head().version
        self.model.note(self.head, self.head)
        if store.slept:
            self._count(f"stalled writer: {outcome}")
        self._check_all(of_changes=False)

    @precondition(lambda self: not self.keyed)
    @rule()
    def run_query(self) -> None:
        """Let the query commit its next batch."""
        self.history.append(f"batch {self.done + 1} of the query {self._application}")
        self._begin_step()
        try:
            verdict = self._run_query()
        except ClockSkewError:
            self._check_skew()
            return
        check(verdict is not Verdict.REPLAY, "2: a new batch was taken for a replay")
        self._count("query: acknowledged")
        self._end_step()

    @precondition(lambda self: not self.keyed and self.done >= 0 and self.ahead_s <= 0)
    @rule(how=st.sampled_from(["deleted", "cut", "copied", "uncommitted"]))
    def harm_checkpoint(self, how: str) -> None:
        """Delete the query's checkpoint, set it back, or let a copy of it run first."""
        assert isinstance(self.query.checkpoint, MemoryStore)
        self.history.append(f"the checkpoint is {how}")
        kept = dict(self.query.checkpoint.objects)
        if (self._application, "") not in self.model.ledger:
            return
        match how:
            case "deleted":
                self.query.checkpoint.objects = {}
                self.query.begin(f"00000000-0000-4000-8000-{len(self.history):012}")
                self._refuse_query("of a lost checkpoint", lambda: self._commit_query(0))
            case "cut" if self.done >= 1:
                self._refuse_query("set back", lambda: self._commit_query(self.done - 1))
            case "uncommitted":  # the driver died before Spark noted the batch
                verdict = self._commit_query(self.done)
                check(verdict is Verdict.REPLAY, "2: a replay of a query was committed")
                self._count("query replay: told right")
            case "copied":
                self.query.start = 1_000 + len(self.history)
                self._refuse_query("of a copy", lambda: self._commit_query(self.done))
                self.query.start = 0
        self.query.checkpoint.objects = kept
        self._check_all()

    # ---- how it happens

    @property
    def _application(self) -> str:
        return f"query-{self.generation}"

    def _begin_query(self) -> None:
        """Begin a query under a new application; the one before was retired."""
        self.generation += 1
        self.done = -1
        self.query = Query(self._opened(), MemoryStore(), application=self._application)
        self.query.begin(f"10000000-0000-4000-8000-{self.generation:012}")

    def _run_query(self) -> Verdict:
        verdict = self._commit_query(self.done + 1)
        self.done += 1
        name = f"commits/{self.done}"
        files = batch_files([self.done])
        self.query.checkpoint.replace(name, files[name].encode())
        return verdict

    def _commit_query(self, number: int) -> Verdict:
        """Commit a batch of the query; its rows follow from its number."""
        self.query.table = self._opened()
        key = 100_000 * self.generation + number
        intent = Intent(operation=Operation.APPEND, batch=self.query.plan(number))
        rows = data([(key, "query")])
        verdict = self.query.table.commit_rows(intent, rows, merge_schema=True).verdict
        if verdict is not Verdict.REPLAY:
            self.model.rows[row(key, "query")] += 1
            self.model.ledger[self._application, ""] = number
        return verdict

    def _refuse_query(self, what: str, run: Callable[[], Verdict]) -> None:
        try:
            run()
        except StreamIdentityError:
            self._count(f"batch {what}: StreamIdentityError")
            return
        except ClockSkewError:
            self._check_skew()
            return
        raise BrokenError(f"2: a batch {what} was taken")

    def _work(self, other: str) -> None:
        """Do what other processes do while a writer sleeps; nothing that its rows depend on."""
        self.site.clock.advance(1)
        table = self._opened()
        match other:
            case "rows" if not self.keyed:
                key = self._new_keys(1)[0]
                table.append(data([(key, "other")]), merge_schema=True)
                self.model.rows[row(key, "other")] += 1
            case "compact":
                table.compact()
            case "expire":
                table.expire(keep_last=1)
            case "vacuum":
                table.vacuum()

    def _take(self, step: Step) -> bool:
        """Carry a step out and check everything; return False if the clock was refused."""
        self.history.append(step.name)
        self._begin_step()
        try:
            step.act(self.handle or self._opened())
        except ClockSkewError:
            self._check_skew()
            self.last = None
            return False
        except FuseError as error:
            raise BrokenError(f"{type(error).__name__} without a fault: {error}") from error
        step.expect(self.model)
        self._count(f"{step.name.split()[0].rstrip(':')}: acknowledged")
        self._end_step()
        return True

    def _begin_step(self) -> None:
        self.site.clock.advance(STEP_S)

    def _end_step(self) -> None:
        head = self._opened().head().version
        self.model.note(self.head + 1, head)
        self._check_all()
        self.head = head

    def _check_skew(self) -> None:
        """Check that only a clock far ahead is refused, and let it be set right."""
        check(self.ahead_s > SKEW_S, "a clock within five minutes was refused")
        self._count("clock far ahead: ClockSkewError")
        self.ahead_s, self.handle = 0, None

    def _check_all(self, *, of_changes: bool = True) -> None:
        """Check every promise."""
        objects = {key: item.data for key, item in self.site.objects().items()}
        oracle = sound_oracle(objects)
        check(is_as(oracle, self.model), "1 and 2: the table is not as the model says")
        check_history(oracle, self.model, oracle.head)
        table = self._opened()
        check_tags(table, self.model)
        since = max(self.head, oracle.floor) if of_changes else oracle.head
        check_package(table, oracle, since)

    def _opened(self, store: Store | None = None) -> Table:
        return self.site.opened(store, clock=self._clock())

    def _clock(self) -> ManualClock:
        self.processes += 1
        return self.site.process_clock(seed=self.processes, ahead_us=self.ahead_s * 1_000_000)

    def _new_keys(self, count: int) -> list[int]:
        self.key += count
        return list(range(self.key - count, self.key))

    def _batch(self, again: Callable[[int, list[int]], Step]) -> int:
        """Return the number of a new batch, which `again` makes."""
        self.number += 1
        self.last = self.number, again
        return self.number

    def _count(self, outcome: str) -> None:
        type(self).outcomes[outcome] += 1


def trial(seed: int, _folder: Path) -> Counter[str]:
    """Draw histories; raise with the shortest that breaks a promise."""

    class Machine(TableMachine):
        outcomes: ClassVar[Counter[str]] = Counter()

    steps = NIGHT_STEPS if seed >= NIGHT else STEPS
    chosen: dict[str, Any] = {
        "max_examples": HISTORIES,
        "stateful_step_count": steps,
        "database": None,
        "deadline": None,
        "phases": (Phase.generate, Phase.shrink),
        "suppress_health_check": list(HealthCheck),
        "report_multiple_bugs": False,
    }
    hypothesis.seed(seed)(Machine)
    try:
        run_state_machine_as_test(Machine, settings=settings(**chosen))
    except (BrokenError, FuseError) as error:
        told = (
            str(error) if isinstance(error, BrokenError) else f"an error without a fault: {error!r}"
        )
        raise PromiseBrokenError(told, Machine.latest) from error
    return Machine.outcomes


CAMPAIGN = Campaign(
    name="model",
    does="a table and a model in memory take the same steps, with replays, restarts, stalled "
    "writers, jumping clocks and harmed checkpoints; every promise holds after every step",
    unit="steps",
    trial=trial,
    in_ci=6_000,
    in_night=500_000,
)
