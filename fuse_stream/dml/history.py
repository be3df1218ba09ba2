"""The history of keys: the states that their events gave them, one row a state (SCD 2). Pure.

Rules:
- The history is made anew from the set of events, so it does not depend on their order, on how
  often they come, or on how they are cut into batches.
- Events of a key with equal sequences count as one: a delete comes before an upsert, and of several
  upserts each column takes the greatest value.
- An upsert begins a state, which ends where the next event of the key begins. A column that it does
  not give keeps its value, unless a delete came between.
- Consecutive upserts between which no tracked column changes are one run, which is one row: it
  begins with the first of them, and has the values of the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

NONE = -1
"""In place of a number: there is none."""

ColumnValues = Callable[[int, np.ndarray], np.ndarray]
"""Returns numbers in the order of the values that these entries have in a column; -1 for null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntries:
    """Events, old and new. Each array has an item for each entry."""

    key: np.ndarray
    """A number from 0 for each key."""
    rank: np.ndarray
    """The sequence's place in the order of all sequences."""
    is_upsert: np.ndarray
    """False for a delete."""
    given: Sequence[np.ndarray]
    """For each column, whether the entries give it a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """What happened to keys, ordered by key and sequence: one moment for equal sequences."""

    first: np.ndarray
    """An entry of the moment."""
    of_entry: np.ndarray
    """For each entry, its moment."""
    is_upsert: np.ndarray
    begins_key: np.ndarray
    given: np.ndarray
    """For each column (rows) and moment, the entry that gives the column its value; or `NONE`."""
    state: np.ndarray
    """For each column (rows) and upsert, the entry whose value the column has then; `NONE` for
    null. Nothing of use for a delete."""
    begins_run: np.ndarray
    """Whether an upsert begins a run."""
    ends_run: np.ndarray
    """Whether an upsert is the last of its run."""


def moments_of(entries: HistoryEntries, values: ColumnValues, tracked: Sequence[int]) -> Moments:
    """Return the history of the keys of `entries`; `tracked` are numbers of columns."""
    order = np.lexsort((entries.is_upsert, entries.rank, entries.key))
    key, rank, is_upsert = entries.key[order], entries.rank[order], entries.is_upsert[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (key[1:] != key[:-1]) | (rank[1:] != rank[:-1]) | (is_upsert[1:] != is_upsert[:-1])
    of_entry = np.empty(len(order), np.int64)
    of_entry[order] = np.cumsum(is_new) - 1
    first = order[is_new]
    key, is_upsert = key[is_new], is_upsert[is_new]
    begins_key = np.ones(len(first), bool)
    begins_key[1:] = key[1:] != key[:-1]
    given = np.stack(
        [
            _given(of_entry, mask & entries.is_upsert, first, partial(values, number))
            for number, mask in enumerate(entries.given)
        ]
    )
    state = _carried(given, begins_key | ~is_upsert)
    continues = is_upsert & ~begins_key
    continues[1:] &= is_upsert[:-1]
    for number in tracked:
        codes = _codes(number, state[number], values)
        continues[1:] &= codes[1:] == codes[:-1]
    ends_run = is_upsert.copy()
    ends_run[:-1] &= ~continues[1:]
    return Moments(
        first=first,
        of_entry=of_entry,
        is_upsert=is_upsert,
        begins_key=begins_key,
        given=given,
        state=state,
        begins_run=is_upsert & ~continues,
        ends_run=ends_run,
    )


def _given(
    of_entry: np.ndarray,
    mask: np.ndarray,
    first: np.ndarray,
    values: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return the entry that gives a column its value in each moment."""
    given = np.where(mask[first], first, NONE)
    if len(of_entry) == len(first):
        return given
    count = np.bincount(of_entry, minlength=len(first))
    several = np.flatnonzero(mask & (count[of_entry] > 1))
    if len(several):
        order = np.lexsort((values(several), of_entry[several]))
        given[of_entry[several[order]]] = several[order]  # the last one, which is the greatest
    return given


def _carried(given: np.ndarray, resets: np.ndarray) -> np.ndarray:
    """Return, for each column and moment, the entry that gave the value that the column has."""
    at = np.where((given != NONE) | resets, np.arange(given.shape[1]), 0)
    at = np.maximum.accumulate(at, axis=1) if given.shape[1] else at
    return np.take_along_axis(given, at, axis=1)


def _codes(number: int, entries: np.ndarray, values: ColumnValues) -> np.ndarray:
    codes = np.full(len(entries), NONE)
    known = entries != NONE
    codes[known] = values(number, entries[known])
    return codes
