"""Plan the forks of a rewind's checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fuse_stream.checkpoint.files import (
    OFFSETS,
    Checkpoint,
    batch_entry,
    entry_key,
    list_files,
    load_checkpoint,
    load_offsets,
)
from fuse_stream.checkpoint.fork import ForkPlan, StateOutcome, plan_fork, with_texts
from fuse_stream.checkpoint.offsets import find_sources, move_branches
from fuse_stream.checkpoint.write_fork import (
    Claim,
    load_claim,
    new_query_id,
    store_fork,
)
from fuse_stream.commit.committer import Committer
from fuse_stream.errors import (
    AlreadyExistsError,
    InvalidInputError,
    StreamIdentityError,
)
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.forked import ANCESTORS, REBUILT_FROM, as_json, cut_at
from fuse_stream.format.layout import MAIN
from fuse_stream.format.one_line import one_line
from fuse_stream.format.records import Ledger, LedgerKey, Snapshot
from fuse_stream.format.source_offset import SourcePosition
from fuse_stream.objects.slots import Stored
from fuse_stream.objects.source_offsets import load_offsets as load_text
from fuse_stream.reading.history import History
from fuse_stream.recovery.ledgers import Cut, ForkedQuery, cut_of, keys_of
from fuse_stream.recovery.losses import Kin, get_ledgers
from fuse_stream.recovery.target import Goal, Progress
from fuse_stream.storage.base import Store

MADE_BY = "rewind"
AFTER_BATCH = "after_batch"
"""In the claim of a fork, if several tables are rewound: the batch that the caller named."""
TABLES, QUERIES = "tables", "queries"
"""In the claim of a fork: the tables, by id and branch, and the queries that go back together."""

Paths = Sequence[tuple[Store, Store]]
"""Old checkpoints and the folders of their forks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A checkpoint from which a query continues."""

    old: str
    new: str
    applications: tuple[str, ...]
    old_query_id: str
    query_id: str
    batches: tuple[int, ...]
    """The batches whose offsets it holds; empty: the query starts from scratch."""
    reruns: int | None
    """The batch that runs again, because the table may hold only a part of it."""
    state: StateOutcome
    file_count: int
    byte_size: int
    sources: tuple[SourcePosition, ...] = ()
    """How far its last batch has read tables: it continues to read there."""

    __repr__ = one_line("new old batches reruns applications")


@dataclass(frozen=True, slots=True, kw_only=True)
class OldQuery:
    """A query to fork: its checkpoint, the folder of the fork and the id that the fork gets."""

    source: Store
    target: Store
    checkpoint: Checkpoint
    query_id: str
    """Of the fork."""
    claim: Claim | None
    """That of an earlier attempt, which published nothing."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The id of the query, and those of its ancestors."""
        return self.checkpoint.query_id, *(one.query_id for one in self.checkpoint.ancestors)

    def keys(self, now: Ledger, then: Ledger) -> tuple[LedgerKey, ...]:
        """Return the ledger keys under which the query, or one before or after it, has written."""
        return keys_of(self.checkpoint.query_id, now, then, *self.ids[1:])

    def cut_at(self, cut: Cut) -> ForkedQuery:
        """Return the query and its fork, for the ledgers."""
        return ForkedQuery(
            old_query_id=self.checkpoint.query_id,
            ancestors=self.checkpoint.ancestors,
            query_id=self.query_id,
            cut=cut,
        )

    @property
    def claimed(self) -> Cut | None:
        """The cut that an earlier attempt chose; the old query may have run on since then."""
        facts = {} if self.claim is None else self.claim.facts
        if facts.get("made_by") != MADE_BY:
            return None
        return Cut(
            offsets_through=facts["offsets_through"], commits_through=facts["commits_through"]
        )

    def with_reruns(self, last: int | None) -> Cut:
        """Return the cut after a planned batch, which runs again unless the checkpoint ended it."""
        cut = Cut(offsets_through=last, commits_through=last)
        return cut if last is None or last in self.checkpoint.commits else cut.with_rerun()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forking:
    """A checkpoint, and the plan of its fork."""

    query: OldQuery
    applications: tuple[str, ...]
    sources: tuple[SourcePosition, ...]
    cut: Cut
    plan: ForkPlan
    claim: dict[str, Any]
    """Identifies the rewind that makes the fork; the same in every attempt."""
    moved: Mapping[int, str]
    """By batch, the texts of its last offsets, on the branches where it reads on."""

    def store(self, progress: Progress) -> None:
        """Write all files of the fork but its final `metadata`; errors of `store_fork`."""
        label = f"copying to {self.query.target.url}"
        store_fork(
            self.query.source,
            self.query.target,
            self.plan,
            self.claim,
            progress=partial(progress, label),
        )

    def check_planned(self, table: Store, ledger: Ledger) -> None:
        """Raise if the checkpoint planned batches of a table's ledger from other source offsets."""
        query = self.query
        _check_offsets(
            query.source, query.checkpoint.offsets, table, ledger, self.forked.keys(ledger)
        )

    @property
    def forked(self) -> ForkedQuery:
        """The query and its fork, for the ledgers."""
        return self.query.cut_at(self.cut)

    @property
    def is_back(self) -> bool:
        """True if the fork repeats batches that the checkpoint counts as done."""
        return max(self.query.checkpoint.commits, default=-1) > self.cut.last_done

    @property
    def described(self) -> Fork:
        reruns = self.cut.offsets_through != self.cut.commits_through
        return Fork(
            old=self.query.source.url,
            new=self.query.target.url,
            applications=self.applications,
            old_query_id=self.query.checkpoint.query_id,
            query_id=self.query.query_id,
            batches=self.plan.batches,
            reruns=self.cut.offsets_through if reruns else None,
            state=self.plan.state,
            file_count=self.plan.file_count,
            byte_size=self.plan.byte_size,
            sources=self.sources,
        )


def load_query(committer: Committer, paths: tuple[Store, Store]) -> OldQuery:
    """Return the query of a checkpoint; `paths` are the checkpoint and the folder of its fork.

    Raises:
        AlreadyExistsError: the folder of the fork is not empty.
        NotFoundError: there is no checkpoint.
    """
    source, target = paths
    checkpoint = load_checkpoint(source)
    claim = _find_unfinished(target)
    # The id that an earlier attempt chose, so that both attempts make the same query.
    query_id = claim.facts["query_id"] if claim else new_query_id(committer.metadata.clock)
    return OldQuery(
        source=source, target=target, checkpoint=checkpoint, query_id=query_id, claim=claim
    )


def find_cut(
    history: History, target: Stored, goal: Goal, query: OldQuery
) -> tuple[Cut | None, tuple[LedgerKey, ...]]:
    """Return after which batch a query continues when its table goes back to `target`.

    Returns also the ledger keys under which it has written; without any there is no cut.

    Raises:
        StreamIdentityError: its checkpoint has planned a batch of the target from other source
            offsets.
    """
    now, then, _ = get_ledgers(history, target, (Kin(ids=query.ids),), goal)
    keys = query.keys(now, then)
    if not keys:
        return None, ()
    _check_offsets(query.source, query.checkpoint.offsets, history.metadata.store, then, keys)
    cut = cut_of(then, keys)
    if goal.after_batch is not None and any(name == goal.application for name, _ in keys):
        cut = Cut(offsets_through=goal.after_batch, commits_through=goal.after_batch)
    elif _is_within(history, target.snapshot, set(query.ids), cut.last_planned):
        cut = cut.with_rerun()
    last = cut.offsets_through
    if last is not None and last == cut.commits_through:
        # Spark may have died between the table's commit and its own: it repeats the batch, as a
        # replay.
        cut = query.with_reruns(last)
    return cut, keys


def has_written_nothing(history: History, query: OldQuery) -> StreamIdentityError:
    """Return the error for a checkpoint whose query has no part in a rewind."""
    return StreamIdentityError(
        "the query of this checkpoint has committed nothing to this branch, and reads none of "
        "these tables. Leave the checkpoint out; or name the checkpoint of a query that has a part "
        "in it; or name the tables that the query writes or reads as well, first the one from "
        "which the others are made",
        checkpoint=query.source.url,
        query=query.checkpoint.query_id,
        table=history.metadata.store.url,
    )


def begins_later(query: OldQuery) -> InvalidInputError:
    """Return the error for a fork that would lack the first batch of a query that reads tables."""
    return InvalidInputError(
        "the first batch of this query goes back too, and a fork without it would choose anew "
        "where it starts to read (startingVersion): with latest, rows would be lost. Choose a "
        "later target. Or first rewind the tables that are made by this query, and by those after "
        "it, alone: the last one first, each to the version before that query's first batch, with "
        "its application in retire. Then leave these tables and checkpoints out here, and start "
        "the queries on new checkpoints",
        checkpoint=query.source.url,
    )


def check_continued(fork: Store, query: ForkedQuery, table: Store, ledger: Ledger) -> None:
    """Do what `Forking.check_planned` does, for a fork that an earlier call has made."""
    entries = (batch_entry(file.key) for file in list_files(fork))
    planned = {entry[1] for entry in entries if entry is not None and entry[0] == OFFSETS}
    _check_offsets(fork, planned, table, ledger, query.keys(ledger))


def sources_in(offsets: str | None) -> tuple[SourcePosition, ...]:
    """Return the positions of tables in the text of a batch's offsets."""
    return () if offsets is None else find_sources(offsets) or ()


def plan_forking(
    committer: Committer,
    back_to: Snapshot,
    query: OldQuery,
    cut: Cut,
    *,
    applications: tuple[str, ...],
    sources: tuple[SourcePosition, ...] = (),
    after_batch: int | None = None,
    together: Mapping[str, Any] | None = None,
    moved: Mapping[int, str] | None = None,
) -> Forking:
    """Return the plan for the fork of a checkpoint.

    Args:
        committer: that of the first table.
        back_to: the snapshot to which the first table goes back.
        query: the query to fork.
        cut: where its fork continues.
        applications: the names under which the query has written.
        sources: how far the last batch of the fork has read tables.
        after_batch: the batch of the goal, if several tables are rewound.
        together: the tables and the queries of the rewind, for the claim.
        moved: by batch, the texts of its last offsets, on the branches where it reads on.

    Raises:
        NotFoundError: Spark has deleted what the fork needs.
        InvalidInputError: the fork would lack the first batch of a query that reads tables.
    """
    checkpoint, through = query.checkpoint, cut.offsets_through
    if through is None and sources_in(checkpoint.last_offsets):
        raise begins_later(query)
    text = None if through is None else ""  # `plan_fork` refuses a batch without offsets
    if through in checkpoint.offsets:
        text = load_offsets(query.source, through)
    place = back_to.branch_id, back_to.version
    if after_batch is not None and query.claim is not None:
        # Commits that undo nothing may have moved the target since the earlier attempt.
        facts = query.claim.facts
        place = facts.get("target_branch_id", place[0]), facts.get("target_version", place[1])
    former = checkpoint.rebuilt_from
    rebuilt = () if former is None else (cut_at(former, cut.last_planned),)
    return Forking(
        query=query,
        applications=applications,
        sources=sources,
        cut=cut,
        plan=with_texts(
            plan_fork(
                checkpoint,
                offsets_through=through,
                commits_through=cut.commits_through,
                offsets=text,
            ),
            {entry_key(OFFSETS, batch): text for batch, text in (moved or {}).items()},
        ),
        moved=moved or {},
        claim={
            "made_by": MADE_BY,
            "table_id": back_to.table_id,
            "branch_id": committer.branch_id,
            "target_branch_id": place[0],
            "target_version": place[1],
            "old_query_id": checkpoint.query_id,
            **({ANCESTORS: as_json(checkpoint.ancestors)} if checkpoint.ancestors else {}),
            **({REBUILT_FROM: as_json(rebuilt)[0]} if rebuilt else {}),
            "query_id": query.query_id,
            "offsets_through": through,
            "commits_through": cut.commits_through,
            **({} if after_batch is None else {AFTER_BATCH: after_batch}),
            **(together or {}),
        },
    )


def _without_branches(text: str) -> str:
    """Return the text of offsets without the branches in the positions of tables.

    The snapshot ids that are left identify the same data.
    """
    return move_branches(text, lambda _offset: MAIN)


def _is_within(history: History, target: Snapshot, queries: set[str], batch: int) -> bool:
    """True if a query may have committed more of a batch to the versions after `target`.

    An earlier rewind may have undone these versions; their ledgers then do not name the writers.
    If these versions have also expired, return True: the batch runs again, as a replay.
    """
    if target.version + 1 < history.floor:
        return not queries.isdisjoint(history.head.snapshot.ledger.retired)
    for stored in history.iter_between(target.version + 1, history.head.snapshot.version):
        ledger = stored.snapshot.ledger
        batches = {
            entry.batch_id
            for entry in ledger.entries.values()
            if entry.version == stored.snapshot.version and entry.query_id in queries
        }
        if batches or not queries - ledger.retired.keys():
            return batch in batches
    return False


def _find_unfinished(new: Store) -> Claim | None:
    claim = load_claim(new)
    is_taken = claim is not None and claim.query_id is not None
    if is_taken or (claim is None and next(new.list(""), None) is not None):
        raise AlreadyExistsError(
            "the folder for the fork is not empty; name a new one", checkpoint=new.url
        )
    return claim


def _check_offsets(
    checkpoint: Store,
    planned: Collection[int],
    table: Store,
    then: Ledger,
    keys: tuple[LedgerKey, ...],
) -> None:
    """Raise if a checkpoint planned batches of a table's ledger from other source offsets."""
    for key in keys:
        entry = then.entries.get(key)
        for offsets in entry.offsets if entry else ():
            if offsets.batch_id not in planned:
                continue  # Spark has cleaned up
            text = load_offsets(checkpoint, offsets.batch_id)
            if sha256_hex(text.encode()) == offsets.sha256:
                continue
            # The fork of a rehearsal names its branches in positions that it shares with others.
            if _without_branches(text) != _without_branches(load_text(table, offsets)):
                raise StreamIdentityError(
                    "this checkpoint has read other data for this batch than the table holds: it "
                    "is a copy that has continued separately. Name the checkpoint that wrote the "
                    "batch; or go back to a batch before it",
                    checkpoint=checkpoint.url,
                    batch=offsets.batch_id,
                )
