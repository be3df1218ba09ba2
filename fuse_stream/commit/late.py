"""What a commit that took long may still rely on. Pure."""

from __future__ import annotations

from fuse_stream.commit.plan import Intent, Staged
from fuse_stream.errors import CommitStateUnknownError
from fuse_stream.format.records import KEEPS_ROWS, Snapshot


def may_be_gone(epoch: int, head: Snapshot) -> bool:
    """Whether vacuum may have taken what was put after a head of this epoch was read."""
    return head.epoch - epoch >= 2


def check_may_do_again(intent: Intent, candidate: Snapshot) -> None:
    """Refuse to plan anew what may have landed before its slot was freed, and would count twice.

    Raises:
        CommitStateUnknownError: no ledger entry tells whether it landed, and it changes rows.
    """
    if intent.batch is None and intent.operation not in KEEPS_ROWS:
        raise CommitStateUnknownError(
            "the commit took so long that its version has expired meanwhile: it may have landed "
            "before that, and done again it might count twice. Look whether the table holds what "
            "it brought, and do it again only if not; under an app_id and batch_id a second "
            "delivery is safe",
            operation=str(intent.operation),
            version=candidate.version,
            branch=candidate.branch_id,
        )


def is_stale(staged: Staged, base: Snapshot, head: Snapshot) -> bool:
    """Whether what was staged on `base` may not fit `head`, or be gone."""
    if staged.content is not None:
        return base.snapshot_id != head.snapshot_id
    return base.schema != head.schema or may_be_gone(base.epoch, head)
