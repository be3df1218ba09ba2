"""`format("fuse")`, found by Spark: it imports every top module whose name starts with `pyspark_`.

Every Python worker that looks any format up pays for what stands here, so it is nearly nothing.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Stands in for `fuse_stream.spark.format.FuseDataSource` until it is used."""

    _source: DataSource | None = None

    @classmethod
    def name(cls) -> str:
        return "fuse"

    def schema(self) -> StructType | str:
        return self._used().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return self._used().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        return self._used().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        return self._used().writer(schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        return self._used().streamWriter(schema, overwrite)

    def _used(self) -> DataSource:
        # Kept, for it is pickled with this one and remembers what was loaded.
        if self._source is None:
            # Imported here: a worker that looks for another format must not pay for pyarrow.
            from fuse_stream.spark.format import FuseDataSource  # noqa: PLC0415

            self._source = FuseDataSource(self.options)
        return self._source
