"""Hints: recent versions of a branch, from which the search for its head starts.

Rules:
- A hint is written after the slot of its version. If it is ahead of the newest slot, slots were
  lost or the hint is damaged; the hint does not show which.
- A slow writer may replace a hint by an older one, so a hint behind the head proves nothing.
- If a hint is ahead of the head, a reader logs a warning and a writer refuses to commit: the
  commit would take the version number of a lost one.
"""

from __future__ import annotations

import contextlib
import logging

from fuse_stream.errors import CorruptObjectError, FuseError
from fuse_stream.format.layout import LAST_VERSION, hint_key
from fuse_stream.storage.base import Store

_log = logging.getLogger(__name__)


def load_hint(store: Store, branch_id: str) -> int:
    """Return the version in a branch's hint; 0 without a valid hint."""
    key = hint_key(branch_id)  # outside `try`: an invalid branch id is an error
    try:
        hint = int(store.get(key))
    except (FuseError, ValueError):
        return 0
    return hint if 0 < hint <= LAST_VERSION else 0  # a larger number is no version


def store_hint(store: Store, branch_id: str, version: int) -> None:
    """Store the hint `version`, whose slot exists; a failure is ignored: hints may be lost."""
    with contextlib.suppress(FuseError):
        store.replace(hint_key(branch_id), str(version).encode())


def warn_of_loss(store: Store, branch_id: str, hint: int, version: int) -> None:
    """Log that a hint is ahead of the head, which is `version`."""
    _log.warning(
        "%s: %s names version %d, but the newest slot is version %d: newer slots are lost, or "
        "the hint is damaged. Reads show an older table, and commits are refused; run "
        "fuse-stream fsck",
        store.url,
        hint_key(branch_id),
        hint,
        version,
    )


def loss_error(store: Store, branch_id: str, hint: int, version: int) -> CorruptObjectError:
    """Return the error for a commit while a hint is ahead of the head, which is `version`."""
    key = hint_key(branch_id)
    return CorruptObjectError(
        "a hint names a newer version than the newest slot, though a hint is only written after "
        "its slot: commits are lost with their ledger entries, and a new commit would take their "
        "version numbers (or the table was copied while commits ran). Restore the slots from a "
        f"copy; to continue without them, delete {key}",
        key=key,
        lost_version=hint,
        version=version,
        path=store.url,
    )
