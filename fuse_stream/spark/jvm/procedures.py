"""`CALL lake.system.<procedure>(...)`: verbs of this package as procedures of Spark's SQL.

A procedure is a row of `PROCEDURES`: its parameters, the columns of its result, and a function that
does the work. The columns are named as the fields of the records that the functions return.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence

from pyspark.sql import SparkSession

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.records import Snapshot
from fuse_stream.optimize.compact import CompactionResult
from fuse_stream.optimize.recluster import ReclusterResult
from fuse_stream.spark.compact import compact
from fuse_stream.spark.jvm.procedure import (
    BoundProcedure,
    Call,
    Locate,
    Parameter,
    Procedure,
    UnboundProcedure,
)
from fuse_stream.table.metadata_tables import Row, batch_name, batch_names
from fuse_stream.table.pipelines import rewind
from fuse_stream.table.verbs import clone

SYSTEM = "system"
"""The namespace of the procedures."""


def _rewind(call: Call) -> Iterator[Row]:
    done = rewind(
        **call.place(),
        **call.only(
            "version",
            "timestamp",
            "after_batch",
            "app_id",
            "checkpoints",
            "retire",
            "dry_run",
            "on_conflict",
            "message",
            "author",
        ),
    )
    yield (
        done.outcome,
        _version(done.snapshot),
        _version(done.target),
        done.before,
        done.deleted_rows,
        done.inserted_rows,
        [f"{fork.old} -> {fork.new}" for fork in done.forks],
        list(done.retired),
        [f"{type(error).__name__}: {error}" for error in done.obstacles],
    )


def _revert(call: Call) -> Iterator[Row]:
    done = call.open().revert(call["version"], **call.only("on_conflict", "message", "author"))
    yield done.version, done.snapshot_id, done.summary.row_count, done.message


def _bisect(call: Call) -> Iterator[Row]:
    bounds = call.only("first", "last")
    found = call.open().bisect(call["where"], **bounds, time_zone=call.time_zone()).snapshot
    if found is not None:
        yield (
            found.version,
            found.timestamp_us,
            str(found.operation),
            found.summary.row_count,
            batch_names(found),
        )


def _blame(call: Call) -> Iterator[Row]:
    for commit in call.open().blame(call["where"], time_zone=call.time_zone()):
        batch = commit.batch
        yield (
            commit.row_count,
            commit.version,
            commit.timestamp_us,
            str(commit.operation),
            None
            if batch is None
            else batch_name((batch.application, batch.writer), batch.batch_id),
            commit.message,
            commit.is_exact,
        )


def _set_key(call: Call) -> Iterator[Row]:
    yield call.open().set_key(call["columns"]).version, call["columns"]


def _expire(call: Call) -> Iterator[Row]:
    done = call.open().expire(**call.only("older_than", "keep_last", "dry_run"))
    yield (
        _version(done.snapshot),
        done.floor_before,
        done.floor,
        done.expired_count,
        done.kept_by_grace,
        list(done.left_behind),
    )


def _vacuum(call: Call) -> Iterator[Row]:
    done = call.open().vacuum(**call.only("dry_run"))
    yield (
        done.object_count,
        done.byte_size,
        done.waiting_count,
        list(done.raised),
        done.due_us,
    )


def _compact(call: Call) -> Iterator[Row]:
    yield _compacted(compact(call.spark, **call.place(), **call.only("limit")))


def _recluster(call: Call) -> Iterator[Row]:
    done = call.open().recluster(**call.only("limit"))
    yield (*_compacted(done), *_depths(done))


def _optimize(call: Call) -> Iterator[Row]:
    done = call.open().optimize(**call.only("limit"))
    yield ("compaction", *_compacted(done.compaction), None, None)
    if done.reclustering is not None:
        yield ("reclustering", *_compacted(done.reclustering), *_depths(done.reclustering))


def _create_tag(call: Call) -> Iterator[Row]:
    made = call.open().create_tag(call["name"], **call.only("version", "retain"))
    yield made.name, made.target.version, made.snapshot_id, made.created_us, made.expires_us


def _delete_tag(call: Call) -> Iterator[Row]:
    call.open().delete_tag(call["name"])
    yield (call["name"],)


def _create_branch(call: Call) -> Iterator[Row]:
    made = call.open().create_branch(call["name"], **call.only("version"))
    yield made.name, made.branch_id, made.forks[-1].version, made.created_us


def _delete_branch(call: Call) -> Iterator[Row]:
    call.open().delete_branch(call["name"])
    yield (call["name"],)


def _publish(call: Call) -> Iterator[Row]:
    done = call.open().publish(
        call["name"], **call.only("expected_head", "retire", "on_conflict", "message", "author")
    )
    yield (
        done.snapshot.version,
        done.source.version,
        done.snapshot.summary.row_count,
        [str(each.version) for each in done.lost],
    )


def _clone(call: Call) -> Iterator[Row]:
    new = call.locate(call["new_table"])
    made = clone(
        **call.place(),
        new_path=new.path,
        new_storage_options=new.storage_options,
        **call.only("version"),
    )
    yield (
        made.location,
        made.table_id,
        made.source.version,
        made.snapshot.version,
        made.snapshot.summary.row_count,
        [location for _, location in made.origins],
    )


def _fsck(call: Call) -> Iterator[Row]:
    report = call.open().fsck(**call.only("deep"))
    for finding in report.findings:
        yield (
            str(finding.kind),
            finding.key,
            finding.wrong,
            finding.lost,
            finding.row_count,
            [f"{each.branch} {each.first}-{each.last}" for each in finding.versions],
        )


def _version(snapshot: Snapshot | None) -> int | None:
    return None if snapshot is None else snapshot.version


def _compacted(done: CompactionResult) -> tuple[object, ...]:
    return (
        _version(done.snapshot),
        done.group_count,
        done.dropped_group_count,
        done.row_count,
        done.blocks_before,
        done.blocks_after,
        done.bytes_before,
        done.bytes_after,
    )


def _depths(done: ReclusterResult) -> tuple[float, float]:
    return done.depth_before, done.depth_after


_TABLE = Parameter(name="table", type="string", comment="the table's name in this catalog")
_NAME = Parameter(name="name", type="string", comment="the name of the tag or branch")
_BRANCH = Parameter(
    name="branch", type="string", default=f"'{MAIN}'", comment="the branch of the table"
)
_VERSION = Parameter(
    name="version", type="string", comment="a number, a tag, or digits of a snapshot's id"
)
_MAYBE_VERSION = Parameter(
    name="version", type="string", default="NULL", comment=f"{_VERSION.comment}; the head if null"
)
_WHERE = Parameter(name="where", type="string", comment="a predicate on the table's columns")
_LIMIT = Parameter(
    name="limit", type="bigint", default="NULL", comment="the most blocks to rewrite"
)
_DRY_RUN = Parameter(
    name="dry_run", type="boolean", default="false", comment="say what would be done; write nothing"
)
_RETIRE = Parameter(
    name="retire",
    type="array<string>",
    default="array()",
    comment="applications whose queries are refused from then on",
)
_TEXTS = (
    Parameter(
        name="on_conflict",
        type="string",
        default="'error'",
        comment="'error' if another writer commits in between, or 'replan'",
    ),
    Parameter(name="message", type="string", default="''", comment="shown by the log"),
    Parameter(name="author", type="string", default="''", comment="shown by the log"),
)
_COMPACTED = (
    "version bigint, group_count bigint, dropped_group_count bigint, row_count bigint, "
    "blocks_before bigint, blocks_after bigint, bytes_before bigint, bytes_after bigint"
)
_DEPTHS = "depth_before double, depth_after double"

PROCEDURES: Mapping[str, Procedure] = {
    "rewind": Procedure(
        description="Set a table back to an earlier version, as one new snapshot",
        parameters=(
            _TABLE,
            Parameter(
                name="version", type="string", default="NULL", comment="the version to go back to"
            ),
            Parameter(
                name="timestamp",
                type="timestamp",
                default="NULL",
                comment="or the last snapshot at or before this time",
            ),
            Parameter(
                name="after_batch",
                type="bigint",
                default="NULL",
                comment="or the last snapshot in which app_id is not past this batch",
            ),
            Parameter(name="app_id", type="string", default="NULL", comment="of after_batch"),
            Parameter(
                name="checkpoints",
                type="map<string,string>",
                default="map()",
                comment="for each checkpoint, the new folder of its fork",
            ),
            _RETIRE,
            _DRY_RUN,
            _BRANCH,
            *_TEXTS,
        ),
        columns="outcome string, version bigint, target bigint, before bigint, "
        "deleted_rows bigint, inserted_rows bigint, forks array<string>, retired array<string>, "
        "obstacles array<string>",
        run=_rewind,
    ),
    "revert": Procedure(
        description="Undo one commit, as one new snapshot",
        parameters=(_TABLE, _VERSION, _BRANCH, *_TEXTS),
        columns="version bigint, snapshot_id string, row_count bigint, message string",
        run=_revert,
    ),
    "bisect": Procedure(
        description="Find the first version in which a row matches; no row if none does",
        parameters=(
            _TABLE,
            _WHERE,
            Parameter(
                name="first", type="string", default="NULL", comment="the oldest version to search"
            ),
            Parameter(
                name="last", type="string", default="NULL", comment="the newest; the head if null"
            ),
            _BRANCH,
        ),
        columns="version bigint, timestamp timestamp, operation string, row_count bigint, "
        "batches array<string>",
        run=_bisect,
    ),
    "blame": Procedure(
        description="Find the commits that brought the rows that match; one row for each",
        parameters=(_TABLE, _WHERE, _BRANCH),
        columns="row_count bigint, version bigint, timestamp timestamp, operation string, "
        "batch string, message string, is_exact boolean",
        run=_blame,
    ),
    "set_key": Procedure(
        description="Set the columns by which rows are unique; none remove the key",
        parameters=(
            _TABLE,
            Parameter(name="columns", type="array<string>", comment="names of columns"),
            _BRANCH,
        ),
        columns="version bigint, columns array<string>",
        run=_set_key,
    ),
    "expire": Procedure(
        description="Expire old snapshots; the next vacuum deletes their files",
        parameters=(
            _TABLE,
            Parameter(
                name="older_than",
                type="string",
                default="NULL",
                comment="the least age, such as '7d'; the property fuse.retain if null",
            ),
            Parameter(
                name="keep_last",
                type="bigint",
                default="NULL",
                comment="how many of the newest snapshots stay",
            ),
            _DRY_RUN,
            _BRANCH,
        ),
        columns="version bigint, floor_before bigint, floor bigint, expired_count bigint, "
        "kept_by_grace bigint, left_behind array<string>",
        run=_expire,
    ),
    "vacuum": Procedure(
        description="Delete the files of all branches that nothing needs any more",
        parameters=(_TABLE, _DRY_RUN),
        columns="object_count bigint, byte_size bigint, waiting_count bigint, "
        "raised array<string>, due timestamp",
        run=_vacuum,
    ),
    "optimize": Procedure(
        description="Compact, then recluster if the table has a cluster key",
        parameters=(_TABLE, _LIMIT, _BRANCH),
        columns=f"step string, {_COMPACTED}, {_DEPTHS}",
        run=_optimize,
    ),
    "compact": Procedure(
        description="Merge small blocks into larger ones, in Spark's tasks",
        parameters=(_TABLE, _LIMIT, _BRANCH),
        columns=_COMPACTED,
        run=_compact,
    ),
    "recluster": Procedure(
        description="Sort the rows of blocks that overlap in the cluster key",
        parameters=(_TABLE, _LIMIT, _BRANCH),
        columns=f"{_COMPACTED}, {_DEPTHS}",
        run=_recluster,
    ),
    "create_tag": Procedure(
        description="Give a snapshot a name that keeps it from expiring",
        parameters=(
            _TABLE,
            _NAME,
            _MAYBE_VERSION,
            Parameter(
                name="retain",
                type="string",
                default="NULL",
                comment="how long to keep it, such as '90d'; forever if null",
            ),
            _BRANCH,
        ),
        columns="name string, version bigint, snapshot_id string, created timestamp, "
        "expires timestamp",
        run=_create_tag,
    ),
    "delete_tag": Procedure(
        description="Delete a tag",
        parameters=(_TABLE, _NAME),
        columns="name string",
        run=_delete_tag,
    ),
    "create_branch": Procedure(
        description="Create a branch that forks off a snapshot",
        parameters=(_TABLE, _NAME, _MAYBE_VERSION, _BRANCH),
        columns="name string, branch_id string, version bigint, created timestamp",
        run=_create_branch,
    ),
    "delete_branch": Procedure(
        description="Delete a branch",
        parameters=(_TABLE, _NAME),
        columns="name string",
        run=_delete_branch,
    ),
    "publish": Procedure(
        description="Give a branch the content and the ledger of another one",
        parameters=(
            _TABLE,
            _NAME,
            Parameter(
                name="expected_head",
                type="bigint",
                default="NULL",
                comment="the branch's head, if it has commits after the fork",
            ),
            _RETIRE,
            _BRANCH,
            *_TEXTS,
        ),
        columns="version bigint, source bigint, row_count bigint, lost array<string>",
        run=_publish,
    ),
    "clone": Procedure(
        description="Create a table with the content of a snapshot; no row is copied",
        parameters=(
            _TABLE,
            Parameter(
                name="new_table", type="string", comment="the name of the clone in this catalog"
            ),
            _MAYBE_VERSION,
            _BRANCH,
        ),
        columns="location string, table_id string, source bigint, version bigint, "
        "row_count bigint, origins array<string>",
        run=_clone,
    ),
    "fsck": Procedure(
        description="Check the whole table; one row for each fault, none if it is sound",
        parameters=(
            _TABLE,
            Parameter(
                name="deep", type="boolean", default="false", comment="also read every block"
            ),
        ),
        columns="kind string, key string, wrong string, lost string, row_count bigint, "
        "versions array<string>",
        run=_fsck,
    ),
}
"""By name."""


def find_procedure(
    spark: SparkSession,
    namespace: Sequence[str],
    name: str,
    locate: Locate,
    *,
    refresh: Callable[[str], None],
) -> UnboundProcedure:
    """Return a procedure by its name.

    Raises:
        InvalidInputError: there is none of this name; the error names one that is like it.
    """
    if tuple(namespace) == (SYSTEM,) and name in PROCEDURES:
        return UnboundProcedure(BoundProcedure(spark, name, PROCEDURES[name], locate, refresh))
    near = difflib.get_close_matches(name, PROCEDURES, 1)
    hint = f"do you mean {SYSTEM}.{near[0]}? " if near else ""
    raise InvalidInputError(
        f"there is no such procedure; {hint}SHOW PROCEDURES lists all",
        procedure=".".join((*namespace, name)),
    )
