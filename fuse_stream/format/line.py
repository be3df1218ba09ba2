"""The line of a branch: since when each version was made from the one before it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LineStart:
    """The last place where the content of a branch came from elsewhere than the version before.

    From `since` to the snapshot that has this record, each version was made from the one before.
    """

    since: int
    """The newest version, up to this one, that took another snapshot's content; 0 if none did."""
    base: int | None = None
    """The newest version of the branch through which that content came, always before `since`; None
    if there is none, or it was not found."""
