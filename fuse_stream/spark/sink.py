"""The sink: it commits each micro-batch as one snapshot, exactly once.

Rules:
- The ledger of the head that the commit builds on decides about a batch (`commit/ledger`).
- A replay writes nothing to the table, but its plan runs: Spark stops a stateful query whose state
  stores did not all commit.
- A second sink under the same name is not a replay: `identity` remembers the batches of this
  process.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame

from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.commit.committer import Examined
from fuse_stream.commit.ledger import Batch, Verdict, application_of
from fuse_stream.commit.plan import Intent, Staged, check_texts
from fuse_stream.errors import FuseError, InvalidInputError, SchemaMismatchError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import flag_in, names_in
from fuse_stream.format.one_line import one_line
from fuse_stream.format.properties import Duration
from fuse_stream.format.records import Operation
from fuse_stream.format.sequenced import Counts
from fuse_stream.objects.slots import Stored
from fuse_stream.on_demand import OnDemand
from fuse_stream.spark.collect import FetchPolicy, RowMapper
from fuse_stream.spark.frame import FrameRows, keys_in, open_or_create
from fuse_stream.spark.frame_changes import FrameChanges, table_columns
from fuse_stream.spark.frame_events import FrameEvents, event_columns, warn_of_plain_events
from fuse_stream.spark.identity import (
    QueryCheckpoint,
    QueryIdentity,
    identify,
    is_connect,
    start_batch,
)
from fuse_stream.spark.options import WriteOptions
from fuse_stream.spark.types import columns_of_spark, is_case_sensitive
from fuse_stream.storage.open import expand_home, path_text
from fuse_stream.table.handle import Table
from fuse_stream.table.location import TableLocation

if TYPE_CHECKING:
    from fuse_stream.dml import event_rules
    from fuse_stream.optimizer import sidecar
else:
    event_rules = OnDemand("fuse_stream.dml.event_rules")
    sidecar = OnDemand("fuse_stream.optimizer.sidecar")

_MODES = {
    "append": Operation.APPEND,
    "overwrite": Operation.OVERWRITE,
    "upsert": Operation.UPSERT,
    "replicate": Operation.REPLICATE,
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    """The outcome of one micro-batch."""

    version: int
    """The version that holds the batch; for an empty batch the head."""
    outcome: Literal["committed", "replay", "empty"]
    batch_id: int
    application: str
    writer: str
    rows: int
    bytes: int
    """In memory, uncompressed."""
    blocks: int
    counts: Counts | None = None
    """What became of the events, if the batch had events with sequences."""
    attempts: int = 0
    """How many slots were tried: 1 unless other writers were faster."""
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    """By phase: `examine` (the ledger), `write` (the plan and its blocks), `publish`."""

    __repr__ = one_line("version outcome batch_id application writer rows blocks attempts")


def fuse_sink(
    path: str | os.PathLike[str],
    *,
    branch: str = MAIN,
    app_id: str | None = None,
    writer: str = "",
    mode: str = "append",
    keys: Sequence[str] | None = None,
    cluster_by: Sequence[str] = (),
    merge_schema: bool = False,
    adopt: str | None = None,
    checkpoint: str | None = None,
    commit_empty: bool = False,
    message: str = "",
    author: str = "",
    optimize: str = "auto",
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
) -> FuseSink:
    """Return a function for `foreachBatch` that commits each micro-batch as one snapshot, once.

    If there is no table, the first batch creates it, with every column nullable.

    Args:
        path: the table: a local path or an fsspec URL.
        branch: the branch to write to.
        app_id: the application's name in the ledger; each query of a table needs its own.
        writer: a name for each sink, if one query has several sinks into one table.
        mode: "append"; "overwrite" for `outputMode("complete")`; or "upsert": each row replaces the
            row that has its key. Without `sequence_by`, two rows of one key in a batch are an
            error. Or "replicate", for a stream of `feed=changes`: its deletes and inserts are
            applied, to a table without a key.
        keys: the columns by which rows are unique, for "upsert"; the first batch sets them as the
            table's key.
        cluster_by: the columns to sort rows by; used only if the table is created.
        merge_schema: let a batch add columns and widen types.
        adopt: the query id in the ledger whose place this query takes, after the checkpoint was
            lost or replaced. Has no effect afterwards.
        checkpoint: the query's `checkpointLocation`; needed on Spark Connect.
        commit_empty: also commit batches without rows.
        message: shown by the log.
        author: shown by the log; never taken from the system.
        optimize: "auto": a process beside this one optimizes the table; or "off".
        sequence_by: for "upsert": the column, or the columns, by which the events of a key are
            ordered. The rows are events then: they may come in any order, late and repeatedly. For
            a frame made by `from_debezium` or its siblings this and the next two are known.
        apply_as_deletes: a SQL predicate: which events delete their key.
        apply_as_truncates: a SQL predicate: which events delete every key.
        except_column_list: columns that the table does not get.
        ignore_null_updates: a null gives no value: the column stays as it is.
        stored_as_scd_type: 1: a row is the latest state of its key; 2: each state is a row, with
            the sequences `__START_AT` and `__END_AT`.
        track_history_column_list: the columns of which a change begins a new row, for 2.
        tombstones: how long deleted keys are remembered, such as "30d"; for ever if not given. An
            older event of a key that is forgotten goes to the quarantine.
        on_bad: "quarantine" keeps events that cannot be applied in the side `quarantine`; "error"
            stops the query.
        storage_options: fsspec's, for a remote store.
        origins: the locations of the origins whose blocks may be read, for a clone.
        unsafe_single_writer: allow a store that cannot tell two writers apart.

    Raises:
        InvalidInputError: an argument is not valid. When called with a batch, the sink raises the
            errors of `Table.append`, and `DuplicateWriterError`.
    """
    location = TableLocation.of(
        path, branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    if mode not in tuple(_MODES):
        raise InvalidInputError('mode is "append", "overwrite", "upsert" or "replicate"', mode=mode)
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
    if optimize not in ("auto", "off"):
        raise InvalidInputError('optimize is "auto" or "off"', optimize=optimize)
    application_of(app_id)  # raises, before the query starts; so does the next
    check_texts(writer=writer, message=message, author=author, adopt=adopt or "")
    options = WriteOptions(
        location=location,
        app_id=app_id,
        writer=writer,
        cluster_by=names_in("cluster_by", cluster_by),
        merge_schema=flag_in("merge_schema", merge_schema),
        adopt=adopt,
        checkpoint_location=None if checkpoint is None else expand_home(path_text(checkpoint)),
        commit_empty=flag_in("commit_empty", commit_empty),
        message=message,
        author=author,
    )
    return FuseSink(options, _MODES[mode], keys=names, rules=rules, optimize=optimize == "auto")


class FuseSink:
    """Commits micro-batches; made by `fuse_sink`."""

    def __init__(
        self,
        options: WriteOptions,
        operation: Operation,
        *,
        rules: event_rules.EventRules,
        keys: tuple[str, ...] | None = None,
        optimize: bool,
    ) -> None:
        self.last_commit: CommitReport | None = None
        """The outcome of the last batch in this process."""

        self._options = options
        self._operation = operation
        self._keys = keys
        self._rules = rules
        self._optimize = optimize
        self._nonce = SYSTEM_CLOCK.new_id()
        self._table: Table | None = None
        self._case_sensitive = False
        """The session's setting, read when the table is opened: reading it is slow."""
        self._policy = FetchPolicy()
        self._mapper = RowMapper()
        self._run: tuple[tuple[str, str | None], QueryCheckpoint] | None = None

    def __repr__(self) -> str:
        options = self._options
        path, app_id, writer = options.location.path, options.app_id, options.writer
        return f"FuseSink({path!r}, app_id={app_id!r}, writer={writer!r})"

    def __getstate__(self) -> dict[str, Any]:
        # Spark Connect pickles the sink; an open table belongs to this process.
        return {**self.__dict__, "_table": None, "_policy": FetchPolicy(), "_run": None}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Commit `df` as the micro-batch `batch_id` of the calling query."""
        try:
            started_s = SYSTEM_CLOCK.monotonic_s()
            batch, identity = self._batch(df, batch_id)
            table = self._opened(df)
            examined = table.committer.examine(batch)
            started = start_batch(table, batch, identity, self._nonce)
            try:
                self._deliver(df, table, batch, examined, started_s)
            except SchemaMismatchError:
                if not table.committer.was_behind():
                    raise
                self._deliver(df, table, batch, table.committer.examine(batch), started_s)
            started.is_done = True
        except FuseError as error:
            path, kind = self._options.location.path, type(error).__name__
            fields = {"outcome": "failed", "batch_id": batch_id, "path": path, "error": kind}
            # As one line: Spark shows the error at the end of a long trace.
            message = "%s: %s batch_id=%d path=%s"
            _log.error(message, kind, error, batch_id, path, extra={"fuse": fields})
            raise

    def _deliver(
        self, df: DataFrame, table: Table, batch: Batch, examined: Examined, started_s: float
    ) -> None:
        verdict, head = examined
        examined_s = SYSTEM_CLOCK.monotonic_s()
        if verdict is Verdict.REPLAY:
            run_plan(df)
            self._report(batch, "replay", head.snapshot.version, _ms(write=examined_s))
            return
        rows = self._rows(df, table, batch)
        operation = self._operation
        if verdict is Verdict.ADOPTED_REPLAY:
            run_plan(df)
            operation = Operation.ALTER
        else:
            rows.collect(head, self._policy)
            self._policy.note(rows.row_count, rows.byte_count)
        written_s = SYSTEM_CLOCK.monotonic_s()
        is_empty = rows.row_count == 0 and operation is not Operation.ALTER
        if is_empty and not self._options.commit_empty and not self._clears(table):
            self._report(batch, "empty", head.snapshot.version, _ms(write=examined_s))
            return
        intent = Intent(
            operation=operation,
            batch=batch,
            message=self._options.message,
            author=self._options.author,
        )
        stage: Callable[[Stored, Staged | None], Staged] = rows.stage
        if operation is Operation.UPSERT and isinstance(rows, FrameRows):
            stage = rows.upsert_by(self._keys, may_be_empty=True)
        outcome = table.committer.commit(intent, stage, examined=examined)
        snapshot = outcome.stored.snapshot
        if isinstance(rows, FrameEvents):
            rows.warn_of_bad(outcome.snapshot)
        if self._optimize:
            sidecar.committed(table.location, snapshot)
        replay = outcome.verdict is Verdict.REPLAY  # another committer of this batch was faster
        self._report(
            batch,
            "replay" if replay else "committed",
            snapshot.version,
            {
                "examine": _since(started_s, examined_s),
                "write": _since(examined_s, written_s),
                "publish": _since(written_s, SYSTEM_CLOCK.monotonic_s()),
            },
            rows=rows,
            blocks=sum(ref.block_count for ref in snapshot.segments if ref.id in snapshot.added),
            attempts=outcome.attempts,
        )

    def _rows(
        self, df: DataFrame, table: Table, batch: Batch
    ) -> FrameRows | FrameChanges | FrameEvents:
        merge_schema, case_sensitive = self._options.merge_schema, self._case_sensitive
        if self._takes_events(df):
            return FrameEvents(
                df,
                table,
                self._rules,
                keys=self._keys,
                batch=batch,
                merge_schema=merge_schema,
                case_sensitive=case_sensitive,
            )
        if self._operation is Operation.REPLICATE:
            return FrameChanges(df, table, merge_schema=merge_schema, case_sensitive=case_sensitive)
        return FrameRows(
            df,
            table,
            self._mapper,
            merge_schema=merge_schema,
            case_sensitive=case_sensitive,
            operation=self._operation,
        )

    def _takes_events(self, df: DataFrame) -> bool:
        return self._operation is Operation.UPSERT and self._rules.take_events(df.columns)

    def _clears(self, table: Table) -> bool:
        """True if a batch without rows changes the table; reads the head, as others write too."""
        is_overwrite = self._operation is Operation.OVERWRITE
        return is_overwrite and table.head().summary.row_count > 0

    def _batch(self, df: DataFrame, batch_id: int) -> tuple[Batch, QueryIdentity]:
        options = self._options
        if is_connect(df) and (options.app_id is None or options.checkpoint_location is None):
            raise InvalidInputError(
                "on Spark Connect a sink cannot see its query; pass app_id= and checkpoint= (the "
                "query's checkpointLocation) to fuse_sink",
                app_id=options.app_id,
                checkpoint=options.checkpoint_location,
            )
        identity = identify(df, options.checkpoint_location)
        if identity is None:
            raise InvalidInputError(
                "a sink commits the micro-batches of a running query: use it in foreachBatch, and "
                "start threads there with pyspark's inheritable_thread_target; for a batch "
                "DataFrame use fuse.write",
                batch_id=batch_id,
            )
        if identity.is_complete and self._operation is Operation.APPEND:
            raise InvalidInputError(
                'with outputMode("complete") each batch is the whole result: pass mode="overwrite" '
                'to fuse_sink, use outputMode("update"), or append each result with fuse.write',
                batch_id=batch_id,
            )
        planned = self._planned_by(df, identity)
        batch = Batch(
            application=application_of(options.app_id),
            writer=options.writer,
            query_id=identity.query_id,
            batch_id=batch_id,
            offsets=planned.find_offsets(batch_id),
            sources=planned.find_sources(batch_id, identity.sources),
            adopt=options.adopt,
            checkpoint=planned,
        )
        return batch, identity

    def _planned_by(self, df: DataFrame, identity: QueryIdentity) -> QueryCheckpoint:
        """Return the query's checkpoint, with the facts already read in the same run."""
        run = identity.query_id, identity.run_id
        if self._run is None or self._run[0] != run or identity.run_id is None:
            checkpoint = QueryCheckpoint(identity.checkpoint, df)
        else:
            checkpoint = self._run[1].passed_on(identity.checkpoint, df)
        self._run = run, checkpoint
        return checkpoint

    def _opened(self, df: DataFrame) -> Table:
        if self._table is None:
            self._case_sensitive = is_case_sensitive(df.sparkSession)
            if self._takes_events(df):
                columns = event_columns(df.schema, self._rules)
            else:
                columns = columns_of_spark(df.schema)
            if self._operation is Operation.REPLICATE:
                columns = table_columns(columns)
            self._table = open_or_create(
                self._options.location,
                columns,
                cluster_by=self._options.cluster_by,
                case_sensitive=self._case_sensitive,
                operation=self._operation,
                keys=self._keys,
            )
            warn_of_plain_events(df.columns, self._operation, self._options.location.path)
        return self._table

    def _report(
        self,
        batch: Batch,
        outcome: Literal["committed", "replay", "empty"],
        version: int,
        milliseconds: Mapping[str, float],
        *,
        rows: FrameRows | FrameChanges | FrameEvents | None = None,
        blocks: int = 0,
        attempts: int = 0,
    ) -> None:
        report = CommitReport(
            version=version,
            outcome=outcome,
            batch_id=batch.batch_id,
            application=batch.application,
            writer=batch.writer,
            rows=rows.row_count if rows else 0,
            bytes=rows.byte_count if rows else 0,
            blocks=blocks,
            counts=rows.counts if isinstance(rows, FrameEvents) else None,
            attempts=attempts,
            milliseconds=milliseconds,
        )
        self.last_commit = report
        fields = {**dataclasses.asdict(report), "path": self._options.location.path}
        line = " ".join(f"{name}={value}" for name, value in fields.items())
        _log.info("%s", line, extra={"fuse": fields})


def run_plan(df: DataFrame) -> None:
    """Run the plan of `df` and discard the rows."""
    df.write.format("noop").mode("overwrite").save()


def _ms(*, write: float) -> dict[str, float]:
    return {"write": _since(write, SYSTEM_CLOCK.monotonic_s())}


def _since(start_s: float, end_s: float) -> float:
    return round((end_s - start_s) * 1000, 1)
