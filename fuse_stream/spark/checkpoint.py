"""The checkpoint of the query that delivers a batch, as far as the ledger is compared with it."""

from __future__ import annotations

import logging

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from fuse_stream.commit.ledger import offsets_of
from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.forked import Ancestor, ancestors_in, rebuilt_from_in
from fuse_stream.format.jsonio import load_json
from fuse_stream.format.records import SourceOffsets
from fuse_stream.spark.identity import read_file, read_offsets, read_offsets_at

_KEPT = 4
"""Batches whose offsets are remembered: this one, the one before, and the ledger's last."""

_log = logging.getLogger(__name__)


class QueryCheckpoint:
    """What a checkpoint says of batches that it has planned. Reads each fact at most once."""

    def __init__(self, root: str | None, df: DataFrame | None = None) -> None:
        """Read from `root`, through Spark if it gives a DataFrame of the query."""
        self._root = root
        self._df = df
        self._offsets: dict[int, SourceOffsets | None] = {}
        self._metadata: object = None
        self._knows_metadata = False

    def passed_on(self, root: str | None, df: DataFrame) -> QueryCheckpoint:
        """Return the same checkpoint for the next batch of a run, with what is known of it."""
        if root != self._root:
            return QueryCheckpoint(root, df)
        self._df = df
        return self

    def find_offsets(self, batch_id: int) -> SourceOffsets | None:
        """Return the source offsets of a batch; None, with a warning, if they cannot be read."""
        if self._root is None:
            return None
        if batch_id not in self._offsets:
            self._offsets[batch_id] = offsets_of(batch_id, self._read_offsets(batch_id))
        found = self._offsets.pop(batch_id)
        self._offsets[batch_id] = found  # the newest stands last
        while len(self._offsets) > _KEPT:
            del self._offsets[next(iter(self._offsets))]
        return found

    def find_ancestors(self) -> tuple[str, ...]:
        """Return the ids of the queries of whose checkpoints this one is a fork."""
        return tuple(older.query_id for older in ancestors_in(self._load_metadata()))

    def find_rebuilt_from(self) -> Ancestor | None:
        """Return the query whose lost checkpoint was rebuilt as this one, under another id."""
        return rebuilt_from_in(self._load_metadata())

    def _load_metadata(self) -> object:
        if not self._knows_metadata:
            self._metadata, self._knows_metadata = self._read_metadata(), True
        return self._metadata

    def _read_offsets(self, batch_id: int) -> str | None:
        if self._df is None:
            return read_offsets_at(self._root, batch_id)
        return read_offsets(self._df, self._root, batch_id)

    def _read_metadata(self) -> object:
        if self._root is None:
            return None
        try:
            text = read_file(self._df, f"{self._root}/metadata")
            return load_json(text.encode())
        except (OSError, ValueError, ImportError, Py4JError, CorruptObjectError) as error:
            _log.warning("whether the checkpoint is a fork cannot be read: %s", error)
            return None
