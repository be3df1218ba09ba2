"""Delete a table: all objects of its folder.

Rules:
- A table whose blocks a clone reads is not deleted.
- The table file goes last: a deletion that was interrupted can be repeated.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fuse_stream.errors import ConflictError
from fuse_stream.format.layout import TABLE_KEY
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.open import open_store
from fuse_stream.table.handle import Table


def drop_table(table: Table) -> None:
    """Delete a table with its history, tags and branches. Nothing brings it back.

    Raises:
        ConflictError: clones read its blocks; nothing was deleted.
        StorageError: the store failed; call it again.
    """
    clones = table.clones()
    if clones:
        raise ConflictError(
            "clones read the blocks of this table: remove them first, or give them up with unpin",
            clones=[clone.location for clone in clones],
            ids=[clone.table_id for clone in clones],
        )
    store = table.metadata.store
    keys = [info.key for info in (*store.list(""), *store.leftovers())]
    store.delete_all([key for key in keys if key != TABLE_KEY])
    store.delete(TABLE_KEY)
    opened = open_store(table.location.path, storage_options=table.location.storage_options)
    if isinstance(opened, LocalStore):
        _remove_empty_folders(opened.root)


def _remove_empty_folders(root: Path) -> None:
    folders = sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True)
    for folder in (*folders, root):
        with suppress(OSError):  # it holds something that is not the table's
            folder.rmdir()
