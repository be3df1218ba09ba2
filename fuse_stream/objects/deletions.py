"""Deletion files: stored, loaded and verified, and cached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial

from fuse_stream.errors import CorruptObjectError, NotFoundError
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.deletions import (
    MAX_DELETION_FILE_BYTES,
    DeletionFile,
    decode_deletions,
    encode_deletions,
)
from fuse_stream.format.layout import deletions_key
from fuse_stream.format.positions import BlockRows, Positions, union
from fuse_stream.format.records import DeletionFileRef
from fuse_stream.objects.object_cache import ObjectCache
from fuse_stream.storage.base import Store

CACHED_BYTES = 32 * 1024 * 1024
"""The limit of all cached deletion files, in stored bytes."""
CACHED_SNAPSHOTS = 4
"""The number of snapshots whose hidden rows are cached."""


class Deletions:
    """The deletion files of a table; immutable ones are cached, within limits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files = ObjectCache[DeletionFile](CACHED_BYTES)
        self._hidden: OrderedDict[frozenset[str], BlockRows] = OrderedDict()
        """By the ids of the deletion files of a snapshot."""

    def load(self, ref: DeletionFileRef) -> DeletionFile:
        """Return a deletion file, checked against the record that its snapshot holds.

        Raises:
            CorruptObjectError: it is missing or damaged, or differs from its record.
        """
        return next(self._load_all((ref,)))

    def _load_all(self, refs: Sequence[DeletionFileRef]) -> Iterator[DeletionFile]:
        """Yield deletion files as `load` returns them, in order."""
        return self._files.iter_loaded(self._store, refs, partial(_get, self._store), _decoded)

    def put(
        self, file: DeletionFile, *, file_id: str, level: int, since_us: int
    ) -> DeletionFileRef:
        """Store a deletion file, and return the reference to it for a snapshot."""
        data = encode_deletions(file)
        self._store.put(deletions_key(file_id), data)
        self._files.keep(file_id, file, len(data))
        return DeletionFileRef(
            id=file_id,
            sha256=sha256_hex(data),
            level=level,
            row_count=file.row_count,
            block_count=len(file.hidden),
            byte_size=len(data),
            since_us=since_us,
        )

    def hidden_by(self, refs: Sequence[DeletionFileRef]) -> BlockRows:
        """Return the rows that deletion files hide together.

        Raises:
            CorruptObjectError: a file is missing or damaged, or two of them hide one row.
        """
        wanted = frozenset(ref.id for ref in refs)
        if wanted in self._hidden:
            self._hidden.move_to_end(wanted)
            return self._hidden[wanted]
        known = max((ids for ids in self._hidden if ids < wanted), key=len, default=frozenset())
        hidden = dict(self._hidden.get(known, {}))
        others = [ref for ref in refs if ref.id not in known]
        for ref, file in zip(others, self._load_all(others), strict=True):
            merge_into(hidden, file.hidden, ref.id)
        self._hidden[wanted] = hidden
        if len(self._hidden) > CACHED_SNAPSHOTS:
            self._hidden.popitem(last=False)
        return hidden

    def updated_by(self, refs: Sequence[DeletionFileRef]) -> BlockRows:
        """Return the rows that deletion files of one commit mark as updates; errors of `load`."""
        updated: BlockRows = {}
        for ref in refs:
            updated = union(updated, self.load(ref).updated)
        return updated


def load_deletion_file(store: Store, ref: DeletionFileRef) -> DeletionFile:
    """Return a deletion file without a cache; errors of `Deletions.load`."""
    file, _ = _decoded(ref, _get(store, ref))
    return file


def _get(store: Store, ref: DeletionFileRef) -> bytes:
    if ref.byte_size > MAX_DELETION_FILE_BYTES:
        raise CorruptObjectError("a deletion file is too large", file=ref.id, size=ref.byte_size)
    try:
        return store.get(deletions_key(ref.id))
    except NotFoundError as error:
        raise CorruptObjectError(
            "a deletion file is missing: fuse-stream fsck on this path shows which versions still "
            "work; if this version has expired meanwhile, read a later version",
            file=ref.id,
        ) from error


def _decoded(ref: DeletionFileRef, data: bytes) -> tuple[DeletionFile, int]:
    """Return a deletion file, and its size in bytes."""
    if sha256_hex(data) != ref.sha256:
        raise CorruptObjectError(
            "a deletion file differs from the hash in its snapshot", file=ref.id
        )
    file = decode_deletions(data)
    if (file.row_count, len(file.hidden), len(data)) != (
        ref.row_count,
        ref.block_count,
        ref.byte_size,
    ):
        raise CorruptObjectError("a deletion file differs from its record", file=ref.id)
    return file, len(data)


def merge_into(hidden: dict[str, Positions], more: BlockRows, file_id: str) -> None:
    """Add the rows of one deletion file to those of others.

    Raises:
        CorruptObjectError: a row is hidden twice, so counts would be wrong.
    """
    for block_id, rows in more.items():
        before = hidden.get(block_id)
        if before is None:
            hidden[block_id] = rows
            continue
        if before & rows:
            raise CorruptObjectError(
                "a row is hidden by two deletion files", file=file_id, block=block_id
            )
        hidden[block_id] = before | rows
