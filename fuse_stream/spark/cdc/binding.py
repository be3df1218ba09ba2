"""Names for values within an expression.

An expression of Spark is a tree: a value that is used twice is written and compiled twice, and what
is built of several such steps grows beyond what the JVM compiles. A lambda's argument is one value.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql.functions import array, get, lit, transform


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return `body` of a value that is computed once."""
    return get(transform(array(value), body), lit(0))
