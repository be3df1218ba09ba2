"""Tables made by hand to harm a reader: what each changes in a valid table.

A case is a name and a change of a table's objects, with all hashes mended. `FOLDERS` are changes of
a table's folder on a local disk: links, pipes, files without end.
"""

from __future__ import annotations

import io
import json
import os
import socket
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuse_stream.format.layout import MAIN
from tests.hostile.tables import (
    Objects,
    forged,
    head_key,
    keys_of,
    made,
    packed,
    stored_of,
    text_of,
    unpacked,
)

Change = Callable[[Mapping[str, bytes]], Objects]

TEN_MB = 10**7
PATHS = {
    "absolute": "/etc/passwd",
    "above": "../outside",
    "far above": "../" * 40 + "etc/passwd",
    "encoded": "%2e%2e%2foutside",
    "encoded twice": "%252e%252e%252foutside",
    "backslash": "..\\..\\outside",
    "drive": "C:\\Windows\\win.ini",
    "empty": "",
    "dot": ".",
    "very long": "a" * 100_000,
    "NUL": "a\0b",
    "file URL": "file:///etc/passwd",
    "another bucket": "s3://other/bucket",
    "http": "http://127.0.0.1:9/x",
    "chained": "zip://x::file:///etc/passwd",
    "id with a newline": "0" * 32 + "\n",
    "id and more": "0" * 32 + "/../../outside",
    "upper case": "A" * 32,
    "digits of another script": "\u0661" * 32,
    "terminal link": "\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\",
    "right to left": "\u202egnp.exe",
}
NUMBERS = {
    "-1": "-1",
    "-2^63": str(-(2**63)),
    "2^31": str(2**31),
    "2^53+1": str(2**53 + 1),
    "2^62": str(2**62),
    "2^63-1": str(2**63 - 1),
    "2^63": str(2**63),
    "2^64-1": str(2**64 - 1),
    "2^64": str(2**64),
    "5000 digits": "9" * 5000,
    "a float": "1.0",
    "an exponent": "1e3",
    "1e400": "1e400",
    "NaN": "NaN",
    "-0": "-0",
    "true": "true",
    "null": "null",
    "a text": '"1"',
    "a list": "[1]",
    "an object": '{"a":1}',
}
RAW = "\ue000"


def edited(key: str, edit: Callable[[Any], object]) -> Change:
    """Return a change of the JSON of an object; a text `RAW` + JSON is written as that JSON."""

    def change(objects: Mapping[str, bytes]) -> Objects:
        at = key_in(objects, key)
        document = json.loads(text_of(at, objects[at]))
        edit(document)
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        begin = text.find(f'"{RAW}')
        if begin >= 0:
            end = text.index(f'{RAW}"', begin + 1)
            text = text[:begin] + json.loads(f'"{text[begin + 2 : end]}"') + text[end + 2 :]
        return forged(objects, {at: stored_of(at, text.encode())})

    return change


def key_in(objects: Mapping[str, bytes], name: str) -> str:
    """Return the key of an object by a short name: "head", or a prefix (the last such key)."""
    return head_key(objects) if name == "head" else keys_of(objects, name)[-1]


def replaced(name: str, make: Callable[[bytes], bytes | None]) -> Change:
    """Return a change of the bytes of an object."""

    def change(objects: Mapping[str, bytes]) -> Objects:
        key = key_in(objects, name)
        return forged(objects, {key: make(objects[key])})

    return change


def always(data: bytes) -> Callable[[bytes], bytes | None]:
    """Return a change to these bytes, whatever they were."""
    return lambda _old: data


def added(more: Objects) -> Change:
    """Return a change that puts these objects."""
    return lambda objects: {**objects, **more}


def retyped(name: str, old: bytes, new: bytes) -> Change:
    """Return a change of the first such bytes in the JSON of an object."""
    return replaced(name, lambda data: stored_of(name, text_of(name, data).replace(old, new, 1)))


def put(document: Any, path: str, value: object) -> None:
    """Set the value at a path such as "segments.0.id"."""
    *way, last = path.split(".")
    for step in way:
        document = document[int(step) if isinstance(document, list) else step]
    document[int(last) if isinstance(document, list) else last] = value


def at(name: str, path: str, value: object) -> Change:
    return edited(name, partial(put, path=path, value=value))


def raw(text: str) -> str:
    """Return what `edited` writes as the JSON `text`."""
    return f"{RAW}{json.dumps(text)[1:-1]}{RAW}"


def nested(depth: int, opened: str = "[", closed: str = "]") -> str:
    return opened * depth + closed * depth


PLACES_OF_TEXT = {
    "segment id": ("head", "segments.0.id"),
    "deletion file id": ("head", "deletion_files.0.id"),
    "branch id": ("head", "branch_id"),
    "fork's branch": ("_refs/branches/", "forks.0.branch_id"),
    "ref's branch": ("_refs/branches/", "branch_id"),
    "tag's name": ("_refs/tags/", "name"),
    "lease's branch": ("_leases/", "branch_id"),
    "block id": ("_sg/", "blocks.0.id"),
    "block origin": ("_sg/", "blocks.0.origin"),
    "offsets id": ("head", "ledger.entries.1.offsets.1.id"),
    "source path": ("head", "ledger.entries.1.sources.0.path"),
    "table id": ("_fuse.json", "table_id"),
    "pin's location": ("_refs/clones/", "location"),
    "column's name": ("head", "schema.columns.0.name"),
    "author": ("head", "author"),
}
PLACES_OF_NUMBERS = {
    "version": ("head", "version"),
    "time": ("head", "timestamp_us"),
    "floor": ("head", "floor"),
    "epoch": ("head", "epoch"),
    "rows of a segment": ("head", "segments.0.row_count"),
    "bytes of a segment": ("head", "segments.0.byte_size"),
    "hidden rows": ("head", "deletion_files.0.row_count"),
    "rows of the table": ("head", "summary.row_count"),
    "rows of a block": ("_sg/", "blocks.0.row_count"),
    "bytes of a block": ("_sg/", "blocks.0.file_size"),
    "column id": ("head", "schema.columns.0.id"),
    "batch": ("head", "ledger.entries.0.batch_id"),
    "time of a batch": ("head", "ledger.entries.0.timestamp_us"),
    "index of a source": ("head", "ledger.entries.1.sources.0.offset.index"),
    "fork": ("_refs/branches/", "forks.0.version"),
    "time of a tag": ("_refs/tags/", "created_us"),
    "lease": ("_leases/", "lease_us"),
    "resumed version": ("_leases/", "resumes.0.version"),
    "claim": ("_service/", "lease_us"),
    "grace": ("_fuse.json", "grace_us"),
    "null count": ("_sg/", "blocks.0.col_stats.1.null_count"),
    "chunk": ("_sg/", "blocks.0.col_metas.1.offset"),
}


def cases() -> dict[str, Change]:
    """Return all changes of a table's objects, by name."""
    found: dict[str, Change] = {}
    for place, (name, path) in PLACES_OF_TEXT.items():
        for kind, text in PATHS.items():
            found[f"{place}: {kind}"] = at(name, path, text)
    for place, (name, path) in PLACES_OF_NUMBERS.items():
        for kind, number in NUMBERS.items():
            found[f"{place}: {kind}"] = at(name, path, raw(number))
    found.update(_shapes())
    found.update(_circles())
    found.update(_bombs())
    found.update(_small_objects())
    found.update(_deletion_files())
    found.update(_parquet())
    return found


def _shapes() -> Iterator[tuple[str, Change]]:
    for name in ("head", "_fuse.json", "_sg/", "_refs/branches/", "_refs/tags/", "_leases/"):
        for kind, text in {
            "empty": b"",
            "null": b"null",
            "a list": b"[]",
            "an object": b"{}",
            "a number": b"1",
            "NUL bytes": bytes(1000),
            "not UTF-8": b'{"a":"\xff"}',
            "deep list": nested(1000).encode(),
            "deeper list": nested(100_000).encode(),
            "deep object": (b'{"a":' * 900 + b"1" + b"}" * 900),
            "newer": b'{"format_version":99}',
        }.items():
            key = name
            found = packed(text) if name == "_sg/" else text
            yield f"{name} is {kind}", replaced(key, always(found))
        yield (
            f"{name} with a key twice",
            retyped(name, b'"format_version"', b'"format_version":1,"format_version"'),
        )
        yield f"{name} with NUL in a text", retyped(name, b':"', b':"\\u0000')
        yield f"{name} with half a pair", retyped(name, b':"', b':"\\ud800')
    column = {"id": 1, "name": "x", "type": "struct", "nullable": True}
    for depth in (31, 33, 100, 240, 300):
        inner: dict[str, Any] = {**column, "id": 1, "type": "long", "children": []}
        for number in range(depth):
            inner = {**column, "id": number + 2, "children": [inner]}
        yield (
            f"a schema {depth} deep",
            edited("head", partial(put, path="schema.columns.0", value=inner)),
        )
    many = [
        {**column, "id": n, "name": f"c{n}", "type": "long", "children": []}
        for n in range(1, 20_001)
    ]
    yield (
        "20,000 columns",
        edited("head", lambda head: head["schema"].update(columns=many, last_column_id=20_000)),
    )
    yield "a decimal of 99 digits", at("head", "schema.columns.0.type", "decimal(99,2)")
    yield "an unknown feature", at("head", "required_features", ["time_travel"])
    yield "features that are no list", at("head", "required_features", "sides")
    yield "10,000 features", at("head", "required_features", [f"f{n}" for n in range(10_000)])
    yield (
        "100,000 properties",
        edited("head", lambda head: head.update(properties={f"p{n}": "x" for n in range(100_000)})),
    )
    yield "a huge message", at("head", "message", "x" * (2 * TEN_MB))
    yield (
        "an unknown side",
        edited(
            "head",
            lambda head: head.update(
                sides={
                    "../x": {
                        "schema": head["schema"],
                        "segments": head["segments"],
                        "summary": head["summary"],
                    }
                }
            ),
        ),
    )
    for name, value in {
        "fuse.block.rows": "9" * 18,
        "fuse.grace": "99999999999d",
        "fuse.retain": "-1d",
        "fuse.private": ",".join("abc" * 9999),
        "fuse.optimize.quiet": "25:00-26:00",
        "fuse.deletes.rows": "999%",
        "fuse.vacuum.age": "\u0661h",
    }.items():
        yield (
            f"property {name}",
            edited("head", partial(_set_property, name=name, value=value)),
        )


def _set_property(head: Any, name: str, value: str) -> None:
    head["properties"][name] = value


def _with_long_number(old: bytes, place: int) -> bytes:
    return old[:place] + b"\xff\xff\xff\xff\x0f" + old[place + 5 :]


def _circles() -> Iterator[tuple[str, Change]]:
    yield "a parent that is later", at("head", "parent.version", 10**6)
    yield (
        "a parent that is itself",
        edited("head", lambda head: head["parent"].update(version=head["version"])),
    )
    yield (
        "a target that is later",
        edited(
            "head",
            lambda head: head.update(
                operation="rewind", target={**head["parent"], "version": 10**9}
            ),
        ),
    )
    yield (
        "a target that is itself",
        edited(
            "head",
            lambda head: head.update(
                operation="rewind", target={**head["parent"], "version": head["version"]}
            ),
        ),
    )
    yield (
        "a line that begins later",
        edited("head", lambda head: head.update(line={"since": 99, "base": 98})),
    )
    yield (
        "a line that turns back",
        edited("head", lambda head: head.update(line={"since": 3, "base": 3})),
    )
    yield (
        "a branch that forks off itself",
        edited("_refs/branches/", lambda ref: ref["forks"][0].update(branch_id=ref["branch_id"])),
    )
    yield (
        "a branch that forks off a branch that forks off it",
        edited(
            "_refs/branches/",
            lambda ref: ref.update(
                forks=[
                    {**ref["forks"][0], "version": 1},
                    {**ref["forks"][0], "branch_id": ref["branch_id"], "version": 2},
                ]
            ),
        ),
    )
    yield "a fork of the far future", at("_refs/branches/", "forks.0.version", 10**18)
    yield (
        "10,000 forks",
        edited(
            "_refs/branches/",
            lambda ref: ref.update(
                forks=[
                    {**ref["forks"][0], "branch_id": f"{n:032x}", "version": n}
                    for n in range(10_000)
                ]
            ),
        ),
    )
    yield "a tag at no version", at("_refs/tags/", "forks.0.version", 10**15)
    yield (
        "an origin that is the table itself",
        edited("_fuse.json", lambda file: file.update(origins=[[file["table_id"], "."]])),
    )
    yield (
        "origins that name each other",
        edited(
            "_fuse.json",
            lambda file: file.update(origins=[["ab" * 16, "/x"], ["ab" * 16, "/x"]] * 1000),
        ),
    )
    yield (
        "a query that follows itself",
        edited(
            "head",
            lambda head: head["ledger"].update(
                retired={
                    "a": {"application": "app", "fork": "b", "version": 1},
                    "b": {"application": "app", "fork": "a", "version": 1},
                }
            ),
        ),
    )
    yield (
        "a source that is the table itself",
        edited(
            "head",
            lambda head: head["ledger"]["entries"][1]["sources"][0]["offset"].update(
                table_id=head["table_id"],
                snapshot_id=head["prev_snapshot_id"],
                version=head["version"],
            ),
        ),
    )
    yield (
        "a slot in another slot's place",
        lambda objects: {
            **objects,
            head_key(objects): objects[keys_of(objects, "_ss/main/")[1]],
        },
    )
    yield (
        "a segment that is named a thousand times",
        edited("head", lambda head: head.update(segments=head["segments"][:1] * 1000)),
    )
    yield (
        "50,000 segments",
        edited(
            "head",
            lambda head: head.update(
                segments=[{**head["segments"][0], "id": f"{n:032x}"} for n in range(50_000)]
            ),
        ),
    )
    yield (
        "a block that is listed 20,000 times",
        edited("_sg/", lambda segment: segment.update(blocks=segment["blocks"] * 20_000)),
    )
    yield "added segments that are not there", at("head", "added", ["ab" * 16] * 1000)
    yield "added that is another type", at("head", "added", {"a": 1})


def _bombs() -> Iterator[tuple[str, Change]]:
    for kind, text in {
        "spaces": b" " * (300 * 2**20),
        "zeros": bytes(300 * 2**20),
        "one text": b'{"blocks":[{"block_size":"' + b"x" * (300 * 2**20),
    }.items():
        bomb = packed(text)
        yield (
            f"a segment that unpacks to 300 MiB of {kind}",
            replaced("_sg/", always(bomb)),
        )
    for kind, text in {
        "empty lists": b"[" + b"[]," * 3_000_000 + b"[]]",
        "empty objects": b"[" + b"{}," * 3_000_000 + b"{}]",
        "numbers": b"[" + b"1," * 5_000_000 + b"1]",
        "keys": b"{" + b",".join(b'"%d":1' % n for n in range(1_000_000)) + b"}",
    }.items():
        yield f"a head of many {kind}", replaced("head", always(text))
        yield f"a table file of many {kind}", replaced("_fuse.json", always(text))
        yield (
            f"a segment of many {kind}",
            replaced(
                "_sg/",
                always(packed(b'{"blocks":[' + text + b'],"format_version":1,"summary":{}}')),
            ),
        )
    yield "a segment in many frames", replaced("_sg/", lambda old: old * 2000)
    yield "a segment that is cut", replaced("_sg/", lambda old: old[:-3])
    yield (
        "a segment that is gzip",
        replaced("_sg/", lambda old: bytes(pa.Codec("gzip").compress(unpacked(old), asbytes=True))),
    )
    yield (
        "a segment with a window of 2 GiB",
        replaced("_sg/", lambda _old: b"\x28\xb5\x2f\xfd\x00\xa8" + b"\x01\x00\x00"),
    )


def _small_objects() -> Iterator[tuple[str, Change]]:
    for kind, data in {
        "negative": b"-5",
        "huge": b"9" * 5000,
        "twenty digits": b"9" * 20,
        "twenty-one digits": b"1" + b"0" * 20,
        "a float": b"1e9",
        "empty": b"",
        "other digits": "\u0661\u0662".encode(),
        "underscores": b"1_0",
        "bytes": b"\xff\xfe",
        "a megabyte": b"1" * 2**20,
    }.items():
        yield f"a hint that is {kind}", added({"_hint/main": data})
    for kind, key in {
        "of all": f"_floor/{MAIN}/0",
        "of the future": f"_floor/{MAIN}/99999999999999999",
        "far above": "_floor/main/../../x",
        "of no branch": "_floor/zz/1",
    }.items():
        yield f"a marker {kind}", added({key: b"x"})
    for kind, key in {
        "a ref with a path": "_refs/branches/../../x.json",
        "a ref with spaces": "_refs/branches/a b.json",
        "a ref with a long name": f"_refs/branches/{'a' * 200}.json",
        "a tag of digits": "_refs/tags/20261122..json",
        "a ref of control characters": "_refs/tags/\x1b[2J.json",
        "a lease of control characters": "_leases/\x1b[2J.json",
        "a slot of the last version": f"_ss/main/{'9' * 20}_v1.json",
        "a slot with other digits": f"_ss/main/{chr(0x661) * 20}_v1.json",
        "a slot far ahead": "_ss/main/00000000000001000000_v1.json",
        "a block of no id": "_b/..parquet",
    }.items():
        yield kind, added({key: b"{}"})
    yield (
        "leases by the thousand",
        lambda objects: {
            **objects,
            **{f"_leases/c{n}.json": objects[key_in(objects, "_leases/")] for n in range(1000)},
        },
    )
    yield (
        "a lease of another's name",
        lambda objects: {
            **objects,
            "_leases/other.json": objects[key_in(objects, "_leases/")],
        },
    )
    yield "source offsets that are no text", replaced("_of/", lambda _old: b"\xff\xfe" * 3000)
    yield "source offsets that are gone", replaced("_of/", lambda _old: None)
    for name in ("head", "_fuse.json", "_sg/", "_b/", "_dv/", "_ss/main/00000000000000000003"):
        yield f"{name} is gone", replaced(name, lambda _old: None)


def _vector(bitmap: bytes) -> bytes:
    body = b"\xd1\xd3\x39\x64" + bitmap
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _puffin(blobs: bytes, footer: object, *, size: int | None = None) -> bytes:
    text = footer if isinstance(footer, bytes) else json.dumps(footer).encode()
    end = struct.pack("<i", len(text) if size is None else size)
    return b"PFA1" + blobs + b"PFA1" + text + end + b"\0\0\0\0PFA1"


def _deletion_files() -> Iterator[tuple[str, Change]]:
    def hiding(bitmap: bytes, rows: int, **other: object) -> Change:
        def change(objects: Mapping[str, bytes]) -> Objects:
            block = key_in(objects, "_b/")
            blob = _vector(bitmap)
            record = {
                "type": "deletion-vector-v1",
                "offset": 4,
                "length": len(blob),
                "properties": {"cardinality": str(rows), "referenced-data-file": block},
                **other,
            }
            key = key_in(objects, "_dv/")
            found = forged(objects, {key: _puffin(blob, {"blobs": [record]})})
            return _with_counts(found, key, rows)

        return change

    runs = struct.pack("<QI", 1, 0) + struct.pack("<I", 12347 | (65535 << 16)) + b"\xff" * 8192
    full = b"".join(struct.pack("<HH", n, 65535) for n in range(65536))
    start = 4 + 8192 + 4 * 65536
    offsets = b"".join(struct.pack("<I", start + 4 * 65536 + 6 * n) for n in range(65536))
    yield (
        "all 2^32 rows hidden",
        hiding(runs + full + offsets + struct.pack("<HHH", 1, 0, 65535) * 65536, 2**32),
    )
    one = struct.pack("<QI", 1, 0) + struct.pack("<II", 12346, 1)
    yield "a row past the end", hiding(one + struct.pack("<HHIH", 0, 0, 16, 65535), 1)
    yield (
        "a row past 2^32",
        hiding(
            struct.pack("<QI", 1, 9)
            + struct.pack("<II", 12346, 1)
            + struct.pack("<HHIH", 0, 0, 16, 1),
            1,
        ),
    )
    yield "a bitmap out of order", hiding(one + struct.pack("<HHIHH", 0, 1, 16, 9, 3), 2)
    yield "a bitmap with a row twice", hiding(one + struct.pack("<HHIHH", 0, 1, 16, 3, 3), 2)
    yield (
        "runs that overlap",
        hiding(
            struct.pack("<QI", 1, 0)
            + struct.pack("<IB", 12347, 1)
            + struct.pack("<HH", 0, 19)
            + struct.pack("<HHHHH", 2, 0, 9, 0, 9),
            20,
        ),
    )
    yield (
        "a run past its container",
        hiding(
            struct.pack("<QI", 1, 0)
            + struct.pack("<IB", 12347, 1)
            + struct.pack("<HH", 0, 65535)
            + struct.pack("<HHH", 1, 1, 65535),
            65536,
        ),
    )
    yield "a bitmap of 2^63 maps", hiding(struct.pack("<Q", 2**63), 1)
    yield "a bitmap of nothing", hiding(struct.pack("<Q", 0), 0)
    yield (
        "a bitmap of 2^31 containers",
        hiding(struct.pack("<QI", 1, 0) + struct.pack("<II", 12346, 2**31 - 1), 1),
    )
    good = one + struct.pack("<HHIH", 0, 0, 16, 1)
    records: dict[str, dict[str, Any]] = {
        "a blob past the end": {"offset": 10**9},
        "a blob before the start": {"offset": -4},
        "a blob of negative length": {"length": -1},
        "a blob of 2^63 bytes": {"length": 2**63},
        "a blob at a float": {"offset": 4.0},
        "a blob at true": {"offset": True},
        "a blob of no type": {"type": None},
        "a blob without properties": {"properties": None},
        "a blob of a file elsewhere": {
            "properties": {"cardinality": "1", "referenced-data-file": "../../etc/passwd"}
        },
        "a blob of 10^400 rows": {
            "properties": {"cardinality": "1" + "0" * 400, "referenced-data-file": "_b/x"}
        },
        "a blob that is compressed": {"compression-codec": "zstd"},
    }
    for kind, other in records.items():
        yield kind, hiding(good, 1, **other)
    for kind, data in {
        "a footer past the start": _puffin(b"", {"blobs": []}, size=10**6),
        "a footer of negative size": _puffin(b"", {"blobs": []}, size=-1),
        "a footer of a list": _puffin(b"", []),
        "a footer without JSON": _puffin(b"", b"\xff" * 50),
        "a deep footer": _puffin(b"", nested(5000).encode()),
        "a footer of a million blobs": _puffin(b"", b'{"blobs":[' + b"{}," * 10**6 + b"{}]}"),
        "only magic": b"PFA1",
        "nothing": b"",
    }.items():
        yield f"a deletion file with {kind}", replaced("_dv/", always(data))


def _with_counts(objects: Objects, key: str, rows: int) -> Objects:
    """Let the head say that a deletion file has so many rows of one block."""
    head = json.loads(objects[head_key(objects)])
    for ref in head["deletion_files"]:
        if ref["id"] in key:
            ref.update(row_count=rows, block_count=1, byte_size=len(objects[key]))
    text = json.dumps(head, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return forged(objects, {head_key(objects): text.encode()})


def _parquet() -> Iterator[tuple[str, Change]]:
    def written(table: pa.Table, **options: Any) -> bytes:
        sink = io.BytesIO()
        pq.write_table(table, sink, **options)
        return sink.getvalue()

    def footer_flip(place: float) -> Callable[[bytes], bytes]:
        def flip(old: bytes) -> bytes:
            size = struct.unpack("<i", old[-8:-4])[0]
            at_ = len(old) - 8 - size + int(size * place)
            return old[:at_] + bytes([old[at_] ^ 0x7F]) + old[at_ + 1 :]

        return flip

    plain = pa.table({"k": list(range(10))})
    for kind, data in {
        "other columns": written(plain),
        "no columns": written(pa.table({})),
        "no rows": written(plain.slice(0, 0)),
        "many row groups": written(plain, row_group_size=1),
        "many rows": written(pa.table({"k": pa.repeat(1, 5_000_000)}), compression="zstd"),
        "2,000 columns": written(pa.table({f"c{n}": [1] for n in range(2000)})),
        "a deep column": written(pa.table({"k": pa.array([[[[[[1]]]]]] * 10)})),
        "only magic": b"PAR1PAR1",
        "a footer of 2 GiB": b"PAR1" + struct.pack("<i", 2**31 - 1) + b"PAR1",
        "a footer of negative size": b"PAR1" + bytes(100) + struct.pack("<i", -5) + b"PAR1",
        "an encrypted footer": b"PARE" + bytes(100) + struct.pack("<i", 50) + b"PARE",
        "text": b"it was a dark and stormy night",
        "nothing": b"",
        "zeros": bytes(TEN_MB),
    }.items():
        yield f"a block with {kind}", replaced("_b/", always(data))
    for place in range(0, 100, 5):
        yield f"a footer changed at {place} %", replaced("_b/", footer_flip(place / 100))
    for place in range(4, 400, 60):
        yield (
            f"a page changed at {place}",
            replaced("_b/", partial(_with_long_number, place=place)),
        )


# ---- changes of a folder

OUTSIDE = "outside"


def _linked(path: str, target: str) -> Callable[[Path], None]:
    def change(table: Path) -> None:
        place = table / path
        if place.is_dir():
            place.rename(table.parent / OUTSIDE / "moved")
        else:
            place.unlink(missing_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target.format(outside=table.parent / OUTSIDE))

    return change


def _special(path: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(table: Path) -> None:
        place = table / path
        place.unlink(missing_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        make(place)

    return change


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(before)


def _endless(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**42)


def folders() -> dict[str, Callable[[Path], None]]:
    """Return all changes of a table's folder, by name."""
    objects = made("plain")
    files = {
        "the table file": "_fuse.json",
        "the head": head_key(objects),
        "a segment": key_in(objects, "_sg/"),
        "a block": key_in(objects, "_b/"),
        "a deletion file": key_in(objects, "_dv/"),
        "a tag": key_in(objects, "_refs/tags/"),
        "a lease": key_in(objects, "_leases/"),
        "the hint": "_hint/main",
        "the claim": "_service/main.json",
        "offsets": key_in(objects, "_of/"),
    }
    found: dict[str, Callable[[Path], None]] = {}
    for name, path in files.items():
        found[f"{name} is a link to a file outside"] = _linked(path, "{outside}/secret")
        found[f"{name} is a link to nothing"] = _linked(path, "{outside}/nothing")
        found[f"{name} is a link to itself"] = _linked(path, Path(path).name)
        found[f"{name} is a pipe"] = _special(path, os.mkfifo)
        found[f"{name} is a socket"] = _special(path, _socket)
        found[f"{name} is a folder"] = _special(path, os.mkdir)
        found[f"{name} has 4 TiB"] = _special(path, _endless)
        found[f"{name} is a link to a device"] = _linked(path, "/dev/zero")
    for path in (
        "_ss",
        "_ss/main",
        "_sg",
        "_b",
        "_dv",
        "_of",
        "_refs",
        "_refs/tags",
        "_leases",
        "_hint",
    ):
        found[f"{path} is a link to a folder outside"] = _linked(path, "{outside}")
    found["_floor is a link to a folder outside"] = _linked("_floor", "{outside}")
    found["_staged is a link to a folder outside"] = _linked("_staged", "{outside}")
    found["_probe is a link to a folder outside"] = _linked("_probe", "{outside}")
    found["a folder that holds itself"] = _linked("_ss/loop", "..")
    return found
