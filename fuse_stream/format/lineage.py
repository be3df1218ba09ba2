"""Which slots hold the versions of a branch. Pure.

A branch shares the slots of the branches before it, each up to where the next one forked off; only
what was committed to the branch itself stands in slots of its own. Versions go on counting: the
first commit of a branch that forked off version 9 is version 10.
"""

from __future__ import annotations

from fuse_stream.format.records import Parent

Forks = tuple[Parent, ...]
"""Where a branch and those before it forked off, oldest first, versions growing."""


def owner_of(forks: Forks, branch_id: str, version: int) -> str:
    """Return the id of the branch in whose slot a version of `branch_id` stands."""
    return next((fork.branch_id for fork in forks if version <= fork.version), branch_id)


def fork_at(forks: Forks, target: Parent) -> Forks:
    """Return the forks of a branch that forks off `target`, which the line of `forks` holds."""
    return (*(fork for fork in forks if fork.version < target.version), target)


def last_shared(one: tuple[Forks, str], other: tuple[Forks, str], *, most: int) -> int:
    """Return the last version, up to `most`, that two branches have in one slot."""
    ends = {most} | {fork.version for forks, _ in (one, other) for fork in forks}
    return max(
        (end for end in ends if end <= most and owner_of(*one, end) == owner_of(*other, end)),
        default=0,
    )
