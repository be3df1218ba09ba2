"""What a batch of a stream delivers, as Spark's tasks would read it."""

from __future__ import annotations

import pickle

import pyarrow as pa

from fuse_stream.feed.changes import feed_schema
from fuse_stream.feed.offsets import Batch
from fuse_stream.feed.tasks import plan_tasks, read_task
from fuse_stream.storage.base import Store


def read_batch(store: Store, batch: Batch) -> pa.Table:
    """Return the rows of a batch; its tasks travel to workers, so they are pickled."""
    schema = feed_schema(batch.selection.schema)
    tasks = pickle.loads(pickle.dumps(plan_tasks(batch)))
    found = [part for task in tasks for part in read_task(store, task, schema)]
    return pa.Table.from_batches(found, schema)
