"""Writing a batch DataFrame as one commit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from fuse_stream.commit.ledger import DEFAULT_APPLICATION, Batch, Verdict
from fuse_stream.commit.plan import Intent
from fuse_stream.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.spark.collect import RowMapper
from fuse_stream.spark.frame import FrameRows, open_or_create
from fuse_stream.spark.types import columns_of_spark, is_case_sensitive
from fuse_stream.table.handle import Table, open_at
from fuse_stream.table.location import TableLocation

MODES = ("append", "overwrite", "errorifexists", "ignore")


def write(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    mode: str = "append",
    branch: str = MAIN,
    app_id: str | None = None,
    batch_id: int | None = None,
    writer: str = "",
    cluster_by: Sequence[str] = (),
    merge_schema: bool = False,
    message: str = "",
    author: str = "",
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[str] = (),
    unsafe_single_writer: bool = False,
) -> Snapshot:
    """Write a batch DataFrame as one snapshot, and return it.

    The table is created if it is not there, every column nullable. With `app_id` and `batch_id`
    the call is safe to repeat: an equal batch is a replay, which runs nothing and returns the
    snapshot in which the batch was found.

    Args:
        df: the rows. Its plan runs in Spark's tasks; again if there are rows of more than 16 KiB.
        path: the table: a local path or an fsspec URL.
        mode: "append"; "overwrite"; "errorifexists"; or "ignore", which leaves a table that is
            there alone and returns its head.
        branch: of the table.
        app_id: who delivers the batch.
        batch_id: which delivery it is; grows.
        writer: tells the streams of one application apart.
        cluster_by: columns in whose order rows stand; counts when the table is created.
        merge_schema: let the batch add columns and widen types.
        message: shown by the log.
        author: shown by the log; never taken from the system.
        storage_options: fsspec's, for a remote store.
        origins: where the tables are whose blocks it may read, if it is a clone.
        unsafe_single_writer: allow a store that cannot tell two writers apart.

    Raises:
        InvalidInputError: an argument cannot stand; nothing was written.
        AlreadyExistsError: there is a table, and the mode is "errorifexists".
        SchemaMismatchError: the columns are not the table's; nothing was written.
        StreamIdentityError: a batch lower than the last one; nothing was committed.
        ConflictError: other writers won every attempt; nothing was committed.
        CommitStateUnknownError: the store failed; the commit may have landed.
    """
    location = TableLocation.of(
        path,
        branch=branch,
        storage_options=storage_options,
        origins=origins,
        unsafe_single_writer=unsafe_single_writer,
    )
    if mode not in MODES:
        raise InvalidInputError("there is no such mode", mode=mode, modes=list(MODES))
    if (app_id is None) != (batch_id is None):
        raise InvalidInputError(
            "app_id and batch_id go together: who delivers, and which delivery it is",
            app_id=app_id,
            batch_id=batch_id,
        )
    if mode in {"errorifexists", "ignore"}:
        standing = _table_if_any(location)
        if standing is not None and mode == "ignore":
            return standing.head()
        if standing is not None:
            raise AlreadyExistsError(
                'there is a table here already; use mode "append" or "overwrite"', path=str(path)
            )
    case_sensitive = is_case_sensitive(df.sparkSession)
    table = open_or_create(
        location,
        columns_of_spark(df.schema),
        cluster_by=tuple(cluster_by),
        case_sensitive=case_sensitive,
    )
    batch = None
    if batch_id is not None:
        batch = Batch(application=app_id or DEFAULT_APPLICATION, writer=writer, batch_id=batch_id)
    examined = table.committer.examine(batch)
    if examined.verdict is Verdict.REPLAY:
        return examined.head.snapshot
    rows = FrameRows(
        df, table, RowMapper(), merge_schema=merge_schema, case_sensitive=case_sensitive
    )
    rows.collect(examined.head, policy=None)
    operation = Operation.OVERWRITE if mode == "overwrite" else Operation.APPEND
    intent = Intent(operation=operation, batch=batch, message=message, author=author)
    return table.committer.commit(intent, rows.stage, examined=examined).stored.snapshot


def _table_if_any(location: TableLocation) -> Table | None:
    try:
        return open_at(location)
    except NotFoundError:
        return None
