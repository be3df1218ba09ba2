"""The features of the format that a snapshot may need.

A snapshot names those that it uses in `required_features`, and a reader that lacks one refuses it.
"""

from __future__ import annotations

COUNTS = "counts"
"""Of a snapshot that counts the events of its batch."""

DELETION_FILES = "deletion_files"
"""Of a snapshot that has deletion files, also in a side."""

ERASURE = "erasure"
"""Of a snapshot that erased rows."""

FINGERPRINTS = "fingerprints"
"""Of a snapshot in whose ledger an entry has a fingerprint."""

KEY = "key"
"""Of a snapshot whose rows have a key."""

LINE = "line"
"""Of a snapshot that names the start of its line."""

PRIVATE_COLUMNS = "private_columns"
"""Of a snapshot whose property `fuse.private` names columns."""

SEQUENCE = "sequence"
"""Of a snapshot whose rows come from events with sequences."""

SIDES = "sides"
"""Of a snapshot that has sides."""

SOURCES = "sources"
"""Of a snapshot in whose ledger an entry has sources."""
