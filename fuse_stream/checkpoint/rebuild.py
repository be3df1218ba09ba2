"""A lost checkpoint made again, from the offsets that the table kept of its last batch. Pure.

The ledger holds the texts of `offsets/<b>` and `offsets/<b - 1>` for the batch b that it committed
last. With the lost query's own id they are a checkpoint after which Spark plans batch b + 1, if the
offsets say it all:

| source | its offset | what else it needs |
| --- | --- | --- |
| fuse | table, branch, version, snapshot, index | nothing |
| Kafka | next offset by topic and partition | nothing |
| files | number of an entry of its own log | the old `sources/` |
| rate | seconds since its start | the old `sources/`, which holds the start |

State cannot be made again, and whether there was any is not in these texts: they name the state
store's settings of every query, stateful or not. What shows it is a watermark, or the old `state/`.
Where neither does, Spark finds out: the first batch of a stateful query asks for a version of the
state that is not there, and fails.
"""

from __future__ import annotations

from fuse_stream.checkpoint.files import (
    COMMITS,
    OFFSETS,
    SOURCES,
    STATE,
    entry_key,
)
from fuse_stream.checkpoint.offsets import (
    NOTHING_YET,
    BatchOffsets,
    log_end,
    offset_value,
    parse_offsets,
)
from fuse_stream.checkpoint.plan import ForkPlan, StateOutcome, cut_sources
from fuse_stream.errors import InvalidInputError, StreamIdentityError
from fuse_stream.format.source_offset import offset_from_json
from fuse_stream.storage.base import ObjectInfo

_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'

_INSTEAD = (
    "start the query with a new checkpoint, under another app_id or with adopt= the lost query's id"
)


def plan_rebuild(
    batch_id: int,
    *,
    offsets: str,
    previous: str | None,
    survivors: tuple[ObjectInfo, ...] = (),
) -> ForkPlan:
    """Return a checkpoint after which Spark goes on with the batch after `batch_id`.

    `store_fork` and `finish_fork` make it, with the lost query's id.

    Args:
        batch_id: the last batch that the table holds.
        offsets: the text of its offsets.
        previous: the text of the offsets before it; None for batch 0.
        survivors: what is left of the lost checkpoint (`list_files`), if anything is.

    Raises:
        InvalidInputError: these texts do not tell enough; the message says what to do instead.
        NotFoundError: entries of a file source's log are lost.
        CorruptObjectError: a text is not that of a batch's offsets.
        UnsupportedFormatError: a newer Spark wrote it.
    """
    if batch_id < 0 or (previous is None) != (batch_id == 0):
        raise InvalidInputError(
            "Spark needs the offsets of the last batch and of the one before it; without them, "
            + _INSTEAD,
            batch_id=batch_id,
        )
    last = parse_offsets(offsets)
    ends = {batch_id: offsets} if previous is None else {batch_id - 1: previous, batch_id: offsets}
    if any(len(parse_offsets(text).lines) != len(last.lines) for text in ends.values()):
        raise InvalidInputError(
            "the last two batches have different sources, so this checkpoint cannot be made again; "
            + _INSTEAD,
            batch_id=batch_id,
        )
    _check_stateless(last, survivors)
    for index, line in enumerate(last.lines):
        name = str(index) if last.names is None else last.names[index]
        _check_source(name, line, survivors)
    kept, cuts = cut_sources(survivors, kinds=last, end=last)
    texts = {entry_key(OFFSETS, batch): text for batch, text in ends.items()}
    return ForkPlan(
        copies=tuple(file for file in survivors if file.key in kept),
        cuts=cuts,
        texts=texts | {entry_key(COMMITS, batch): _COMMIT for batch in ends},
        batches=tuple(ends),
        state=StateOutcome.ABSENT,
    )


def _check_stateless(last: BatchOffsets, survivors: tuple[ObjectInfo, ...]) -> None:
    if last.watermark_ms > 0 or any(file.key.startswith(STATE) for file in survivors):
        raise InvalidInputError(
            f"this query keeps state (it has a watermark, or a folder `state`), and state cannot "
            f"be made again; restore the checkpoint from a backup, or {_INSTEAD}",
            watermark_ms=last.watermark_ms,
        )


def _check_source(name: str, line: str, survivors: tuple[ObjectInfo, ...]) -> None:
    """Raise unless the source `name` can go on from `line`."""
    if line == NOTHING_YET or _stands_for_itself(line):
        return
    folder = f"{SOURCES}{name}/"
    is_rate = type(offset_value(line)) is int
    if log_end(line) is None and not is_rate:
        raise InvalidInputError(
            f"a source has offsets of a kind that may not stand for themselves; {_INSTEAD}",
            source=name,
            offset=line[:200],
        )
    # By its very number: where a source is read twice, a folder would be that of another one.
    keys = [file.key for file in survivors if file.key.startswith(folder)]
    if not keys or (is_rate and f"{folder}0" not in keys):
        raise InvalidInputError(
            "the offsets of this source mean nothing without its folder in the old checkpoint's "
            f"`sources`; pass what is left of it, or {_INSTEAD}",
            folder=folder,
            offset=line[:200],
        )


def _stands_for_itself(line: str) -> bool:
    """Whether an offset is one of a fuse table, or one of Kafka."""
    value = offset_value(line)
    if not isinstance(value, dict):
        return False
    try:
        offset_from_json(value)
    except StreamIdentityError:
        return bool(value) and all(_is_topic(topic) for topic in value.values())
    return True


def _is_topic(topic: object) -> bool:
    return isinstance(topic, dict) and all(
        partition.isdecimal() and type(offset) is int for partition, offset in topic.items()
    )
