"""Values that are computed once.

An expression of Spark is a tree: a value that is used twice is written and compiled twice, and what
is built of several such steps grows beyond what the JVM compiles. A lambda's argument is one value.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import (
    coalesce,
    col,
    create_map,
    lit,
    spark_partition_id,
    transform_values,
    try_element_at,
)

_FENCE = "fence"


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return `body` of a value that is computed once."""
    # Spark interprets the functions of maps in each release; those of lists it may compile, and
    # the code of one method has a limit.
    held = transform_values(create_map(lit(0), value), lambda _, known: body(known))
    return try_element_at(held, lit(0))


def kept_where(df: DataFrame, condition: Column) -> DataFrame:
    """Return the rows for which a condition of computed columns holds.

    Spark would move the filter below the projections and compute their columns again in it, once
    for each use: all JSON would be parsed many times. It moves nothing past a projection that is
    not deterministic, as long as its column is used.
    """
    fenced = df.withColumn(_FENCE, spark_partition_id())
    return fenced.where((col(_FENCE) >= 0) & coalesce(condition, lit(False))).drop(_FENCE)  # noqa: FBT003
