"""Write a batch DataFrame as one commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from fuse_stream.commit.ledger import Batch, Verdict
from fuse_stream.commit.plan import Intent, NothingToDoError, Staged
from fuse_stream.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import flag_in, names_in
from fuse_stream.format.properties import Duration
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.objects.slots import Stored
from fuse_stream.on_demand import OnDemand
from fuse_stream.spark.collect import RowMapper
from fuse_stream.spark.frame import FrameRows, keys_in, open_or_create
from fuse_stream.spark.frame_events import FrameEvents, event_columns, warn_of_plain_events
from fuse_stream.spark.types import columns_of_spark, is_case_sensitive
from fuse_stream.table.arriving import api_batch
from fuse_stream.table.handle import Table, open_at
from fuse_stream.table.location import TableLocation

if TYPE_CHECKING:
    from fuse_stream.dml import event_rules
else:  # the workers of Spark load this module
    event_rules = OnDemand("fuse_stream.dml.event_rules")

_OPERATIONS = {"overwrite": Operation.OVERWRITE, "upsert": Operation.UPSERT}
MODES = ("append", "overwrite", "upsert", "errorifexists", "ignore")


def write(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    mode: str = "append",
    keys: Sequence[str] | None = None,
    branch: str = MAIN,
    app_id: str | None = None,
    batch_id: int | None = None,
    writer: str = "",
    cluster_by: Sequence[str] = (),
    merge_schema: bool = False,
    message: str = "",
    author: str = "",
    sequence_by: str | Sequence[str] | None = None,
    apply_as_deletes: str | None = None,
    apply_as_truncates: str | None = None,
    except_column_list: Sequence[str] = (),
    ignore_null_updates: bool = False,
    stored_as_scd_type: int = 1,
    track_history_column_list: Sequence[str] | None = None,
    tombstones: Duration | None = None,
    on_bad: str = "quarantine",
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[str] = (),
    unsafe_single_writer: bool = False,
) -> Snapshot:
    """Write a batch DataFrame as one snapshot, and return the snapshot.

    If there is no table, it is created, with every column nullable. With `app_id` and `batch_id`
    the call is safe to repeat: the same rows under an equal number are a replay, which writes
    nothing and returns the snapshot whose ledger already names the batch, with `replayed=True`. The
    plan of a replay runs, to compare its rows.

    Args:
        df: the rows. Its plan runs in Spark's tasks; twice if a row has more than 16 KiB.
        path: the table: a local path or an fsspec URL.
        mode: "append"; "overwrite"; "upsert", which replaces the rows that have the same keys;
            "errorifexists"; or "ignore", which returns the head of an existing table and writes
            nothing.
        keys: the columns by which rows are unique, for "upsert"; the first one sets them as the
            table's key.
        branch: the branch to write to.
        app_id: the application that delivers the batch.
        batch_id: the batch's number; it grows.
        writer: a name for each stream of batches, if one application has several.
        cluster_by: the columns to sort rows by; used only if the table is created.
        merge_schema: let the batch add columns and widen types.
        message: shown by the log.
        author: shown by the log; never taken from the system.
        sequence_by: for "upsert"; this and the next eight as in `fuse_sink`. All events of the
            write go through the driver.
        apply_as_deletes: as in `fuse_sink`.
        apply_as_truncates: as in `fuse_sink`.
        except_column_list: as in `fuse_sink`.
        ignore_null_updates: as in `fuse_sink`.
        stored_as_scd_type: as in `fuse_sink`.
        track_history_column_list: as in `fuse_sink`.
        tombstones: as in `fuse_sink`.
        on_bad: as in `fuse_sink`.
        storage_options: fsspec's, for a remote store.
        origins: the locations of the origins whose blocks may be read, for a clone.
        unsafe_single_writer: allow a store that cannot tell two writers apart.

    Raises:
        InvalidInputError: an argument is not valid; nothing was written.
        AmbiguousMergeError: several rows of an upsert have one key; nothing was committed.
        AlreadyExistsError: there is a table, and the mode is "errorifexists".
        SchemaMismatchError: the columns are not the table's; nothing was written.
        StreamIdentityError: a batch lower than the last one, or other rows under its number;
            nothing was committed.
        ConflictError: other writers won every attempt; nothing was committed.
        CommitStateUnknownError: the store failed; the commit may have landed.
    """
    location = TableLocation.of(
        path, branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    if mode not in MODES:
        raise InvalidInputError("there is no such mode", mode=mode, modes=list(MODES))
    if (app_id is None) != (batch_id is None):
        raise InvalidInputError(
            "app_id and batch_id go together: give both, or neither",
            app_id=app_id,
            batch_id=batch_id,
        )
    names = keys_in(mode, keys)
    rules = event_rules.event_rules(
        mode,
        sequence_by=sequence_by,
        apply_as_deletes=apply_as_deletes,
        apply_as_truncates=apply_as_truncates,
        except_column_list=except_column_list,
        ignore_null_updates=ignore_null_updates,
        stored_as_scd_type=stored_as_scd_type,
        track_history_column_list=track_history_column_list,
        tombstones=tombstones,
        on_bad=on_bad,
    )
    takes_events = mode == "upsert" and rules.take_events(df.columns)
    batch = api_batch(app_id, batch_id, writer)
    merge_schema = flag_in("merge_schema", merge_schema)
    if mode in {"errorifexists", "ignore"} and (existing := _find_existing(location, mode)):
        return existing
    case_sensitive = is_case_sensitive(df.sparkSession)
    operation = _OPERATIONS.get(mode, Operation.APPEND)
    table = open_or_create(
        location,
        event_columns(df.schema, rules) if takes_events else columns_of_spark(df.schema),
        cluster_by=names_in("cluster_by", cluster_by),
        case_sensitive=case_sensitive,
        operation=operation,
        keys=names,
    )
    warn_of_plain_events(df.columns, operation, location.path)
    examined = table.committer.examine(batch)
    rows = _rows(
        df,
        table,
        rules if takes_events else None,
        operation=operation,
        keys=names,
        batch=batch,
        merge_schema=merge_schema,
    )
    if examined.verdict is not Verdict.REPLAY:
        rows.collect(examined.head, None)
    intent = Intent(operation=operation, batch=batch, message=message, author=author)
    stage: Callable[[Stored, Staged | None], Staged] = rows.stage
    if operation is Operation.UPSERT and isinstance(rows, FrameRows):
        stage = rows.upsert_by(names, may_be_empty=batch is not None)
    try:
        outcome = table.committer.commit(intent, stage, examined=examined, measure=rows.measure)
    except NothingToDoError:  # an upsert of no rows
        return table.head()
    if isinstance(rows, FrameEvents):
        rows.warn_of_bad(outcome.snapshot)
    return outcome.snapshot


def _find_existing(location: TableLocation, mode: str) -> Snapshot | None:
    """Return the head of the table that is there, for "ignore"; None if there is no table.

    Raises:
        AlreadyExistsError: there is one, and the mode is "errorifexists".
    """
    try:
        existing = open_at(location)
    except NotFoundError:
        return None
    if mode == "ignore":
        return existing.head()
    raise AlreadyExistsError(
        'there is a table here already; use mode "append" or "overwrite"', path=location.path
    )


def _rows(
    df: DataFrame,
    table: Table,
    rules: event_rules.EventRules | None,
    *,
    operation: Operation,
    keys: tuple[str, ...] | None,
    batch: Batch | None,
    merge_schema: bool,
) -> FrameRows | FrameEvents:
    """Return the rows of `df`; as events, if there are rules for them."""
    case_sensitive = is_case_sensitive(df.sparkSession)
    if rules is not None:
        return FrameEvents(
            df,
            table,
            rules,
            keys=keys,
            batch=batch,
            merge_schema=merge_schema,
            case_sensitive=case_sensitive,
        )
    return FrameRows(
        df,
        table,
        RowMapper(),
        merge_schema=merge_schema,
        case_sensitive=case_sensitive,
        operation=operation,
        is_numbered=batch is not None,
    )
