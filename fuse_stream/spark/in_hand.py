"""What the sinks of this process have in hand: tells a replay from a second write of one batch.

Rule: in one run of a query a name, which is application and writer, commits a batch once. What
Spark delivers again it delivers in another run.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuse_stream.commit.ledger import Batch
from fuse_stream.errors import DuplicateWriterError
from fuse_stream.spark.identity import QueryIdentity
from fuse_stream.table import Table


@dataclass(slots=True, kw_only=True)
class InHand:
    """The last batch that a sink of this process took in hand."""

    run_id: str | None
    batch_id: int
    nonce: str
    """Which sink it was."""
    is_done: bool = False
    """Whether it is through; one that failed may try again."""


_in_hand: dict[tuple[str, str, str, str, str], InHand] = {}
"""By table, branch, application, writer and query."""


def take_in_hand(table: Table, batch: Batch, identity: QueryIdentity, nonce: str) -> InHand:
    """Note that the sink `nonce` handles `batch`.

    Raises:
        DuplicateWriterError: a sink of this name did so in the same run.
    """
    key = (
        table.table_id,
        table.committer.branch_id,
        batch.application,
        batch.writer,
        identity.query_id,
    )
    last = _in_hand.get(key)
    if (
        last is not None
        and (last.run_id, last.batch_id) == (identity.run_id, batch.batch_id)
        and (last.nonce != nonce or last.is_done)
    ):
        raise DuplicateWriterError(
            "a query writes twice to one table under the same name in one batch, and the second "
            "time would pass for a replay of the first; give each sink its own writer=, and call "
            "it once a batch",
            application=batch.application,
            writer=batch.writer,
            batch=batch.batch_id,
        )
    taken = InHand(run_id=identity.run_id, batch_id=batch.batch_id, nonce=nonce)
    _in_hand[key] = taken
    return taken
