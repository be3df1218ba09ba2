"""Delete a table: its objects, and the folders that are empty then.

Rules:
- A table whose blocks a clone reads is not deleted.
- The table file goes last: a deletion that was interrupted can be repeated.
- What else is in the folder stays, such as a checkpoint.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import ConflictError, NotFoundError
from fuse_stream.format.layout import PREFIXES, TABLE_KEY
from fuse_stream.objects.refs import delete_pin, iter_pins
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.local import LocalStore
from fuse_stream.table.location import TableLocation


def drop_table(location: TableLocation) -> None:
    """Delete a table with its history, tags and branches. Nothing brings it back.

    If it is a clone, its pins are removed from the origins of `location`. In other origins they
    stay: remove them with `unpin`.

    Raises:
        NotFoundError: there is no table.
        ConflictError: clones read its blocks; nothing was deleted.
        StorageError: the store failed; call it again.
    """
    opened = location.store()
    metadata = Metadata(opened, SYSTEM_CLOCK)
    own_id = metadata.load_table_file().table_id
    clones = list(iter_pins(metadata))
    if clones:
        raise ConflictError(
            "clones read the blocks of this table: drop them first; the pin of a clone that is "
            "gone is removed with Table.unpin",
            path=location.path,
            clones=[clone.location for clone in clones],
            ids=[clone.table_id for clone in clones],
        )
    store = metadata.store
    store.delete_all([info.key for info in store.leftovers()])
    for prefix in PREFIXES:
        store.delete_all([info.key for info in store.list(prefix)])
    for origin in opened.allowed:
        with suppress(NotFoundError):  # of several origins, not each has a pin
            delete_pin(Metadata(origin, SYSTEM_CLOCK), own_id)
    store.delete(TABLE_KEY)
    if isinstance(opened.store, LocalStore):
        _remove_empty_folders(opened.store.root)


def _remove_empty_folders(root: Path) -> None:
    folders = [root / prefix.split("/")[0] for prefix in PREFIXES]
    inner = [path for folder in folders for path in folder.rglob("*") if path.is_dir()]
    for folder in (*sorted(inner, reverse=True), *folders, root):
        with suppress(OSError):  # it holds something that is not the table's
            folder.rmdir()
