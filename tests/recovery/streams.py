"""Run a stream without Spark: commit batches as a query does, and write its checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from fuse_stream.checkpoint.files import load_checkpoint, load_offsets
from fuse_stream.commit.ledger import Batch, Verdict, offsets_of
from fuse_stream.commit.plan import Intent
from fuse_stream.errors import NotFoundError
from fuse_stream.format.forked import Ancestor
from fuse_stream.format.records import Operation, SourceOffsets
from fuse_stream.storage.base import Store
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from tests.recovery.checkpoints import batch_files, offsets_text, put
from tests.recovery.histories import rows


@dataclass(frozen=True)
class CheckpointFiles:
    """The checkpoint of a query, as its sink reads it, from the files."""

    store: Store

    def find_offsets(self, batch_id: int) -> SourceOffsets | None:
        try:
            return offsets_of(batch_id, load_offsets(self.store, batch_id))
        except NotFoundError:
            return None

    def find_ancestors(self) -> tuple[Ancestor, ...]:
        return load_checkpoint(self.store).ancestors

    def find_rebuilt_from(self) -> Ancestor | None:
        return load_checkpoint(self.store).rebuilt_from


@dataclass
class Query:
    """A query that commits one row per batch: the batch number plus `plus`, to mark its rows."""

    table: Table
    checkpoint: Store = field(default_factory=MemoryStore)
    application: str = "default"
    writers: tuple[str, ...] = ("",)
    plus: int = 0
    adopt: str | None = None
    start: int = 0
    """The number of log entries of the source that the query skips when it starts."""

    @property
    def query_id(self) -> str:
        return load_checkpoint(self.checkpoint).query_id

    def begin(self, query_id: str) -> Query:
        """Make the checkpoint."""
        put(self.checkpoint, {"metadata": json.dumps({"id": query_id})})
        return self

    def run(self, batches: int) -> list[int]:
        """Run `batches` batches after the last one that the checkpoint counts as done."""
        found = load_checkpoint(self.checkpoint)
        first = found.commits[-1] + 1 if found.commits else 0
        return [self.run_batch(number) for number in range(first, first + batches)]

    def run_batch(self, number: int, *, empty: bool = False) -> int:
        """Run one batch: its offsets, a commit for each writer, its commit; return the head."""
        files = batch_files([number])
        put(self.checkpoint, {f"offsets/{number}": self._offsets_of(number)})
        for writer in self.writers:
            if empty:
                self.table.committer.examine(self._batch(number, writer))
            else:
                self.commit(number, writer)
        put(self.checkpoint, {f"commits/{number}": files[f"commits/{number}"]})
        return self.table.head().version

    def plan(self, number: int) -> Batch:
        """Write the offsets of a batch, and return the batch as a sink gets it."""
        put(self.checkpoint, {f"offsets/{number}": self._offsets_of(number)})
        return self._batch(number, "")

    def commit(self, number: int, writer: str = "") -> Verdict:
        """Commit the rows of one writer."""
        data = rows(self.plus + number)
        intent = Intent(operation=Operation.APPEND, batch=self._batch(number, writer))
        return self.table.commit_rows(intent, data).verdict

    def _batch(self, number: int, writer: str) -> Batch:
        return Batch(
            application=self.application,
            writer=writer,
            query_id=self.query_id,
            batch_id=number,
            offsets=offsets_of(number, self._offsets_of(number)),
            adopt=self.adopt,
            checkpoint=CheckpointFiles(self.checkpoint),
        )

    def _offsets_of(self, number: int) -> str:
        return offsets_text({"logOffset": self.start + number})


@dataclass
class Fanout:
    """A query that writes one row per batch to each of its tables, one after the other."""

    tables: tuple[Table, ...]
    checkpoint: Store = field(default_factory=MemoryStore)
    application: str = "default"
    plus: int = 0
    adopt: str | None = None

    @property
    def sinks(self) -> tuple[Query, ...]:
        return tuple(
            Query(
                table,
                self.checkpoint,
                application=self.application,
                plus=self.plus,
                adopt=self.adopt,
            )
            for table in self.tables
        )

    def begin(self, query_id: str) -> Fanout:
        """Make the checkpoint."""
        self.sinks[0].begin(query_id)
        return self

    def run(self, batches: int, *, writes: tuple[int, ...] | None = None) -> list[Verdict]:
        """Run `batches` batches after the last one that ended; `writes`: numbers of tables."""
        found = load_checkpoint(self.checkpoint)
        first = found.commits[-1] + 1 if found.commits else 0
        verdicts = []
        for number in range(first, first + batches):
            files = batch_files([number])
            put(self.checkpoint, {f"offsets/{number}": files[f"offsets/{number}"]})
            for index, sink in enumerate(self.sinks):
                if writes is None or index in writes:
                    verdicts.append(sink.commit(number))
            put(self.checkpoint, {f"commits/{number}": files[f"commits/{number}"]})
        return verdicts
