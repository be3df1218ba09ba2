"""Publish a branch to another one: commit one snapshot with its content and its ledger.

Two branches with new commits on both are not merged: a program cannot decide which of two batches
of one stream should count. So the other branch must have forked off this branch's head, or the
caller names the head to be replaced; the commits that are lost are listed.

The fork point, and commits since then, may have expired on this branch. The other branch keeps the
versions that both share. Later versions are read as long as their slots exist: vacuum deletes slots
a thousand at a time. Only slots are read, because segments may be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.ledger import EVERY
from fuse_stream.commit.plan import Intent, Staged, content_of, parent_of
from fuse_stream.errors import (
    ConflictError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
)
from fuse_stream.format.names import names_in
from fuse_stream.format.one_line import one_line
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.refs import BranchRef, last_shared
from fuse_stream.objects.refs import load_branch
from fuse_stream.objects.slots import UNREADABLE, Stored
from fuse_stream.reading.history import History, load_named
from fuse_stream.reading.line import find_base, load_line
from fuse_stream.recovery.ledgers import applications_in, named_in_retire, take_over
from fuse_stream.recovery.losses import check_seen, get_undone
from fuse_stream.recovery.pipeline import Member, Pipeline, located

_LOSES_NOTHING = frozenset({Operation.COMPACT, Operation.RECLUSTER, Operation.EXPIRE})
"""Operations allowed between the fork point and the head: undoing maintenance loses no rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The result of a publish.

    Attributes:
        snapshot: the new snapshot.
        source: the snapshot whose content and ledger the branch has now.
        lost: commits of this branch, newest first, that the published branch lacks. Commits up to
            the newest one whose slot vacuum has deleted are left out.
    """

    snapshot: Snapshot
    source: Snapshot
    lost: tuple[Snapshot, ...] = ()

    __repr__ = one_line(
        "version=snapshot.version source=source.version rows=snapshot.summary.row_count lost"
    )


def publish(
    committer: Committer,
    branch: str,
    *,
    expected_head: int | None = None,
    retire: Collection[str] = (),
    replan: bool = False,
    author: str = "",
    message: str = "",
) -> Publication:
    """Publish a branch; errors and arguments of `Table.publish`."""
    found = _Publishing(
        committer, branch, expected_head=expected_head, retire=names_in("retire", retire)
    )
    found.check()
    intent = Intent(operation=Operation.PUBLISH, author=author, message=message)
    return found.commit(intent, replan=replan)


def publish_tables(
    committers: Sequence[Committer],
    branch: str,
    *,
    on_branch: Callable[[Committer, BranchRef], Committer],
    expected_heads: Sequence[int | None],
    retire: Collection[str] = (),
    replan: bool = False,
    author: str = "",
    message: str = "",
) -> tuple[Publication | None, ...]:
    """Publish a branch of each table; errors and arguments of `fuse_stream.publish`.

    The tables are published from the last to the first, so a query that still runs is refused
    before its source changes. The result is None for a table that an earlier call has published.
    A table whose branch has no commit of its own is published too: the commits that it got since
    are lost, as in the other tables, and a repeated call finds it published.
    """
    retire = names_in("retire", retire)
    found = [
        _Publishing(
            one,
            branch,
            expected_head=head,
            retire=retire,
            is_one_of_several=len(committers) > 1,
        )
        for one, head in zip(committers, expected_heads, strict=True)
    ]
    members = [
        Member(number=number, committer=committer, history=committer_history(committer), made=None)
        for number, committer in enumerate(
            on_branch(one, each.ref) for one, each in zip(committers, found, strict=True)
        )
    ]
    pipeline = Pipeline(members)
    order = [member.number for member in reversed(pipeline.sorted())]
    todo = [number for number in order if not found[number].is_done]
    if all(one.has_all for one in found) or all(found[number].changes_nothing for number in todo):
        raise nothing_to_publish(branch, members[0].head.snapshot.version)
    for number in todo:
        try:
            found[number].check()
            _check_reads(pipeline, members[number])
        except FuseError as error:
            raise located(error, members[number]) from error
    known = {name for one in found for name in one.known}
    if unknown := set(retire) - known - {EVERY}:
        raise NotFoundError(
            "an application to be retired has committed nothing; leave it out",
            applications=sorted(unknown),
            known=sorted(known),
        )
    intent = Intent(operation=Operation.PUBLISH, author=author, message=message)
    done: dict[int, Publication] = {}
    for number in todo:
        done[number] = found[number].commit(intent, replan=replan)
    return tuple(done.get(number) for number in range(len(committers)))


def _check_reads(pipeline: Pipeline, member: Member) -> None:
    """Raise if a query of a table has read one of the others elsewhere than on its branch."""
    for (application, _), entry in member.head.snapshot.ledger.entries.items():
        for source in entry.sources or ():
            read, at = pipeline.find_member(source.offset), source.offset
            if read is not None and not (read.has(at) or read.has_published(at)):
                raise InvalidInputError(
                    "a query of this branch has read commits of another table that are not on the "
                    "branch to be published, so the tables would not agree after it. Rewind this "
                    "branch to before that batch and read the branch (branch), or leave the table "
                    "out",
                    application=application,
                    batch=entry.batch_id,
                    source=read.url,
                    version=at.version,
                )


def committer_history(committer: Committer) -> History:
    """Return the history of a committer's branch, up to its newest snapshot."""
    return History(committer.metadata, committer.head())


class _Publishing:
    """The publish of a branch to the branch of a committer."""

    def __init__(
        self,
        committer: Committer,
        branch: str,
        *,
        expected_head: int | None,
        retire: Collection[str],
        is_one_of_several: bool = False,
    ) -> None:
        self.ref = load_branch(committer.metadata, branch)
        self.known: set[str] = set()
        """The applications of both branches, after `check`."""
        self._committer = committer
        self._expected_head = expected_head
        self._retire = retire
        self._is_one_of_several = is_one_of_several
        self._history, self._there = committer_history(committer), self._source()
        """Of both branches, as they are before the publish; `commit` reads them again."""
        if self.ref.branch_id == committer.branch_id:
            raise InvalidInputError(
                "a branch is published to another, not to itself", branch=branch
            )

    @property
    def is_done(self) -> bool:
        """True if the branch was made from the other one's head by a publish."""
        history, source = self._history, self._there.head
        runs = load_line(history, history.floor - 1, history.head).runs
        taken = (history.load(max(run.first, history.floor)).snapshot for run in reversed(runs))
        return any(
            one.operation is Operation.PUBLISH and one.target == parent_of(source) for one in taken
        )

    @property
    def has_all(self) -> bool:
        """True if the branch has all commits of the other one."""
        return self._history.contains(self._there.head.snapshot)

    @property
    def changes_nothing(self) -> bool:
        """True if the branch has all commits of the other one, and only maintenance since then."""
        return self.has_all and _load_since(self._history, self._there).loses_nothing

    def check(self) -> None:
        """Raise what prevents it, before anything is written."""
        self._stage(self._history.head)

    def commit(self, intent: Intent, *, replan: bool) -> Publication:
        committer, metadata = self._committer, self._committer.metadata
        snapshot = committer.commit(intent, self._stage, replan=replan).stored.snapshot
        target = snapshot.target
        assert target is not None
        source = History(metadata, metadata.load_snapshot(target.branch_id, target.version))
        replaced = committer_history(committer).as_of(snapshot.version - 1)
        lost = _load_since(replaced, source).lost
        return Publication(snapshot=snapshot, source=source.head.snapshot, lost=lost)

    def _source(self) -> History:
        metadata = self._committer.metadata
        return History(metadata, metadata.load_head(self.ref.branch_id))

    def _stage(self, on: Stored, _before: Staged | None = None) -> Staged:
        metadata, branch = self._committer.metadata, self.ref.name
        # Checked again on each head, because vacuum deletes the objects of a deleted branch.
        if load_branch(metadata, branch) != self.ref:
            raise NotFoundError("the branch was deleted, and another has its name", branch=branch)
        history, source = History(metadata, on), self._source()
        if not self._is_one_of_several and history.contains(source.head.snapshot):
            raise nothing_to_publish(branch, source.head.snapshot.version)
        _check_named(history, self._expected_head)
        since = _load_since(history, source)
        _check_replaced(since, source, branch, is_named=self._expected_head is not None)
        undone = get_undone(since.history, source.head, self._retire)
        check_seen(undone, source.head, self._retire)
        ledgers = on.snapshot.ledger, source.head.snapshot.ledger
        retire = named_in_retire(self._retire, undone, *ledgers)
        self.known = applications_in(undone, *ledgers)
        ledger = take_over(
            *ledgers,
            version=on.snapshot.version + 1,
            undone=undone,
            retire=retire & self.known if self._is_one_of_several else retire,
        )
        base = find_base(history, source.head)
        return content_of(on.snapshot, source.head, ledger, base=base)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Since:
    """The commits of a branch since another one forked off."""

    history: History
    """Of the branch. If `is_whole`, its floor is the oldest version to which both branches can be
    read; else it is the branch's own floor."""
    fork: int
    """The last version that both branches share."""
    lost: tuple[Snapshot, ...]
    """The commits after the fork point that can be read, newest first."""
    is_whole: bool
    """True if the fork point and all commits after it can be read."""

    @property
    def loses_nothing(self) -> bool:
        """True if all commits since then are known, and are maintenance."""
        return self.is_whole and all(one.operation in _LOSES_NOTHING for one in self.lost)


def _load_since(history: History, source: History) -> _Since:
    """Return the commits of a branch since `source` forked off, also expired ones."""
    one, other = (
        (each.metadata.forks_of(each.head.snapshot.branch_id), each.head.snapshot.branch_id)
        for each in (history, source)
    )
    most = min(history.head.snapshot.version, source.head.snapshot.version)
    fork = last_shared(one, other, most=most)
    read = [stored.snapshot for stored in history.iter_back(max(history.floor, fork))]
    for _ in range(fork, history.floor):
        parent = read[-1].parent
        assert parent is not None  # the version is after the fork point
        try:
            read.append(load_named(history.metadata, parent, by=read[-1]).snapshot)
        except UNREADABLE:
            break  # an expired slot may be deleted or damaged
    is_whole = read[-1].version == fork
    lost = tuple(snapshot for snapshot in read if snapshot.version > fork)
    if is_whole:
        history = history.with_floor(min(history.floor, source.floor, fork))
    return _Since(history=history, fork=fork, lost=lost, is_whole=is_whole)


def _check_named(history: History, expected_head: int | None) -> None:
    """Raise unless the head is the expected one."""
    head = history.head.snapshot.version
    if expected_head is not None and expected_head != head:
        raise ConflictError(
            "the head is not the expected one; look at the commits in between",
            expected_head=expected_head,
            head=head,
        )


def nothing_to_publish(branch: str, version: int) -> InvalidInputError:
    """Return the error for a branch, with head `version`, whose commits this branch has all."""
    return InvalidInputError(
        "there is nothing to publish: this branch has all commits of the other one",
        branch=branch,
        version=version,
    )


def _check_replaced(since: _Since, source: History, branch: str, *, is_named: bool) -> None:
    """Raise unless the head of `source` may replace the head of the branch.

    `is_named` says if the caller has passed the head as `expected_head`.
    """
    head = since.history.head.snapshot
    if since.loses_nothing:
        return
    if not is_named:
        if since.history.contains(source.head.snapshot):
            raise _only_this_moved(since, branch)
        raise _both_moved(since, branch)
    if not _has_one_schema(since, source):
        raise SchemaMismatchError(
            "both branches have changed the schema since they forked, and may have given one id "
            "to different columns; make a new branch of this one's head, write the rows of the "
            "other branch to it with merge_schema=True, and publish that",
            branch=branch,
            forked_at=since.fork,
            head=head.version,
        )


def _only_this_moved(since: _Since, branch: str) -> ConflictError:
    head = since.history.head.snapshot.version
    return ConflictError(
        "this branch has moved since the other one forked, and the other one has no commits of its "
        "own: the commits of this branch since then would be lost. To keep them, leave the table "
        "out. To go back to the fork point with the other tables, pass the head that you have seen "
        "as expected_head",
        branch=branch,
        forked_at=since.fork,
        head=head,
        lost_commits=head - since.fork,
    )


def _both_moved(since: _Since, branch: str) -> ConflictError:
    head = since.history.head.snapshot.version
    where = {"branch": branch, "forked_at": since.fork, "head": head}
    what = (
        "both branches have moved since they forked, and branches are not merged: the commits of "
        "this branch since then would be lost."
    )
    name = "To replace the head anyway, pass the head that you have seen as expected_head"
    if since.is_whole:
        return ConflictError(f"{what} {name}", **where, lost_commits=head - since.fork)
    seen_from = head + 1 - len(since.lost)
    return ConflictError(
        f"{what} Some of them have expired, and cannot be listed: they may be more than "
        f"maintenance. {name}",
        **where,
        lost_commits=head - since.fork,
        seen_from=seen_from,
    )


def _has_one_schema(since: _Since, source: History) -> bool:
    """True if at most one of two branches has changed the schema since they forked."""
    schemas = {since.history.head.snapshot.schema, source.head.snapshot.schema}
    kept = next((each for each in (since.history, source) if each.floor <= since.fork), None)
    if kept is None:  # the fork point has expired on both branches
        return len(schemas) == 1
    return kept.load(since.fork).snapshot.schema in schemas
