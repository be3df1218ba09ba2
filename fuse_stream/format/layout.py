"""The keys of a table's objects. No other module builds a key.

Metadata hold ids, never keys or paths: so the files of a table can be moved, and stored bytes
cannot name a path outside the table. `docs/format.md`, section "Layout", is the specification.
"""

from __future__ import annotations

import re

from fuse_stream.errors import CorruptObjectError

TABLE_KEY = "_fuse.json"
MAIN = "main"
"""The id of the default branch, and its name."""
CLONED_VERSION = 1
"""The version of a clone that brings the blocks."""

LAST_VERSION = 10**20 - 1
"""The largest number of 20 digits."""

CHUNK_VERSIONS = 1000
"""Versions of a chunk. They expire together, with one floor marker."""

BLOCKS_PREFIX = "_b/"
SEGMENTS_PREFIX = "_sg/"
DELETIONS_PREFIX = "_dv/"
INDEX_LISTS_PREFIX = "_ix/"
AGGREGATES_PREFIX = "_i_a/"
OFFSETS_PREFIX = "_of/"
SLOTS_PREFIX = "_ss/"
FLOOR_PREFIX = "_floor/"
HINT_PREFIX = "_hint/"
PROBE_PREFIX = "_probe/"
BRANCHES_PREFIX = "_refs/branches/"
TAGS_PREFIX = "_refs/tags/"
DATE_END = "."
"""It follows the name of a tag of digits alone in its key. Releases that do not know such tags pass
over a key of digits alone, and would delete what the tag keeps; this key they read, and refuse."""
CLONES_PREFIX = "_refs/clones/"
LEASES_PREFIX = "_leases/"
SERVICES_PREFIX = "_service/"
STAGED_PREFIX = "_staged/"
COPY_KEY = "_copying.json"
"""What is copied into a folder, until the copy there is a table."""

PREFIXES = (
    BLOCKS_PREFIX,
    SEGMENTS_PREFIX,
    DELETIONS_PREFIX,
    INDEX_LISTS_PREFIX,
    AGGREGATES_PREFIX,
    OFFSETS_PREFIX,
    HINT_PREFIX,
    PROBE_PREFIX,
    STAGED_PREFIX,
    LEASES_PREFIX,
    SERVICES_PREFIX,
    TAGS_PREFIX,
    BRANCHES_PREFIX,
    CLONES_PREFIX,
    FLOOR_PREFIX,
    SLOTS_PREFIX,
)
"""Of all objects of a table but its table file."""

ID_DIGITS = 32

_ID = re.compile(f"[0-9a-f]{{{ID_DIGITS}}}")
_SHA256 = re.compile("[0-9a-f]{64}")
_ORIGINS_PREFIX = "_origins/"
_REF_END = ".json"
_ENDS = {
    SEGMENTS_PREFIX: "_v1.json.zst",
    BLOCKS_PREFIX: "_v1.parquet",
    DELETIONS_PREFIX: "_v1.puffin",
    INDEX_LISTS_PREFIX: "_v1.json.zst",
    AGGREGATES_PREFIX: "_v1.parquet",
    OFFSETS_PREFIX: ".txt",
    PROBE_PREFIX: "",
}
_SLOT = re.compile(rf"{SLOTS_PREFIX}({MAIN}|{_ID.pattern})/(\d{{20}})_v1\.json")
_FLOOR = re.compile(rf"{FLOOR_PREFIX}({MAIN}|{_ID.pattern})/(0|[1-9]\d{{0,16}})")


def slot_key(branch_id: str, version: int) -> str:
    """Return the key whose creation commits `version` of a branch."""
    return f"{SLOTS_PREFIX}{branch_checked(branch_id)}/{version:020}_v1.json"


def slot_of(key: str) -> tuple[str, int] | None:
    """Return the branch id and version of a slot's key; None for any other key."""
    found = _SLOT.fullmatch(key)
    return (found[1], int(found[2])) if found else None


def id_in(key: str, prefix: str) -> str | None:
    """Return the id in a key that was listed under `prefix`; None for a foreign object."""
    start, end = len(prefix), len(prefix) + ID_DIGITS
    if key[end:] != _ENDS[prefix] or not _ID.fullmatch(key, start, end):
        return None
    return key[start:end]


def segment_key(segment_id: str) -> str:
    """Return the key of a segment."""
    return f"{SEGMENTS_PREFIX}{id_checked(segment_id)}{_ENDS[SEGMENTS_PREFIX]}"


def block_key(block_id: str, origin: str | None = None) -> str:
    """Return the key of a block; with `origin`, a key that `split_origin` can split.

    No object has such a key: the block is an object of the table with the id `origin`.
    """
    return _key_in(origin, f"{BLOCKS_PREFIX}{id_checked(block_id)}{_ENDS[BLOCKS_PREFIX]}")


def index_list_key(list_id: str) -> str:
    """Return the key of a list of indexes."""
    return f"{INDEX_LISTS_PREFIX}{id_checked(list_id)}{_ENDS[INDEX_LISTS_PREFIX]}"


def aggregates_key(part_id: str, origin: str | None = None) -> str:
    """Return the key of a part of an aggregate; with `origin`, as `block_key`."""
    return _key_in(origin, f"{AGGREGATES_PREFIX}{id_checked(part_id)}{_ENDS[AGGREGATES_PREFIX]}")


def _key_in(origin: str | None, key: str) -> str:
    return key if origin is None else f"{_ORIGINS_PREFIX}{id_checked(origin)}/{key}"


def deletions_key(file_id: str) -> str:
    """Return the key of a deletion file."""
    return f"{DELETIONS_PREFIX}{id_checked(file_id)}{_ENDS[DELETIONS_PREFIX]}"


def staged_prefix(write_id: str) -> str:
    """Return the prefix of the files that Spark writes for one statement; no commit names them."""
    return f"{STAGED_PREFIX}{id_checked(write_id)}/"


def split_origin(key: str) -> tuple[str, str] | None:
    """Return the id of the table that has the object `key`, and the object's key there.

    None for an object of this table.
    """
    if not key.startswith(_ORIGINS_PREFIX):
        return None
    table_id, _, inner = key.removeprefix(_ORIGINS_PREFIX).partition("/")
    return table_id, inner


def offsets_key(offsets_id: str) -> str:
    """Return the key of source offsets that are too long for the ledger."""
    return f"{OFFSETS_PREFIX}{id_checked(offsets_id)}{_ENDS[OFFSETS_PREFIX]}"


def chunk_of(version: int) -> int:
    """Return the number of the chunk that has a version."""
    return version // CHUNK_VERSIONS


def last_of_chunk(version: int) -> int:
    """Return the last version of the chunk that has a version."""
    return min((chunk_of(version) + 1) * CHUNK_VERSIONS - 1, LAST_VERSION)


def floor_key(branch_id: str, version: int) -> str:
    """Return the key of the marker that says that the chunk of `version` has expired."""
    return f"{FLOOR_PREFIX}{branch_checked(branch_id)}/{chunk_of(version)}"


def floor_of(key: str) -> tuple[str, int] | None:
    """Return the branch id and chunk of a floor marker's key; None for any other key."""
    found = _FLOOR.fullmatch(key)
    return (found[1], int(found[2])) if found else None


def hint_key(branch_id: str) -> str:
    """Return the key of the hint from which the search for a branch's head starts."""
    return f"{HINT_PREFIX}{branch_checked(branch_id)}"


def branch_ref_key(name: str) -> str:
    """Return the key of a branch's ref; the caller has checked the name (`names.check_name`)."""
    return f"{BRANCHES_PREFIX}{name}{_REF_END}"


def tag_ref_key(name: str) -> str:
    """Return the key of a tag's ref; the caller has checked the name."""
    end = DATE_END if name.isdigit() else ""
    return f"{TAGS_PREFIX}{name}{end}{_REF_END}"


def clone_ref_key(table_id: str) -> str:
    """Return the key of the pin of the clone with the id `table_id`."""
    return f"{CLONES_PREFIX}{id_checked(table_id)}{_REF_END}"


def lease_key(consumer: str) -> str:
    """Return the key of a consumer's lease; the caller has checked the name."""
    return f"{LEASES_PREFIX}{consumer}{_REF_END}"


def service_key(branch_id: str) -> str:
    """Return the key of an optimizer's claim to a branch."""
    return f"{SERVICES_PREFIX}{branch_checked(branch_id)}{_REF_END}"


def ref_name(key: str, prefix: str) -> str | None:
    """Return the name part of a key under `prefix`, not checked; None for a foreign object."""
    return key[len(prefix) : -len(_REF_END)] if key.endswith(_REF_END) else None


def probe_key(probe_id: str) -> str:
    """Return the key of an object that tests the store."""
    return f"{PROBE_PREFIX}{id_checked(probe_id)}"


def is_id(value: object) -> bool:
    """True if `value` is an id: 32 lower-case hex digits."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def id_checked(value: str) -> str:
    """Return `value` if it is an id: 32 lower-case hex digits.

    Raises:
        CorruptObjectError: it is not. Damaged or hostile metadata must not become part of a path.
    """
    if not _ID.fullmatch(value):
        raise CorruptObjectError("this is not an id of 32 hex digits", value=value[:100])
    return value


def sha256_checked(value: str) -> str:
    """Return `value` if it is a SHA-256 in hex.

    Raises:
        CorruptObjectError: it is not.
    """
    if not _SHA256.fullmatch(value):
        raise CorruptObjectError("this is not a SHA-256 of 64 hex digits", value=value[:100])
    return value


def branch_checked(value: str) -> str:
    """Return `value` if it is the id of a branch: `main` or 32 hex digits.

    Raises:
        CorruptObjectError: it is not.
    """
    return value if value == MAIN else id_checked(value)
