"""The names that a side of a snapshot may have."""

from __future__ import annotations

from enum import StrEnum


class SideName(StrEnum):
    """What a side holds."""

    COALESCED = "coalesced"
    """Rows of a history that were merged into others."""
    QUARANTINE = "quarantine"
    """Events that could not be applied, with the reasons."""
    TOMBSTONES = "tombstones"
    """Keys whose rows were deleted, with the sequence of the delete."""
