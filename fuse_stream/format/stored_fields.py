"""The metadata of a record's field: whether it is part of the record's stored form."""

from __future__ import annotations

NOT_STORED = {"is_stored": False}
"""The field is never stored."""

IF_ANY = {"is_stored": "if any"}
"""The field, a list or a map, is stored unless it is empty."""
