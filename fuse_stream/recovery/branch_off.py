"""Give all tables of a pipeline a branch of one name, with forks of their queries.

The branches are made from the last table to the first, while queries may run: so each branch has
all that the tables made from it have read. Then the branches are rewound together: each query gets
a fork that ends where its branch does, and reads the branches of its sources. Without a goal no row
changes.

The process may die between any two calls. Before it makes a branch, a tag in the first table says
that no table had an older branch of this name; it is deleted when all is done. So the same call,
made again, knows the branches that it has made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fuse_stream.checkpoint.files import load_checkpoint
from fuse_stream.commit.committer import Committer
from fuse_stream.errors import AlreadyExistsError, NotFoundError, StreamIdentityError
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.names import check_new_name
from fuse_stream.format.one_line import one_line
from fuse_stream.format.refs import BranchRef
from fuse_stream.objects.refs import find_tag, load_branch
from fuse_stream.reading.history import History
from fuse_stream.recovery.forks import Paths
from fuse_stream.recovery.holds import RETAIN_US, drop_tag
from fuse_stream.recovery.pipeline import Member, Pipeline
from fuse_stream.recovery.repeated import find_published, load_claims
from fuse_stream.recovery.rewind import PipelineRewind, rewind_tables
from fuse_stream.recovery.target import Goal, Progress
from fuse_stream.refs.create import create_branch, create_tag

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
    are_forks_planned = load_claims(checkpoints) is not None
    if checkpoints and not are_forks_planned:
        told = rewind_tables(committers, goal, checkpoints=checkpoints, dry_run=True)
        if told.obstacles:
            raise told.obstacles[0]
    first, tag = committers[0], _tag_of(name, checkpoints)
    is_begun = find_tag(first.metadata, tag) is not None
    members = _sorted(committers, checkpoints)
    left = {
        member.number: ref
        for member in members
        if (ref := _find_left(member, name, on_branch, checkpoints, is_begun=is_begun)) is not None
    }
    if not (is_begun or are_forks_planned):
        with suppress(AlreadyExistsError):  # the same call runs beside this one
            create_tag(first, tag, retain_us=RETAIN_US)
    made = dict(left)
    for member in reversed(members):
        if member.number not in left:
            made[member.number] = create_branch(member.committer, name)
    branches = tuple(made[number] for number in range(len(committers)))
    done = None
    if checkpoints:
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
                f"{error.message}. Or the branches that an earlier call has left are older than "
                "the checkpoints are now: delete them, and call again with new folders",
                **error.context,
                branches_left=[member.url for member in members if member.number in left],
            ) from error
    drop_tag(first, tag)
    return PipelineBranch(branches=branches, rewind=done)


def _tag_of(name: str, checkpoints: Paths) -> str:
    """Return the name of the tag of a call; the same call, made again, has the same."""
    facts = "\n".join((name, *sorted(fork.url for _, fork in checkpoints)))
    return f"branch-{sha256_hex(facts.encode())[:16]}"


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
    member: Member, name: str, on_branch: OnBranch, checkpoints: Paths, *, is_begun: bool
) -> BranchRef | None:
    """Return the branch that an earlier call has made, if that call did not finish.

    `is_begun` says that there was such a call. Without one, return a branch only if it does not
    differ from what the table has now.

    Raises:
        AlreadyExistsError: there is another branch of this name.
        InvalidInputError: no branch may have this name.
    """
    try:
        ref = load_branch(member.committer.metadata, name)
    except NotFoundError:
        check_new_name(name)
        return None
    committer = on_branch(member.committer, ref)
    history = History(committer.metadata, committer.head())
    if find_published(committer, history, checkpoints) is not None:
        return ref
    if history.head.snapshot.branch_id == ref.branch_id:
        raise AlreadyExistsError(
            "there is a branch of this name, with commits of its own: name another one, or delete "
            "it",
            branch=name,
            table=member.url,
        )
    if history.head.sha256 != member.head.sha256 and not is_begun:
        raise AlreadyExistsError(
            "there is a branch of this name that this call has not made, and the table has changed "
            "since: name another one; or delete it, so that the new one has what the table has now",
            branch=name,
            forked_at=history.head.snapshot.version,
            head=member.head.snapshot.version,
            table=member.url,
        )
    return ref
