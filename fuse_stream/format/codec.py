"""Canonical bytes of the persisted records, so that hashes and golden files hold.

Hashes are of the stored bytes. A segment is stored as zstd of its JSON; the rest is stored as JSON.
Refs and leases, which no other object holds the hash of, hold their own.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, TypeVar

import pyarrow as pa

from fuse_stream.errors import CorruptObjectError, UnsupportedFormatError
from fuse_stream.format.columns import LeafTypes
from fuse_stream.format.jsonio import (
    dump_canonical,
    from_json,
    load_canonical,
    to_json,
)
from fuse_stream.format.layout import (
    MAIN,
    branch_checked,
    id_checked,
    sha256_checked,
)
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
    REF_FORMAT_VERSION,
    BranchRef,
    CloneRef,
    Lease,
    ServiceClaim,
    TagRef,
)
from fuse_stream.format.schema import Schema, flaw_of

KNOWN_FEATURES: frozenset[str] = frozenset()
"""The `required_features` that this release can read and write."""

MAX_SEGMENT_BYTES = 256 * 1024 * 1024
"""JSON of one segment; a small hostile object must not unfold into all memory."""

_READ_BYTES = 64 * 1024
_BEFORE_BLOCKS, _AFTER_BLOCKS = b'{"blocks":[', b'],"format_version":'

MAX_SNAPSHOT_BYTES = 64 * 1024 * 1024
MAX_REF_BYTES = 1024 * 1024

Ref = TypeVar("Ref", BranchRef, TagRef, CloneRef)
Hashed = TypeVar("Hashed", BranchRef, TagRef, CloneRef, Lease)

_SHA256 = "sha256"
"""The field of a ref that holds its hash: that of its encoding without this field."""


def sha256_hex(data: bytes | memoryview | pa.Buffer) -> str:
    """Return the SHA-256 of `data`, in hex."""
    return hashlib.sha256(data).hexdigest()


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the one encoding of a snapshot."""
    return dump_canonical(to_json(snapshot, snapshot.schema.leaf_types))


def decode_snapshot(data: bytes) -> Snapshot:
    """Rebuild a snapshot from the bytes of its slot.

    Raises:
        CorruptObjectError: the bytes are not the one encoding of a snapshot. Its statistics raise
            the same when they are looked at (`by_column`).
        UnsupportedFormatError: a newer release wrote it, or it needs an unknown feature.
    """
    fields = _loaded(data, MAX_SNAPSHOT_BYTES)
    schema = _schema_of(fields)
    snapshot = from_json(Snapshot, fields, schema.leaf_types)
    _check_cluster_key(snapshot.cluster_key, schema)
    if unknown := set(snapshot.required_features) - KNOWN_FEATURES:
        raise UnsupportedFormatError(
            "the table needs a feature that this release lacks; upgrade fuse-stream",
            features=sorted(unknown),
        )
    return snapshot


def encode_segment(segment: Segment, types: LeafTypes) -> tuple[bytes, str]:
    """Return the stored bytes of a segment and its SHA-256."""
    data = dump_canonical(to_json(segment, types))
    stored: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return stored, sha256_hex(stored)


def decode_segment(stored: bytes, sha256: str, types: LeafTypes) -> Segment:
    """Rebuild a segment from its stored bytes; `sha256` is what its snapshot says.

    Raises:
        CorruptObjectError: these are not the bytes that were hashed. What its blocks hold by
            column raises the same when it is looked at (`block_text`).
    """
    data = unpacked_segment(stored, sha256)
    end = data.rfind(_AFTER_BLOCKS)
    if len(data) > MAX_SEGMENT_BYTES or end < 0 or not data.startswith(_BEFORE_BLOCKS):
        _loaded(data, MAX_SEGMENT_BYTES)  # tells of a newer format
        raise CorruptObjectError("this is not a segment", sha256=sha256)
    # The same, without the blocks: an empty list in their place.
    rest = _loaded(_BEFORE_BLOCKS + data[end:], MAX_SEGMENT_BYTES)
    empty = from_json(Segment, rest, types)
    return dataclasses.replace(empty, blocks=read_blocks(data, len(_BEFORE_BLOCKS), end, types))


def unpacked_segment(stored: bytes, sha256: str) -> bytes:
    """Return the JSON of a segment, in bounds; `sha256` is what its snapshot says.

    Raises:
        CorruptObjectError: these are not the bytes that were hashed.
    """
    if sha256_hex(stored) != sha256:
        raise CorruptObjectError("a segment is not what its snapshot says", sha256=sha256)
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored), "zstd") as stream:
            return _read_bounded(stream, MAX_SEGMENT_BYTES + 1)
    except (OSError, pa.ArrowException) as error:
        raise CorruptObjectError("a segment is not zstd", sha256=sha256) from error


def encode_table_file(table: TableFile) -> bytes:
    """Return the one encoding of `_fuse.json`."""
    return dump_canonical(to_json(table, {}))


def decode_table_file(data: bytes) -> TableFile:
    """Rebuild `_fuse.json` from its bytes.

    Raises:
        CorruptObjectError: the bytes are not one.
        UnsupportedFormatError: a newer release wrote it.
    """
    fields = _loaded(data, MAX_SNAPSHOT_BYTES)
    schema = _schema_of(fields)
    table = from_json(TableFile, fields, {})
    _check_cluster_key(table.cluster_key, schema)
    if grace_us(table.properties) != table.grace_us:  # no object holds the hash of this one
        raise CorruptObjectError("its grace is not the one that its properties say")
    return table


def encode_ref(ref: BranchRef | TagRef | CloneRef | Lease) -> bytes:
    """Return the one encoding of a branch, a tag, a clone's pin or a consumer's lease."""
    fields = to_json(ref, {})
    return dump_canonical({**fields, _SHA256: sha256_hex(dump_canonical(fields))})


def decode_ref(cls: type[Ref], data: bytes) -> Ref:
    """Rebuild a branch, a tag or a clone's pin from its bytes.

    One of format version 1 becomes what a ref of today with the same content is.

    Raises:
        CorruptObjectError: the bytes are not one.
        UnsupportedFormatError: a newer release wrote it.
    """
    ref = _decode_hashed(cls, data)
    if not ref.forks or not _is_line(ref.forks):
        raise CorruptObjectError("a ref does not say where it forked off", name=ref.name[:100])
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


def encode_claim(claim: ServiceClaim) -> bytes:
    """Return the one encoding of a service's claim."""
    return dump_canonical(to_json(claim, {}))


def decode_claim(data: bytes) -> ServiceClaim:
    """Rebuild a service's claim from its bytes.

    Raises:
        CorruptObjectError: the bytes are not one.
        UnsupportedFormatError: a newer release wrote it.
    """
    return from_json(ServiceClaim, _loaded(data, MAX_REF_BYTES), {})


def decode_lease(data: bytes) -> Lease:
    """Rebuild a consumer's lease from its bytes; errors of `decode_ref`."""
    lease = _decode_hashed(Lease, data)
    id_checked(lease.owner_id)
    # Only `main` forked off nowhere.
    is_placed = (branch_checked(lease.branch_id) == MAIN) is not bool(lease.forks)
    if not is_placed or not _is_line(lease.forks):
        raise CorruptObjectError(
            "a lease does not say where its branch forked off", consumer=lease.name[:100]
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
    fields = _loaded(data, MAX_REF_BYTES, known=REF_FORMAT_VERSION)
    if fields["format_version"] >= REF_FORMAT_VERSION and (
        fields.pop(_SHA256, None) != sha256_hex(dump_canonical(fields))
    ):
        raise CorruptObjectError("it does not have the hash that it holds", size=len(data))
    return from_json(cls, {**fields, "format_version": REF_FORMAT_VERSION}, {})


def _check_own_id(forks: tuple[Parent, ...], branch_id: str) -> None:
    if branch_id in {fork.branch_id for fork in forks}:
        raise CorruptObjectError("a branch forked off itself", branch_id=branch_id)


def _is_line(forks: tuple[Parent, ...]) -> bool:
    ids = [branch_checked(fork.branch_id) for fork in forks]
    for fork in forks:
        sha256_checked(fork.sha256)
    versions = [fork.version for fork in forks]
    return len(set(ids)) == len(ids) and all(
        older < newer for older, newer in zip([-1, *versions], versions, strict=False)
    )


def _read_bounded(stream: pa.NativeFile, most: int) -> bytes:
    """Return what `stream` holds, but not much more than `most` bytes."""
    pieces = []
    size = 0
    # Piece by piece: a read asks for all of its memory first, and never returns it if it fails.
    while size < most and (piece := stream.read(_READ_BYTES)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _schema_of(fields: dict[str, Any]) -> Schema:
    schema = from_json(Schema, fields.get("schema"), {})
    if flaw := flaw_of(schema):
        raise CorruptObjectError("this is no schema", reason=flaw)
    return schema


def _check_cluster_key(cluster_key: tuple[int, ...], schema: Schema) -> None:
    known = {column.id for column in schema.columns if not column.children}
    if not known.issuperset(cluster_key):
        raise CorruptObjectError("the cluster key names columns that the schema lacks")


def _loaded(data: bytes, limit: int, known: int = FORMAT_VERSION) -> dict[str, Any]:
    if len(data) > limit:
        raise CorruptObjectError("this is larger than any such object", size=len(data))
    fields = load_canonical(data)
    if not isinstance(fields, dict):
        raise CorruptObjectError("this is not a JSON object", size=len(data))
    version = fields.get("format_version")
    if type(version) is not int or version < 1:
        raise CorruptObjectError("there is no format_version", size=len(data))
    if version > known:
        raise UnsupportedFormatError(
            "a newer release wrote this table; upgrade fuse-stream",
            format_version=version,
            known=known,
        )
    return fields
