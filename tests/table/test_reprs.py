"""What the records that a user gets print: one line with the facts that a person looks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import fuse_stream as fuse
from fuse_stream.check.audit import AuditReport, WriterAudit
from fuse_stream.check.findings import Finding, FindingKind
from fuse_stream.checkpoint.fork import StateOutcome
from fuse_stream.commit.ledger import Batch
from fuse_stream.commit.plan import Intent
from fuse_stream.feed.consumers import ConsumerState
from fuse_stream.format.one_line import LONGEST
from fuse_stream.format.records import Operation
from fuse_stream.recovery.forks import Fork
from fuse_stream.recovery.rebuild_checkpoint import RebuiltCheckpoint
from fuse_stream.spark.sink import CommitReport
from fuse_stream.table.handle import Table

QUERY = "6af613b6-569c-5c22-9c37-2ed93f31d3af"
COLUMNS = 60


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table of many columns; version 2 is a query's, with a long message, versions 1, 3 not."""
    names = [f"a_column_with_a_long_name_{number}" for number in range(COLUMNS)]
    schema = pa.schema([("id", pa.int64()), *((name, pa.int64()) for name in names)])
    rows = pa.table({"id": [1, 2], **{name: [1, 2] for name in names}}, schema=schema)
    table = Table.create(tmp_path_factory.mktemp("lake") / "t", schema, cluster_by=["id"])
    table.append(rows)
    batch = Batch(application="orders", writer="late", batch_id=12007, query_id=QUERY)
    message = "delivered again by the airline, after their outage\n" * 9
    table.commit_rows(Intent(operation=Operation.APPEND, batch=batch, message=message), rows)
    table.append(rows, message="short")
    table.create_tag("good-run", 2)
    table.create_branch("rehearsal-of-november", 2)
    return table


SHOWN: dict[str, tuple[Callable[[Table], object], list[str]]] = {
    "snapshot": (
        lambda t: t.snapshot(2),
        ["Snapshot(version=2, operation='append', rows=4, ", "batch='orders/late #12007'"],
    ),
    "message": (lambda t: t.snapshot(3), ["rows=6", "message='short'"]),
    "entry": (lambda t: t.ledger()["orders", "late"], ["batch_id=12007", QUERY, "rows=2", "at=20"]),
    "ledger": (lambda t: t.head().ledger, ["Ledger(entries=1)"]),
    "summary": (lambda t: t.head().summary, ["row_count=6", "block_count=3"]),
    "segment": (lambda t: t.segments()[0], ["rows=2", "blocks=1"]),
    "block": (lambda t: t.blocks()[0], ["Block(id=", "rows=2", "bytes="]),
    "tag": (lambda t: t.tags()[0], ["TagRef(name='good-run', version=2"]),
    "branch": (lambda t: t.branches()[1], ["BranchRef(name='rehearsal-of-november', forked_at=2"]),
    "change": (lambda t: next(t.block_changes(2, 2)), ["Change(version=2, operation='append', "]),
    "diff": (lambda t: t.block_diff(1, 2), ["BlockDiff(inserted=1)"]),
    "stats": (lambda t: t.stats(), ["version=3", "row_count=6"]),
    "totals": (lambda t: t.stats().compaction, ["OperationTotals(commit_count=0"]),
    "clustering": (lambda t: t.clustering(), ["columns=['id']", "max_depth=3"]),
    "expire": (lambda t: t.expire(keep_last=1, dry_run=True), ["Expiry(expired_count=0"]),
    "vacuum": (lambda t: t.vacuum(dry_run=True), ["dry_run=True, object_count=0", "due=20"]),
    "fsck": (lambda t: t.fsck(), ["FsckReport(is_sound=True, branches=2, snapshot_count=4"]),
    "blame": (
        lambda t: next(one for one in t.blame("id = 2") if one.version == 2),
        ["BlamedCommit(version=2, row_count=1, operation='append', batch_id=12007"],
    ),
    "rewind": (
        lambda t: fuse.rewind(t.location.path, version=1, retire=["orders"], dry_run=True),
        ["Rewind(target=1, outcome='planned', path='/", "retired=['orders']"],
    ),
    "rewinds": (
        lambda t: fuse.rewind([t.location.path], version=1, retire=["orders"], dry_run=True),
        ["PipelineRewind(tables=1, outcome='planned', notes=1)"],
    ),
    "clone": (
        lambda t: fuse.clone(t.location.path, Path(t.location.path).with_name("copy")),
        ["Clone(location="],
    ),
    "pin": (lambda t: t.clones()[0], ["CloneRef(location="]),
    "optimize": (
        lambda t: Table.open(t.location.path, branch="rehearsal-of-november").optimize(),
        ["Optimization(compaction='version 3, blocks 2->1'"],
    ),
    "publish": (
        lambda t: t.publish("rehearsal-of-november", expected_head=3),
        ["Publication(version=4, source=3, rows=4, lost=1)"],
    ),
    "finding": (
        lambda t: Finding(kind=FindingKind.NOTE, key="slots/1", wrong="it is gone", lost="rows"),
        ["Finding(kind='", "wrong='it is gone'"],
    ),
    "consumer": (
        lambda t: ConsumerState(
            consumer="nightly",
            branch="main",
            version=3,
            versions_behind=4,
            rows_to_read=5,
            behind_us=6,
            is_live=True,
            lapses_us=7,
            owner_id="0" * 32,
        ),
        ["consumer='nightly'", "versions_behind=4"],
    ),
    "audit": (
        lambda t: AuditReport(
            path="/lake/t",
            branch="main",
            checkpoint="/ckpt/t",
            query_id=QUERY,
            application="orders",
            head=3,
            first_version=0,
            planned=(),
            writers=(),
            findings=(),
            notes=("a long note " * 30,),
        ),
        ["AuditReport(agrees=True, application='orders'"],
    ),
    "writer": (
        lambda t: WriterAudit(
            writer="late", batch_count=1, row_count=2, last_batch=3, empty=(), findings=()
        ),
        ["writer='late'", "last_batch=3"],
    ),
    "fork": (
        lambda t: Fork(
            old="/ckpt/a",
            new="/ckpt/b",
            applications=("orders",),
            old_query_id=QUERY,
            query_id=QUERY,
            batches=tuple(range(100)),
            reruns=41,
            state=StateOutcome.ABSENT,
            file_count=9,
            byte_size=9,
        ),
        ["new='/ckpt/b', old='/ckpt/a', batches=100, reruns=41"],
    ),
    "rebuilt": (
        lambda t: RebuiltCheckpoint(checkpoint="/ckpt/b", query_id=QUERY, batch_id=41, adopt=None),
        ["RebuiltCheckpoint(checkpoint='/ckpt/b', batch_id=41", QUERY],
    ),
    "report": (
        lambda t: CommitReport(
            version=3,
            outcome="committed",
            batch_id=41,
            application="orders",
            writer="",
            rows=2,
            bytes=3,
            blocks=1,
            milliseconds={"write": 1.25},
        ),
        ["CommitReport(version=3, outcome='committed', batch_id=41"],
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_record_prints_one_line_with_its_facts(table: Table, name: str) -> None:
    made, wanted = SHOWN[name]
    line = repr(made(table))

    assert [part for part in wanted if part not in line] == []
    # The location of a clone, the first fact, is shown whole.
    assert len(line) <= LONGEST or name in {"clone", "pin"}
    assert "a_column_with_a_long_name" not in line
