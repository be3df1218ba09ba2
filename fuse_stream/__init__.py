"""Git for Spark streams: an incremental table with exactly-once commits and a change feed."""

from fuse_stream.spark.sink import FuseSink, fuse_sink
from fuse_stream.table import Table
