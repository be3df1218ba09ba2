"""Source offsets that are too long for the ledger: objects of their own."""

from __future__ import annotations

import dataclasses

from fuse_stream.errors import CorruptObjectError, NotFoundError
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.layout import offsets_key
from fuse_stream.format.records import SourceOffsets
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import Store

MAX_LEDGER_TEXT = 4096
"""Source offsets of up to this many characters are kept in the ledger itself."""


def store_if_long(metadata: Metadata, offsets: SourceOffsets) -> SourceOffsets:
    """Store source offsets as an object if their text is long; return them for the ledger."""
    if offsets.text is None or len(offsets.text) <= MAX_LEDGER_TEXT:
        return offsets
    return store_offsets(metadata.store, offsets, metadata.clock.new_id())


def store_offsets(store: Store, offsets: SourceOffsets, offsets_id: str) -> SourceOffsets:
    """Store the text of source offsets as an object; return them with its id, without the text."""
    store.put(offsets_key(offsets_id), (offsets.text or "").encode())
    return dataclasses.replace(offsets, text=None, id=offsets_id)


def load_offsets(store: Store, offsets: SourceOffsets) -> str:
    """Return the text of source offsets, from the ledger entry or from its object.

    Raises:
        CorruptObjectError: the object is missing or damaged.
    """
    if offsets.id is None:
        return offsets.text or ""
    try:
        data = store.get(offsets_key(offsets.id))
    except NotFoundError as error:
        raise CorruptObjectError("an object of source offsets is missing", id=offsets.id) from error
    if sha256_hex(data) != offsets.sha256:
        raise CorruptObjectError("source offsets differ from the hash in the ledger", id=offsets.id)
    try:
        return data.decode()
    except UnicodeDecodeError as error:  # its writer knew the hash
        raise CorruptObjectError("source offsets are not UTF-8", id=offsets.id) from error
