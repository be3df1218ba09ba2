"""Compaction in Spark's tasks: one task for each group of blocks; the driver plans and commits.

It also works on Spark Connect: the groups and their results are rows of DataFrames.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from fuse_stream.commit.stage import Rewritten
from fuse_stream.format.layout import MAIN
from fuse_stream.optimize.compact import CompactionResult
from fuse_stream.optimize.compact import compact as compact_branch
from fuse_stream.optimize.rewrite import Group, Rewriter
from fuse_stream.table.handle import open_at
from fuse_stream.table.location import TableLocation

GROUPS_AT_ONCE = 256
"""Groups in one Spark job. Its results can be committed when it ends."""

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
    """Merge small neighbouring blocks in Spark's tasks; return what was done, as `Table.compact`.

    For tables with many small blocks. A task rewrites one group, and needs memory for up to four
    blocks of the target size. `Table.compact` does the same on one machine without Spark.

    Args:
        spark: the session, classic or Connect.
        path: the table: a local path or an fsspec URL that the executors can reach.
        branch: the branch to compact.
        limit: the most blocks to rewrite; all small ones if not given.
        storage_options: fsspec's, for a remote store.
        origins: the locations of the origins whose blocks may be read, for a clone.
        unsafe_single_writer: allow a store that cannot tell two writers apart.

    Raises:
        FuseError: as `Table.compact`. If a task failed, Spark's error names its cause.
    """
    location = TableLocation.of(
        path, branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    return compact_branch(open_at(location).committer, limit=limit, run=partial(_run, spark))


def _run(spark: SparkSession, rewriter: Rewriter, groups: Sequence[Group]) -> Iterator[Rewritten]:
    """Yield each group's blocks after the rewrite; `GROUPS_AT_ONCE` groups are one job."""
    for start in range(0, len(groups), GROUPS_AT_ONCE):
        job = groups[start : start + GROUPS_AT_ONCE]
        rows = [(number, pickle.dumps(_bare(group))) for number, group in enumerate(job)]
        frame = spark.createDataFrame(rows, _GROUPS)
        apart = frame.repartitionByRange(len(rows), "number")  # by hash, some would share a task
        found = {
            number: pickle.loads(outputs)  # noqa: S301 - from our own tasks
            for number, outputs in apart.mapInArrow(_Rewriting(rewriter), _RESULTS).collect()
        }
        for number, group in enumerate(job):
            yield Rewritten(inputs=group.inputs, outputs=found[number])


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """The function that executors run over groups."""

    rewriter: Rewriter

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                group: Group = pickle.loads(row["pickled"])  # noqa: S301 - from our own driver
                outputs = pickle.dumps(self.rewriter.run(group).outputs)
                yield pa.RecordBatch.from_arrays(
                    [pa.array([row["number"]], pa.int32()), pa.array([outputs], pa.binary())],
                    names=["number", "pickled"],
                )


def _bare(group: Group) -> Group:
    """Return the group without statistics: a rewrite needs none, and they are large."""
    blocks = (
        dataclasses.replace(block, col_stats={}, col_metas={}, cluster_stats=None)
        for block in group.inputs
    )
    return dataclasses.replace(group, inputs=tuple(blocks))
