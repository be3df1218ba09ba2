"""Plan the rebuild of a lost checkpoint, from the source offsets in the ledger. Pure.

The ledger has the texts of `offsets/<b>` and `offsets/<b - 1>` for the last committed batch b. With
the lost query's id they make a checkpoint after which Spark plans batch b + 1, if the sources need
nothing else:

| source | its offset | what else it needs |
| --- | --- | --- |
| fuse | table, branch, version, snapshot, index | nothing |
| Kafka | next offset by topic and partition | nothing |
| files | number of an entry of its own log | the old `sources/` |
| rate | seconds since its start | the old `sources/`, which holds the start |

State cannot be rebuilt. The texts do not show whether the query had state: they have the settings
of the state store for every query. A watermark or the old folder `state/` shows it. Without these,
the first batch of a stateful query fails in Spark, because its version of the state is missing.
"""

from __future__ import annotations

from fuse_stream.checkpoint.files import COMMITS, OFFSETS, SOURCES, STATE, entry_key
from fuse_stream.checkpoint.fork import ForkPlan, StateOutcome, cut_sources
from fuse_stream.checkpoint.offsets import (
    NOTHING_YET,
    log_end,
    offset_value,
    parse_offsets,
)
from fuse_stream.errors import InvalidInputError, StreamIdentityError
from fuse_stream.format.source_offset import offset_from_json
from fuse_stream.storage.base import ObjectInfo

_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'

_INSTEAD = (
    "start the query with a new checkpoint, under another app_id or with adopt= the lost query's id"
)


def plan_rebuild(
    batch_id: int, *, offsets: str, previous: str | None, survivors: tuple[ObjectInfo, ...] = ()
) -> ForkPlan:
    """Return the plan of a checkpoint after which Spark continues with batch `batch_id + 1`.

    `store_fork` and `finish_fork` write it, with the lost query's id.

    Args:
        batch_id: the last batch in the table.
        offsets: the text of its offsets.
        previous: the text of the previous batch's offsets; None for batch 0.
        survivors: the remaining files of the lost checkpoint (`list_files`).

    Raises:
        InvalidInputError: the texts are not sufficient; the message says what to do instead.
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
            "the last two batches have different sources, so this checkpoint cannot be rebuilt; "
            + _INSTEAD,
            batch_id=batch_id,
        )
    if last.watermark_ms > 0 or any(file.key.startswith(STATE) for file in survivors):
        raise InvalidInputError(
            f"this query keeps state (it has a watermark, or a folder `state`), and state cannot "
            f"be rebuilt; restore the checkpoint from a backup, or {_INSTEAD}",
            watermark_ms=last.watermark_ms,
        )
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


def _check_source(name: str, line: str, survivors: tuple[ObjectInfo, ...]) -> None:
    """Raise unless the source `name` can continue from the offset `line`."""
    if line == NOTHING_YET or _is_complete(line):
        return
    folder = f"{SOURCES}{name}/"
    is_rate = type(offset_value(line)) is int
    if log_end(line) is None and not is_rate:
        raise InvalidInputError(
            f"a source has offsets of an unknown kind, which may not be sufficient; {_INSTEAD}",
            source=name,
            offset=line[:200],
        )
    # Only the folder of this number: if a source is read twice, others belong to other sources.
    keys = [file.key for file in survivors if file.key.startswith(folder)]
    if not keys or (is_rate and f"{folder}0" not in keys):
        raise InvalidInputError(
            "the offsets of this source have no meaning without its folder in the old checkpoint's "
            f"`sources`; pass what is left of the old checkpoint, or {_INSTEAD}",
            folder=folder,
            offset=line[:200],
        )


def _is_complete(line: str) -> bool:
    """True if an offset needs no files: it is that of a fuse table or of Kafka."""
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
