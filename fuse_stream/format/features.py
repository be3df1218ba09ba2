"""The features of the format that a snapshot may need.

A snapshot names those that it uses in `required_features`, and a reader that lacks one refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping

from fuse_stream.format import properties
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.schema import Schema

BLOOM = "bloom"
"""Of a snapshot with Bloom filters, also in a side, or whose property asks for them."""

COMMENTS = "comments"
"""Of a snapshot whose columns have comments."""

COUNTS = "counts"
"""Of a snapshot that counts the events of its batch."""

DELETION_FILES = "deletion_files"
"""Of a snapshot that has deletion files, also in a side."""

ERASURE = "erasure"
"""Of a snapshot that erased rows."""

FINGERPRINTS = "fingerprints"
"""Of a snapshot in whose ledger an entry has a fingerprint."""

INDEXES = "indexes"
"""Of a snapshot that has a list of indexes, or whose commit changed it."""

KEY = "key"
"""Of a snapshot whose rows have a key."""

LINE = "line"
"""Of a snapshot that names the start of its line."""

OWN_HASH = "own_hash"
"""Of a snapshot that holds the hash of its own bytes. Every one that comes after version 0, but in
tables of releases that did not have it."""

PRIVATE_COLUMNS = "private_columns"
"""Of a snapshot whose property `fuse.private` names columns."""

SEQUENCE = "sequence"
"""Of a snapshot whose rows come from events with sequences."""

SIDES = "sides"
"""Of a snapshot that has sides."""

SOURCES = "sources"
"""Of a snapshot in whose ledger an entry has sources."""

STORED_NAMES = "stored_names"
"""Of a snapshot with a column that has another name in files, or from which one was dropped."""


def features_of(values: Mapping[str, str], *schemas: Schema) -> tuple[str, ...]:
    """Return the features that the properties and the columns of a table use, without rows."""
    named = {BLOOM: properties.BLOOM, PRIVATE_COLUMNS: properties.PRIVATE}
    found = {feature for feature, name in named.items() if values.get(name)}
    return tuple(sorted(found.union(*map(features_of_schema, schemas))))


def features_of_schema(schema: Schema) -> tuple[str, ...]:
    """Return the features that the columns of a table use."""
    used = {COMMENTS: schema.has_comments, STORED_NAMES: schema.has_stored_names}
    return tuple(feature for feature, is_used in used.items() if is_used)


def used_features(snapshot: Snapshot) -> frozenset[str]:
    """Return the features that a snapshot uses."""
    ledger = snapshot.ledger.entries.values()
    sides = snapshot.sides.values()
    schemas = [snapshot.schema, *(side.schema for side in sides)]
    totals = [snapshot.summary, *(side.summary for side in sides)]
    is_used = {
        BLOOM: any(summary.index_size for summary in totals),
        COUNTS: snapshot.counts is not None,
        DELETION_FILES: bool(snapshot.deletion_files) or any(side.deletion_files for side in sides),
        ERASURE: snapshot.operation is Operation.ERASE,
        FINGERPRINTS: any(entry.fingerprint is not None for entry in ledger),
        INDEXES: snapshot.index_list is not None or snapshot.operation is Operation.INDEX,
        KEY: bool(snapshot.key),
        LINE: snapshot.line is not None,
        SEQUENCE: snapshot.sequence is not None,
        SIDES: bool(snapshot.sides),
        SOURCES: any(entry.sources is not None for entry in ledger),
    }
    return frozenset(name for name, used in is_used.items() if used) | {
        *features_of(snapshot.properties, *schemas)
    }
