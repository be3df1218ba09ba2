"""The query and the run that deliver a micro-batch, and the facts of the query's checkpoint.

Rule: in one run of a query, each (application, writer) commits a batch once. Spark delivers a batch
again only in another run. So a second sink under the same name is not mistaken for a replay.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from fuse_stream.checkpoint.offsets import PlannedSource, find_sources
from fuse_stream.commit.ledger import Batch, offsets_of
from fuse_stream.errors import (
    CorruptObjectError,
    DuplicateWriterError,
    InvalidInputError,
    UnsupportedFormatError,
)
from fuse_stream.format.forked import Ancestor, ancestors_in, rebuilt_from_in
from fuse_stream.format.jsonio import load_json
from fuse_stream.format.records import SourceOffsets
from fuse_stream.format.source_offset import SourcePosition
from fuse_stream.on_demand import OnDemand
from fuse_stream.spark.source_description import find_path
from fuse_stream.table.handle import Table

if TYPE_CHECKING:
    import fsspec
else:
    fsspec = OnDemand("fsspec")

QUERY_ID_PROPERTY = "sql.streaming.queryId"

_RUN_ID_PROPERTY = "spark.jobGroup.id"

_STREAMING_TABLE = "StreamingDataSourceV2ScanRelation"
"""The leaf of a plan that reads a stream of a data source of the second kind, as `fuse` is."""

_STREAMING_SOURCE = "StreamingExecutionRelation"
"""The leaf of a plan that reads any other source, as that of `read_stream` is."""

_SCHEME = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9+.-]*):(?://[^/]*)?(?=/)")

_running: dict[str, QueryIdentity] = {}
"""By query id: the last run of each query in this process; asking Spark is slow."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryIdentity:
    """The streaming query that calls `foreachBatch`."""

    query_id: str
    """Kept in the checkpoint: the same after a restart."""
    run_id: str | None = None
    """New with every start; None if Spark does not say."""
    checkpoint: str | None = None
    is_complete: bool = False
    """True if each batch is the whole result: `outputMode("complete")`."""
    sources: tuple[PlannedSource, ...] = ()
    """Those of the query, in the order of its plan; empty if Spark does not say."""


def is_connect(df: DataFrame) -> bool:
    """True if `df` belongs to a Spark Connect session, which has no JVM in this process."""
    return not hasattr(df, "_jdf")


def identify(df: DataFrame, checkpoint: str | None) -> QueryIdentity | None:
    """Return the query that delivers `df`; None outside a query.

    Args:
        df: the batch, as `foreachBatch` got it.
        checkpoint: the checkpoint's folder as the user gave it. Used only if Spark does not say
            it, as on Spark Connect.
    """
    if is_connect(df):
        if checkpoint is None:
            return None
        return QueryIdentity(query_id=query_id_of(checkpoint), checkpoint=checkpoint)
    context = df.sparkSession.sparkContext
    query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
    if query_id is None:
        return None
    known = _running.get(query_id)
    # Spark names the job group after the run, unless the user has named it.
    if known is not None and known.run_id == context.getLocalProperty(_RUN_ID_PROPERTY):
        return known
    jvm, session = _in_java(df)
    execution = (
        session.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query_id))
    )
    if execution is None:
        return QueryIdentity(query_id=query_id, checkpoint=checkpoint)
    run_id = execution.runId().toString()
    if known is not None and known.run_id == run_id:  # the user has named the job group
        return known
    _running[query_id] = QueryIdentity(
        query_id=query_id,
        run_id=run_id,
        checkpoint=execution.resolvedCheckpointRoot(),
        is_complete=execution.outputMode().toString() == "Complete",
        sources=_planned_sources(execution),
    )
    return _running[query_id]


def _planned_sources(execution: Any) -> tuple[PlannedSource, ...]:
    """Return the sources of a query, in the order of the lines of its offsets.

    Spark makes these lines from the streaming leaves of the same plan. They are for people only.
    """
    try:
        leaves = execution.logicalPlan().collectLeaves()
        every = (leaves.apply(at) for at in range(leaves.size()))
        return tuple(_planned(leaf) for leaf in every if leaf.isStreaming())
    except Py4JError as error:
        _log.info("the paths of the query's sources are not recorded: %s", error)
        return ()


def _planned(leaf: Any) -> PlannedSource:
    kind = leaf.getClass().getSimpleName()
    if kind == _STREAMING_SOURCE:
        return PlannedSource(find_path(leaf.source().toString()))
    if kind != _STREAMING_TABLE:
        return PlannedSource(None)
    path = leaf.relation().options().get("path")
    return PlannedSource(None if path is None else str(path), _find_name(leaf.relation()))


def _find_name(relation: Any) -> str | None:
    """Return the name that the user gave to a source; None without one, and before Spark 4.3."""
    try:
        return str(relation.sourceIdentifyingName().name())
    except Py4JError:
        return None


def query_id_of(checkpoint: str) -> str:
    """Return the query id that a checkpoint's `metadata` holds.

    Raises:
        InvalidInputError: there is no Spark checkpoint in this folder.
    """
    try:
        return str(orjson.loads(_read(f"{checkpoint}/metadata"))["id"])
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInputError(
            "there is no Spark checkpoint here; pass checkpoint= the query's checkpointLocation",
            checkpoint=checkpoint,
        ) from error


def read_file(df: DataFrame | None, path: str) -> str:
    """Return the text of a checkpoint's file, read through Spark if only Spark can read it.

    Raises:
        OSError, ValueError, ImportError, Py4JError: it cannot be read.
    """
    if df is None or is_connect(df) or _local_path(path) is not None:
        return _read(path).decode()
    jvm, session = _in_java(df)
    file = jvm.org.apache.hadoop.fs.Path(path)
    stream = file.getFileSystem(session.sessionState().newHadoopConf()).open(file)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def read_offsets(df: DataFrame | None, checkpoint: str, batch_id: int) -> str | None:
    """Return the text of a checkpoint's `offsets/<batch_id>`; None if it cannot be read."""
    try:
        return read_file(df, f"{checkpoint}/offsets/{batch_id}")
    except (OSError, ValueError, ImportError, Py4JError) as error:
        # The ledger then compares query ids alone: replays are still found, but a checkpoint that
        # was cut or restored may not be.
        _log.warning("source offsets of batch %d cannot be read: %s", batch_id, error)
        return None


def _read(path: str) -> bytes:
    local = _local_path(path)
    if local is not None:
        return local.read_bytes()
    with fsspec.open(path, "rb") as file:
        return bytes(file.read())


def _local_path(path: str) -> Path | None:
    # As Hadoop's Path: nothing is decoded; `%20`, `#` and `?` are parts of a name.
    scheme = _SCHEME.match(path)
    if scheme is None:
        return Path(path)
    if scheme["name"] != "file":
        return None
    return Path(f"/{path[scheme.end() :].lstrip('/')}")


def _in_java(df: DataFrame) -> tuple[Any, Any]:
    """Return the JVM of a DataFrame, and its session there: pyspark offers no public way."""
    return df.sparkSession._jvm, df._jdf.sparkSession()  # noqa: SLF001


@dataclass(slots=True, kw_only=True)
class StartedBatch:
    """The last batch that a sink of this process has started to write."""

    run_id: str | None
    batch_id: int
    nonce: str
    """Drawn for each sink."""
    is_done: bool = False
    """True after the sink has returned; one that failed may try again."""


_started: dict[tuple[str, str, str, str], StartedBatch] = {}
"""By table, application, writer and query."""


def start_batch(table: Table, batch: Batch, identity: QueryIdentity, nonce: str) -> StartedBatch:
    """Return the record that the sink `nonce` has started `batch`.

    Raises:
        DuplicateWriterError: this batch was written under the same name before in this run.
    """
    key = table.table_id, batch.application, batch.writer, identity.query_id
    last = _started.get(key)
    if (
        last is not None
        and (last.run_id, last.batch_id) == (identity.run_id, batch.batch_id)
        and (last.nonce != nonce or last.is_done)
    ):
        raise DuplicateWriterError(
            "a query writes twice to one table under the same name in one batch; the second write "
            "would be taken for a replay of the first, or refused later on if it is to another "
            "branch. Give this sink a writer= of its own, leave the other sink's as it is, and "
            "call each once in each batch",
            branch=table.committer.branch.name,
            application=batch.application,
            writer=batch.writer,
            batch=batch.batch_id,
        )
    started = StartedBatch(run_id=identity.run_id, batch_id=batch.batch_id, nonce=nonce)
    _started[key] = started
    return started


_KEPT = 4
"""Batches whose offsets are remembered: this one, the previous one, and the ledger's last two."""


class QueryCheckpoint:
    """The facts of a query's checkpoint that the ledger is compared with, each read once."""

    def __init__(self, root: str | None, df: DataFrame | None = None) -> None:
        """Keep the checkpoint's folder, and a DataFrame of the query to read it through Spark."""
        self._root = root
        self._df = df
        self._offsets: dict[int, SourceOffsets | None] = {}
        self._metadata: object = None
        self._knows_metadata = False

    def passed_on(self, root: str | None, df: DataFrame) -> QueryCheckpoint:
        """Return the checkpoint for the next batch of a run, with the facts read so far."""
        if root != self._root:
            return QueryCheckpoint(root, df)
        self._df = df
        return self

    def find_offsets(self, batch_id: int) -> SourceOffsets | None:
        """Return the source offsets of a batch; None and a warning if they cannot be read."""
        if self._root is None:
            return None
        if batch_id not in self._offsets:
            self._offsets[batch_id] = offsets_of(
                batch_id, read_offsets(self._df, self._root, batch_id)
            )
        found = self._offsets.pop(batch_id)
        self._offsets[batch_id] = found  # the newest is last
        while len(self._offsets) > _KEPT:
            del self._offsets[next(iter(self._offsets))]
        return found

    def find_sources(
        self, batch_id: int, planned: Sequence[PlannedSource] = ()
    ) -> tuple[SourcePosition, ...] | None:
        """Return how far a batch has read the tables among its sources; None if not known.

        `planned` are the sources of the query, in the order of its plan.
        """
        offsets = self.find_offsets(batch_id)
        if offsets is None or offsets.text is None:
            return None
        try:
            return find_sources(offsets.text, planned)
        except (UnsupportedFormatError, CorruptObjectError) as error:
            _log.warning("the sources of batch %d are not recorded: %s", batch_id, error)
            return None

    def find_query_id(self) -> object:
        """Return the query's id; None and a warning if it cannot be read."""
        metadata = self._load_metadata()
        return metadata.get("id") if isinstance(metadata, dict) else None

    def find_ancestors(self) -> tuple[Ancestor, ...]:
        """Return the queries from whose checkpoints this one was forked."""
        return ancestors_in(self._load_metadata())

    def find_rebuilt_from(self) -> Ancestor | None:
        """Return the query whose lost checkpoint was rebuilt as this one; None if none was."""
        return rebuilt_from_in(self._load_metadata())

    def _load_metadata(self) -> object:
        if self._root is None or self._knows_metadata:
            return self._metadata
        self._knows_metadata = True
        try:
            text = read_file(self._df, f"{self._root}/metadata")
            self._metadata = load_json(text.encode())
        except (OSError, ValueError, ImportError, Py4JError, CorruptObjectError) as error:
            _log.warning("the checkpoint's metadata cannot be read: %s", error)
        return self._metadata
