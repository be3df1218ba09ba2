"""Whether a call that rewinds is an earlier one, run again."""

from __future__ import annotations

from fuse_stream.checkpoint.write import Claim
from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import parent_of
from fuse_stream.errors import InvalidInputError, NotFoundError, SnapshotExpiredError
from fuse_stream.format.names import parse_version
from fuse_stream.format.records import Operation
from fuse_stream.reading.history import History
from fuse_stream.recovery.forks import Made
from fuse_stream.recovery.target import Goal, Progress, get_target


def is_repeated(committer: Committer, history: History, goal: Goal, report: Progress) -> bool:
    """Whether the head is the rewind to the batch that the goal names, as an earlier call made it.

    The head then is the newest version that holds no later batch, so it is looked for before it.
    """
    head = history.head.snapshot
    is_rewind = head.operation is Operation.REWIND
    if goal.after_batch is None or not is_rewind or head.version <= head.floor:
        return False
    before = History(history.metadata, history.load(head.version - 1))
    try:
        target = get_target(committer, before, goal, report)
    except (InvalidInputError, NotFoundError, SnapshotExpiredError):
        return False  # it was another goal; what is wrong with this one is said on the head
    return parent_of(target) == head.target


def check_same_goal(
    committer: Committer, history: History, made: Made, goal: Goal, claims: tuple[Claim, ...]
) -> None:
    """Refuse another goal than the one of the rewind that made these forks."""
    check_same_batch(goal, claims)
    made_to = _made_to((history.head.snapshot.table_id, committer.branch_id), made, claims)
    if goal.after_batch is not None or made_to is None:
        return
    try:
        target = history.get_snapshot(goal.version, timestamp=goal.timestamp)
        is_same = (target.snapshot.branch_id, target.snapshot.version) == made_to
    except SnapshotExpiredError:  # what was gone back to may have expired since
        is_same = goal.version is None or parse_version(goal.version).number == made_to[1]
    if goal.version is not None and not is_same:
        raise InvalidInputError(
            "the forks of these checkpoints were made by a rewind to another version; name that "
            "one, or new folders for other forks",
            version=goal.version,
            made_to=made_to[1],
            made_as=made.version,
        )


def _made_to(own: tuple[str, str], made: Made, claims: tuple[Claim, ...]) -> tuple[str, int] | None:
    """Return the branch id and version that a rewind went back to; None if nothing tells now."""
    target = None if made.stored is None else made.stored.snapshot.target
    if target is not None:
        return target.branch_id, target.version
    for claim in claims:
        if (claim.facts["table_id"], claim.facts["branch_id"]) == own:
            return claim.facts["target_branch_id"], claim.facts["target_version"]
    return None


def check_same_batch(goal: Goal, claims: tuple[Claim, ...]) -> None:
    """Refuse another batch than the one that the forks were cut after by an earlier call."""
    for claim in claims:
        cut = claim.facts["offsets_through"]
        if goal.after_batch is not None and goal.after_batch != cut:
            raise InvalidInputError(
                "the forks of these checkpoints were cut after another batch by an earlier call; "
                "name that one, or new folders for other forks",
                after_batch=goal.after_batch,
                cut_after=cut,
            )
