"""Option names of Delta Lake and Iceberg, and what to write instead of each.

Sources: the batch and streaming pages of docs.delta.io, and `SparkReadOptions` and
`SparkWriteOptions` of Iceberg. Names are in lower case, as Spark passes them.
"""

from __future__ import annotations

_NO_REPLACE = "overwrite the table, or append; there is no partial overwrite"
_NO_SCHEMA_REPLACE = "use mergeSchema to add or widen a column; columns are never replaced"
_NO_COUNT_OF_FILES = "use maxBytesPerTrigger, maxRowsPerTrigger or maxCommitsPerTrigger"
_SKIP = 'use feed = "append" with skipChangeCommits = true'
_SPARK_SPLITS = "leave it out; Spark's own spark.sql.files.maxPartitionBytes does this"
_OWN_BLOCKS = "leave it out; a property of the table sets the size of its blocks"

REMEDIES: dict[str, str] = {
    # Delta Lake, reading
    "readchangefeed": 'use feed = "changes"',
    "readchangedata": 'use feed = "changes"',
    "ignorechanges": _SKIP,
    "ignoredeletes": _SKIP,
    "ignorefileremoval": _SKIP,
    "maxfilespertrigger": _NO_COUNT_OF_FILES,
    "witheventtimeorder": "leave it out; commits are delivered in order",
    "failondataloss": "leave it out; expired history is always an error",
    "schematrackinglocation": "leave it out; restart the stream and it continues",
    "schemalocation": "leave it out; restart the stream and it continues",
    "excluderegex": "use where",
    # Delta Lake, writing
    "txnappid": "use appId",
    "txnversion": "use batchId",
    "replacewhere": _NO_REPLACE,
    "replaceon": _NO_REPLACE,
    "replaceusing": _NO_REPLACE,
    "partitionoverwritemode": _NO_REPLACE,
    "overwriteschema": _NO_SCHEMA_REPLACE,
    "usermetadata": "use message",
    "datachange": "leave it out; compaction is an operation of its own",
    "maxrecordsperfile": _OWN_BLOCKS,
    "optimizewrite": "leave it out; small batches become one block",
    "clusterbyauto": "use clusterBy",
    # Iceberg, reading
    "snapshot-id": "use versionAsOf",
    "as-of-timestamp": "use timestampAsOf, as ISO text with its offset",
    "tag": "use versionAsOf",
    "start-snapshot-id": 'use feed = "changes" with startingVersion',
    "end-snapshot-id": 'use feed = "changes" with endingVersion',
    "start-timestamp": 'use feed = "changes" with startingTimestamp, as ISO text with its offset',
    "end-timestamp": 'use feed = "changes" with endingTimestamp, as ISO text with its offset',
    "stream-from-timestamp": "use startingTimestamp, as ISO text with its offset",
    "streaming-max-files-per-micro-batch": _NO_COUNT_OF_FILES,
    "streaming-max-rows-per-micro-batch": "use maxRowsPerTrigger",
    "streaming-skip-delete-snapshots": _SKIP,
    "streaming-skip-overwrite-snapshots": _SKIP,
    "split-size": _SPARK_SPLITS,
    "lookback": _SPARK_SPLITS,
    "file-open-cost": _SPARK_SPLITS,
    "vectorization-enabled": "leave it out",
    "batch-size": "leave it out",
    "locality": "leave it out",
    "aggregate-push-down-enabled": "leave it out",
    # Iceberg, writing
    "write-format": "leave it out; blocks are Parquet",
    "target-file-size-bytes": _OWN_BLOCKS,
    "merge-schema": "use mergeSchema",
    "check-nullability": "leave it out; nulls are always checked",
    "check-ordering": "leave it out; columns are matched by name",
    "fanout-enabled": "leave it out; a table has no partitions",
    "distribution-mode": "use clusterBy, when the table is created",
    "isolation-level": "leave it out; every commit is checked against the newest one",
    "validate-from-snapshot-id": "leave it out; every commit is checked",
    "overwrite-mode": _NO_REPLACE,
    "compression-codec": "leave it out; blocks are compressed with zstd",
    # Spark's own, and others'
    "partitionby": "use clusterBy, when the table is created",
    "compression": "leave it out; blocks are compressed with zstd",
    "table": "use path",
    "location": "use path",
    "sql": "use where",
    "filter": "use where",
    "querytype": "use feed",
}
"""What to write instead of a foreign name."""

PREFIXES: dict[str, str] = {"snapshot-property.": "use message"}
