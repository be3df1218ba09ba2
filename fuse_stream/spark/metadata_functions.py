"""Functions of Spark's SQL that show a table's metadata: `SELECT * FROM fuse_snapshot('/lake/t')`.

They are row functions: Spark refuses LATERAL for those of Arrow. Their rows are those of
`Table.metadata`; for many rows `option("metadata", …)` of `format("fuse")` is faster.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import udtf

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import Version
from fuse_stream.on_demand import OnDemand
from fuse_stream.spark.types import spark_schema_of
from fuse_stream.storage.secrets import StorageOptions
from fuse_stream.table.handle import open_at
from fuse_stream.table.location import TableLocation

if TYPE_CHECKING:
    from pyspark.sql.udtf import UserDefinedTableFunction

    from fuse_stream.table import metadata_tables
else:
    metadata_tables = OnDemand("fuse_stream.table.metadata_tables")

FUNCTIONS: Mapping[str, str] = {
    "fuse_snapshot": "snapshots",
    "fuse_segment": "segments",
    "fuse_block": "blocks",
    "fuse_column": "columns",
    "fuse_statistic": "statistics",
    "fuse_tag": "tags",
    "fuse_branch": "branches",
    "fuse_ledger": "ledger",
    "fuse_consumer": "consumers",
    "clustering_information": "clustering_information",
}
"""The metadata table that a function shows, by the function's name."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def register_functions(
    spark: SparkSession, storage_options: Mapping[str, object] | None = None
) -> None:
    """Register the functions in a session; arguments of `register`."""
    options = StorageOptions(storage_options)
    for function, name in FUNCTIONS.items():
        schema = spark_schema_of(metadata_tables.get_kind(name).schema)
        made = udtf(_rows_of(name, options), returnType=schema)
        spark.udtf.register(function, cast("UserDefinedTableFunction", made))


def _rows_of(name: str, options: StorageOptions) -> type:
    """Return the class of a function. A local class travels to the workers with its options."""

    class Rows:
        def eval(
            self, path: str | None, branch: str | None = MAIN, version: Version | None = None
        ) -> Iterator[tuple[Any, ...]]:
            yield from _iter_rows(name, path, branch, version, options)

    return Rows


def _iter_rows(
    name: str,
    path: str | None,
    branch: str | None,
    version: Version | None,
    options: StorageOptions,
) -> Iterator[tuple[Any, ...]]:
    if path is None or branch is None:
        raise InvalidInputError("the path and the branch of a table are not null", function=name)
    table = open_at(TableLocation.of(path, branch, options))
    schema = metadata_tables.get_kind(name).schema
    times = [at for at, field in enumerate(schema) if pa.types.is_timestamp(field.type)]
    for row in metadata_tables.iter_rows(table, name, version):
        values = list(row)
        for at in times:
            if values[at] is not None:
                values[at] = _EPOCH + dt.timedelta(microseconds=values[at])  # type: ignore[arg-type]
        yield tuple(values)
