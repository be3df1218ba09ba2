"""A stream that follows a table under a consumer's name, and adds up what it is sent."""

from __future__ import annotations

import pyarrow as pa

from fuse_stream.errors import SchemaChangedError
from fuse_stream.feed.changes import feed_schema
from fuse_stream.feed.consumer import Consumer, open_follower
from fuse_stream.feed.follow import Follower, head_selection
from fuse_stream.feed.tasks import plan_tasks, read_task
from fuse_stream.feed.views import Limits, Request
from fuse_stream.format.source_offset import RESYNC, Offset
from fuse_stream.testing.clock import ManualClock
from tests.oracle.reader import Row
from torture.checks import check, feed_sum
from torture.histories import Site


class Stream:
    """Reads batch after batch; `restart` is a new process that has only the last offset."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sum: dict[Row, int] = {}
        """How often each row came, less how often it went."""
        self._start: Offset | None = None
        self._follower: Follower | Consumer | None = None

    def restart(self) -> None:
        self._follower = None

    def read(self, site: Site, clock: ManualClock) -> int | None:
        """Read a batch; return the version that was read as a whole, None if there is none.

        Raises:
            BrokenError: a row was to be deleted that never came.
        """
        if self._follower is None:
            request = Request(consumer=self.name, limits=Limits(commits=2))
            columns = head_selection(site.store, request, clock=clock).schema.columns
            self._follower = open_follower(site.store, request, columns, clock=clock)
        start = self._start or self._follower.first_offset()
        try:
            end = self._follower.next_offset(start, is_limited=True)
            if end == start:
                return None
            batch = self._follower.read_between(start, end)
            schema = feed_schema(batch.selection.schema)
            tasks = plan_tasks(batch)
            parts = [part for task in tasks for part in read_task(site.store, task, schema)]
        except SchemaChangedError:
            self.restart()  # it goes on with the new columns
            return None
        total = dict(self.sum)
        sent = pa.Table.from_batches(parts, schema)
        for row, count in feed_sum(sent).items():
            total[row] = total.get(row, 0) + count
        self._start, self.sum = end, {row: count for row, count in total.items() if count}
        check(min(self.sum.values(), default=0) >= 0, "4: a stream is to delete what never came")
        return end.version if end.index in {0, RESYNC} else None
