"""Lists of indexes: stored, loaded and verified."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fuse_stream.errors import CorruptObjectError, InvalidInputError, NotFoundError
from fuse_stream.format.index_codec import decode_index_list, encode_index_list
from fuse_stream.format.indexes import IndexDefinition, IndexList, IndexListRef
from fuse_stream.format.layout import index_list_key
from fuse_stream.format.private import private_leaves
from fuse_stream.format.properties import PRIVATE
from fuse_stream.format.records import Snapshot
from fuse_stream.objects.slots import Metadata

_log = logging.getLogger(__name__)

_REMEDY = (
    "no row is lost, and everything but the indexes works. Put the object back from a copy; or "
    "drop all indexes, with Table.drop_index() or fuse-stream indexes --drop-all, and create them "
    "again"
)


def load_index_list(metadata: Metadata, ref: IndexListRef | None) -> IndexList:
    """Return the list of indexes that a snapshot names; an empty one if it names none.

    Raises:
        CorruptObjectError: the list is missing or damaged.
        UnsupportedFormatError: a newer release wrote it.
    """
    if ref is None:
        return IndexList()
    try:
        return decode_index_list(metadata.store.get(index_list_key(ref.id)), ref.sha256)
    except NotFoundError as error:
        raise CorruptObjectError(
            f"the list of the table's indexes is missing: {_REMEDY}", list=ref.id
        ) from error
    except CorruptObjectError as error:
        raise CorruptObjectError(
            f"the list of the table's indexes is damaged: {_REMEDY}",
            list=ref.id,
            reason=error.message,
        ) from error


def check_private_indexes(
    metadata: Metadata, head: Snapshot, properties: Mapping[str, str]
) -> None:
    """Raise if an index keeps values of a column that these properties make private.

    Raises:
        InvalidInputError: drop the index first.
    """
    private = private_leaves(head.schema, properties)
    names = [
        one.name
        for one in (_find_definitions(metadata, head) if private else ())
        if any(column.holds_values and column.column in private for column in one.columns)
    ]
    if names:
        raise InvalidInputError(
            "indexes keep values of the column outside of blocks; drop them first, and create them "
            "again without it",
            indexes=names,
            private=properties[PRIVATE],
        )


def check_dropped_columns(metadata: Metadata, head: Snapshot, dropped: Mapping[int, str]) -> None:
    """Raise if an index needs one of these columns: names, by id.

    Raises:
        InvalidInputError: drop the index first.
    """
    for definition in _find_definitions(metadata, head) if dropped else ():
        for column in definition.column_ids:
            if column in dropped:
                raise InvalidInputError(
                    "a column of an index cannot be dropped; drop the index first: "
                    "drop_index(name), fuse-stream indexes PATH --drop",
                    column=dropped[column],
                    index=definition.name,
                )


def _find_definitions(metadata: Metadata, head: Snapshot) -> tuple[IndexDefinition, ...]:
    """Return the indexes of a head; none if their list is lost: they are in no writer's way."""
    try:
        return load_index_list(metadata, head.index_list).definitions
    except CorruptObjectError as error:
        _log.warning("no index was looked at: %s", error)
        return ()


def store_index_list(metadata: Metadata, indexes: IndexList) -> IndexListRef | None:
    """Store a list under a new id, and return the reference to it; None for an empty one.

    Raises:
        InvalidInputError: it is larger than a reader accepts.
    """
    if not indexes.definitions:
        return None
    data, sha256 = encode_index_list(indexes)
    list_id = metadata.clock.new_id()
    metadata.store.put(index_list_key(list_id), data)
    return IndexListRef(id=list_id, sha256=sha256)
