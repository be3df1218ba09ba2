"""What the checkpoint of a streaming query holds, seen from its files.

| path | what it is |
| --- | --- |
| metadata | the query's id, as JSON; written first, never again |
| offsets/<batch> | how far the batch reads each source; written before it runs |
| commits/<batch> | the batch has run to its end |
| sources/<n>/ | what source n keeps for itself: a log of files, or where it began |
| state/<operator>/<partition>/ | the state; batch b makes version b + 1 |

Checksums (`*.crc`) and hidden or temporary files are not part of it: Spark reads a file that has no
checksum, and would refuse one whose checksum is another file's.
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
"""How `metadata` starts until all else is there. One word and no JSON: Spark 4.2 and 4.3 refuse to
start on it, and their error quotes it."""

_NOT_PART_OF_IT = re.compile(r"(^|/)\.|\.(crc|tmp)$")
_BATCH_ENTRY = re.compile(r"(offsets|commits)/(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One listing of a checkpoint, and two small files of it."""

    url: str
    query_id: str
    ancestors: tuple[Ancestor, ...]
    """The queries of whose checkpoints this one is a fork, the nearest first."""
    rebuilt_from: Ancestor | None
    """The query whose lost checkpoint was rebuilt as this one, under another id."""
    files: tuple[ObjectInfo, ...]
    """All but `metadata`, in key order."""
    offsets: tuple[int, ...]
    """The batches that were planned, ascending; Spark forgets those older than the last 100."""
    commits: tuple[int, ...]
    """The batches that have ended."""
    last_offsets: str | None
    """The text of the newest entry of `offsets`: it tells what kind of source each is."""

    @property
    def is_stateful(self) -> bool:
        return any(file.key.startswith(STATE) for file in self.files)


def entry_key(log: str, batch_id: int) -> str:
    """Return where `log`, `OFFSETS` or `COMMITS`, keeps its entry of a batch."""
    return f"{log}/{batch_id}"


def batch_entry(key: str) -> tuple[str, int] | None:
    """Return the log and the batch that a key of `offsets` or `commits` means."""
    found = _BATCH_ENTRY.fullmatch(key)
    return (found[1], int(found[2])) if found else None


def load_checkpoint(store: Store) -> Checkpoint:
    """Read what the checkpoint in `store` holds.

    Raises:
        NotFoundError: there is no checkpoint, or it has lost its `metadata`.
        InvalidInputError: the copy that made it did not come to its end.
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
    """Return the files of a checkpoint, or of what is left of one, but for `metadata`."""
    return tuple(
        file
        for file in store.list("")
        if file.key != METADATA and not _NOT_PART_OF_IT.search(file.key)
    )


def load_offsets(store: Store, batch_id: int) -> str:
    """Return the text of `offsets/<batch_id>`.

    Raises:
        NotFoundError: Spark has not planned this batch, or has forgotten it.
        CorruptObjectError: it is no text.
    """
    try:
        return store.get(entry_key(OFFSETS, batch_id)).decode()
    except NotFoundError as error:
        raise NotFoundError(
            "the checkpoint has no offsets of this batch: it was not planned yet, or Spark has "
            "forgotten it (it keeps spark.sql.streaming.minBatchesToRetain batches)",
            checkpoint=store.url,
            batch_id=batch_id,
        ) from error
    except UnicodeDecodeError as error:
        raise CorruptObjectError(
            "the offsets of this batch are no text; restore the checkpoint from a backup",
            checkpoint=store.url,
            batch_id=batch_id,
        ) from error


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
            "this checkpoint is not finished; run the command that makes it again",
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
        'the checkpoint\'s `metadata` is not what Spark writes, {"id": "..."}; restore it',
        checkpoint=store.url,
    )
