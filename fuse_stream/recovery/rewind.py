"""Rewind tables: commit a snapshot with an old one's content and ledger, and fork checkpoints.

The process may die between any two calls, so the steps have this order:

1. Write every fork of a checkpoint except its final `metadata`: no query can start on it yet.
2. Commit the snapshot. It retires the old query in favour of the fork: before this step nothing
   has changed, after it the old query is refused.
3. Finish the forks: queries can start on them.

A query that writes several tables has one checkpoint, so the tables are rewound together: step 2 is
done for each table in turn, from those that are made from others to the first one. The goal applies
to the first table; `pipeline` finds how far the others and their queries go back. The old queries
are retired in all tables, also where they have committed nothing.

The same call, run again, reads in the claims of the new checkpoints which steps are done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import EVERY
from fuse_stream.commit.plan import Intent
from fuse_stream.errors import (
    FuseError,
    InvalidInputError,
)
from fuse_stream.format.names import names_in
from fuse_stream.format.one_line import one_line
from fuse_stream.format.records import Operation
from fuse_stream.reading.history import History
from fuse_stream.recovery.forks import Fork, Paths
from fuse_stream.recovery.holds import drop_tag
from fuse_stream.recovery.ledgers import (
    NOTHING,
    check_known,
)
from fuse_stream.recovery.outside import OpenSource
from fuse_stream.recovery.pipeline import Member
from fuse_stream.recovery.repeated import (
    check_same_call,
    check_same_goal,
    find_published,
    finish_all,
    is_repeated,
    load_claims,
    tag_of_claims,
)
from fuse_stream.recovery.result import Rewind, RewindOutcome, made_as, made_before
from fuse_stream.recovery.rewind_plan import RewindPlan
from fuse_stream.recovery.target import (
    Goal,
    Progress,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRewind:
    """The result of a rewind of several tables, or of its dry run; `print` shows all of it.

    Attributes:
        tables: the result for each table, in the order of the call.
        forks: the forks of checkpoints: where each query continues, and from which batch.
        obstacles: the errors that prevent the rewind; only in a dry run.
        notes: what the caller must know: what does not go back with the tables. A sentence each.
        is_repeated: True if an earlier call did all of this, and this one did nothing.
    """

    tables: tuple[Rewind, ...]
    forks: tuple[Fork, ...] = ()
    obstacles: tuple[FuseError, ...] = ()
    notes: tuple[str, ...] = ()
    is_repeated: bool = False

    __repr__ = one_line("tables outcome forks obstacles notes")

    @property
    def outcome(self) -> RewindOutcome:
        """Whether the tables were rewound: "planned" in a dry run, "repeated" by an earlier call.

        If an earlier call has rewound some of them, this one decides: "planned" or "done".
        """
        if self.is_repeated:
            return "repeated"
        return "planned" if any(one.outcome == "planned" for one in self.tables) else "done"

    def __str__(self) -> str:
        """Return a line for the whole, and one for each table, fork, note and obstacle."""
        notes = (f"note: {note}" for note in self.notes)
        obstacles = (f"{type(error).__name__}: {error}" for error in self.obstacles)
        parts = map(str, (*self.tables, *self.forks))
        return "\n  ".join((repr(self), *parts, *notes, *obstacles))

    def alone(self) -> Rewind:
        """Return the result for the first table, with the forks and the obstacles."""
        return dataclasses.replace(self.tables[0], forks=self.forks, obstacles=self.obstacles)


def rewind_tables(
    committers: Sequence[Committer],
    goal: Goal,
    *,
    checkpoints: Paths = (),
    retire: Collection[str] = (),
    dry_run: bool = False,
    replan: bool = False,
    author: str = "",
    message: str = "",
    progress: Progress | None = None,
    open_source: OpenSource | None = None,
) -> PipelineRewind:
    """Rewind several tables together; errors and arguments of `fuse_stream.rewind`.

    `open_source` opens the tables that queries read and that are not rewound.
    """
    members, retire = [], names_in("retire", retire)
    for number, committer in enumerate(committers):
        history = History(committer.metadata, committer.head())
        made = find_published(committer, history, checkpoints)
        members.append(Member(number=number, committer=committer, history=history, made=made))
    first = members[0]
    check_same_call(
        [(member.table_id, member.committer.branch_id) for member in members], checkpoints
    )
    if first.made is not None and all(member.made for member in members):
        check_same_goal(first.committer, first.history, first.made, goal, checkpoints)
        if not dry_run:
            _finish(committers, checkpoints)
        return PipelineRewind(tables=tuple(map(made_before, members)), is_repeated=True)
    if len(members) > 1:
        _check_tables(members, checkpoints, retire)
    report = progress or (lambda _what, _done, _total: None)
    if (
        len(members) == 1
        and not checkpoints
        and is_repeated(first.committer, first.history, goal, report)
    ):
        return PipelineRewind(tables=(made_as(first.committer, first.head),), is_repeated=True)
    plan = RewindPlan(
        members,
        goal,
        checkpoints=checkpoints,
        retire=retire,
        report=report,
        open_source=open_source,
    )
    if plan.was_made_before():
        return PipelineRewind(tables=(made_as(first.committer, first.head),), is_repeated=True)
    found = tuple(
        plan.described(member) if member.made is None else made_before(member) for member in members
    )
    plan.check_retired()
    done = PipelineRewind(
        tables=found,
        forks=tuple(forking.described for forking in plan.forkings),
        obstacles=tuple(plan.obstacles),
        notes=(*plan.notes, *_by_hand(members, found)),
    )
    if dry_run:
        return dataclasses.replace(done, tables=tuple(map(plan.with_consumers, members, found)))
    if plan.obstacles:
        raise plan.obstacles[0]
    intent = Intent(operation=Operation.REWIND, author=author, message=message)
    made_now = plan.carry_out(intent, replan=replan)
    _finish(committers, checkpoints)
    tables = (
        dataclasses.replace(table, snapshot=made_now.get(member.number, table.snapshot))
        for member, table in zip(members, found, strict=True)
    )
    return dataclasses.replace(done, tables=tuple(tables))


def _by_hand(members: Sequence[Member], found: Sequence[Rewind]) -> Iterator[str]:
    """Yield a note for each table that loses changes which no query makes again."""
    for member, table in zip(members, found, strict=True):
        if table.by_hand:
            versions = ", ".join(map(str, table.by_hand))
            yield f"{member.url} loses the changes of {versions}, which no query makes again"


def _check_tables(members: Sequence[Member], checkpoints: Paths, retire: Collection[str]) -> None:
    """Raise unless the tables can be rewound together."""
    if not checkpoints:
        raise InvalidInputError(
            "several tables are rewound together by the checkpoints of the queries that write "
            "them: name these (checkpoints={old: new}); or rewind one table at a time"
        )
    check_known({*retire} - {EVERY}, NOTHING, *(member.head.snapshot.ledger for member in members))


def _finish(committers: Sequence[Committer], checkpoints: Paths) -> None:
    """Finish the forks of a published rewind, and delete the tags that have kept its targets."""
    claims = load_claims(checkpoints)
    finish_all(checkpoints)
    if len(committers) > 1 and claims is not None:
        for committer in committers:
            drop_tag(committer, tag_of_claims(claims))
