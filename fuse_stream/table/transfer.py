"""The public functions that copy a table, or make one of files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.jsonio import is_storable
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import flag_in
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.open import open_store
from fuse_stream.storage.secrets import StorageOptions
from fuse_stream.table.handle import open_at
from fuse_stream.table.location import TableLocation
from fuse_stream.table.places import Path, is_below
from fuse_stream.transfer.copy import TableCopy, copy_table

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


def _silent(_what: str, _done: int, _total: int) -> None:
    """Report nothing."""
