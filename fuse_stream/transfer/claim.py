"""The claim of a copy: it says what is copied into a folder, until the copy is a table.

Rules:
- The claim is the first object of a copy, and is deleted at the end. The table file, without which
  no folder is a table, is put just before that.
- A folder with a claim and without a table file is a copy that is not finished: only the same copy
  goes on there, and no table is created in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fuse_stream.errors import AlreadyExistsError, CorruptObjectError
from fuse_stream.format.codec import decode_table_file, encode_table_file
from fuse_stream.format.columns import READING_ERRORS
from fuse_stream.format.jsonio import dump_canonical, load_json
from fuse_stream.format.layout import COPY_KEY
from fuse_stream.format.records import FORMAT_VERSION, Parent, TableFile
from fuse_stream.storage.base import Store, find_object


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyClaim:
    """What is copied."""

    table_file: TableFile
    """Of the copy."""
    source_id: str
    """The id of the table that is copied."""
    target: Parent | None = None
    """The snapshot that is copied; None for a copy with history."""


def find_claim(store: Store) -> CopyClaim | None:
    """Return the claim in a folder; None if there is none.

    Raises:
        CorruptObjectError: it is damaged.
    """
    data = find_object(store, COPY_KEY)
    if data is None:
        return None
    try:
        fields: dict[str, Any] = load_json(data)
        target = fields.get("target")
        return CopyClaim(
            table_file=decode_table_file(fields["table_file"].encode()),
            source_id=str(fields["source_id"]),
            target=None if target is None else Parent(**target),
        )
    except READING_ERRORS as error:
        raise CorruptObjectError(
            "the claim of a copy is damaged: remove the folder, and copy the table again",
            key=COPY_KEY,
            path=store.url,
        ) from error


def put_claim(store: Store, claim: CopyClaim) -> None:
    """Put the claim of a copy that begins.

    Raises:
        AlreadyExistsError: another copy into the folder has begun.
    """
    target = claim.target
    fields: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "source_id": claim.source_id,
        "table_file": encode_table_file(claim.table_file).decode(),
    }
    if target is not None:
        fields["target"] = {
            "branch_id": target.branch_id,
            "sha256": target.sha256,
            "version": target.version,
        }
    try:
        store.put_if_absent(COPY_KEY, dump_canonical(fields))
    except AlreadyExistsError:
        if find_claim(store) != claim:
            raise other_copy(store) from None


def other_copy(store: Store) -> AlreadyExistsError:
    """Return the error for a folder into which something else is copied."""
    return AlreadyExistsError(
        "a copy of another table, or another kind of copy, was begun in this folder and is not "
        "finished: finish that, remove the folder, or use another path",
        path=store.url,
    )
