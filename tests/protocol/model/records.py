"""The model's records, its constants, and the rules that can be left out."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tests.protocol.model.store import Key

CHUNK = 2
"""Versions under one marker; 1,000 in a real table."""
GRACE = 4
"""Ticks. A commit is trusted for a quarter of it."""
AGE = 4
"""The vacuum age, in ticks."""
BELIEVED = GRACE // 4
NEVER = -1
"""A time before all others."""
MAIN = "main"
LOST = "the reply was lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Each prevents a loss. A name says what is done while the rule holds."""

    marker_before_freeing: bool = True
    """A slot is freed only after the marker of its chunk was created."""
    marker_before_end: bool = True
    """A missing slot is the end only if its chunk has no marker."""
    marker_after_slot: bool = True
    """The marker is asked for after the slot was found missing, not before or at the same time."""
    marker_when_late: bool = True
    """A head that was read longer than a quarter of the grace ago does not stand for the marker."""
    marker_before_belief: bool = True
    """A put whose acknowledgement came late counts only while its chunk has no marker."""
    unknown_without_ledger: bool = True
    """A doubtful put that no ledger entry can prove is reported, not done again."""
    floor_in_snapshot: bool = True
    """The floor is raised by a commit, not in an object of its own."""
    fence_before_refs: bool = True
    """Vacuum reads the refs after it has raised the floors."""
    fence_every_branch: bool = True
    """It does so until it has fenced every branch among the refs."""
    fence_after_refs: bool = True
    """It fences once more after that, before it marks."""
    bounds_before_refs: bool = True
    """The second fence raises no epoch; floors and ages are those of the first one."""
    look_again_after_ref: bool = True
    """A process that writes a tag, branch or lease reads the head after it, and may undo it."""
    floor_of_very_head: bool = True
    """A rewind checks its target on each head that it builds on."""
    source_of_very_head: bool = True
    """A publish reads its branch, and the branch's head, for each head that it builds on."""
    floor_over_tags: bool = True
    """A rewind to a tag needs a target that the floor has not passed, like any other."""
    floor_in_branch: bool = True
    """A branch starts with the floor of its parent's head, and is undone if that rises meanwhile:
    the snapshot that it forks from holds an older floor."""
    made_branch: bool = True
    """No process builds on a branch before its creator has checked it again and confirmed it."""
    age_from_epochs: bool = True
    """What vacuum deletes is older than the last epoch but one, not just old."""
    put_again_after_epochs: bool = True
    """A commit on a head two epochs on puts its objects again."""
    base_before_objects: bool = True
    """The epoch that a commit remembers is of a head read before its first object."""
    age_from_successor: bool = True
    """A snapshot's age runs from when it was superseded."""
    marks_from_lease: bool = True
    """A lease keeps every version from its position on, not that version only."""
    epochs_apart: bool = True
    """The epoch is raised once in a vacuum's age at the most."""
    continuity: bool = True
    """A later batch counts only if its checkpoint planned the last one as the ledger has it."""
    orphans_by_age: bool = True
    """Slots without a ref are deleted by age too: their branch may be younger than the listing."""


ALL_RULES = Rules()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """A version of a branch. Made by `snapshot`, so that equal ones are one object."""

    branch: str
    version: int
    name: str
    """Drawn once for a logical commit."""
    parent: str
    operation: str
    blocks: frozenset[tuple[str, str]]
    """(batch, object): the batch of the rows, and the object that holds them."""
    ledger: frozenset[str]
    """The batches that are in the table, or were deleted from it otherwise than by a rewind."""
    floor: int
    epoch: int
    raised_at: int
    """The version that raised the epoch last."""
    since: int | None
    """When, by the store's time, as far as a later expire commit has learned it."""
    since_previous: int
    """When the raise before it was."""

    def __repr__(self) -> str:
        content = " ".join(sorted(batch for batch, _ in self.blocks))
        return (
            f"{self.branch}@{self.version} {self.operation} by {self.name}"
            f" [{content}] floor={self.floor} epoch={self.epoch}"
        )


@functools.cache
def snapshot(**values: object) -> Snapshot:
    return Snapshot(**values)  # type: ignore[arg-type]  # the fields, by name


def replaced(old: Snapshot, **changes: object) -> Snapshot:
    values = {name: getattr(old, name) for name in Snapshot.__dataclass_fields__}
    return snapshot(**{**values, **changes})


def slot(branch: str, version: int) -> Key:
    return ("slot", branch, version)


def marker(branch: str, version: int) -> Key:
    return ("marker", branch, version // CHUNK)
