"""Compaction in Spark's tasks: one task a group of blocks; the driver plans and commits.

Works on Spark Connect, too: groups travel as rows, and what came of them as well.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from fuse_stream.commit.stage import Rewritten
from fuse_stream.format.layout import MAIN
from fuse_stream.format.records import Block
from fuse_stream.optimize.compact import CompactionResult
from fuse_stream.optimize.compact import compact as compact_branch
from fuse_stream.optimize.rewrite import Group, Rewriter
from fuse_stream.table.handle import open_at
from fuse_stream.table.location import TableLocation

GROUPS_AT_ONCE = 256
"""In one job of Spark's; what it did can be committed when it ends."""

_GROUPS, _RESULTS = "number int, pickled binary", "number int, pickled binary"


def compact(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    branch: str = MAIN,
    limit: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[str] = (),
    unsafe_single_writer: bool = False,
) -> CompactionResult:
    """Write small neighbouring blocks into big ones, in Spark's tasks; see `Table.compact`.

    For tables with much to do: a task rewrites one group, and takes up to four times a block of the
    target size of memory. On one machine, `Table.compact` does the same without Spark.

    Args:
        spark: the session; on Connect, too.
        path: the table: a local path or an fsspec URL, which executors reach.
        branch: of the table.
        limit: the most blocks to rewrite; all that are small if not given.
        storage_options: fsspec's, for a remote store.
        origins: where the tables are whose blocks it may read, if it is a clone.
        unsafe_single_writer: allow a store that cannot tell two writers apart.

    Raises:
        FuseError: as `Table.compact`; where a task failed, Spark's error names it.
    """
    location = TableLocation.of(
        path,
        branch=branch,
        storage_options=storage_options,
        origins=origins,
        unsafe_single_writer=unsafe_single_writer,
    )
    return compact_branch(open_at(location).committer, limit=limit, run=_Tasks(spark).run)


@dataclass(frozen=True, slots=True)
class _Tasks:
    spark: SparkSession

    def run(self, rewriter: Rewriter, groups: Sequence[Group]) -> Iterator[Rewritten]:
        """Rewrite groups, many at a time."""
        for start in range(0, len(groups), GROUPS_AT_ONCE):
            yield from self._job(rewriter, groups[start : start + GROUPS_AT_ONCE])

    def _job(self, rewriter: Rewriter, groups: Sequence[Group]) -> Iterator[Rewritten]:
        rows = [
            (number, pickle.dumps(dataclasses.replace(group, inputs=_bare(group.inputs))))
            for number, group in enumerate(groups)
        ]
        frame = self.spark.createDataFrame(rows, _GROUPS)
        apart = frame.repartitionByRange(len(rows), "number")  # by hash, some would share a task
        found = {
            number: pickle.loads(outputs)  # noqa: S301 - what our own tasks have written
            for number, outputs in apart.mapInArrow(_Rewriting(rewriter), _RESULTS).collect()
        }
        for number, group in enumerate(groups):
            yield Rewritten(inputs=group.inputs, outputs=found[number])


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """What runs on executors."""

    rewriter: Rewriter

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                group: Group = pickle.loads(row["pickled"])  # noqa: S301 - the driver's
                outputs = pickle.dumps(self.rewriter.run(group).outputs)
                yield pa.RecordBatch.from_arrays(
                    [pa.array([row["number"]], pa.int32()), pa.array([outputs], pa.binary())],
                    names=["number", "pickled"],
                )


def _bare(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return blocks without their statistics, which are most of them, and not read again."""
    return tuple(
        dataclasses.replace(block, col_stats={}, col_metas={}, cluster_stats=None)
        for block in blocks
    )
