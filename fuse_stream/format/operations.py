"""Which operations do what to rows and to the ledger."""

from __future__ import annotations

from fuse_stream.format.records import Operation

KEEPS_ROWS = frozenset(
    {
        Operation.CREATE,
        Operation.ALTER,
        Operation.COMPACT,
        Operation.RECLUSTER,
        Operation.EXPIRE,
        Operation.INDEX,
    }
)
"""Operations that change no row: the change feed leaves them out."""

CHANGES_ROWS = frozenset(
    {
        Operation.DELETE,
        Operation.UPDATE,
        Operation.UPSERT,
        Operation.MERGE,
        Operation.REPLICATE,
        Operation.RETRY,
    }
)
"""Operations that hide rows, and may bring others."""

BRINGS_ROWS = CHANGES_ROWS | {Operation.APPEND, Operation.OVERWRITE}
"""Operations whose new blocks, if there are any, are those of the segments in `added`."""

DROPS_ENTRIES = frozenset({Operation.EXPIRE, Operation.ALTER})
"""An entry that leaves the ledger by one of these leaves its rows behind."""
