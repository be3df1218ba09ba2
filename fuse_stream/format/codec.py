"""Encode the persisted records as canonical bytes, and decode them.

A record has exactly one encoding. Hashes are of the stored bytes. A segment is stored as JSON in
zstd, every other record as JSON. What no other object holds the hash of holds its own: a ref, a
lease, and a snapshot, which may be the newest one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import Any, TypeVar

import pyarrow as pa

from fuse_stream.errors import CorruptObjectError, InvalidInputError, UnsupportedFormatError
from fuse_stream.format.check_snapshot import (
    MAX_LISTED,
    check_cluster_key,
    check_lengths,
    check_snapshot,
)
from fuse_stream.format.columns import LeafTypes
from fuse_stream.format.features import (
    BLOOM,
    COMMENTS,
    COUNTS,
    DELETION_FILES,
    ERASURE,
    FINGERPRINTS,
    INDEXES,
    KEY,
    LINE,
    OWN_HASH,
    PRIVATE_COLUMNS,
    SEQUENCE,
    SIDES,
    SOURCES,
    STORED_NAMES,
    features_of_schema,
    used_features,
)
from fuse_stream.format.jsonio import (
    MAX_MARKS,
    count_marks,
    dump_canonical,
    from_json,
    is_narrow,
    load_canonical,
    load_json,
    to_json,
)
from fuse_stream.format.layout import MAIN, branch_checked, id_checked, sha256_checked
from fuse_stream.format.lazy_blocks import read_blocks
from fuse_stream.format.properties import MAX_DURATION_US, grace_us
from fuse_stream.format.records import (
    FORMAT_VERSION,
    Parent,
    Segment,
    Snapshot,
    TableFile,
)
from fuse_stream.format.refs import (
    DATE_TAG_FORMAT_VERSION,
    REF_FORMAT_VERSION,
    BranchRef,
    CloneRef,
    Lease,
    ServiceClaim,
    TagRef,
)
from fuse_stream.format.schema import Schema, flaw_of

KNOWN_FEATURES: frozenset[str] = frozenset(
    {
        BLOOM,
        COMMENTS,
        COUNTS,
        DELETION_FILES,
        ERASURE,
        FINGERPRINTS,
        INDEXES,
        KEY,
        LINE,
        OWN_HASH,
        PRIVATE_COLUMNS,
        SEQUENCE,
        SIDES,
        SOURCES,
        STORED_NAMES,
    }
)
"""The `required_features` that this release can read and write."""

NAMED_FORMAT_VERSION = 2
"""The stored version of a table file whose columns have names in files or comments: it begins a
clone. A reader of version 1 refuses it."""

MAX_SEGMENT_BLOCKS = 60_000
MAX_SEGMENT_BYTES = 256 * 1024 * 1024
"""The limit of a segment's JSON: a small hostile object must not decompress into all memory."""

MAX_UNPACKED_RATIO = 2000
"""A segment of more than `ALWAYS_UNPACKED_BYTES` has at most so many bytes of JSON for each stored
one. A block is at least its random id, and zstd packs the same byte 30,000 times as well."""
ALWAYS_UNPACKED_BYTES = 16 * 1024 * 1024

_READ_BYTES = 64 * 1024
_DIGITS_NAME = re.compile(rb'"name":"[0-9]+"')
_BEFORE_BLOCKS, _AFTER_BLOCKS = b'{"blocks":[', b'],"format_version":'

MAX_SNAPSHOT_BYTES = 64 * 1024 * 1024
MAX_REF_BYTES = 1024 * 1024

Ref = TypeVar("Ref", BranchRef, TagRef, CloneRef)
Hashed = TypeVar("Hashed", BranchRef, TagRef, CloneRef, Lease)

_SHA256 = "sha256"
"""The field of a record that holds the hash of the record's encoding without this field."""


def sha256_hex(data: bytes | memoryview | pa.Buffer) -> str:
    """Return the SHA-256 of `data`, in hex."""
    return hashlib.sha256(data).hexdigest()


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the canonical bytes of a snapshot.

    Raises:
        InvalidInputError: they are more than a reader accepts.
    """
    fields = to_json(snapshot, snapshot.schema.leaf_types)
    data = (
        _dump_hashed(fields) if OWN_HASH in snapshot.required_features else dump_canonical(fields)
    )
    longest = max(len(snapshot.segments), len(snapshot.deletion_files))
    is_readable = (
        len(data) <= MAX_SNAPSHOT_BYTES and count_marks(data) <= MAX_MARKS and is_narrow(data)
    )
    if not is_readable or longest > MAX_LISTED:
        raise InvalidInputError(
            "the snapshot would be larger than a reader accepts; compact the table, use fewer "
            "columns, or remove applications from the ledger (Table.forget)",
            segment_count=len(snapshot.segments),
            size_bytes=len(data),
            most_bytes=MAX_SNAPSHOT_BYTES,
        )
    return data


def decode_snapshot(data: bytes) -> Snapshot:
    """Return the snapshot that the bytes of a slot encode.

    Raises:
        CorruptObjectError: the bytes are not the canonical encoding of a snapshot. Damaged
            statistics raise it when they are first used (`ReadLater`).
        UnsupportedFormatError: a newer release wrote it, or it needs an unknown feature.
    """
    fields = _loaded(data, MAX_SNAPSHOT_BYTES)
    # First of all: a feature may bring fields that are not known here, and are no damage.
    features = from_json(tuple[str, ...], fields.get("required_features"), {})
    if unknown := set(features) - KNOWN_FEATURES:
        raise UnsupportedFormatError(
            "the table needs a feature that this release lacks; upgrade fuse-stream",
            features=sorted(unknown),
        )
    if OWN_HASH in features:
        take_own_hash(fields, size=len(data))
    elif _SHA256 in fields:
        raise _unnamed(fields.get("version"), [OWN_HASH])
    check_lengths(fields)
    schema = _schema_of(fields)
    snapshot = from_json(Snapshot, fields, schema.leaf_types)
    check_snapshot(snapshot)
    if unnamed := used_features(snapshot) - set(features):
        raise _unnamed(snapshot.version, sorted(unnamed))
    return snapshot


def _unnamed(version: object, features: list[str]) -> CorruptObjectError:
    return CorruptObjectError(
        "the snapshot uses features that required_features does not name",
        version=version,
        features=features,
    )


def encode_segment(segment: Segment, types: LeafTypes) -> tuple[bytes, str]:
    """Return the stored bytes of a segment and its SHA-256.

    Raises:
        InvalidInputError: it is larger than a reader accepts.
    """
    data = dump_canonical(to_json(segment, types))
    stored: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    if len(data) > _most_unpacked(stored) or len(segment.blocks) > MAX_SEGMENT_BLOCKS:
        raise InvalidInputError(
            "a commit has more blocks than a reader accepts; write its rows in several commits, "
            "or in larger blocks (fuse.block.rows, fuse.block.bytes)",
            block_count=len(segment.blocks),
            most_blocks=MAX_SEGMENT_BLOCKS,
            size_bytes=len(data),
        )
    return stored, sha256_hex(stored)


def decode_segment(stored: bytes, sha256: str, types: LeafTypes) -> Segment:
    """Return the segment that stored bytes encode; `sha256` is the hash in its snapshot.

    Raises:
        CorruptObjectError: the bytes do not have this hash. Damaged statistics of blocks raise it
            when they are first used (`BlockInText`).
    """
    data = unpacked_segment(stored, sha256)
    end = data.rfind(_AFTER_BLOCKS)
    if end < 0 or not data.startswith(_BEFORE_BLOCKS):
        _loaded(data, MAX_SEGMENT_BYTES)  # raises the right error for a newer format
        raise CorruptObjectError("the object is not a segment", sha256=sha256)
    # Decode the rest of the segment with an empty list of blocks.
    rest = _loaded(_BEFORE_BLOCKS + data[end:], MAX_SEGMENT_BYTES)
    empty = from_json(Segment, rest, types)
    return dataclasses.replace(empty, blocks=read_blocks(data, len(_BEFORE_BLOCKS), end, types))


def without_origins(stored: bytes, sha256: str) -> bytes:
    """Return the stored bytes of a segment whose blocks are all the table's own.

    All else that it says is kept, also of columns that no schema has any more.

    Raises:
        CorruptObjectError: the bytes do not have this hash.
    """
    fields = load_json(unpacked_segment(stored, sha256))
    for block in fields["blocks"]:
        block.pop("origin", None)
    packed: bytes = pa.Codec("zstd").compress(dump_canonical(fields), asbytes=True)
    return packed


def encode_fields(fields: dict[str, Any]) -> bytes:
    """Return the canonical bytes of a record's fields; its own hash is made anew if it has one."""
    if fields.pop(_SHA256, None) is None:
        return dump_canonical(fields)
    return _dump_hashed(fields)


def unpacked_segment(stored: bytes, sha256: str) -> bytes:
    """Return the JSON of a stored segment; `sha256` is the hash in its snapshot.

    The result has at most `MAX_SEGMENT_BYTES`, and `MAX_UNPACKED_RATIO`.

    Raises:
        CorruptObjectError: the bytes do not have this hash.
    """
    return unpacked(stored, sha256, "a segment", MAX_SEGMENT_BYTES)


def unpacked(stored: bytes, sha256: str, what: str, most_bytes: int) -> bytes:
    """Return the JSON of an object that is stored in zstd; errors name it as `what`.

    The result has at most `most_bytes`, and `MAX_UNPACKED_RATIO`.

    Raises:
        CorruptObjectError: the bytes do not have this hash.
    """
    if sha256_hex(stored) != sha256:
        raise CorruptObjectError(f"{what} differs from the hash in its snapshot", sha256=sha256)
    most = min(most_bytes, _most_unpacked(stored))
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored), "zstd") as stream:
            data = _read_bounded(stream, most + 1)
    except (OSError, pa.ArrowException) as error:
        raise CorruptObjectError(f"{what} is not zstd", sha256=sha256) from error
    if len(data) > most:
        raise CorruptObjectError(
            f"{what} is larger than any that a writer makes", sha256=sha256, most_bytes=most
        )
    return data


def _most_unpacked(stored: bytes) -> int:
    by_ratio = max(ALWAYS_UNPACKED_BYTES, MAX_UNPACKED_RATIO * len(stored))
    return min(MAX_SEGMENT_BYTES, by_ratio)


def encode_table_file(table: TableFile) -> bytes:
    """Return the canonical bytes of `_fuse.json`."""
    fields = to_json(table, {})
    if features_of_schema(table.schema):
        fields["format_version"] = NAMED_FORMAT_VERSION
    return dump_canonical(fields)


def decode_table_file(data: bytes) -> TableFile:
    """Return the table file that the bytes of `_fuse.json` encode.

    Raises:
        CorruptObjectError: the bytes are not a table file.
        UnsupportedFormatError: a newer release wrote it.
    """
    fields = _loaded(data, MAX_SNAPSHOT_BYTES, known=NAMED_FORMAT_VERSION)
    schema = _schema_of(fields)
    wanted = NAMED_FORMAT_VERSION if features_of_schema(schema) else FORMAT_VERSION
    _loaded(data, MAX_SNAPSHOT_BYTES, known=wanted)  # raises if a newer release wrote it
    if fields["format_version"] < wanted:
        raise CorruptObjectError(
            "the format_version of the table file is not that of its columns", wanted=wanted
        )
    table = from_json(TableFile, {**fields, "format_version": FORMAT_VERSION}, {})
    check_cluster_key(table.cluster_key, schema)
    if grace_us(table.properties) != table.grace_us:  # no other object holds this file's hash
        raise CorruptObjectError("the grace of the table file differs from that in its properties")
    return table


def encode_ref(ref: BranchRef | TagRef | CloneRef | Lease) -> bytes:
    """Return the canonical bytes of a branch, a tag, a clone's pin or a consumer's lease."""
    fields = to_json(ref, {})
    if isinstance(ref, TagRef) and ref.name.isdigit():
        fields["format_version"] = DATE_TAG_FORMAT_VERSION
    return _dump_hashed(fields)


def decode_ref(cls: type[Ref], data: bytes) -> Ref:
    """Return the branch, tag or clone's pin that the bytes encode.

    A ref of format version 1 is returned as one of the current version.

    Raises:
        CorruptObjectError: the bytes are not such a ref.
        UnsupportedFormatError: a newer release wrote it.
    """
    ref = _decode_hashed(cls, data)
    if not ref.forks or not _are_in_order(ref.forks):
        raise CorruptObjectError("the fork points of a ref are invalid", name=ref.name[:100])
    if isinstance(ref, BranchRef):
        _check_own_id(ref.forks, id_checked(ref.branch_id))
        if not 0 <= ref.floor <= ref.forks[-1].version or ref.epoch < 0:
            raise CorruptObjectError(
                "a ref holds a number out of range", floor=ref.floor, epoch=ref.epoch
            )
        return ref
    id_checked(ref.snapshot_id)
    if isinstance(ref, CloneRef):
        id_checked(ref.table_id)
    return ref


def take_own_hash(fields: dict[str, Any], *, size: int) -> None:
    """Take the hash that a record holds out of its fields, and compare it with the rest.

    Raises:
        CorruptObjectError: it is another one.
    """
    if fields.pop(_SHA256, None) != sha256_hex(dump_canonical(fields)):
        raise CorruptObjectError("the object differs from the hash that it holds", size=size)


def encode_claim(claim: ServiceClaim) -> bytes:
    """Return the canonical bytes of an optimizer's claim."""
    return dump_canonical(to_json(claim, {}))


def decode_claim(data: bytes) -> ServiceClaim:
    """Return the optimizer's claim that the bytes encode.

    Raises:
        CorruptObjectError: the bytes are not a claim.
        UnsupportedFormatError: a newer release wrote it.
    """
    return from_json(ServiceClaim, _loaded(data, MAX_REF_BYTES), {})


def decode_lease(data: bytes) -> Lease:
    """Return the consumer's lease that the bytes encode; errors of `decode_ref`."""
    lease = _decode_hashed(Lease, data)
    id_checked(lease.owner_id)
    has_forks = branch_checked(lease.branch_id) != MAIN
    if bool(lease.forks) is not has_forks or not _are_in_order(lease.forks):
        raise CorruptObjectError(
            "the fork points of a lease's branch are invalid", consumer=lease.name[:100]
        )
    _check_own_id(lease.forks, lease.branch_id)
    if (
        min(lease.version, *(position.version for position in lease.resumes), 0) < 0
        or not 0 < lease.lease_us <= MAX_DURATION_US
    ):
        raise CorruptObjectError(
            "a lease holds a number out of range",
            consumer=lease.name[:100],
            version=lease.version,
            lease_us=lease.lease_us,
        )
    return lease


def _decode_hashed(cls: type[Hashed], data: bytes) -> Hashed:
    is_date = cls is TagRef and _DIGITS_NAME.search(data)
    known = DATE_TAG_FORMAT_VERSION if is_date else REF_FORMAT_VERSION
    fields = _loaded(data, MAX_REF_BYTES, known=known)
    if fields["format_version"] >= REF_FORMAT_VERSION:
        take_own_hash(fields, size=len(data))
    return from_json(cls, {**fields, "format_version": REF_FORMAT_VERSION}, {})


def _dump_hashed(fields: dict[str, Any]) -> bytes:
    """Return the canonical bytes of a record with its own hash."""
    return dump_canonical({**fields, _SHA256: sha256_hex(dump_canonical(fields))})


def _check_own_id(forks: tuple[Parent, ...], branch_id: str) -> None:
    if branch_id in {fork.branch_id for fork in forks}:
        raise CorruptObjectError("a branch is its own ancestor", branch_id=branch_id)


def _are_in_order(forks: tuple[Parent, ...]) -> bool:
    ids = [branch_checked(fork.branch_id) for fork in forks]
    for fork in forks:
        sha256_checked(fork.sha256)
    versions = [fork.version for fork in forks]
    return len(set(ids)) == len(ids) and all(
        older < newer for older, newer in zip([-1, *versions], versions, strict=False)
    )


def _read_bounded(stream: pa.NativeFile, limit: int) -> bytes:
    """Return the content of `stream`, cut a little after `limit` bytes."""
    pieces = []
    size = 0
    # In pieces: one large read allocates all its memory first, and never frees it if it fails.
    while size < limit and (piece := stream.read(_READ_BYTES)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _schema_of(fields: dict[str, Any]) -> Schema:
    schema = from_json(Schema, fields.get("schema"), {})
    if flaw := flaw_of(schema):
        raise CorruptObjectError("the schema is invalid", reason=flaw)
    return schema


def _loaded(data: bytes, limit: int, known: int = FORMAT_VERSION) -> dict[str, Any]:
    if len(data) > limit:
        raise CorruptObjectError("the object is too large for its kind", size=len(data))
    fields = load_canonical(data)
    if not isinstance(fields, dict):
        raise CorruptObjectError("the object is not a JSON object", size=len(data))
    version = fields.get("format_version")
    if type(version) is not int or version < 1:
        raise CorruptObjectError("the object has no format_version", size=len(data))
    if version > known:
        raise UnsupportedFormatError(
            "a newer release wrote this table; upgrade fuse-stream",
            format_version=version,
            known=known,
        )
    return fields
