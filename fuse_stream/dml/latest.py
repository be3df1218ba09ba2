"""What the events of keys leave of their rows, if only the latest state counts (SCD 1). Pure.

Rules:
- The outcome depends on the set of events alone, not on their order, on how often they come, or on
  how they are cut into batches. What is stored takes part as the events that led to it.
- A row is there if its greatest upsert is not below its greatest delete.
- Each column has the value of the greatest event that gave one. A delete gives every column null,
  so that what was given before it stays forgotten when the row comes back in part.
- Of two events of a key with equal sequences and different content, which no source sends, an
  upsert counts before a delete, and each column takes the greater value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

UNKNOWN = -1
"""The rank of what has no sequence: it is below all others."""
NOT_GIVEN = -2
"""The rank of a column to which an entry gives no value."""
NONE = -1
"""In place of the number of an entry: there is none."""

ColumnValues = Callable[[int, np.ndarray], np.ndarray]
"""Returns numbers in the order of the values that these entries have in a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Events, and what is stored of their keys. Each array has an item for each entry."""

    key: np.ndarray
    """A number from 0 for each key."""
    rank: np.ndarray
    """The sequence's place in the order of all sequences; `UNKNOWN` if it has none."""
    is_upsert: np.ndarray
    """False for a delete."""
    columns: Sequence[np.ndarray]
    """For each column, the ranks of the values that the entries give it. Where that is `rank` for
    all entries, it is the same array."""

    @property
    def key_count(self) -> int:
        """The number of keys; each has an entry."""
        return int(self.key.max()) + 1 if len(self.key) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The outcome for each key, as numbers of entries."""

    upsert: np.ndarray
    """The greatest upsert; `NONE` if there is none."""
    delete: np.ndarray
    """The greatest delete; `NONE` if there is none."""
    is_there: np.ndarray
    """Whether the key has a row."""
    columns: Sequence[np.ndarray]
    """For each column, the entry that gives its value; `NONE` if none does."""


def latest(entries: Entries, values: ColumnValues) -> Latest:
    """Return what the entries leave of their keys; `values` is asked where sequences are equal."""
    upsert = _greatest(entries, np.where(entries.is_upsert, entries.rank, NOT_GIVEN))
    delete = _greatest(entries, np.where(entries.is_upsert, NOT_GIVEN, entries.rank))
    later = entries.rank[upsert] >= entries.rank[delete]
    shared: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    columns = []
    for number, ranks in enumerate(entries.columns):
        known = shared.get(id(ranks))
        if known is None:
            order = np.lexsort((entries.is_upsert, ranks, entries.key))
            known = shared[id(ranks)] = order, _tied(entries, ranks, order)
        order, tied = known
        if len(tied):
            order = _by_value(entries, ranks, values(number, tied), tied)
        columns.append(_last(entries, ranks, order))
    return Latest(
        upsert=upsert,
        delete=delete,
        is_there=(upsert != NONE) & ((delete == NONE) | later),
        columns=columns,
    )


def _greatest(entries: Entries, ranks: np.ndarray) -> np.ndarray:
    return _last(entries, ranks, np.lexsort((ranks, entries.key)))


def _last(entries: Entries, ranks: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the last entry of each key in an order by key; `NONE` where it gives nothing."""
    ends = np.searchsorted(entries.key[order], np.arange(entries.key_count), side="right") - 1
    found: np.ndarray = np.where(ranks[order[ends]] == NOT_GIVEN, NONE, order[ends])
    return found


def _tied(entries: Entries, ranks: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the upserts that are the greatest ones of their key, where those are several."""
    at: np.ndarray = order[(entries.is_upsert & (ranks != NOT_GIVEN))[order]]
    if not len(at):
        return at
    key: np.ndarray = entries.key[at]
    rank: np.ndarray = ranks[at]
    ends = np.searchsorted(key, key, side="right") - 1
    is_last: np.ndarray = rank == rank[ends]
    count = np.bincount(key[is_last], minlength=entries.key_count)
    found: np.ndarray = at[is_last & (count[key] > 1)]
    return found


def _by_value(
    entries: Entries, ranks: np.ndarray, values: np.ndarray, tied: np.ndarray
) -> np.ndarray:
    by_value = np.zeros(len(ranks), np.int64)
    by_value[tied] = values
    return np.lexsort((by_value, entries.is_upsert, ranks, entries.key))
