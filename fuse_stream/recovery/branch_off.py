"""Give all tables of a pipeline a branch of one name, with forks of their queries.

The branches are made from the last table to the first, while queries may run: so each branch has
all that the tables made from it have read. Then the branches are rewound together: each query gets
a fork that ends where its branch does, and reads the branches of its sources. Without a goal no row
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.commit.committer import Committer
from fuse_stream.errors import AlreadyExistsError, NotFoundError, StreamIdentityError
from fuse_stream.format.one_line import one_line
from fuse_stream.format.refs import BranchRef
from fuse_stream.objects.refs import load_branch
from fuse_stream.reading.history import History
from fuse_stream.recovery.forks import Paths
from fuse_stream.recovery.pipeline import Member, Pipeline
from fuse_stream.recovery.repeated import find_published, load_claims
from fuse_stream.recovery.rewind import PipelineRewind, rewind_tables
from fuse_stream.recovery.target import Goal, Progress
from fuse_stream.refs.create import create_branch

OnBranch = Callable[[Committer, BranchRef], Committer]
"""Returns the committer of a branch of the same table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineBranch:
    """The branches of several tables, and the forks of their queries.

    Attributes:
        branches: the new branches, in the order of the call.
        rewind: how the branches and the forks were set back; None if no checkpoint was named.
    """

    branches: tuple[BranchRef, ...]
    rewind: PipelineRewind | None

    __repr__ = one_line("branches rewind")


def branch_tables(
    committers: Sequence[Committer],
    name: str,
    goal: Goal,
    *,
    on_branch: OnBranch,
    checkpoints: Paths = (),
    author: str = "",
    message: str = "",
    progress: Progress | None = None,
) -> PipelineBranch:
    """Make the branches and forks; errors and arguments of `fuse_stream.branch`."""
    if checkpoints and load_claims(checkpoints) is None:
        told = rewind_tables(committers, goal, checkpoints=checkpoints, dry_run=True)
        if told.obstacles:
            raise told.obstacles[0]
    made: dict[int, BranchRef] = {}
    left: list[str] = []
    for member in reversed(_sorted(committers, checkpoints)):
        found = _find_left(member, name, on_branch, checkpoints)
        made[member.number] = found or create_branch(member.committer, name)
        left += [member.url] if found else []
    branches = tuple(made[number] for number in range(len(committers)))
    if not checkpoints:
        return PipelineBranch(branches=branches, rewind=None)
    try:
        done = rewind_tables(
            [on_branch(one, ref) for one, ref in zip(committers, branches, strict=True)],
            goal,
            checkpoints=checkpoints,
            author=author,
            message=message,
            progress=progress,
        )
    except StreamIdentityError as error:
        if not left:
            raise
        raise StreamIdentityError(
            f"{error.message}. Or the branches that an earlier call has left are older than the "
            "checkpoints are now: delete them, and call again with new folders",
            **error.context,
            branches_left=left,
        ) from error
    return PipelineBranch(branches=branches, rewind=done)


def _sorted(committers: Sequence[Committer], checkpoints: Paths) -> tuple[Member, ...]:
    """Return the tables, each after those that it is made from."""
    members = [
        Member(
            number=number,
            committer=committer,
            history=History(committer.metadata, committer.head()),
            made=None,
        )
        for number, committer in enumerate(committers)
    ]
    pipeline = Pipeline(members)
    for source, _ in checkpoints:
        pipeline.add_checkpoint(load_checkpoint(source))
    return pipeline.sorted()


def _find_left(
    member: Member, name: str, on_branch: OnBranch, checkpoints: Paths
) -> BranchRef | None:
    """Return the branch that an earlier call has made, if that call did not finish.

    Raises:
        AlreadyExistsError: there is a branch of this name with commits of its own.
    """
    try:
        ref = load_branch(member.committer.metadata, name)
    except NotFoundError:
        return None
    committer = on_branch(member.committer, ref)
    history = History(committer.metadata, committer.head())
    is_new = history.head.snapshot.branch_id != ref.branch_id
    if is_new or find_published(committer, history, checkpoints) is not None:
        return ref
    raise AlreadyExistsError(
        "there is a branch of this name, with commits of its own: name another one, or delete it",
        branch=name,
        table=member.url,
    )
