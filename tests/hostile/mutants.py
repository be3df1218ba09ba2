"""Mutants of valid metadata: changes of JSON that keep its structure, and changes of bytes."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.hostile.tables import Objects, forged, is_json, stored_of, text_of

_RAW = "\ue000raw\ue001"
"""Stands for a text that the encoder would not write; at most one is in a mutant."""

RAW = (
    "1e400", "-1e400", "NaN", "Infinity", "18446744073709551616", "-9223372036854775809",
    "1e5", "1.0", "-0", "-0.0", "01", "9" * 5000, '"\\ud800"', '"\\u0000"', '{"a":1,"a":2}',
    '"\\u0061"', "[" * 2000 + "]" * 2000, '{"children":[' * 300 + "]}" * 300, "", ",", " 1",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 15, 16, 999, 1000, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63,
    2**64 - 1, -(2**31), -(2**62), -(2**63), 10**18, 10**19, 253402300800 * 10**6,
    -62135596801 * 10**6, 0.5, 1e300, -1e-300, 5e-324,
)  # fmt: skip
TEXTS = (
    "", "main", "HEAD", ".", "..", "../..", "../../outside/a", "/etc/passwd", "_b/../../x", "a/b",
    "a\\..\\b", "%2e%2e%2f", "C:\\x", "file:///etc/passwd", "s3://other/bucket", "http://127.0.0.1:1",
    "zip://x::file:///etc/passwd", "0" * 32, "f" * 32, "F" * 32, "a" * 31, "0" * 64, "x" * 100_000,
    "\0", "a\0b", "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "\x1b[2J", "\u202eabc", "\u2066",
    "\u2028",
    "<script>alert(1)</script>", "[a](http://x)", "inf", "-inf", "nan", "1e9", "1.10", "-0", "true",
    "long", "decimal(38,38)", "decimal(39,0)", "decimal(0,0)", "array", "map", "struct", "interval",
    "99999999999999999999999999", "9" * 400, "\u00b2", "\u0661\u0662", "1h", "99999999999d", "zstd",
    "create", "expire",
    "rewind", "publish", "revert", "erase", "retry", "append", "\ud7ff\uffff", "\U0010ffff" * 33,
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"": ""},
    [0] * 3,
    {"a": {"b": []}},
)


Path = tuple[str | int, ...]


def random_mutant(objects: Mapping[str, bytes], choose: random.Random) -> tuple[str, Objects]:
    """Return a mutant of a table, and what was changed, in words."""
    keys = sorted(objects)
    said: list[str] = []
    changes: dict[str, bytes | None] = {}
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        key = _chosen(keys, choose)
        if key in changes:
            continue
        data = objects[key]
        if is_json(key) and choose.random() < 0.85:
            how, text = _of_json(text_of(key, data), objects, choose)
            changes[key] = stored_of(key, text)
        elif key.startswith("_dv/") and choose.random() < 0.8:
            how, changes[key] = _of_puffin(data, choose)
        else:
            how, changes[key] = _of_bytes(data, objects, choose)
        said.append(f"{key}: {how}")
    return "; ".join(said), forged(objects, changes)


def _chosen(keys: Sequence[str], choose: random.Random) -> str:
    # Folders alike, and newer slots rather than old ones.
    folders = sorted({key.partition("/")[0] for key in keys})
    folder = choose.choice(folders)
    held = [key for key in keys if key.partition("/")[0] == folder]
    return held[-1] if folder == "_ss" and choose.random() < 0.6 else choose.choice(held)


def _of_json(text: bytes, objects: Mapping[str, bytes], choose: random.Random) -> tuple[str, bytes]:
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        return _of_bytes(text, objects, choose)
    places = list(_places(root))
    if not places:
        return _of_bytes(text, objects, choose)
    path = choose.choice(places)
    parent, at = _find(root, path)
    name = choose.choice(sorted(_EDITS))
    raw = _EDITS[name](_Edit(parent, at, root, places, objects, choose))
    if _is_circular(root):
        return "nothing: a swap that would make a circle", text
    new = json.dumps(root, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    new = new.replace(f'"{_RAW}"', raw)
    return f"{name} at {path} {raw[:30]}", new.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class _Edit:
    parent: Any
    """The object or list that is changed."""
    at: Any
    """The key or index in it."""
    root: Any
    places: Sequence[Path]
    """Of all values in the document."""
    objects: Mapping[str, bytes]
    choose: random.Random


def _edit_value(edit: _Edit) -> str:
    edit.parent[edit.at] = _value(edit.parent[edit.at], edit.choose)
    return ""


def _edit_raw(edit: _Edit) -> str:
    edit.parent[edit.at] = _RAW
    return edit.choose.choice(RAW)


def _edit_delete(edit: _Edit) -> str:
    del edit.parent[edit.at]
    return ""


def _edit_unknown(edit: _Edit) -> str:
    if isinstance(edit.parent, dict):
        name = edit.choose.choice(("unknown", "deletes", "sides", "", "~"))
        edit.parent[name] = edit.parent[edit.at]
    else:
        edit.parent.insert(0, edit.parent[edit.at])
    return ""


def _edit_swap(edit: _Edit) -> str:
    other, there = _find(edit.root, edit.choose.choice(edit.places))
    edit.parent[edit.at], other[there] = other[there], edit.parent[edit.at]
    return ""


def _edit_graft(edit: _Edit) -> str:
    found = edit.choose.choice([key for key in sorted(edit.objects) if is_json(key)])
    donor = json.loads(text_of(found, edit.objects[found]))
    if places := list(_places(donor)):
        giver, where = _find(donor, edit.choose.choice(places))
        edit.parent[edit.at] = giver[where]
    return ""


def _edit_repeat(edit: _Edit) -> str:
    item = edit.parent[edit.at]
    if isinstance(item, list) and item:
        edit.parent[edit.at] = item * edit.choose.choice((2, 17, 1000))
    elif isinstance(item, dict):
        edit.parent[edit.at] = {**item, **{f"more{number}": 0 for number in range(2000)}}
    elif isinstance(edit.parent, list):
        edit.parent[edit.at : edit.at] = [item] * edit.choose.choice((1, 40))
    return ""


def _edit_key(edit: _Edit) -> str:
    if isinstance(edit.parent, dict):
        edit.parent[edit.choose.choice(TEXTS)] = edit.parent.pop(edit.at)
    return ""


_EDITS: dict[str, Callable[[_Edit], str]] = {
    "value": _edit_value,
    "value again": _edit_value,
    "value a third time": _edit_value,
    "raw": _edit_raw,
    "delete": _edit_delete,
    "unknown": _edit_unknown,
    "swap": _edit_swap,
    "graft": _edit_graft,
    "repeat": _edit_repeat,
    "key": _edit_key,
}
"""Each changes a document, and returns the text that `_RAW` stands for in it."""


def _value(old: object, choose: random.Random) -> Any:
    if choose.random() < 0.25:
        return choose.choice(OTHERS)
    if isinstance(old, str) and choose.random() < 0.8:
        return choose.choice(TEXTS)
    return choose.choice((*NUMBERS, *TEXTS) if choose.random() < 0.2 else NUMBERS)


def _of_puffin(data: bytes, choose: random.Random) -> tuple[str, bytes]:
    """Change the footer or a bitmap of a deletion file, and mend checksums and sizes."""
    size = struct.unpack("<i", data[-12:-8])[0]
    footer = json.loads(data[-12 - size : -12])
    if choose.random() < 0.5 and footer["blobs"]:
        blob = choose.choice(footer["blobs"])
        start = blob["offset"] + 8
        body = bytearray(data[start : blob["offset"] + blob["length"] - 4])
        for _ in range(choose.randint(1, 4)):
            body[choose.randrange(len(body))] = choose.choice(
                (0, 1, 2, 127, 255, choose.randrange(256))
            )
        vector = data[start - 4 : start] + bytes(body)
        new = struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
        kept = data[: blob["offset"]] + new + data[blob["offset"] + blob["length"] :]
        return "bytes of a bitmap", kept
    how, text = _of_json(json.dumps(footer).encode(), {"x.json": data[-12 - size : -12]}, choose)
    return f"footer: {how}", data[: -12 - size] + text + struct.pack("<i", len(text)) + data[-8:]


def _of_bytes(
    data: bytes, objects: Mapping[str, bytes], choose: random.Random
) -> tuple[str, bytes]:
    if not data:
        return "a byte", b"\0"
    at = choose.randrange(len(data))
    name = choose.choice(("flip", "flip", "cut", "insert", "splice", "zero", "repeat", "empty"))
    match name:
        case "flip":
            new = bytearray(data)
            for _ in range(choose.randint(1, 8)):
                new[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
            return name, bytes(new)
        case "cut":
            return f"cut at {at}", data[:at]
        case "insert":
            return name, data[:at] + choose.randbytes(choose.randint(1, 40)) + data[at:]
        case "splice":
            other = objects[choose.choice(sorted(objects))]
            return name, data[:at] + other[choose.randrange(len(other) or 1) :]
        case "zero":
            return name, data[:at] + bytes(len(data) - at)
        case "repeat":
            return name, data[:at] + data[at:] * choose.choice((2, 3, 50))
    return name, b""


def _places(root: object, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every value in a JSON document, but the document itself."""
    items: Any = ()
    if isinstance(root, dict):
        items = root.items()
    elif isinstance(root, list):
        items = enumerate(root)
    for at, item in items:
        yield (*path, at)
        yield from _places(item, (*path, at))


def _find(root: Any, path: Path) -> tuple[Any, Any]:
    """Return the container of a place in a document, and the key or index in it."""
    for at in path[:-1]:
        root = root[at]
    return root, path[-1]


def _is_circular(root: object) -> bool:
    try:
        json.dumps(root)
    except (ValueError, RecursionError):
        return True
    return False
