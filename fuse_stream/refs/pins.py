"""The pins of a clone: in the table that is cloned, and in other tables that hold blocks of it.

A pin has the clone's table id, which each call draws at random. Before the call tries to create the
clone no table can have that id, so the call may remove its pins. After that only a person can know
that the clone does not exist.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.errors import (
    AlreadyExistsError,
    FuseError,
    InvalidInputError,
    NotFoundError,
    SnapshotExpiredError,
    UnsupportedStorageError,
)
from fuse_stream.format.names import Version
from fuse_stream.format.records import Snapshot, TableFile
from fuse_stream.format.refs import CloneRef
from fuse_stream.format.sides import row_lists
from fuse_stream.objects.refs import delete_pin, load_pin, store_pin
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.refs.create import create_pin

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """The tables in which the pins of one clone are put."""

    committer: Committer
    """The committer of the branch that is cloned."""
    further: tuple[Metadata, ...]
    """If the cloned table is itself a clone: the tables that hold its blocks."""
    source_id: str
    """The cloned table's id, under which `further` keep its blocks."""

    def put(self, version: Version | None, stored: Stored, *, clone_id: str, location: str) -> None:
        """Put all pins, or none.

        Raises:
            SnapshotExpiredError: the snapshot has expired meanwhile.
            NotFoundError: one of `further` no longer keeps the cloned table's blocks.
            UnsupportedStorageError: a store allows no pin to be put.
        """
        try:
            create_pin(self.committer, version, stored, clone_id=clone_id, location=location)
            for origin in self.further:
                kept = _load_source(origin, self.source_id)
                now_us = origin.clock.now_us()
                store_pin(
                    origin,
                    dataclasses.replace(
                        kept, table_id=clone_id, created_us=now_us, location=location
                    ),
                )
                # The old pin still exists after the new one was put, so there was no gap.
                _load_source(origin, self.source_id)
        except FuseError as error:
            left = self._remove(clone_id)
            raise _explained(error, clone_id, left) from error

    def withdraw(self, clone_id: str) -> None:
        """Remove the pins of a clone that will not be made."""
        for url in self._remove(clone_id):
            _log.warning(
                "a pin that nothing needs remains in %s: remove it with unpin(%r)", url, clone_id
            )

    def _remove(self, clone_id: str) -> list[str]:
        """Remove the pins of a clone; return the URLs of tables where one may remain."""
        left = []
        for metadata in (self.committer.metadata, *self.further):
            try:
                delete_pin(metadata, clone_id)
            except NotFoundError:
                continue
            except FuseError:
                left.append(metadata.store.url)
        return left


def further_origins(metadata: Metadata, table: TableFile, snapshot: Snapshot) -> Sequence[str]:
    """Return the ids of the other tables that hold blocks of a snapshot."""
    if not table.origins:
        return ()
    return sorted(
        {
            block.origin
            for held in row_lists(snapshot)
            for ref in held.segments
            for block in metadata.load_segment(ref, held.schema.leaf_types).blocks
            if block.origin is not None
        }
    )


@contextmanager
def naming_pins(table_file: TableFile) -> Iterator[None]:
    """Add to an error of the `with` block that a clone has pins, and what to do about them."""
    try:
        yield
    except (AlreadyExistsError, InvalidInputError, NotFoundError, SnapshotExpiredError):
        raise  # the caller's arguments are wrong; the clone may be complete, and needs its pin
    except FuseError as error:
        context = {
            **error.context,
            "clone_id": table_file.table_id,
            "pinned_in": [location for _, location in table_file.origins],
        }
        raise type(error)(
            f"{error.message}; the clone is not whole: make the same call again, which finishes "
            "it, or give it up: remove its folder, and its pin with unpin",
            **context,
        ) from error


def _load_source(origin: Metadata, source_id: str) -> CloneRef:
    try:
        return load_pin(origin, source_id)
    except NotFoundError as error:
        raise NotFoundError(
            "the table is a clone whose pin was removed from its origin, so its blocks may be "
            "deleted any time; copy the rows instead",
            origin=origin.store.url,
            clone_id=source_id,
        ) from error


def _explained(error: FuseError, clone_id: str, left: Sequence[str]) -> FuseError:
    message, context = error.message, dict(error.context)
    if isinstance(error, UnsupportedStorageError):
        message = (
            "a clone needs a pin in its origin, which keeps the blocks from being deleted, and "
            f"none can be put there ({message}); allow that, or copy the table"
        )
    if left:
        message += "; a pin may remain: remove it with unpin"
        context |= {"clone_id": clone_id, "pinned_in": list(left)}
    return type(error)(message, **context)
