"""Whose micro-batch this is: the query, its run, and what its checkpoint says the batch holds.

What the sinks of this process have in hand: tells a replay from a second write of one batch.

Rule: in one run of a query a name, which is application and writer, commits a batch once. What
Spark delivers again it delivers in another run.

The checkpoint of the query that delivers a batch, as far as the ledger is compared with it.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from fuse_stream.commit.ledger import Batch, offsets_of
from fuse_stream.errors import CorruptObjectError, DuplicateWriterError, InvalidInputError
from fuse_stream.format.forked import Ancestor, ancestors_in, rebuilt_from_in
from fuse_stream.format.jsonio import load_json
from fuse_stream.format.records import SourceOffsets
from fuse_stream.on_demand import OnDemand
from fuse_stream.table.handle import Table

if TYPE_CHECKING:
    import fsspec
else:
    fsspec = OnDemand("fsspec")

QUERY_ID_PROPERTY = "sql.streaming.queryId"

_RUN_ID_PROPERTY = "spark.jobGroup.id"

_SCHEME = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9+.-]*):(?://[^/]*)?(?=/)")

_running: dict[str, QueryIdentity] = {}
"""By query id: the last run of each query that this process has seen; asking takes a while."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryIdentity:
    """A streaming query as it calls `foreachBatch`."""

    query_id: str
    """Kept in the checkpoint: the same over restarts."""
    run_id: str | None = None
    """New with every start; None where Spark does not tell."""
    checkpoint: str | None = None


def is_connect(df: DataFrame) -> bool:
    """Whether `df` lives in a Spark Connect session, which has no JVM at hand."""
    return not hasattr(df, "_jdf")


def identify(df: DataFrame, checkpoint: str | None) -> QueryIdentity | None:
    """Return the query that delivers `df`; None outside a query.

    Args:
        df: the batch, as `foreachBatch` got it.
        checkpoint: where the user says that the checkpoint is. Spark's own word counts before it,
            where Spark tells: on Spark Connect it does not.
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
    # Spark names the job group after the run; where the user names it, the long way tells the run.
    if known is not None and known.run_id == context.getLocalProperty(_RUN_ID_PROPERTY):
        return known
    jvm = _jvm(df)
    execution = (
        df._jdf.sparkSession()  # noqa: SLF001 - the same
        .sharedState()
        .activeStreamingQueries()
        .get(jvm.java.util.UUID.fromString(query_id))
    )
    if execution is None:
        return QueryIdentity(query_id=query_id, checkpoint=checkpoint)
    _running[query_id] = QueryIdentity(
        query_id=query_id,
        run_id=execution.runId().toString(),
        checkpoint=execution.resolvedCheckpointRoot(),
    )
    return _running[query_id]


def query_id_of(checkpoint: str) -> str:
    """Return the query id that a checkpoint's `metadata` holds.

    Raises:
        InvalidInputError: there is no checkpoint there.
    """
    try:
        return str(orjson.loads(_read(f"{checkpoint}/metadata"))["id"])
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInputError(
            "there is no Spark checkpoint here; pass checkpoint= the query's checkpointLocation",
            checkpoint=checkpoint,
        ) from error


def read_file(df: DataFrame | None, path: str) -> str:
    """Return the text of a checkpoint's file, through Spark where only Spark can read it.

    Raises:
        OSError, ValueError, ImportError, Py4JError: it cannot be read.
    """
    if df is None or is_connect(df) or _local_path(path) is not None:
        return _read(path).decode()
    return _read_with_hadoop(df, path)


def read_offsets(df: DataFrame, checkpoint: str | None, batch_id: int) -> str | None:
    """Return the text of a checkpoint's `offsets/<batch_id>`; None if it cannot be read."""
    if checkpoint is None or is_connect(df) or _local_path(checkpoint) is not None:
        return read_offsets_at(checkpoint, batch_id)
    try:
        return read_file(df, f"{checkpoint}/offsets/{batch_id}")
    except Py4JError as error:
        _warn_unread(batch_id, error)
        return None


def read_offsets_at(checkpoint: str | None, batch_id: int) -> str | None:
    """Return what `read_offsets` does, in a process without a session."""
    if checkpoint is None:
        return None
    try:
        return _read(f"{checkpoint}/offsets/{batch_id}").decode()
    except (OSError, ValueError, ImportError) as error:
        _warn_unread(batch_id, error)
        return None


def _warn_unread(batch_id: int, error: Exception) -> None:
    # The ledger then compares ids alone; the commit is as safe, a cut checkpoint less visible.
    _log.warning("source offsets of batch %d cannot be read: %s", batch_id, error)


def _read(path: str) -> bytes:
    local = _local_path(path)
    if local is not None:
        return local.read_bytes()
    with fsspec.open(path, "rb") as file:
        return bytes(file.read())


def _local_path(path: str) -> Path | None:
    # As Hadoop's Path has it: nothing is decoded, `%20`, `#` and `?` are parts of a name.
    scheme = _SCHEME.match(path)
    if scheme is None:
        return Path(path)
    if scheme["name"] != "file":
        return None
    return Path(f"/{path[scheme.end() :].lstrip('/')}")


def _jvm(df: DataFrame) -> Any:
    return df.sparkSession._jvm  # noqa: SLF001 - pyspark offers no public way


def _read_with_hadoop(df: DataFrame, path: str) -> str:
    jvm = _jvm(df)
    file = jvm.org.apache.hadoop.fs.Path(path)
    session = df._jdf.sparkSession()  # noqa: SLF001 - the same
    stream = file.getFileSystem(session.sessionState().newHadoopConf()).open(file)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


@dataclass(slots=True, kw_only=True)
class InHand:
    """The last batch that a sink of this process took in hand."""

    run_id: str | None
    batch_id: int
    nonce: str
    """Which sink it was."""
    is_done: bool = False
    """Whether it is through; one that failed may try again."""


_in_hand: dict[tuple[str, str, str, str, str], InHand] = {}
"""By table, branch, application, writer and query."""


def take_in_hand(table: Table, batch: Batch, identity: QueryIdentity, nonce: str) -> InHand:
    """Note that the sink `nonce` handles `batch`.

    Raises:
        DuplicateWriterError: a sink of this name did so in the same run.
    """
    key = (
        table.table_id,
        table.committer.branch_id,
        batch.application,
        batch.writer,
        identity.query_id,
    )
    last = _in_hand.get(key)
    if (
        last is not None
        and (last.run_id, last.batch_id) == (identity.run_id, batch.batch_id)
        and (last.nonce != nonce or last.is_done)
    ):
        raise DuplicateWriterError(
            "a query writes twice to one table under the same name in one batch, and the second "
            "time would pass for a replay of the first; give each sink its own writer=, and call "
            "it once a batch",
            application=batch.application,
            writer=batch.writer,
            batch=batch.batch_id,
        )
    taken = InHand(run_id=identity.run_id, batch_id=batch.batch_id, nonce=nonce)
    _in_hand[key] = taken
    return taken


_KEPT = 4
"""Batches whose offsets are remembered: this one, the one before, and the ledger's last."""


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
