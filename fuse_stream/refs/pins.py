"""The pins that a clone needs: in the table that it is made of, and in those whose blocks that has.

A pin has the clone's table id, drawn anew by each call. Before the call tries to create the clone
nothing can have that id, so a pin may be taken back; after that only a person knows.
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
from fuse_stream.objects.refs import delete_pin, load_pin, store_pin
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.refs.create import create_pin

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Where the pins of one clone stand."""

    committer: Committer
    """Of the branch that is cloned."""
    further: tuple[Metadata, ...]
    """Of the tables that the cloned one, a clone itself, has blocks of."""
    source_id: str
    """Of the cloned table: under this id `further` keep its blocks."""

    def put(self, version: Version | None, stored: Stored, *, clone_id: str, location: str) -> None:
        """Put the pins, or none.

        Raises:
            SnapshotExpiredError: the snapshot has expired meanwhile.
            NotFoundError: one of `further` no longer keeps its blocks.
            UnsupportedStorageError: no pin can be put.
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
                # While both stand there is no moment in which neither did.
                _load_source(origin, self.source_id)
        except FuseError as error:
            left = self._remove(clone_id)
            raise _explained(error, clone_id, left) from error

    def withdraw(self, clone_id: str) -> None:
        """Remove the pins of a clone that will not be made."""
        for url in self._remove(clone_id):
            _log.warning(
                "a pin that nothing needs stands in %s: remove it with unpin(%r)", url, clone_id
            )

    def _remove(self, clone_id: str) -> list[str]:
        """Remove the pins of a clone; return where one may still stand."""
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
    types = snapshot.schema.leaf_types
    return sorted(
        {
            block.origin
            for ref in snapshot.segments
            for block in metadata.load_segment(ref, types).blocks
            if block.origin is not None
        }
    )


@contextmanager
def naming_pins(standing: TableFile) -> Iterator[None]:
    """Say in an error that the pins of a clone stand, and what to do about them."""
    try:
        yield
    except (AlreadyExistsError, InvalidInputError, NotFoundError, SnapshotExpiredError):
        raise  # it is about what the caller named; the clone may be whole, and needs its pin
    except FuseError as error:
        context = {
            **error.context,
            "clone_id": standing.table_id,
            "pinned_in": [location for _, location in standing.origins],
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
            "the table is a clone whose pin was removed from its origin, so its blocks may go any "
            "time; copy the rows instead",
            origin=origin.store.url,
            clone_id=source_id,
        ) from error


def _explained(error: FuseError, clone_id: str, left: Sequence[str]) -> FuseError:
    message, context = error.message, dict(error.context)
    if isinstance(error, UnsupportedStorageError):
        message = (
            "a clone needs a pin in its origin, which keeps the blocks from being deleted, and "
            f"none can be put there ({message}); else copy the table"
        )
    if left:
        message += "; a pin may stand: remove it with unpin"
        context |= {"clone_id": clone_id, "pinned_in": list(left)}
    return type(error)(message, **context)
