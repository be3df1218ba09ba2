"""How a checkpoint is copied so that a query goes on from an earlier batch. Pure.

A fork keeps of the old checkpoint what its batches up to the cut have made, as it stands, and takes
another query id. Spark then goes on as it would have done after that batch:

- What it must not see of later batches: their offsets and commits, their versions of the state, and
  above all their entries in the log of a file source, which it would take for read but not
  delivered and put into one batch.
- What it needs: the last batch's offsets and those before it, its commit, its state.
- Between `offsets` and `commits` may lie one batch. Spark runs that one again, from the same
  offsets: so a query goes on in the middle of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fuse_stream.checkpoint.files import (
    OFFSETS,
    SOURCES,
    STATE,
    Checkpoint,
    batch_entry,
)
from fuse_stream.checkpoint.offsets import BatchOffsets, log_end, parse_offsets
from fuse_stream.checkpoint.source_log import LogCut, plan_log_cut
from fuse_stream.checkpoint.state import batch_of, loadable_after
from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.storage.base import ObjectInfo


class StateOutcome(StrEnum):
    """What becomes of the state of a query."""

    ABSENT = "absent"
    """It has none."""
    KEPT = "kept"
    """As it was after the last batch that is kept as committed."""
    EMPTY = "empty"
    """The fork starts from nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPlan:
    """Every file of a new checkpoint but for its `metadata`."""

    copies: tuple[ObjectInfo, ...] = ()
    """Files that are taken over as they are, in key order."""
    cuts: Mapping[str, LogCut] = field(default_factory=dict)
    """Logs of file sources that are cut out of a bigger file, by folder (ends in `/`)."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Files that are written anew, by key."""
    batches: tuple[int, ...]
    """Those whose offsets are kept, ascending; empty: the query starts from scratch."""
    state: StateOutcome

    @property
    def file_count(self) -> int:
        return (
            len(self.copies) + sum(len(cut.parts) for cut in self.cuts.values()) + len(self.texts)
        )

    @property
    def byte_size(self) -> int:
        """Return what is copied; the little that is made is not counted."""
        return sum(file.size for file in self.copies)


def forkable_batches(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Return the batches after which a fork can go on, ascending."""
    planned, ended = set(checkpoint.offsets), set(checkpoint.commits)
    found = {batch for batch in planned & ended if batch == 0 or batch - 1 in planned}
    if checkpoint.is_stateful:
        found &= loadable_after((file.key for file in checkpoint.files), found)
    return tuple(sorted(found))


def plan_fork(
    checkpoint: Checkpoint,
    *,
    offsets_through: int | None,
    commits_through: int | None,
    offsets: str | None,
) -> ForkPlan:
    """Return what a fork of `checkpoint` holds.

    Args:
        checkpoint: the old one.
        offsets_through: the last batch whose offsets are kept; None keeps none.
        commits_through: the last batch that counts as done: the same, or the one before, if the
            last batch is to run again. With None the query starts from scratch; what fixes where
            its sources began stays.
        offsets: the text of `offsets/<offsets_through>` (`load_offsets`).

    Raises:
        InvalidInputError: the two batches do not go together.
        NotFoundError: the checkpoint no longer holds, or does not hold yet, what this needs.
    """
    _check_batches(offsets_through, commits_through, offsets)
    planned = -1 if offsets_through is None else offsets_through
    done = -1 if commits_through is None else commits_through
    _check_held(checkpoint, planned, done)
    kept, cuts = cut_sources(
        checkpoint.files,
        kinds=_parsed(checkpoint.last_offsets),
        end=_parsed(offsets),
    )
    starts_empty = commits_through is None
    kept |= {
        file.key
        for file in checkpoint.files
        if not file.key.startswith(SOURCES)
        and not (starts_empty and file.key.startswith(STATE))
        and not _is_later(file.key, planned, done)
    }
    return ForkPlan(
        copies=tuple(file for file in checkpoint.files if file.key in kept),
        cuts=cuts,
        batches=tuple(batch for batch in checkpoint.offsets if batch <= planned),
        state=_fate(checkpoint, starts_empty=starts_empty),
    )


def cut_sources(
    files: tuple[ObjectInfo, ...], kinds: BatchOffsets | None, end: BatchOffsets | None
) -> tuple[set[str], dict[str, LogCut]]:
    """Return which files below `sources/` are kept, and how the logs of file sources are cut.

    Args:
        files: all files of the checkpoint.
        kinds: the offsets of its newest batch, which show which sources read files.
        end: the offsets of the last batch to keep; None keeps none.
    """
    folders: dict[str, list[str]] = {}
    for file in files:
        if file.key.startswith(SOURCES):
            name, _, rest = file.key.removeprefix(SOURCES).partition("/")
            folders.setdefault(name, []).append(rest)
    kept, cuts = set[str](), dict[str, LogCut]()
    for name, names in folders.items():
        folder = f"{SOURCES}{name}/"
        if kinds is None or log_end(kinds.of_folder(name, folders)) is None:
            kept |= {folder + rest for rest in names}  # where the source began
            continue
        last = -1 if end is None else log_end(end.of_folder(name, folders))
        cut = plan_log_cut(names, -1 if last is None else last)
        kept |= {folder + rest for rest in cut.keep}
        if cut.parts:
            cuts[folder] = cut
    return kept, cuts


def _check_batches(
    offsets_through: int | None, commits_through: int | None, offsets: str | None
) -> None:
    planned = -1 if offsets_through is None else offsets_through
    done = -1 if commits_through is None else commits_through
    are_batches = all(batch is None or batch >= 0 for batch in (offsets_through, commits_through))
    is_text_right = (offsets is None) == (offsets_through is None)
    if not are_batches or not is_text_right or planned - done not in {0, 1}:
        raise InvalidInputError(
            "Spark goes on only from a batch that is done, or whose next one is planned: keep "
            "offsets through the same batch as commits or through the one after, and pass its text",
            offsets_through=offsets_through,
            commits_through=commits_through,
        )


def _check_held(checkpoint: Checkpoint, planned: int, done: int) -> None:
    """Raise unless the checkpoint still holds what Spark needs to go on there."""
    needs_offsets = {batch for batch in (planned - 1, planned) if batch >= 0}
    if not needs_offsets <= set(checkpoint.offsets):
        raise _not_held(checkpoint, planned, "the offsets of this batch or the one before")
    if done >= 0 and done not in checkpoint.commits:
        raise _not_held(checkpoint, done, "the commit of this batch")
    if done >= 0 and checkpoint.is_stateful:
        keys = (file.key for file in checkpoint.files)
        if not loadable_after(keys, [done]):
            raise _not_held(checkpoint, done, "the state as it was after this batch")


def _not_held(checkpoint: Checkpoint, batch_id: int, what: str) -> NotFoundError:
    batches = forkable_batches(checkpoint)
    if batches:
        remedy = f"choose one from {batches[0]} to {batches[-1]}"
    else:
        remedy = "no batch of it can be forked: start with a new checkpoint and another app_id"
    return NotFoundError(
        f"the checkpoint does not hold {what}: it is not that far yet, or Spark has cleaned up "
        f"(spark.sql.streaming.minBatchesToRetain); {remedy}",
        checkpoint=checkpoint.url,
        batch_id=batch_id,
    )


def _is_later(key: str, planned: int, done: int) -> bool:
    """Whether a file was made by a batch past the cut."""
    if entry := batch_entry(key):
        log, batch_id = entry
        return batch_id > (planned if log == OFFSETS else done)
    maker = batch_of(key)
    return maker is not None and maker > done


def _fate(checkpoint: Checkpoint, *, starts_empty: bool) -> StateOutcome:
    if not checkpoint.is_stateful:
        return StateOutcome.ABSENT
    return StateOutcome.EMPTY if starts_empty else StateOutcome.KEPT


def _parsed(text: str | None) -> BatchOffsets | None:
    return None if text is None else parse_offsets(text)
