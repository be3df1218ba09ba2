"""Hints: where the head of a branch was lately, and what one proves that is ahead of the head.

Rules:
- A hint is written once the slot of its version stands, so it is never ahead of the newest slot,
  unless slots were lost, or it is damaged itself: which of the two nobody can tell from here.
- A slow writer may replace a hint by an older one. So a hint that is behind proves nothing.
- A reader survives any hint, and warns of one that is ahead. A writer refuses: its commit would
  take the place of a lost one.
"""

from __future__ import annotations

import contextlib
import logging

from fuse_stream.errors import CorruptObjectError, FuseError
from fuse_stream.format.layout import LAST_VERSION, hint_key
from fuse_stream.storage.base import Store

_log = logging.getLogger(__name__)


def load_hint(store: Store, branch_id: str) -> int:
    """Return the version that a hint names; 0 for none, and for one that is no version."""
    key = hint_key(branch_id)  # outside: a branch id that is none is an error
    try:
        hint = int(store.get(key))
    except (FuseError, ValueError):
        return 0
    return hint if 0 < hint <= LAST_VERSION else 0  # a number that no key holds is none


def store_hint(store: Store, branch_id: str, version: int) -> None:
    """Note where the head was, once its slot is there; a failure is no error."""
    with contextlib.suppress(FuseError):
        store.replace(hint_key(branch_id), str(version).encode())


def warn_of_loss(store: Store, branch_id: str, hint: int, version: int) -> None:
    """Say that a hint is ahead of the head, which is `version`."""
    _log.warning(
        "%s: %s names version %d, and the newest that is there is %d: newer ones are lost, or "
        "the hint is damaged. Reads show an older table, and commits are refused; see "
        "fuse-stream fsck",
        store.url,
        hint_key(branch_id),
        hint,
        version,
    )


def loss(store: Store, branch_id: str, hint: int, version: int) -> CorruptObjectError:
    """Return the error of a commit on a head, `version`, that a hint is ahead of."""
    key = hint_key(branch_id)
    return CorruptObjectError(
        "a hint names a newer version than the newest slot, and is only written once its version "
        "is there: commits are lost with their ledger entries, and a new one would take their "
        "place (or the table is a copy that was made beside commits). Restore the slots from a "
        f"copy; to go on without them, delete {key}",
        key=key,
        lost_version=hint,
        version=version,
        path=store.url,
    )
