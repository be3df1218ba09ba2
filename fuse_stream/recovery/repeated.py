"""Find what an earlier call of the same rewind has done, by the claims in its forks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.checkpoint.write_fork import (
    Claim,
    finish_fork,
    load_claim,
)
from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import parent_of
from fuse_stream.errors import (
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
)
from fuse_stream.format.forked import ancestors_of
from fuse_stream.format.names import parse_version
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.history import History
from fuse_stream.recovery.cuts import run_on_alone
from fuse_stream.recovery.forks import AFTER_BATCH, MADE_BY, QUERIES, TABLES, Paths
from fuse_stream.recovery.holds import tag_of
from fuse_stream.recovery.ledgers import Cut, ForkedQuery
from fuse_stream.recovery.target import Goal, Progress, get_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A rewind that an earlier call has published."""

    version: int
    stored: Stored | None
    """None: it has expired since."""


def load_claims(paths: Paths) -> tuple[Claim, ...] | None:
    """Return the claims of rewinds in the folders of the forks; None unless each has one."""
    found = (load_claim(new) for _, new in paths)
    claims = tuple(claim for claim in found if claim and claim.facts.get("made_by") == MADE_BY)
    return claims if claims and len(claims) == len(paths) else None


def tag_of_claims(claims: tuple[Claim, ...]) -> str:
    """Return the name of the tags that keep the targets of a rewind; the order does not matter."""
    return tag_of(min(claim.facts["query_id"] for claim in claims))


def check_same_call(tables: Collection[tuple[str, str]], paths: Paths) -> None:
    """Raise if an earlier call, which is not finished, has made the forks with other arguments.

    `tables` are the ids of the tables and of their branches. Tables may be added.
    """
    claims = load_claims(paths) or ()
    if all(claim.query_id is not None for claim in claims):
        return
    queries = sorted(claim.facts["old_query_id"] for claim in claims)
    for claim in claims:
        begun_with = {(table, branch) for table, branch in claim.facts.get(TABLES, ())}
        missing = sorted(table for table, _ in begun_with - {*tables})
        begun_for = claim.facts.get(QUERIES, queries)
        if missing or begun_for != queries:
            raise InvalidInputError(
                "an earlier call has begun these forks together with other tables or checkpoints, "
                "and is not finished: make the same call again; or name new folders for other "
                "forks",
                tables_missing=missing,
                queries_missing=sorted({*begun_for} - {*queries}),
                queries_added=sorted({*queries} - {*begun_for}),
            )


def check_same_version(claims: tuple[Claim, ...], history: History, goal: Goal) -> None:
    """Raise InvalidInputError if an earlier call has cut the forks for another version."""
    for claim in claims:
        made_to = claim.facts["target_branch_id"], claim.facts["target_version"]
        is_of_it = claim.facts["table_id"] == history.head.snapshot.table_id
        if is_of_it and goal.version is not None and not _names(history, goal, made_to):
            raise InvalidInputError(
                "an earlier call has begun these forks for another version, and is not finished: "
                "make the same call again; or name new folders for other forks",
                version=goal.version,
                begun_for=made_to[1],
            )


def _names(history: History, goal: Goal, made_to: tuple[str, int]) -> bool:
    """True if a goal names the branch id and version that an earlier call went back to."""
    try:
        target = history.get_snapshot(goal.version, timestamp=goal.timestamp)
    except SnapshotExpiredError:  # the target of the rewind may have expired since
        return goal.version is None or parse_version(goal.version).number == made_to[1]
    return (target.snapshot.branch_id, target.snapshot.version) == made_to


def are_of_another_table(claims: tuple[Claim, ...], committer: Committer, head: Snapshot) -> bool:
    """True if all forks are finished, and the rewind of another table or branch made them.

    False if the ledger names a fork: a clone or a publish then added it with the content.
    """
    own = head.table_id, committer.branch_id
    retired = head.ledger.retired
    return all(
        claim.query_id is not None
        and (claim.facts["table_id"], claim.facts["branch_id"]) != own
        and claim.query_id not in {passed.fork for passed in retired.values()}
        for claim in claims
    )


def find_published(committer: Committer, history: History, paths: Paths) -> Made | None:
    """Return the published rewind of a branch that made the forks of `paths`; None if none did.

    Raises:
        InvalidInputError: a published rewind made only some of the forks.
    """
    retired = history.head.snapshot.ledger.retired
    found = {
        new.url: made
        for _, new in paths
        if (claim := load_claim(new)) is not None
        and (passed := retired.get(claim.facts.get("old_query_id", ""))) is not None
        and passed.fork == claim.facts.get("query_id")
        and (made := _find_rewind(committer, history, passed.version)) is not None
    }
    if found and len(found) < len(paths):
        raise InvalidInputError(
            "an earlier rewind has forked some of these checkpoints, and not the others. To go on "
            "from it, name only those; to take back more tables, name its forks as the old "
            "checkpoints, each with a new folder, and the others as they are",
            forks=list(found),
            not_forked=[old.url for old, new in paths if new.url not in found],
        )
    return next(iter(found.values()), None)


def _find_rewind(committer: Committer, history: History, version: int) -> Made | None:
    """Return a version of a branch if it is a rewind, or has expired.

    A clone, and a branch to which a rewound branch was published, have the same retired queries,
    but were not rewound. If the version has expired, the ledger is sufficient proof: it came
    together with the content of the rewind.
    """
    if version > history.head.snapshot.version:
        return None
    try:
        stored = history.load(version)
    except SnapshotExpiredError:
        return Made(version=version, stored=None)
    is_own = stored.snapshot.branch_id == committer.branch_id
    is_rewind = is_own and stored.snapshot.operation is Operation.REWIND
    return Made(version=version, stored=stored) if is_rewind else None


def continued_forks(paths: Paths, claims: tuple[Claim, ...]) -> tuple[ForkedQuery, ...]:
    """Return the forks of a rewind that has set back some tables, to set back the others.

    Raises:
        StreamIdentityError: a fork has continued without the other tables.
    """
    forked = []
    for (_, new), claim in zip(paths, claims, strict=True):
        facts = claim.facts
        through, done = facts["offsets_through"], facts["commits_through"]
        cut = Cut(offsets_through=through, commits_through=done)
        if claim.query_id is not None:
            ahead = [batch for batch in load_checkpoint(new).commits if batch > cut.last_done]
            if ahead:
                raise run_on_alone(
                    after_batch=cut.last_planned, ended_batch=ahead[-1], checkpoint=new.url
                )
        forked.append(
            ForkedQuery(
                old_query_id=facts["old_query_id"],
                ancestors=ancestors_of(facts)[1:],
                query_id=facts["query_id"],
                cut=cut,
            )
        )
    return tuple(forked)


def finish_all(paths: Paths) -> None:
    """Finish the forks of a published rewind, so that queries can start on them."""
    for _, new in paths:
        if (claim := load_claim(new)) is not None:
            finish_fork(new, claim.facts["query_id"])


def is_repeated(committer: Committer, history: History, goal: Goal, report: Progress) -> bool:
    """True if the head is an earlier call's rewind to the batch that the goal names.

    The head itself holds no later batch, so the search for the target starts before the head.
    """
    head = history.head.snapshot
    is_rewind = head.operation is Operation.REWIND
    if goal.after_batch is None or not is_rewind or head.version <= head.floor:
        return False
    before = history.as_of(head.version - 1)
    try:
        target = get_target(committer, before, goal, report)
    except (CorruptObjectError, InvalidInputError, NotFoundError, SnapshotExpiredError):
        return False  # the earlier goal was another; the caller reports the error of this one
    return parent_of(target) == head.target


def check_same_goal(
    committer: Committer, history: History, made: Made, goal: Goal, paths: Paths
) -> None:
    """Raise InvalidInputError unless the goal is that of the rewind that made these forks."""
    claims = load_claims(paths) or ()
    check_same_batch(goal, claims)
    made_to = _made_to((history.head.snapshot.table_id, committer.branch_id), made, claims)
    if goal.after_batch is not None or made_to is None:
        return
    if goal.version is not None and not _names(history, goal, made_to):
        raise InvalidInputError(
            "these forks were made by a rewind to another version; name that version, or new "
            "folders for other forks",
            version=goal.version,
            made_to=made_to[1],
            made_as=made.version,
        )


def _made_to(own: tuple[str, str], made: Made, claims: tuple[Claim, ...]) -> tuple[str, int] | None:
    """Return the branch id and version that a rewind went back to; None if unknown."""
    target = None if made.stored is None else made.stored.snapshot.target
    if target is not None:
        return target.branch_id, target.version
    for claim in claims:
        if (claim.facts["table_id"], claim.facts["branch_id"]) == own:
            return claim.facts["target_branch_id"], claim.facts["target_version"]
    return None


def check_same_batch(goal: Goal, claims: tuple[Claim, ...]) -> None:
    """Raise InvalidInputError if an earlier call has cut the forks after another batch."""
    for claim in claims:
        cut = claim.facts.get(AFTER_BATCH, claim.facts["offsets_through"])
        if goal.after_batch is not None and goal.after_batch != cut:
            raise InvalidInputError(
                "an earlier call has cut these forks after another batch; name that batch, or new "
                "folders for other forks",
                after_batch=goal.after_batch,
                cut_after=cut,
            )
