"""A process that commits numbered batches, as the campaigns start, kill and stop it.

It is forked from a process that has imported the package, since an interpreter takes a second to
start. It notes each answer before it goes on; a killed one starts again after its last note.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import TypeVar

from fuse_stream.errors import FuseError, StreamIdentityError
from fuse_stream.storage.base import Store
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.open import open_store
from fuse_stream.storage.wrappers import StoreWrapper
from fuse_stream.table.handle import Table
from fuse_stream.testing.tables import open_table_in
from torture.settled import batch_of

T = TypeVar("T")

COMMITTED, REPLAYED, REFUSED, FAILED = "committed", "replayed", "refused", "failed"
TYPED = 3
"""The exit code after an error of the package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a table is."""

    url: str
    options: Mapping[str, object]
    folder: Path
    """The folder of this machine that has its files."""

    def open(self) -> Table:
        return Table.open(self.url, storage_options=dict(self.options))

    def open_store(self) -> Store:
        return open_store(self.url, storage_options=dict(self.options))


class Moment(StrEnum):
    """Where in a call a process stops."""

    BEFORE = "before the call"
    WITHIN = "within the call: the bytes are in a local file that has not its name yet"
    """After the call where there is no such file."""
    AFTER = "after the call, whose reply has not come"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    """Where a process stops itself, until somebody wakes it."""

    batch: int
    call: int
    """The number of the store's call, from 1, after the commit of this batch has begun."""
    moment: Moment


class SleepyStore(StoreWrapper):
    """Stops the process at one call, once it is told to count."""

    overlaps = False  # so that the order of calls is fixed

    def __init__(self, store: Store, sleep: Sleep) -> None:
        super().__init__(store)
        self._sleep = sleep
        self._left: int | None = None

    def count(self) -> None:
        self._left = self._sleep.call

    def call(self, verb: str, key: str, act: Callable[[Store, str], T]) -> T:
        if self._left is None:
            return act(self.store, key)
        self._left -= 1
        if self._left:
            return act(self.store, key)
        if self._sleep.moment is Moment.BEFORE:
            stop()
            return act(self.store, key)
        is_named = verb in _NAMING and isinstance(self.store, LocalStore)
        if self._sleep.moment is Moment.WITHIN and is_named:
            with stopped_at(_NAMING[verb]):
                return act(self.store, key)
        try:
            return act(self.store, key)
        finally:
            stop()


_NAMING = {"put": "replace", "replace": "replace", "put_if_absent": "link"}
"""The function of `os` by which a verb gives a file its name."""


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@contextmanager
def stopped_at(name: str) -> Iterator[None]:
    """Stop the process when a function of `os` is called, before it has an effect."""
    function = getattr(os, name)

    def stop_and_call(*arguments: object, **options: object) -> object:
        stop()
        return function(*arguments, **options)

    setattr(os, name, stop_and_call)
    try:
        yield
    finally:
        setattr(os, name, function)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a writer was told about a batch."""

    what: str
    batch: int
    version: int
    """Of the snapshot that holds the batch, as the writer was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The batches that one process commits, each after the one before."""

    place: Place
    app: str
    batches: int
    notes: Path
    """The file with its answers."""
    first: int = 0
    compacts_every: int = 0
    """After how many batches it compacts the table; 0: never."""
    sleep: Sleep | None = None

    def answers(self) -> Iterator[Answer]:
        """Yield the answers so far."""
        text, _, _ = self._text().partition(f"{FAILED} ")
        for line in text.splitlines():
            what, batch, version = line.split()
            yield Answer(what=what, batch=int(batch), version=int(version))

    def failure(self) -> str | None:
        """Return the traceback with which the process ended; None if it did not."""
        _, found, trace = self._text().partition(f"{FAILED} ")
        return trace if found else None

    def _text(self) -> str:
        return self.notes.read_text() if self.notes.exists() else ""

    def note(self, what: str, batch: int, more: object) -> None:
        # One write: a kill leaves the whole line or none.
        descriptor = os.open(self.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{what} {batch} {more}\n".encode())
        os.close(descriptor)


def context() -> ForkServerContext:
    """Return the way to start such processes: forks of one that has imported all this."""
    found = get_context("forkserver")
    found.set_forkserver_preload(["torture.writers", "s3fs"])
    return found


def start(work: Work) -> ForkServerProcess:
    """Start a process that does what is left of `work`."""
    process = context().Process(target=write, args=(work,), daemon=True)
    process.start()
    return process


def write(work: Work) -> None:
    """Commit the batches that have no note yet; the exit code is not 0 if one fails."""
    batch = 1 + max((answer.batch for answer in work.answers()), default=work.first - 1)
    try:
        table, sleepy = work.place.open(), None
        if work.sleep is not None:
            sleepy = SleepyStore(work.place.open_store(), work.sleep)
            table = open_table_in(sleepy)
        for batch in range(batch, work.batches):  # noqa: B020 - it goes on where it was
            if sleepy is not None and work.sleep is not None and batch == work.sleep.batch:
                sleepy.count()
            deliver(table, work, batch)
            if work.compacts_every and batch % work.compacts_every == 0:
                table.compact()
    except FuseError:
        work.note(FAILED, batch, traceback.format_exc())
        sys.exit(TYPED)
    except Exception:  # noqa: BLE001 - whatever it is, the campaign reports it
        work.note(FAILED, batch, traceback.format_exc())
        sys.exit(1)


def deliver(table: Table, work: Work, batch: int) -> None:
    """Commit one batch, and note the answer."""
    try:
        snapshot = table.append(batch_of(work.app, batch), app_id=work.app, batch_id=batch)
    except StreamIdentityError:
        # Another process delivers the same batches. If it is ahead, this one has nothing to do.
        entry = table.ledger()[work.app, ""]
        if entry.batch_id <= batch:
            raise
        work.note(REFUSED, batch, entry.version)
    else:
        work.note(REPLAYED if snapshot.replayed else COMMITTED, batch, snapshot.version)
