"""The public functions that copy a table, or make one of files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.jsonio import is_storable
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import flag_in, names_in
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.open import open_store, path_text
from fuse_stream.storage.secrets import StorageOptions
from fuse_stream.table.handle import open_at
from fuse_stream.table.location import TableLocation
from fuse_stream.table.places import Path, is_below
from fuse_stream.transfer.copy import TableCopy, copy_table
from fuse_stream.transfer.import_parquet import ImportReport, ImportRequest, import_files
from fuse_stream.transfer.sources import file_in, find_source

Progress = Callable[[str, int, int], None]
"""Called with the name of the present task, how much of it is done, and how much there is."""


def copy(
    path: Path,
    new_path: Path,
    *,
    history: bool = True,
    branch: str = MAIN,
    storage_options: Mapping[str, object] | None = None,
    new_storage_options: Mapping[str, object] | None = None,
    origins: Sequence[Path] = (),
    unsafe_single_writer: bool = False,
    progress: Progress | None = None,
) -> TableCopy:
    """Copy a whole table to another place or store, such as a backup; return the copy.

    With `history` the copy has all versions that have not expired, all branches, tags and pins of
    clones, and the table's id: it can be put back in the table's place, and streams go on in it.
    The same call later brings the copy up to date. So nothing else may write to it: a copy with
    commits of its own is refused. Leases of consumers are not copied.

    Without `history` the copy is a new table with the content and the ledger of the branch's head.

    A copy reads its blocks in its own folder, also that of a clone. Commits, expiries and vacuums
    may run meanwhile. Every object is compared with its hash. A copy is no table before it is
    whole; if the call dies, call it again: it copies what lacks. Only one call at a time may make
    a copy.

    Args:
        path: the table: a local path or an fsspec URL.
        new_path: the folder of the copy.
        history: False for the head of `branch` alone.
        branch: the branch whose head is copied, without `history`.
        storage_options: fsspec's, for a remote table.
        new_storage_options: fsspec's, for a remote copy; the table's if not given.
        origins: the locations of the origins, if the table is a clone: their blocks are copied.
        unsafe_single_writer: allow stores that cannot tell two writers apart.
        progress: called with the present task, how much of it is done, and how much there is.

    Raises:
        AlreadyExistsError: there is another table at `new_path`, or a copy that was written to, or
            the folder holds something else.
        NotFoundError: there is no such table or branch.
        CorruptObjectError: an object of the table is lost or damaged; the copy is not finished.
        ConflictError: vacuum deleted objects meanwhile, in each of several attempts.
        InvalidInputError: the table is a clone, and `origins` lacks an origin; or one folder is
            within the other; or a branch is named for a copy with history.
        UnsupportedStorageError: the store of the copy cannot hold a table.
    """
    storage_options = StorageOptions(storage_options)
    new_storage_options = StorageOptions(new_storage_options)
    history = flag_in("history", history)
    if history and branch != MAIN:
        raise InvalidInputError(
            "a copy with history has all branches: leave branch out, or copy the head of the "
            "branch alone with history=False",
            branch=branch,
        )
    location = TableLocation.of(
        path, branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    place = open_store(
        new_path,
        storage_options=new_storage_options or storage_options,
        unsafe_single_writer=unsafe_single_writer,
    )
    old, new = location.store().url, place.url
    if old == new or is_below(old, new) or is_below(new, old):
        raise InvalidInputError(
            "a copy needs a folder of its own, beside the table's", path=old, new_path=new
        )
    for url in (old, new):
        if not is_storable(url):
            raise InvalidInputError("UTF-8 cannot encode this path; rename the folder", path=url)
    committer = open_at(location).committer
    return copy_table(
        committer,
        Metadata(place, committer.metadata.clock),
        history=history,
        report=progress or _silent,
        probe_place=not unsafe_single_writer,
    )


def import_parquet(
    path: Path,
    new_path: Path,
    *,
    cluster_by: Sequence[str] = (),
    key: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, object] | None = None,
    new_storage_options: Mapping[str, object] | None = None,
    unsafe_single_writer: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Make a new table of Parquet files, and return a report.

    The files stay as they are, and the table does not need them: their bytes or rows are put below
    its folder. A file that is what a block has to be (`docs/format.md`, section "Blocks") becomes a
    block with the bytes that it has; of the others the rows are written anew. The table's columns
    are those of all files: files may lack columns, and have narrower types.

    Before it is whole, the folder is no table. If the call dies, call it again with the same
    arguments: it goes on. Only one call at a time may import into a folder.

    Args:
        path: a local path or an fsspec URL: of a Parquet file, of a folder of Parquet files, whose
            folders `k=v` become columns, or of a Delta table without column mapping and deletion
            vectors.
        new_path: the folder of the table.
        cluster_by: the columns that the rows of a block are sorted by. Blocks of files that are
            sorted in another way count as unsorted, until `recluster`.
        key: the columns by which rows are unique; the rows are checked.
        properties: as of `Table.create`.
        storage_options: fsspec's, for remote files.
        new_storage_options: fsspec's, for a remote table; those of the files if not given.
        unsafe_single_writer: allow a store that cannot tell two writers apart.
        progress: called with the present task, how much of it is done, and how much there is.

    Raises:
        NotFoundError: there are no Parquet files.
        AlreadyExistsError: there is a table at `new_path`, or the folder holds something else.
        UnsupportedFormatError: it is an Iceberg or Hudi table, or a Delta table of which the files
            do not say all; says what to do.
        UnsupportedTypeError: the format has no such type as a column's.
        SchemaMismatchError: columns of one name have types that do not fit each other.
        InvalidInputError: a file is damaged; a value does not fit; rows of the key are not unique;
            a property, a column or the cluster key is not valid; or one folder is within the other.
        CorruptObjectError: the log of a Delta table has a gap, or its files are missing.
        UnsupportedStorageError: the store of the table cannot hold one.
    """
    storage_options = StorageOptions(storage_options)
    new_storage_options = StorageOptions(new_storage_options)
    request = ImportRequest(
        cluster_by=names_in("cluster_by", cluster_by),
        key=names_in("key", key),
        properties=dict(properties or {}),
    )
    store, only = open_store(path, storage_options=storage_options), None
    if (found := file_in(path_text(path))) is not None:
        parent = open_store(found[0], storage_options=storage_options)
        if f"{found[1]}/" not in parent.names(""):
            store, only = parent, found[1]
    place = open_store(
        new_path,
        storage_options=new_storage_options or storage_options,
        unsafe_single_writer=unsafe_single_writer,
    )
    old, new = store.url, place.url
    if only is None and (old == new or is_below(old, new) or is_below(new, old)):
        raise InvalidInputError(
            "a table needs a folder of its own, beside the files", path=old, new_path=new
        )
    return import_files(
        store,
        find_source(store, only),
        Metadata(place, SYSTEM_CLOCK),
        request,
        report=progress or _silent,
        probe_place=not unsafe_single_writer,
    )


def _silent(_what: str, _done: int, _total: int) -> None:
    """Report nothing."""
