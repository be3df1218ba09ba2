"""Opening the table that a user named; and where there is none, what stands there instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fuse_stream.errors import FuseError, NotFoundError
from fuse_stream.format.layout import MAIN, TABLE_KEY
from fuse_stream.storage.base import Store
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.open import open_store
from fuse_stream.table import Table

_MARKS = (
    # what lies in the folder, how the names end, what that makes it
    ("_delta_log/", (".json", ".parquet"), "a Delta Lake table: read it with format('delta')"),
    ("metadata/", (".metadata.json",), "an Iceberg table: read it with format('iceberg')"),
    (".hoodie/", ("",), "a Hudi table: read it with format('hudi')"),
    ("offsets/", ("",), "the checkpoint of a Spark query: name the table's folder instead"),
    ("_spark_metadata/", ("",), "the output of Spark's file sink: read it with format('parquet')"),
)
_MOST_NAMED = 5


def open_table(
    path: str,
    *,
    branch: str = MAIN,
    options: Mapping[str, object],
    origins: Sequence[str] = (),
    unsafe_single_writer: bool = False,
) -> Table:
    """Open the table at `path`.

    Raises:
        NotFoundError: there is none; says what is there, if that is known.
    """
    try:
        return Table.open(
            path,
            branch=branch,
            storage_options=options,
            origins=origins,
            unsafe_single_writer=unsafe_single_writer,
        )
    except NotFoundError as error:
        found = describe_place(open_store(path, storage_options=options))
        if found is None:
            raise
        raise NotFoundError(found, path=path) from error


def describe_place(store: Store) -> str | None:
    """Return what stands in `store` instead of a table; None if it is one, or nobody knows."""
    if has_table(store):
        return None
    for prefix, endings, kind in _MARKS:
        if _holds(store, prefix, endings):
            return f"this is no fuse_stream table but {kind}"
    return _describe_folder(store.root) if isinstance(store, LocalStore) else None


def has_table(store: Store) -> bool:
    """Whether a table was created in `store`."""
    try:
        store.get(TABLE_KEY)
    except NotFoundError:
        return False
    return True


def _holds(store: Store, prefix: str, endings: tuple[str, ...]) -> bool:
    try:
        return any(info.key.endswith(endings) for info in store.list(prefix))
    except FuseError:
        return False  # only the hint is lost: the first error says what happened


def _describe_folder(folder: Path) -> str | None:
    if not folder.exists():
        near = next((parent for parent in folder.parents if parent.exists()), folder)
        return f"there is nothing at this path; the folder that exists is {near}"
    if not folder.is_dir():
        return "this is a file; a table is a folder"
    for parent in folder.parents:
        if (parent / TABLE_KEY).is_file():
            return f"this folder is a part of the table at {parent}; name that"
    tables = sorted(found.parent.name for found in folder.glob(f"*/{TABLE_KEY}"))
    if tables:
        more = ", …" if len(tables) > _MOST_NAMED else ""
        return f"this folder is no table but holds some: {', '.join(tables[:_MOST_NAMED])}{more}"
    if next(folder.glob("*.parquet"), None):
        return "this is a folder of Parquet files without a table: read it with format('parquet')"
    return None
