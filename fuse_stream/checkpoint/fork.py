"""Plan a fork: a copy of a checkpoint from which a query continues after an earlier batch. Pure.

A fork has the files that the old checkpoint's batches up to the cut have made, and another query
id. Spark then continues as after that batch:

- It must not find anything of later batches: their offsets and commits, their versions of the
  state, and their entries in the log of a file source. Spark would take those files for read but
  not delivered, and put them all into one batch.
- It needs the offsets of the last batch and of the one before it, its commit and its state.
- There may be offsets for one batch more than commits. Spark runs that batch again from the same
  offsets: so a fork can also continue before a batch that has not finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fuse_stream.checkpoint.files import OFFSETS, SOURCES, STATE, Checkpoint, batch_entry
from fuse_stream.checkpoint.offsets import BatchOffsets, log_end, parse_offsets
from fuse_stream.checkpoint.source_log import LogCut, plan_log_cut
from fuse_stream.checkpoint.state import batch_of, loadable_after
from fuse_stream.errors import InvalidInputError, NotFoundError
from fuse_stream.storage.base import ObjectInfo


class StateOutcome(StrEnum):
    """The state of a query after a fork."""

    ABSENT = "absent"
    """The query has no state."""
    KEPT = "kept"
    """The state is that after the last batch whose commit is kept."""
    EMPTY = "empty"
    """The fork starts without state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPlan:
    """All files of a new checkpoint except `metadata`."""

    copies: tuple[ObjectInfo, ...] = ()
    """Files that are copied, in key order."""
    cuts: Mapping[str, LogCut] = field(default_factory=dict)
    """Logs of file sources of which a part is copied, by folder (ends in `/`)."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """New files: text by key."""
    batches: tuple[int, ...]
    """The batches whose offsets are kept, ascending; empty: the query starts from the beginning."""
    state: StateOutcome

    @property
    def file_count(self) -> int:
        return (
            len(self.copies) + sum(len(cut.parts) for cut in self.cuts.values()) + len(self.texts)
        )

    @property
    def byte_size(self) -> int:
        """The size of the copied files; new files are small and not counted."""
        return sum(file.size for file in self.copies)


def forkable_batches(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Return the batches after which a fork can continue, ascending."""
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
    """Return the plan of a fork of `checkpoint`.

    Args:
        checkpoint: the old checkpoint.
        offsets_through: the last batch whose offsets are kept; None keeps none.
        commits_through: the last batch whose commit is kept: the same batch, or the one before it
            if the last batch shall run again. With None the query starts from the beginning; the
            files that fix the start of its sources are kept.
        offsets: the text of `offsets/<offsets_through>` (`load_offsets`).

    Raises:
        InvalidInputError: the two batches do not fit together.
        NotFoundError: the checkpoint no longer has, or does not have yet, the necessary files.
    """
    _check_batches(offsets_through, commits_through, offsets)
    planned = -1 if offsets_through is None else offsets_through
    done = -1 if commits_through is None else commits_through
    _check_held(checkpoint, planned, done)
    kept, cuts = cut_sources(
        checkpoint.files, kinds=_parsed(checkpoint.last_offsets), end=_parsed(offsets)
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
        state=_state_of(checkpoint, starts_empty=starts_empty),
    )


def with_texts(plan: ForkPlan, texts: Mapping[str, str]) -> ForkPlan:
    """Return a plan with new texts, by key, in place of files that it copies."""
    return replace(
        plan,
        copies=tuple(file for file in plan.copies if file.key not in texts),
        texts={**plan.texts, **texts},
    )


def cut_sources(
    files: tuple[ObjectInfo, ...], kinds: BatchOffsets | None, end: BatchOffsets | None
) -> tuple[set[str], dict[str, LogCut]]:
    """Return the files below `sources/` to keep, and the cuts of file sources' logs by folder.

    Args:
        files: all files of the checkpoint.
        kinds: the offsets of its newest batch, which show the kind of each source.
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
            kept |= {folder + rest for rest in names}  # the start of the source
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
            "Spark continues only after a finished batch, with at most one planned batch after it: "
            "keep offsets through the same batch as commits or through the next one, and pass its "
            "text",
            offsets_through=offsets_through,
            commits_through=commits_through,
        )


def _check_held(checkpoint: Checkpoint, planned: int, done: int) -> None:
    """Raise unless the checkpoint has the files that Spark needs to continue there."""
    needs_offsets = {batch for batch in (planned - 1, planned) if batch >= 0}
    if not needs_offsets <= set(checkpoint.offsets):
        raise _not_held(checkpoint, planned, "the offsets of this batch or the one before")
    if done >= 0 and done not in checkpoint.commits:
        raise _not_held(checkpoint, done, "the commit of this batch")
    if done >= 0 and checkpoint.is_stateful:
        keys = (file.key for file in checkpoint.files)
        if not loadable_after(keys, [done]):
            raise _not_held(checkpoint, done, "the state after this batch")


def _not_held(checkpoint: Checkpoint, batch_id: int, what: str) -> NotFoundError:
    batches = forkable_batches(checkpoint)
    if batches:
        remedy = f"choose one from {batches[0]} to {batches[-1]}"
    else:
        remedy = "it cannot be forked after any batch: use a new checkpoint and another app_id"
    return NotFoundError(
        f"the checkpoint does not have {what}: the batch has not run yet, or Spark has deleted "
        f"old files (spark.sql.streaming.minBatchesToRetain); {remedy}",
        checkpoint=checkpoint.url,
        batch_id=batch_id,
    )


def _is_later(key: str, planned: int, done: int) -> bool:
    """True if a batch after the cut made the file."""
    if entry := batch_entry(key):
        log, batch_id = entry
        return batch_id > (planned if log == OFFSETS else done)
    maker = batch_of(key)
    return maker is not None and maker > done


def _state_of(checkpoint: Checkpoint, *, starts_empty: bool) -> StateOutcome:
    if not checkpoint.is_stateful:
        return StateOutcome.ABSENT
    return StateOutcome.EMPTY if starts_empty else StateOutcome.KEPT


def _parsed(text: str | None) -> BatchOffsets | None:
    return None if text is None else parse_offsets(text)
