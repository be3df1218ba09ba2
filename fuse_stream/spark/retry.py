"""Read messages of the quarantine again, and apply them: `fuse.retry`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from fuse_stream.commit.plan import Intent
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import flag_in
from fuse_stream.format.records import Operation
from fuse_stream.on_demand import OnDemand
from fuse_stream.spark.collect import fetch_all
from fuse_stream.spark.frame_events import marked
from fuse_stream.spark.types import is_case_sensitive
from fuse_stream.table.handle import open_at
from fuse_stream.table.location import TableLocation

if TYPE_CHECKING:
    from fuse_stream.dml import event_rules, events, messages, result
else:  # the workers of Spark load this module
    event_rules = OnDemand("fuse_stream.dml.event_rules")
    events = OnDemand("fuse_stream.dml.events")
    messages = OnDemand("fuse_stream.dml.messages")
    result = OnDemand("fuse_stream.dml.result")


def retry(
    spark: SparkSession,
    path: str | os.PathLike[str],
    read: Callable[[DataFrame], DataFrame],
    *,
    where: str | None = None,
    too_late: bool = False,
    ignore_null_updates: bool = False,
    merge_schema: bool = False,
    dry_run: bool = False,
    branch: str = MAIN,
    message: str = "",
    author: str = "",
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[str] = (),
    unsafe_single_writer: bool = False,
) -> result.ChangeResult:
    """Read messages of the side `quarantine` again, and apply their events, as one snapshot.

    Like `Table.retry`, for the messages of which only the text was kept, because their reader could
    not read them. `read` may correct the text first, or read it by another schema. A message leaves
    the quarantine in the commit that applies its events, if all of them are good. Otherwise it
    stays as it is; its good events are applied. A message of which `read` makes no event stays.
    Safe at any time: what the table has already changes nothing.

    The messages and their events go through the driver.

    Args:
        spark: the session.
        path: the table: a local path or an fsspec URL.
        read: gets a DataFrame with columns of Kafka's source, `key`, `value`, `topic`, `partition`
            and `offset`, and returns what `from_debezium` or one of its siblings makes of it.
            `key` is null, because it is not kept. A message without an offset has a partition
            below 0.
        where: a SQL predicate over the columns of the quarantine, such as
            "reason = 'unreadable'"; all messages if not given. A message counts with all its rows.
        too_late: apply events that came after their key was forgotten, too.
        ignore_null_updates: as the sink of the table has it: a null gives no value.
        merge_schema: let the events add columns and widen types.
        dry_run: read, count the events and those with an `_error`, and write nothing.
        branch: the branch to change.
        message: shown by the log.
        author: shown by the log; never taken from the system.
        storage_options: fsspec's, for a remote store.
        origins: the locations of the origins whose blocks may be read, for a clone.
        unsafe_single_writer: allow a store that cannot tell two writers apart.

    Returns:
        The commit, and the numbers of rows and events: `quarantined` are the events that cannot be
        applied still. No commit if nothing has changed.

    Raises:
        InvalidInputError: an unknown column or a broken predicate; `read` is no function; or what
            it returns is not what a reader makes of these messages. Nothing was written.
        SchemaMismatchError: the columns are not the table's; nothing was written.
        ConflictError: other writers won every attempt; nothing was committed.
        CommitStateUnknownError: the store failed; the commit may have landed.
    """
    location = TableLocation.of(
        path, branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    how = messages.Reread(
        too_late=flag_in("too_late", too_late),
        ignore_null_updates=flag_in("ignore_null_updates", ignore_null_updates),
        merge_schema=flag_in("merge_schema", merge_schema),
        case_sensitive=is_case_sensitive(spark),
    )
    if not callable(read):
        raise InvalidInputError(
            "read is a function that gets the messages as a DataFrame and returns their events, "
            "such as lambda df: fuse.from_debezium(df, schema)",
            type=type(read).__name__,
        )
    is_dry = flag_in("dry_run", dry_run)
    table = open_at(location)
    found = messages.find_messages(table.metadata, table.committer.head().snapshot, where)
    if not len(found.frame):
        return result.ChangeResult()
    made = _events(_read(spark, found.frame, read))
    if is_dry:
        bad = len(made) - made.error.null_count
        return result.ChangeResult(events=len(made), quarantined=bad)
    intent = Intent(operation=Operation.RETRY, author=author, message=message)
    return messages.apply_messages(table.committer, found, made, how, intent)


def _read(
    spark: SparkSession, frame: pa.Table, read: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    """Return what `read` makes of messages."""
    df: object = read(spark.createDataFrame(frame))
    if not isinstance(df, DataFrame) or not events.has_envelope(df.columns):
        raise InvalidInputError(
            "read returns what from_debezium or one of its siblings makes of the messages, such as "
            "lambda df: fuse.from_debezium(df, schema)",
            columns=df.columns if isinstance(df, DataFrame) else type(df).__name__,
        )
    return df


def _events(df: DataFrame) -> events.Events:
    rules = event_rules.EventRules()
    return rules.read_marked(fetch_all(marked(df, rules)))
