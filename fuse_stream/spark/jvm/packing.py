"""How many bytes of blocks Spark reads in one task.

Spark sorts files by size and puts the next one into the same task while a limit of bytes is kept.
Its own limit is the sum of the bytes divided by the number of cores. Blocks of like size seldom
fill it: eight of them on two cores become three tasks of 3, 3 and 2, and one core waits. Here the
limit is the lowest by which there are no more tasks than cores; or than twice as many, and so on,
where the user's limit of bytes asks for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_MOST = "spark.sql.files.maxPartitionBytes"
_TASKS = "spark.sql.files.minPartitionNum"


@dataclass(frozen=True, slots=True)
class Packing:
    """What a session's settings say of the files of a task."""

    most: int
    """Bytes of a task, at most."""
    opening: int
    """Opening a file counts as this many bytes."""
    tasks: int | None
    """How many tasks are wanted; None for one a core."""

    @classmethod
    def of(cls, reader: Any) -> Packing:
        """Return what the settings of a session of the JVM say."""
        conf = reader.sessionState().conf()
        wanted = conf.filesMinPartitionNum()
        tasks = wanted.get() if wanted.isDefined() else None
        return cls(conf.filesMaxPartitionBytes(), conf.filesOpenCostInBytes(), tasks)

    def set_limit(self, reader: Any, sizes: Sequence[int]) -> None:
        """Have Spark pack files of these sizes, which a session of the JVM reads, by `limit`."""
        conf = reader.sessionState().conf()
        limit = self.limit(sizes, reader.leafNodeDefaultParallelism())
        conf.setConfString(_MOST, str(limit))
        conf.setConfString(_TASKS, "1")  # so that Spark's own limit is the sum of the bytes

    def limit(self, sizes: Sequence[int], cores: int) -> int:
        """Return how many bytes of files of these sizes a task reads, at most."""
        # A file above the limit is split, though a task reads all of a block's rows or none.
        ordered = sorted((min(size, self.most) for size in sizes), reverse=True)
        total = sum(ordered) + self.opening * len(ordered)
        cores = max(1, self.tasks or cores)
        tasks = cores * -(-total // (cores * self.most))
        if not ordered or self._tasks(ordered, self.most) > tasks:
            return self.most
        low = max(ordered[0], -(-total // tasks))
        high = min(self.most, low + ordered[0])  # this is enough
        while low < high:
            middle = (low + high) // 2
            if self._tasks(ordered, middle) > tasks:
                low = middle + 1
            else:
                high = middle
        return high

    def _tasks(self, ordered: Sequence[int], limit: int) -> int:
        """Return the number of tasks that Spark makes, as its `FilePartition` does."""
        count, filled = 1, 0
        for size in ordered:
            if filled + size > limit and filled:
                count, filled = count + 1, 0
            filled += size + self.opening
        return count
