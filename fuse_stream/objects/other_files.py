"""What a folder holds that is no table: other formats, files, folders of tables."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from fuse_stream.errors import FuseError, NotFoundError
from fuse_stream.format.layout import COPY_KEY, TABLE_KEY
from fuse_stream.storage.base import Store

SHOWN = 5
"""Names that an error for a folder in use shows."""

_FORMATS = {
    "_delta_log/": "a Delta table",
    ".hoodie/": "a Hudi table",
    "metadata/": "a folder metadata, as of an Iceberg table",
    COPY_KEY: "a copy of a table that is not finished: copy it again, which goes on",
}
_OF_SYSTEMS = frozenset({"lost+found", "Thumbs.db", "desktop.ini"})
"""What file systems and file managers put into folders, without a leading dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFiles:
    """The files and folders in the place of a table."""

    kind: str
    """Such as "a Delta table" or "other files"."""
    names: Sequence[str]


def find_other_files(store: Store) -> OtherFiles | None:
    """Return what is in a folder in place of a table; None if there is a table or nothing.

    Leftovers of an interrupted create count as nothing. Names with a leading dot or underscore are
    hidden, as in Hadoop: a file manager's notes, or a checkpoint. A log of another table format is
    none of these.
    """
    names = store.names("")
    kinds = sorted({_FORMATS[name] for name in names if name in _FORMATS})
    found = [name for name in names if name in _FORMATS or not _is_hidden(name)]
    if not found or TABLE_KEY in names:
        return None
    return OtherFiles(kind=" and ".join(kinds) or "other files", names=found)


def no_table(store: Store) -> NotFoundError:
    """Return the error for a place without a table, which says what is there instead."""
    found = None
    with suppress(FuseError):  # only the hint is lost
        found = find_other_files(store)
    if found is None:
        return NotFoundError(
            "there is no fuse_stream table here; check the path, or create the table with "
            "Table.create or by writing to it",
            path=store.url,
        )
    return NotFoundError(
        f"there is no fuse_stream table here: this folder holds {found.kind}; check the path",
        path=store.url,
        found=found.names[:SHOWN],
    )


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_")) or name.rstrip("/") in _OF_SYSTEMS
