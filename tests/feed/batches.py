"""What a batch of a stream delivers, as Spark's tasks would read it."""

from __future__ import annotations

import pickle

import pyarrow as pa

from fuse_stream.feed.changes import feed_schema
from fuse_stream.feed.offsets import Batch
from fuse_stream.feed.tasks import plan_tasks, read_task
from fuse_stream.storage.base import Store

BLOCKS_SCHEMA = pa.schema(
    [
        ("_change_type", pa.string()),
        ("block_id", pa.string()),
        ("row_count", pa.int64()),
        ("file_size", pa.int64()),
        ("col_stats", pa.string()),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
"""The columns of the feed `blocks`."""


def read_batch(store: Store, batch: Batch) -> pa.Table:
    """Return the rows of a batch; its tasks travel to workers, so they are pickled."""
    schema = feed_schema(batch.selection.schema)
    tasks = pickle.loads(pickle.dumps(plan_tasks(batch)))
    found = [part for task in tasks for part in read_task(store, task, schema)]
    return pa.Table.from_batches(found, schema)
