"""Sizes in bytes as text. Pure."""

from __future__ import annotations

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def size(byte_count: int) -> str:
    """Return a size as text, such as "532 B" or "1.5 MiB"."""
    if byte_count < 1024:
        return f"{byte_count} B"
    amount = byte_count / 1024
    for unit in _UNITS[:-1]:
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_UNITS[-1]}"
