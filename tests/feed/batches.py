"""What a batch of a stream delivers, as Spark's tasks would read it."""

from __future__ import annotations

import pickle

import pyarrow as pa

from fuse_stream.feed.changes import feed_schema
from fuse_stream.feed.deliver import iter_net_rows, iter_rows
from fuse_stream.feed.follow import Batch
from fuse_stream.feed.tasks import plan_net_tasks, plan_tasks
from fuse_stream.storage.base import Store


def read_batch(store: Store, batch: Batch) -> pa.Table:
    """Return the rows of a batch; its tasks travel to workers, so they are pickled."""
    schema = feed_schema(batch.selection.schema)
    plain = plan_tasks(batch.slices)
    net = plan_net_tasks(batch.slices)
    selection, plain, net = pickle.loads(pickle.dumps((batch.selection, plain, net)))
    found = [part for task in plain for part in iter_rows(store, task, selection, schema)]
    found += [part for task in net for part in iter_net_rows(store, task, selection, schema)]
    return pa.Table.from_batches(found, schema)
