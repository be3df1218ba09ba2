"""Whose micro-batch this is: the query, its run, and what its checkpoint says the batch holds."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from fuse_stream.errors import InvalidInputError
from fuse_stream.on_demand import on_demand

QUERY_ID_PROPERTY = "sql.streaming.queryId"

_RUN_ID_PROPERTY = "spark.jobGroup.id"

_SCHEME = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9+.-]*):(?://[^/]*)?(?=/)")

_open_remote = on_demand("fsspec", "open")

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
    with _open_remote(path, "rb") as file:
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
