"""Tables that use every kind of object, and a forger who changes objects and mends all hashes.

A hostile writer can compute hashes: what a wrong hash gives away tests nothing else.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa

from fuse_stream.commit.ledger import Batch, offsets_of
from fuse_stream.commit.plan import Intent
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.codec import encode_claim
from fuse_stream.format.evolve import first_schema
from fuse_stream.format.layout import MAIN, service_key
from fuse_stream.format.records import Operation
from fuse_stream.format.refs import ServiceClaim
from fuse_stream.format.source_offset import Offset, SourcePosition
from fuse_stream.objects.origins import StoreWithOrigins
from fuse_stream.objects.slots import Metadata
from fuse_stream.refs.clone import clone
from fuse_stream.table.handle import create_table, open_table
from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.memory import MemoryStore
from tests.cli.leases import put_lease

Objects = dict[str, bytes]
"""The objects of a table, by key."""

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("part", pa.struct([("x", pa.float64()), ("d", pa.decimal128(9, 2))])),
        ("list", pa.list_(pa.int32())),
    ]
)
EVENTS = pa.schema([("k", pa.int64()), ("s", pa.string()), ("seq", pa.int64())])
KINDS = ("plain", "events")

_CHILDREN = {"_b/": "file_size", "_sg/": "byte_size", "_dv/": "byte_size"}
"""The kinds of objects whose parents hold their size, and the field that does."""
_ORDER = ("_b/", "_of/", "_dv/", "_sg/", "_fuse.json", "_ss/", "_refs/", "_leases/")
"""An object holds hashes only of those before it."""
_HEX = re.compile(rb"[0-9a-f]{64}")


def unpacked(stored: bytes) -> bytes:
    """Return the JSON of a stored segment."""
    with pa.CompressedInputStream(pa.BufferReader(stored), "zstd") as stream:
        return bytes(stream.read())


def packed(text: bytes) -> bytes:
    """Return the stored bytes of a segment."""
    return bytes(pa.Codec("zstd").compress(text, asbytes=True))


def text_of(key: str, data: bytes) -> bytes:
    """Return the JSON of an object that holds JSON."""
    return unpacked(data) if key.startswith("_sg/") else data


def stored_of(key: str, text: bytes) -> bytes:
    """Return the bytes of an object whose JSON is `text`."""
    return packed(text) if key.startswith("_sg/") else text


def is_json(key: str) -> bool:
    """True if the object under `key` holds JSON."""
    return key.endswith((".json", ".json.zst"))


def forged(objects: Mapping[str, bytes], changes: Mapping[str, bytes | None]) -> Objects:
    """Return `objects` with some of them changed, and all hashes and sizes of these mended.

    None deletes an object. A record that holds its own hash and is changed gets a new one.
    """
    found = dict(objects)
    hashes: dict[bytes, bytes] = {}
    sizes: dict[str, tuple[bytes, bytes]] = {}
    for key in sorted({*objects, *changes}, key=_rank):
        before = objects.get(key)
        if key in changes:
            after = changes[key]
        elif before is None or not is_json(key):
            continue
        else:
            text = text_of(key, before)
            mended = _HEX.sub(lambda match: hashes.get(match[0], match[0]), text)
            for old, new in sizes.values():
                mended = mended.replace(old, new)
            after = before if mended == text else stored_of(key, mended)
        if after is None:
            found.pop(key, None)
            continue
        if after != before and key.startswith(("_refs/", "_leases/")):
            after = with_own_hash(after)
        if after != before and key.startswith("_ss/"):
            after = with_hash_in_place(after)
        found[key] = after
        if before is not None and after != before:
            hashes[_digest(before)] = _digest(after)
            _note_size(sizes, key, len(before), len(after))
    return found


def with_own_hash(data: bytes) -> bytes:
    """Return a ref or a lease with its own hash; other bytes as they are."""
    try:
        fields = json.loads(data)
        fields.pop("sha256", None)
        bare = _dumped(fields)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return data
    return _dumped({**fields, "sha256": hashlib.sha256(bare).hexdigest()})


def with_hash_in_place(data: bytes) -> bytes:
    """Return a snapshot whose own hash, if it has one, is right; no other byte is changed."""
    try:
        held = json.loads(data)["sha256"].encode()
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return data
    bare = data.replace(b'"sha256":"%s",' % held, b"")
    return data.replace(held, _digest(bare)) if bare != data else data


def keys_of(objects: Collection[str], prefix: str) -> list[str]:
    """Return the keys that begin with `prefix`, in order."""
    return sorted(key for key in objects if key.startswith(prefix))


def head_key(objects: Collection[str], branch_id: str = MAIN) -> str:
    """Return the key of the newest slot of a branch."""
    return keys_of(objects, f"_ss/{branch_id}/")[-1]


@cache
def made(kind: str) -> Mapping[str, bytes]:
    """Return the objects of a table; of every kind that a table can have, but those of a clone."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    _make_plain(store, clock) if kind == "plain" else _make_events(store, clock)
    return {key: item.data for key, item in store.objects.items()}


def _make_plain(store: MemoryStore, clock: ManualClock) -> None:
    schema = first_schema(columns_of_arrow(SCHEMA))
    table = create_table(
        store, schema, cluster_by=["k"], properties={"user": "x"}, clock=clock, probe_store=False
    )
    for number in range(4):
        clock.advance(60)
        table.append(_rows(10 * number, 10), app_id="app", batch_id=number, message=f"m {number}")
    table.delete("k < 3")
    table.create_tag("good", 2)
    table.create_branch("fix", 3)
    branch = open_table(store, branch="fix", clock=clock, probe_store=False)
    branch.append(_rows(90, 3), author="someone")
    table.update("k = 12", {"s": "new"})
    position = Offset(table_id="ab" * 16, branch_id=MAIN, version=3, snapshot_id="cd" * 16, index=0)
    for number in range(2):
        batch = Batch(
            application="query",
            writer="w",
            query_id="11111111-2222-3333-4444-555555555555",
            batch_id=number,
            offsets=offsets_of(number, f"v1\n{number} {'x' * 5000 * number}"),
            sources=(SourcePosition(offset=position, path="/nowhere/bronze"),),
        )
        intent = Intent(operation=Operation.APPEND, batch=batch)
        table.commit_rows(intent, _rows(50 + number, 4))
    put_lease(table, "reader", 4)
    claim = ServiceClaim(branch_id=MAIN, owner_id="ef" * 16, lease_us=60_000_000)
    store.replace(service_key(MAIN), encode_claim(claim))
    store.replace("_hint/main", b"3")
    place = Metadata(MemoryStore(clock=clock), clock)
    clone(
        table.committer,
        place,
        version=None,
        origin_of=StoreWithOrigins(store).origin,
        probe_place=False,
    )


def _make_events(store: MemoryStore, clock: ManualClock) -> None:
    schema = first_schema(columns_of_arrow(EVENTS))
    table = create_table(store, schema, clock=clock, probe_store=False)
    for number in range(3):
        rows = pa.table(
            {
                "k": pa.array([1, 2, number, None], pa.int64()),
                "s": [f"{number}", "b", "c", "d"],
                "seq": pa.array([number, number, 10 + number, number], pa.int64()),
            }
        )
        table.upsert(
            rows,
            keys=["k"],
            sequence_by="seq",
            app_id="events",
            batch_id=number,
        )


def _rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    columns: dict[str, list[Any]] = {
        "k": list(numbers),
        "s": [f"text {number}" for number in numbers],
        "at": [number * 1_000_000 for number in numbers],
        "part": [{"x": number / 2, "d": Decimal(number)} for number in numbers],
        "list": [[number, None] for number in numbers],
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def _rank(key: str) -> tuple[int, str]:
    place = next((at for at, prefix in enumerate(_ORDER) if key.startswith(prefix)), len(_ORDER))
    return place, key.rpartition("/")[2] if key.startswith("_ss/") else key


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _note_size(sizes: dict[str, tuple[bytes, bytes]], key: str, old: int, new: int) -> None:
    for prefix, field in _CHILDREN.items():
        if key.startswith(prefix):
            mark = b'"%s":%%d,"id":"%s"' % (field.encode(), key[len(prefix) :][:32].encode())
            sizes[key] = mark % old, mark % new


def _dumped(value: object) -> bytes:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=True
    ).encode("utf-8", "surrogatepass")
