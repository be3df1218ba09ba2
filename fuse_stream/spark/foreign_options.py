"""Option names of Delta Lake and Iceberg, and what to write instead: people arrive with their code.

Sources: the batch and streaming pages of docs.delta.io, and `SparkReadOptions` and
`SparkWriteOptions` of Iceberg. Names are in lower case, which is how Spark hands options over.
"""

from __future__ import annotations

_NO_REPLACE = "there is no partial overwrite; overwrite the table, or append"
_NO_SCHEMA_REPLACE = "a column is added or widened with mergeSchema; it is never replaced"
_NO_COUNT_OF_FILES = "maxBytesPerTrigger, maxRowsPerTrigger or maxCommitsPerTrigger"
_SKIP = 'feed = "append" with skipChangeCommits = true'
_SPARK_SPLITS = "nothing: leave it out; Spark's own spark.sql.files.maxPartitionBytes does this"
_OWN_BLOCKS = "nothing: leave it out; a property of the table sets the size of its blocks"

REMEDIES: dict[str, str] = {
    # Delta Lake, reading
    "readchangefeed": 'feed = "changes"',
    "readchangedata": 'feed = "changes"',
    "ignorechanges": _SKIP,
    "ignoredeletes": _SKIP,
    "ignorefileremoval": _SKIP,
    "maxfilespertrigger": _NO_COUNT_OF_FILES,
    "witheventtimeorder": "nothing: leave it out; commits are delivered in order",
    "failondataloss": "nothing: leave it out; expired history is always an error",
    "schematrackinglocation": "nothing: leave it out; restart the stream and it goes on",
    "schemalocation": "nothing: leave it out; restart the stream and it goes on",
    "excluderegex": "where",
    # Delta Lake, writing
    "txnappid": "appId",
    "txnversion": "batchId",
    "replacewhere": _NO_REPLACE,
    "replaceon": _NO_REPLACE,
    "replaceusing": _NO_REPLACE,
    "partitionoverwritemode": _NO_REPLACE,
    "overwriteschema": _NO_SCHEMA_REPLACE,
    "usermetadata": "message",
    "datachange": "nothing: leave it out; compaction is an operation of its own",
    "maxrecordsperfile": _OWN_BLOCKS,
    "optimizewrite": "nothing: leave it out; small batches become one block",
    "clusterbyauto": "clusterBy",
    # Iceberg, reading
    "snapshot-id": "versionAsOf",
    "as-of-timestamp": "timestampAsOf, as ISO text with its offset",
    "tag": "versionAsOf",
    "start-snapshot-id": 'feed = "changes" with startingVersion',
    "end-snapshot-id": 'feed = "changes" with endingVersion',
    "start-timestamp": 'feed = "changes" with startingTimestamp, as ISO text with its offset',
    "end-timestamp": 'feed = "changes" with endingTimestamp, as ISO text with its offset',
    "stream-from-timestamp": "startingTimestamp, as ISO text with its offset",
    "streaming-max-files-per-micro-batch": _NO_COUNT_OF_FILES,
    "streaming-max-rows-per-micro-batch": "maxRowsPerTrigger",
    "streaming-skip-delete-snapshots": _SKIP,
    "streaming-skip-overwrite-snapshots": _SKIP,
    "split-size": _SPARK_SPLITS,
    "lookback": _SPARK_SPLITS,
    "file-open-cost": _SPARK_SPLITS,
    "vectorization-enabled": "nothing: leave it out",
    "batch-size": "nothing: leave it out",
    "locality": "nothing: leave it out",
    "aggregate-push-down-enabled": "nothing: leave it out",
    # Iceberg, writing
    "write-format": "nothing: leave it out; blocks are Parquet",
    "target-file-size-bytes": _OWN_BLOCKS,
    "merge-schema": "mergeSchema",
    "check-nullability": "nothing: leave it out; nulls are always checked",
    "check-ordering": "nothing: leave it out; columns are matched by name",
    "fanout-enabled": "nothing: leave it out; a table has no partitions",
    "distribution-mode": "clusterBy, when the table is created",
    "isolation-level": "nothing: leave it out; every commit is checked against the newest one",
    "validate-from-snapshot-id": "nothing: leave it out; every commit is checked",
    "overwrite-mode": _NO_REPLACE,
    "compression-codec": "nothing: leave it out; blocks are compressed with zstd",
    # Spark's own, and others'
    "partitionby": "clusterBy, when the table is created",
    "compression": "nothing: leave it out; blocks are compressed with zstd",
    "table": "path",
    "location": "path",
    "sql": "where",
    "filter": "where",
    "querytype": "feed",
}
"""What to write instead of a foreign name."""

PREFIXES: dict[str, str] = {
    "snapshot-property.": "message",
}
