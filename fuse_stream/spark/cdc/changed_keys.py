"""Updates that change a key: a delete of the old key and an upsert of the new one."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql.functions import (
    lit,
    map_contains_key,
    transform_values,
    try_element_at,
    when,
)


def has_other_key(before: Column, after: Column, keys: tuple[str, ...]) -> Column:
    """Return true if both have a column of the key, and another value in it; null if one is null.

    The values are compared as the texts in one event.
    """
    changes = [
        map_contains_key(before, key)
        & map_contains_key(after, key)
        & ~try_element_at(before, lit(key)).eqNullSafe(try_element_at(after, lit(key)))
        for key in keys
    ]
    return reduce(or_, changes)


def row_before(data: Column, old: Column) -> Column:
    """Return a row as it was, of the row as it is and the old values of what has changed."""
    return transform_values(
        data,
        lambda name, value: when(map_contains_key(old, name), try_element_at(old, name)).otherwise(
            value
        ),
    )
