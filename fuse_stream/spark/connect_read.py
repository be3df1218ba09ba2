"""`fuse.read` on Spark Connect: the rows come through `format("fuse")`.

There no resolved predicate can be had. The format reads a predicate as ANSI mode does, so it gets
one only in a session whose settings mean the same. In others Spark alone filters, every block read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.schema import Schema
from fuse_stream.reading.scan import Selection, select
from fuse_stream.spark.condition import refused
from fuse_stream.spark.guard import SPARK_ERRORS
from fuse_stream.spark.types import quoted

_TIME_ZONE = "spark.sql.session.timeZone"
_PLAIN = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings under which a predicate means what it means to the format."""
_OTHERS = ("spark.sql.ansi.", "spark.sql.legacy.", "spark.sql.parser.", "spark.sql.session.")
"""Settings that may give a predicate another meaning, by the start of their names."""


def read_on_connect(
    spark: SparkSession,
    options: Mapping[str, str],
    table: Schema,
    selection: Selection,
    where: str | None,
) -> DataFrame:
    """Return the rows of `selection` where `where` is true; `options` name table and snapshot.

    Raises:
        InvalidInputError: Spark refuses the predicate.
    """
    reader = spark.read.format("fuse").options(**options)
    names = list(selection.schema.names())
    if where is None:
        return reader.option("columns", json.dumps(names)).load()
    zone = str(spark.conf.get(_TIME_ZONE))
    is_literal = "${" not in where  # Spark would put a setting there
    if is_literal and is_plain(spark.conf.getAll) and _is_supported(table, where, zone):
        reader = reader.option("columns", json.dumps(names)).option("where", where)
        return reader.option("timeZone", zone).load()
    try:
        rows = reader.load().where(where).select(*(col(quoted(name)) for name in names))
        _ = rows.schema  # analysed now, not where the rows are used
    except SPARK_ERRORS as error:
        raise refused(error) from error
    return rows


def is_plain(settings: Mapping[str, str]) -> bool:
    """Whether a session reads a predicate in ANSI mode; `settings` are all that are set in it."""
    for name, value in settings.items():
        if name in _PLAIN:
            if value.lower() != _PLAIN[name].lower():
                return False
        elif name != _TIME_ZONE and name.startswith(_OTHERS):
            return False
    return True


def _is_supported(table: Schema, where: str, zone: str) -> bool:
    try:
        select(table, where=where, time_zone=zone)
    except InvalidInputError:
        return False
    return True
