"""The files of a streaming query's checkpoint.

| path | content |
| --- | --- |
| metadata | the query's id, as JSON; written once, first of all |
| offsets/<batch> | the end offset of each source in the batch; written before the batch runs |
| commits/<batch> | written when the batch has finished |
| sources/<n>/ | files of source n: its log of files, or its start |
| state/<operator>/<partition>/ | the state; batch b makes version b + 1 |

Checksums (`*.crc`) and hidden or temporary files are ignored: Spark reads a file without a
checksum, but refuses a file with the checksum of another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fuse_stream.errors import CorruptObjectError, InvalidInputError, NotFoundError
from fuse_stream.format.forked import Ancestor, ancestors_in, rebuilt_from_in
from fuse_stream.format.jsonio import load_json
from fuse_stream.storage.base import ObjectInfo, Store

METADATA = "metadata"
OFFSETS = "offsets"
COMMITS = "commits"
SOURCES = "sources/"
STATE = "state/"

UNFINISHED = b"unfinished_checkpoint__run_the_command_that_makes_it_again"
"""The beginning of `metadata` until all other files exist. It is one word that is not JSON, so
Spark 4.2 and 4.3 refuse to start and quote it in their error."""

_NOT_PART_OF_IT = re.compile(r"(^|/)\.|\.(crc|tmp)$")
_BATCH_ENTRY = re.compile(r"(offsets|commits)/(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint: its listing and the content of two small files."""

    url: str
    query_id: str
    ancestors: tuple[Ancestor, ...]
    """The queries from whose checkpoints this one was forked, the nearest first."""
    rebuilt_from: Ancestor | None
    """The query whose lost checkpoint was rebuilt as this one, if that has another query id."""
    files: tuple[ObjectInfo, ...]
    """All but `metadata`, in key order."""
    offsets: tuple[int, ...]
    """The planned batches, ascending; Spark deletes the files of all but the last 100."""
    commits: tuple[int, ...]
    """The finished batches, ascending."""
    last_offsets: str | None
    """The text of the newest file in `offsets`; it shows the kind of each source."""

    @property
    def is_stateful(self) -> bool:
        return any(file.key.startswith(STATE) for file in self.files)


def entry_key(log: str, batch_id: int) -> str:
    """Return the key of a batch in `log`, which is `OFFSETS` or `COMMITS`."""
    return f"{log}/{batch_id}"


def batch_entry(key: str) -> tuple[str, int] | None:
    """Return the log and the batch of a key in `offsets` or `commits`; None for other keys."""
    found = _BATCH_ENTRY.fullmatch(key)
    return (found[1], int(found[2])) if found else None


def load_checkpoint(store: Store) -> Checkpoint:
    """Return the checkpoint in `store`.

    Raises:
        NotFoundError: there is no checkpoint, or its `metadata` is lost.
        InvalidInputError: the command that makes it has not finished.
        CorruptObjectError: its `metadata` cannot be read.
    """
    files = list_files(store)
    batches: dict[str, list[int]] = {OFFSETS: [], COMMITS: []}
    for file in files:
        if entry := batch_entry(file.key):
            log, batch = entry
            batches[log].append(batch)
    offsets = tuple(sorted(batches[OFFSETS]))
    query_id, metadata = _load_identity(store)
    return Checkpoint(
        url=store.url,
        query_id=query_id,
        ancestors=ancestors_in(metadata),
        rebuilt_from=rebuilt_from_in(metadata),
        files=files,
        offsets=offsets,
        commits=tuple(sorted(batches[COMMITS])),
        last_offsets=load_offsets(store, offsets[-1]) if offsets else None,
    )


def list_files(store: Store) -> tuple[ObjectInfo, ...]:
    """Return the files of a complete or damaged checkpoint, without `metadata`."""
    return tuple(
        file
        for file in store.list("")
        if file.key != METADATA and not _NOT_PART_OF_IT.search(file.key)
    )


def load_offsets(store: Store, batch_id: int) -> str:
    """Return the text of `offsets/<batch_id>`.

    Raises:
        NotFoundError: Spark has not planned this batch yet, or has deleted its offsets.
        CorruptObjectError: the file is not UTF-8 text.
    """
    try:
        return store.get(entry_key(OFFSETS, batch_id)).decode()
    except NotFoundError as error:
        raise NotFoundError(
            "the checkpoint has no offsets of this batch: it was not planned yet, or Spark has "
            "deleted them (it keeps spark.sql.streaming.minBatchesToRetain batches); choose "
            "another batch",
            checkpoint=store.url,
            batch_id=batch_id,
        ) from error
    except UnicodeDecodeError as error:
        raise CorruptObjectError(
            "the offsets of this batch are not text; restore the checkpoint from a backup",
            checkpoint=store.url,
            batch_id=batch_id,
        ) from error


def load_last_offsets(store: Store, last: int | None) -> dict[int, str]:
    """Return the texts of the offsets of batch `last` and of the one before, if they exist."""
    if last is None:
        return {}
    keys = {file.key for file in list_files(store)}
    batches = (batch for batch in (last - 1, last) if entry_key(OFFSETS, batch) in keys)
    return {batch: load_offsets(store, batch) for batch in batches}


def _load_identity(store: Store) -> tuple[str, object]:
    try:
        data = store.get(METADATA)
    except NotFoundError as error:
        raise NotFoundError(
            "there is no Spark checkpoint here: a file `metadata` is missing; name the folder "
            "that the query has as its checkpointLocation",
            checkpoint=store.url,
        ) from error
    if data.startswith(UNFINISHED):
        raise InvalidInputError(
            "this checkpoint is not finished; run the command that makes it once more",
            checkpoint=store.url,
        )
    try:
        metadata = load_json(data)
        query_id = metadata["id"]
    except (CorruptObjectError, KeyError, TypeError) as error:
        raise _broken_metadata(store) from error
    if not isinstance(query_id, str):
        raise _broken_metadata(store)
    return query_id, metadata


def _broken_metadata(store: Store) -> CorruptObjectError:
    return CorruptObjectError(
        'the checkpoint\'s `metadata` is not {"id": "..."}, as Spark writes it; restore it from a '
        "backup",
        checkpoint=store.url,
    )
