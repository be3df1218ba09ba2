"""The exactly-once rule, exhaustively, against the table of the design read out loud."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass

import pytest

from fuse_stream.commit.ledger import (
    Batch,
    Verdict,
    enter,
    forget,
    judge,
    offsets_of,
)
from fuse_stream.commit.missing_batches import (
    Elsewhere,
    check_elsewhere,
    is_after_gap,
    last_number,
)
from fuse_stream.errors import StreamIdentityError
from fuse_stream.format.forked import Ancestor
from fuse_stream.format.records import (
    Ledger,
    LedgerEntry,
    Retirement,
    SourceOffsets,
)

KEY = ("app", "w")
COMMITTED = 7
NEW, REPLAY, ADOPTED, ERROR = "new", "replay", "adopted replay", "error"


BEFORE = "o2"
"""The source offsets in the ledger of the batch before the last one."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that planned batch `COMMITTED` from these offsets; None: it was cleaned up."""

    planned: str | None = None
    ancestors: tuple[str, ...] = ()
    rebuilt_from: Ancestor | None = None

    def find_offsets(self, batch_id: int) -> SourceOffsets | None:
        assert batch_id == COMMITTED, "only the ledger's last batch is asked for"
        return offsets_of(batch_id, self.planned)

    def find_ancestors(self) -> tuple[Ancestor, ...]:
        return tuple(Ancestor(query_id=query, through=-1) for query in self.ancestors)

    def find_rebuilt_from(self) -> Ancestor | None:
        return self.rebuilt_from


@dataclass(frozen=True)
class Case:
    """One arriving batch and the ledger that it meets."""

    entry_query: str | None
    """"none" where there is no entry."""
    query: str | None
    batch_id: int
    entry_offsets: str | None
    offsets: str | None
    adopt: str | None
    retired: bool
    planned: str | None
    """The offsets of batch `COMMITTED` in the checkpoint of the arriving batch."""
    forked_from: str | None
    rebuilt_through: int | None
    """The last batch of "p" in its checkpoint, which the arriving batch's was rebuilt from."""

    @property
    def ledger(self) -> Ledger:
        retired = {"q": Retirement(application="app", version=3, fork="f")} if self.retired else {}
        if self.entry_query == "none":
            return Ledger(retired=retired)
        known = offsets_of(COMMITTED, self.entry_offsets)
        before = offsets_of(COMMITTED - 1, BEFORE)
        entry = LedgerEntry(
            query_id=self.entry_query,
            batch_id=COMMITTED,
            offsets=() if known is None or before is None else (before, known),
            rows=5,
            version=4,
            timestamp_us=9,
        )
        return Ledger(entries={KEY: entry}, retired=retired)

    @property
    def batch(self) -> Batch:
        return Batch(
            application="app",
            writer="w",
            query_id=self.query,
            batch_id=self.batch_id,
            offsets=offsets_of(self.batch_id, self.offsets),
            adopt=self.adopt,
            checkpoint=self.checkpoint,
        )

    @property
    def checkpoint(self) -> Checkpoint | None:
        if self.query is None:
            return None
        ancestors = () if self.forked_from is None else (self.forked_from, "older")
        lost = self.rebuilt_through
        rebuilt = None if lost is None else Ancestor(query_id="p", through=lost)
        return Checkpoint(planned=self.planned, ancestors=ancestors, rebuilt_from=rebuilt)


CASES = [
    Case(*values)
    for values in itertools.product(
        ["none", "q", "p", None],
        ["q", None],
        [COMMITTED - 1, COMMITTED, COMMITTED + 1, COMMITTED + 5],
        ["o1", None],
        ["o1", "o2", None],
        [None, "p", "q", "wrong"],
        [False, True],
        ["o1", "o2", None],
        [None, "p", "elsewhere"],
        [None, COMMITTED - 1, COMMITTED, COMMITTED + 1],
    )
]


def expected(case: Case) -> str:
    """Return what the rows of design section 5 say, from the last to the first that decides."""
    if case.retired and case.query == "q":
        return ERROR
    if case.entry_query == "none":
        return NEW
    both_known = case.entry_offsets is not None and case.offsets is not None
    same_offsets = both_known and case.entry_offsets == case.offsets
    if case.query != case.entry_query:
        if case.entry_query is None or case.adopt != case.entry_query:
            return ERROR
        if case.query is not None and case.forked_from == case.entry_query:
            return ERROR  # set back without this table: it would deliver again what is there
        if (case.query, case.entry_query) == ("q", "p") and case.rebuilt_through is not None:
            return rebuilt_outcome(case, differ=both_known and not same_offsets)
        if both_known and case.batch_id == COMMITTED - 1 and case.offsets == BEFORE:
            return ERROR  # the same
        return ADOPTED if case.batch_id == COMMITTED and same_offsets else NEW
    if case.batch_id > COMMITTED:
        both_known = None not in (case.query, case.entry_offsets, case.planned)
        return ERROR if both_known and case.planned != case.entry_offsets else NEW
    if case.batch_id < COMMITTED:
        return ERROR
    return ERROR if both_known and not same_offsets else REPLAY


def rebuilt_outcome(case: Case, *, differ: bool) -> str:
    """Return the same for a checkpoint of the entry's query that was rebuilt under another id."""
    assert case.rebuilt_through is not None
    if case.rebuilt_through < COMMITTED or case.batch_id < COMMITTED:
        return ERROR  # the table holds a batch that the query delivers again
    if case.batch_id == COMMITTED:
        return ERROR if differ else ADOPTED
    both_known = None not in (case.entry_offsets, case.planned)
    return ERROR if both_known and case.planned != case.entry_offsets else NEW


def outcome(case: Case) -> str:
    try:
        verdict = judge(case.ledger, case.batch)
    except StreamIdentityError:
        return ERROR
    return {Verdict.NEW: NEW, Verdict.REPLAY: REPLAY, Verdict.ADOPTED_REPLAY: ADOPTED}[verdict]


def test_every_batch_is_new_or_a_proven_replay_or_an_error() -> None:
    wrong = [
        (case, outcome(case), expected(case)) for case in CASES if outcome(case) != expected(case)
    ]

    assert wrong == []
    assert {expected(case) for case in CASES} == {NEW, REPLAY, ADOPTED, ERROR}


def test_a_committed_batch_is_its_own_replay_and_no_older_one_comes_again() -> None:
    for case in CASES:
        if outcome(case) not in {NEW, ADOPTED}:
            continue
        after = enter(case.ledger, case.batch, rows=2, version=9, timestamp_us=11)

        assert judge(after, case.batch) is Verdict.REPLAY
        if case.batch_id > 0:
            earlier = Batch(application="app", writer="w", query_id=case.query, batch_id=0)
            with pytest.raises(StreamIdentityError):
                judge(after, earlier)


def test_adoption_retires_the_query_that_wrote_before_and_works_once() -> None:
    for case in CASES:
        if case.entry_query != "p" or outcome(case) not in {NEW, ADOPTED}:
            continue
        after = enter(case.ledger, case.batch, rows=2, version=9, timestamp_us=11)
        former = Batch(application="other", query_id="p", batch_id=COMMITTED + 9)

        assert after.retired["p"] == Retirement(application="app", version=9, fork=case.query)
        with pytest.raises(StreamIdentityError):
            judge(after, former)


def test_an_entry_keeps_the_offsets_of_the_last_two_batches() -> None:
    ledger = Ledger()
    for batch_id in (0, 1, 2):
        batch = Batch(
            query_id="q", batch_id=batch_id, offsets=offsets_of(batch_id, f"at {batch_id}")
        )
        ledger = enter(ledger, batch, rows=1, version=batch_id + 1, timestamp_us=batch_id)

    ((_, entry),) = ledger.entries.items()
    assert [item.batch_id for item in entry.offsets] == [1, 2]
    assert [item.text for item in entry.offsets] == ["at 1", "at 2"]


def test_offsets_of_batches_that_are_not_neighbours_are_not_kept_together() -> None:
    ledger = Ledger()
    for batch_id in (0, 5):
        batch = Batch(query_id="q", batch_id=batch_id, offsets=offsets_of(batch_id, "at"))
        ledger = enter(ledger, batch, rows=1, version=batch_id + 1, timestamp_us=batch_id)

    ((_, entry),) = ledger.entries.items()
    assert [item.batch_id for item in entry.offsets] == [5]


def test_other_writers_and_applications_are_carried_along() -> None:
    keys = [("app", ""), ("app", "w"), ("other", "w")]
    ledger = Ledger()
    for number, (application, writer) in enumerate(keys):
        batch = Batch(application=application, writer=writer, query_id="q", batch_id=number)
        ledger = enter(ledger, batch, rows=1, version=number + 1, timestamp_us=number)

    assert {key: entry.batch_id for key, entry in ledger.entries.items()} == {
        key: number for number, key in enumerate(keys)
    }


def test_forgetting_an_application_forgets_its_writers_but_no_retirement() -> None:
    retired = {"q": Retirement(application="app", version=3)}
    entry = LedgerEntry(query_id="p", batch_id=1, rows=1, version=1, timestamp_us=1)
    ledger = Ledger(
        entries={("app", ""): entry, ("app", "w"): entry, ("other", ""): entry}, retired=retired
    )

    after = forget(ledger, "app")

    assert set(after.entries) == {("other", "")}
    assert after.retired == retired


@pytest.mark.parametrize(("batch_id", "offered"), [(0, 1), (1, 0), (2, 1)])
def test_a_query_that_may_be_behind_the_table_is_not_advised_to_adopt(
    batch_id: int, offered: int
) -> None:
    entry = LedgerEntry(query_id="p", batch_id=1, rows=1, version=1, timestamp_us=1)
    ledger = Ledger(entries={("default", ""): entry})

    with pytest.raises(StreamIdentityError) as caught:
        judge(ledger, Batch(query_id="q", batch_id=batch_id))

    assert caught.value.message.count("adopt=") == offered
    assert "fuse.rewind([" in caught.value.message


def test_a_fork_at_a_table_that_was_not_rewound_is_told_to_rewind_all_tables_together() -> None:
    entry = LedgerEntry(query_id="p", batch_id=5, rows=1, version=1, timestamp_us=1)
    ledger = Ledger(entries={("default", ""): entry})
    fork = Batch(query_id="f", batch_id=3, adopt="p", checkpoint=Checkpoint(ancestors=("p",)))

    with pytest.raises(StreamIdentityError) as caught:
        judge(ledger, fork)

    assert "fuse.rewind([" in caught.value.message
    assert "adopt" not in caught.value.message
    assert caught.value.context["written_by"] == "p"


@pytest.mark.parametrize(
    ("query", "ancestors", "is_refused"),
    [
        ("f", ("q",), False),  # the fork of the rewind
        ("g", ("f", "q"), False),  # a fork of that fork, with which the table was rewound again
        ("other", ("q",), True),
        ("other", ("f", "q"), True),
        ("other", ("elsewhere",), False),
        ("fresh", (), False),
        ("other", ("given up",), True),
    ],
)
def test_a_table_without_an_entry_takes_the_fork_with_which_it_was_rewound(
    query: str,
    ancestors: tuple[str, ...],
    is_refused: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    retired = {
        "q": Retirement(application="app", version=3, fork="f"),
        "given up": Retirement(application="app", version=3),
    }
    if query == "g":
        retired["f"] = Retirement(application="app", version=5, fork="g")
    batch = Batch(query_id=query, batch_id=2, checkpoint=Checkpoint(ancestors=ancestors))

    if is_refused:
        with pytest.raises(StreamIdentityError, match="another fork"):
            judge(Ledger(retired=retired), batch)
        rebuilt = dataclasses.replace(batch, adopt="f" if "q" in ancestors else "given up")
        assert judge(Ledger(retired=retired), rebuilt) is Verdict.NEW
        with pytest.raises(StreamIdentityError, match="another fork"):
            judge(Ledger(retired=retired), dataclasses.replace(batch, adopt="q"))
    else:
        assert judge(Ledger(retired=retired), batch) is Verdict.NEW


def test_the_refusal_of_another_query_names_both_and_the_choices() -> None:
    entry = LedgerEntry(query_id="p", batch_id=1, rows=1, version=1, timestamp_us=1)
    ledger = Ledger(entries={("default", ""): entry})

    with pytest.raises(StreamIdentityError) as caught:
        judge(ledger, Batch(query_id="fresh", batch_id=2))

    text = str(caught.value)
    assert all(word in text for word in ("app_id", "adopt=", "checkpoint", "'p'", "'fresh'"))


@pytest.mark.parametrize(("written_by", "arriving"), [("p", None), (None, "q")])
@pytest.mark.parametrize("batch_id", [0, 1, 2])
def test_a_query_and_numbered_batches_are_told_to_part_and_not_to_adopt(
    written_by: str | None, arriving: str | None, batch_id: int
) -> None:
    entry = LedgerEntry(query_id=written_by, batch_id=1, rows=1, version=1, timestamp_us=1)
    ledger = Ledger(entries={("default", ""): entry})

    with pytest.raises(StreamIdentityError, match="numbered batches") as caught:
        judge(ledger, Batch(query_id=arriving, batch_id=batch_id))

    assert "adopt" not in caught.value.message
    assert "app_id" in caught.value.message


def test_a_lower_numbered_batch_is_told_to_rewind_with_retire() -> None:
    entry = LedgerEntry(query_id=None, batch_id=4, rows=1, version=5, timestamp_us=1)

    with pytest.raises(StreamIdentityError, match="later numbered batch") as caught:
        judge(Ledger(entries={("default", ""): entry}), Batch(batch_id=2))

    assert "retire=[" in caught.value.message
    assert "checkpoint" not in caught.value.message


def test_the_refusal_of_a_retired_query_names_the_rewind_and_its_fork() -> None:
    ledger = Ledger(retired={"q": Retirement(application="app", version=12, fork="f")})

    with pytest.raises(StreamIdentityError) as caught:
        judge(ledger, Batch(query_id="q", batch_id=2))

    assert caught.value.context["retired_by_version"] == 12
    assert caught.value.context["fork"] == "f"


def entered(*batches: Batch) -> Ledger:
    ledger = Ledger()
    for number, batch in enumerate(batches, start=1):
        ledger = enter(ledger, batch, rows=1, version=number, timestamp_us=number)
    return ledger


@pytest.mark.parametrize(
    "writers",
    [("", ""), ("", "w"), ("w", "w")],
    ids=["no writer", "a writer comes", "the writer stays"],
)
@pytest.mark.parametrize(
    ("batch_id", "said"),
    [(6, "checkpoint was set back"), (7, "under another application"), (8, None), (12, None)],
)
def test_a_query_changes_its_application_only_between_two_batches(
    writers: tuple[str, str], batch_id: int, said: str | None
) -> None:
    before = Batch(application="default", writer=writers[0], query_id="q", batch_id=7)
    renamed = Batch(application="flights", writer=writers[1], query_id="q", batch_id=batch_id)
    ledger = entered(before)

    if said is None:
        assert judge(ledger, renamed) is Verdict.NEW
    else:
        with pytest.raises(StreamIdentityError, match=said) as caught:
            judge(ledger, renamed)
        assert caught.value.context["written_as"] == ("default", writers[0])


def test_an_application_that_is_changed_back_is_changed_between_two_batches_too() -> None:
    first = Batch(application="a", query_id="q", batch_id=4)
    second = Batch(application="b", query_id="q", batch_id=6)
    ledger = entered(first, second)

    assert judge(ledger, second) is Verdict.REPLAY
    with pytest.raises(StreamIdentityError, match="app_id") as caught:
        judge(ledger, dataclasses.replace(first, batch_id=6))
    assert caught.value.context["written_as"] == ("b", "")
    assert judge(ledger, dataclasses.replace(first, batch_id=7)) is Verdict.NEW


def test_two_applications_of_one_query_have_replays_of_one_batch() -> None:
    batches = [Batch(application=name, query_id="q", batch_id=6) for name in ("a", "b")]
    ledger = entered(*batches)

    assert [judge(ledger, batch) for batch in batches] == [Verdict.REPLAY, Verdict.REPLAY]


def test_writers_of_one_application_bring_the_same_batch_and_none_before_it() -> None:
    first = Batch(writer="", query_id="q", batch_id=3)
    second = Batch(writer="w", query_id="q", batch_id=3)

    assert judge(entered(first), second) is Verdict.NEW
    older = entered(dataclasses.replace(second, batch_id=1), first)
    assert judge(older, second) is Verdict.NEW
    for ledger in (entered(first), older):
        with pytest.raises(StreamIdentityError, match="checkpoint was set back"):
            judge(ledger, dataclasses.replace(second, batch_id=2))


@pytest.mark.parametrize("batch_id", [6, 7, 8])
def test_a_fork_under_another_application_meets_the_batches_of_the_query_before(
    batch_id: int,
) -> None:
    ledger = entered(Batch(application="default", query_id="p", batch_id=7))
    fork = Batch(
        application="flights",
        query_id="f",
        batch_id=batch_id,
        checkpoint=Checkpoint(ancestors=("p", "older")),
    )

    if batch_id > 7:
        assert judge(ledger, fork) is Verdict.NEW
    else:
        with pytest.raises(StreamIdentityError, match="this table was not"):
            judge(ledger, fork)
    assert judge(ledger, dataclasses.replace(fork, checkpoint=Checkpoint())) is Verdict.NEW


@pytest.mark.parametrize("adopt", ["p", None])
def test_a_rebuilt_query_under_another_application_meets_the_last_batch_of_the_lost_one(
    adopt: str | None,
) -> None:
    ledger = entered(Batch(application="default", query_id="p", batch_id=7))
    rebuilt = Batch(
        application="flights",
        query_id="r",
        batch_id=7,
        adopt=adopt,
        checkpoint=Checkpoint(rebuilt_from=Ancestor(query_id="p", through=7)),
    )

    with pytest.raises(StreamIdentityError, match="under another application"):
        judge(ledger, rebuilt)
    assert judge(ledger, dataclasses.replace(rebuilt, batch_id=8)) is Verdict.NEW


def test_numbered_batches_of_several_applications_are_counted_apart() -> None:
    ledger = entered(Batch(application="a", batch_id=7), Batch(application="b", batch_id=9))

    assert judge(ledger, Batch(application="c", batch_id=7)) is Verdict.NEW
    assert judge(ledger, Batch(application="a", batch_id=8)) is Verdict.NEW


@pytest.mark.parametrize(
    ("query", "batch_id", "expected"),
    [("q", 5, False), ("q", 6, True), ("f", 0, False), ("f", 1, True), (None, 9, False)],
)
def test_a_gap_lies_between_the_last_batch_of_the_query_and_one_that_is_not_the_next(
    query: str | None,
    batch_id: int,
    expected: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    ledger = entered(Batch(query_id="q", batch_id=4))

    assert is_after_gap(ledger, Batch(query_id=query, batch_id=batch_id)) is expected


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ({}, True),
        ({"planned": None}, True),  # Spark no longer keeps them
        ({"planned": "o2"}, False),  # a copy of the checkpoint ran on the branch
        ({"committed": None}, True),
        ({"arriving": COMMITTED + 1}, True),
        ({"arriving": COMMITTED}, False),  # it is not taken for done
        ({"arriving": COMMITTED - 1}, False),
        ({"here": COMMITTED}, False),
        ({"here": None}, True),
    ],
    ids=str,
)
def test_batches_that_the_query_left_on_another_branch_are_missed(
    changes: dict[str, object],
    is_refused: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    case: dict[str, object] = {
        "planned": "o1",
        "committed": "o1",
        "arriving": COMMITTED + 2,
        "here": COMMITTED - 3,
        **changes,
    }
    assert isinstance(case["arriving"], int)
    here, committed, planned = case["here"], case["committed"], case["planned"]
    known = None if committed is None else offsets_of(COMMITTED, str(committed))
    there = LedgerEntry(
        query_id="q",
        batch_id=COMMITTED,
        offsets=() if known is None else (known,),
        rows=1,
        version=3,
        timestamp_us=1,
    )
    own = () if here is None else (Batch(query_id="q", batch_id=int(str(here))),)
    batch = Batch(
        query_id="q",
        batch_id=case["arriving"],
        checkpoint=Checkpoint(planned=None if planned is None else str(planned)),
    )

    def check() -> None:
        last = last_number(entered(*own), {"q": COMMITTED}, "")
        found = Elsewhere("fix", ("default", ""), there)
        check_elsewhere(batch, found, here=last, last=batch.batch_id - 1)

    if is_refused:
        with pytest.raises(StreamIdentityError, match="publish") as caught:
            check()
        assert caught.value.context["branch"] == "fix"
        assert caught.value.context["committed_there"] == COMMITTED
    else:
        check()


@pytest.mark.parametrize(("branch", "may_be_deleted"), [("fix", True), ("main", False)])
def test_nobody_is_told_to_delete_main(
    branch: str,
    may_be_deleted: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    there = entered(Batch(query_id="q", batch_id=3)).entries["default", ""]
    arriving = Batch(query_id="q", batch_id=5)

    with pytest.raises(StreamIdentityError) as caught:
        check_elsewhere(arriving, Elsewhere(branch, ("default", ""), there), here=-1, last=4)

    assert ("delete" in caught.value.message) is may_be_deleted
