"""MongoDB's extended JSON as plain JSON.

Source: the specification "MongoDB Extended JSON (v2)", and its older forms.
"""

from __future__ import annotations

from fuse_stream.cdc.json_text import Json

_SCALARS = frozenset(
    f"${name}"
    for name in ("oid", "uuid", "numberInt", "numberLong", "numberDouble", "numberDecimal", "date")
)


def plain(value: Json) -> Json:
    """Return a document with its ids, numbers, dates and bytes as plain texts and numbers.

    A date that is a number counts milliseconds. Other objects, such as `$timestamp`, stay.
    """
    if isinstance(value, list):
        return [plain(part) for part in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Json] = {name: plain(part) for name, part in value.items()}
    match [*found]:
        case [name] if name in _SCALARS and isinstance(found[name], str):
            return found[name]
        case ["$binary"]:
            match found["$binary"]:
                case {"base64": str(encoded), "subType": str()}:
                    return encoded
        case ["$binary", "$type"]:
            return found["$binary"]
    return found
