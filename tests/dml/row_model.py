"""What a course draws, and the rows of a table as a multiset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

ROWS = {
    6: "append delete",
    5: "update",
    3: "compact recluster stream",
    2: "revert",
    1: "overwrite cluster tag",
}
HISTORY = {
    4: "append delete update stream",
    3: "compact revert",
    2: "recluster rewind branch publish",
    1: "overwrite tag expire vacuum clone fsck",
}
BOTH = {1: f"{' '.join(ROWS.values())} {' '.join(HISTORY.values())}"}
"""Operations by how often a course draws them."""

Row = tuple[int, str | None, int | None]
"""The values of k, v and n; None where the table has no column n."""
Rows = Counter[Row]


@dataclass(frozen=True)
class Where:
    """A predicate, and whether a row matches it."""

    sql: str
    matches: Callable[[Row], bool]
    names_n: bool = False


def rows_of(table: pa.Table) -> Rows:
    return Counter((row["k"], row["v"], row.get("n")) for row in table.to_pylist())


def sums(feed: pa.Table) -> Rows:
    """Return how often each row was inserted, less how often it was removed."""
    total: Rows = Counter()
    for row in feed.to_pylist():
        adds = row["_change_type"] in {"insert", "update_postimage"}
        total[row["k"], row["v"], row.get("n")] += 1 if adds else -1
    return total


def plus(rows: Rows, changes: Rows) -> Rows:
    total = Counter(rows)
    total.update(changes)
    assert not -total, "a row was removed that was not there"
    return +total


def matching(rows: Rows, where: Where) -> Rows:
    return Counter({row: count for row, count in rows.items() if where.matches(row)})


def updated(rows: Rows, where: Where, values: dict[str, object]) -> tuple[Rows, Rows]:
    """Return the rows that an update changes, before and after it."""
    old, new = Counter[Row](), Counter[Row]()
    for row, count in matching(rows, where).items():
        named: dict[str, Any] = {**dict(zip("kvn", row, strict=True)), **values}
        changed = named["k"], named["v"], named["n"]
        if changed != row:
            old[row] += count
            new[changed] += count
    return old, new
