"""How many bytes of blocks Spark reads in one task.

Spark sorts files by size and puts the next one into the same task while a limit of bytes is kept.
Its own limit is the sum of the bytes divided by the number of cores. Blocks of like size seldom
fill it: eight of them on two cores become three tasks of 3, 3 and 2, and one core waits. Here the
limit is the lowest by which there are no more tasks than cores; or than twice as many, and so on,
where the user's limit of bytes asks for that. As large files come first, the first task of a core
has more bytes than the last; so there is one more task for each core where all cores are then done
earlier.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_MOST = "spark.sql.files.maxPartitionBytes"
_TASKS = "spark.sql.files.minPartitionNum"
_STARTING = 512 * 1024
"""Starting a task counts as this many bytes: it takes some 10 ms, and a core reads 30 to 50 MB of
compressed columns in a second."""


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
        rounds = max(1, -(-total // (cores * self.most)))
        if not ordered or len(self._tasks(ordered, self.most)) > cores * rounds:
            return self.most
        limits = [self._lowest(ordered, cores * rounds)]
        if self.tasks is None and len(ordered) > cores * rounds:
            limits.append(self._lowest(ordered, cores * (rounds + 1)))
        return min(limits, key=lambda limit: _time_of(self._tasks(ordered, limit), cores))

    def _lowest(self, ordered: Sequence[int], tasks: int) -> int:
        """Return the lowest limit by which there are at most so many tasks."""
        low = max(ordered[0], -(-sum(ordered) // tasks))
        high = min(self.most, sum(ordered) + self.opening * len(ordered))
        while low < high:
            middle = (low + high) // 2
            if len(self._tasks(ordered, middle)) > tasks:
                low = middle + 1
            else:
                high = middle
        return high

    def _tasks(self, ordered: Sequence[int], limit: int) -> list[int]:
        """Return the bytes of the tasks that Spark makes, as its `FilePartition` does."""
        tasks, filled = [0], 0
        for size in ordered:
            if filled + size > limit and filled:
                tasks.append(0)
                filled = 0
            filled += size + self.opening
            tasks[-1] += size + self.opening
        return tasks


def _time_of(tasks: Sequence[int], cores: int) -> int:
    """Return when the last task ends, in bytes: a core that is free takes the next one."""
    busy = [0] * min(cores, len(tasks))
    for task in tasks:
        heapq.heapreplace(busy, busy[0] + task + _STARTING)
    return max(busy)
