"""Values of columns from what an event has for them.

Rules:
- What is no value of the type is refused with `ValueError`; no setting of a session counts.
- Nothing is rounded, cut off or guessed.
- A list, map or struct is refused if anything in it is.
- A value is in the form that `pyarrow.array` takes: days and microseconds since 1970 for times.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from fuse_stream.cdc import binary, json_text
from fuse_stream.cdc.json_text import Json, Number, to_text
from fuse_stream.cdc.message import UNKNOWN_KIND, Kind
from fuse_stream.cdc.numbers import decimal_of as exact_decimal
from fuse_stream.cdc.numbers import float_of, integer_of, scaled_text
from fuse_stream.cdc.times import UNIT_OF, date_of, local_timestamp_of, timestamp_of
from fuse_stream.format.schema import Column, decimal_of
from fuse_stream.predicate.times import BLANK, zone_of

ADAPTIVE = "adaptive"
PRECISE = "precise"

Read = Callable[[Json, Kind], Any]
"""Returns the value of what is not null; raises `ValueError`."""

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_ANY_SCALE = "io.debezium.data.VariableScaleDecimal"
_MAYBE_BYTES = re.compile(r"([0-9]{4})+", re.ASCII)
_OF_TIMES = re.compile("[-:]")
_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(
    ("false", "f", "no", "n", "0"), False
)
_BYTES_OF = {
    binary.BASE64: binary.from_base64,
    binary.HEX: binary.from_hex,
    binary.LATIN_1: binary.from_latin_1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a source writes values where its messages do not say it."""

    zone: str = "UTC"
    """The zone of timestamps that have none."""
    binary: str = binary.BASE64
    """`base64`, `hex`, or `latin1`: a character for each byte."""
    numbers_as_times: str | None = None
    """The unit of numbers for timestamps, or `adaptive`; None if the source writes texts only."""
    decimals: str | None = None
    """`precise`, `string` or `adaptive`; None if the source never writes decimals as bytes."""
    ignore_fields: bool = False
    """Leave out fields of structs that the schema does not have."""


def reader_of(column: Column, form: Form) -> Read:
    """Return what reads the values of a column."""
    match column.type:
        case "array":
            return _array(column, form)
        case "map":
            return _map(column, form)
        case "struct":
            return _struct(column, form)
        case "binary":
            return _binary(form)
        case "boolean":
            return _boolean
        case "date" | "timestamp" | "timestamp_ntz":
            return _time(column.type, form)
        case "string":
            return _plain(_text, column, form)
        case "float" | "double":
            return _plain(_float(is_single=column.type == "float"), column, form)
        case type_name if type_name in _BITS:
            return _plain(_integer(_BITS[type_name]), column, form)
        case type_name:
            return _plain(_decimal(type_name), column, form)


def _plain(of_text: Callable[[str], Any], column: Column, form: Form) -> Read:
    """Return what reads a number or a text, of which Debezium may write a decimal in bytes."""
    if form.decimals is None:
        return lambda value, _: of_text(to_text(value))
    number_text = _number_text(column, form.decimals)

    def read(value: Json, kind: Kind) -> Any:
        return of_text(value if type(value) is Number else number_text(value, kind))

    return read


def _number_text(column: Column, decimals: str) -> Callable[[Json, Kind], str]:
    held = decimal_of(column.type)
    is_text, column_scale = column.type == "string", str(held[1]) if held else ""

    def read(value: Json, kind: Kind) -> str:
        if kind.logical == _DECIMAL:
            return scaled_text(to_text(value), int(kind.scale or 0))
        if isinstance(value, dict):
            # In a column of text it may be any JSON.
            if kind.logical == _ANY_SCALE or (kind.logical is None and not is_text):
                return _of_any_scale(value)
        elif held and type(value) is str and kind.type is None:
            if decimals == PRECISE:
                return scaled_text(value, int(kind.scale or column_scale))
            if decimals == ADAPTIVE and _MAYBE_BYTES.fullmatch(value):
                raise ValueError("the text may be in base64, too")
        return to_text(value)

    return read


def _of_any_scale(fields: dict[str, Any]) -> str:
    encoded, scale = fields.get("value"), fields.get("scale")
    if type(encoded) is not str or not isinstance(scale, Number):
        raise ValueError("this is no decimal with its scale")
    return scaled_text(encoded, int(scale))


def _text(text: str) -> str:
    return text


def _integer(bits: int) -> Callable[[str], int]:
    greatest = 2 ** (bits - 1) - 1
    return lambda text: integer_of(text, -greatest - 1, greatest)


def _float(*, is_single: bool) -> Callable[[str], float]:
    return lambda text: float_of(text, is_single=is_single)


def _decimal(type_name: str) -> Callable[[str], Any]:
    precision, scale = decimal_of(type_name) or (0, 0)
    return lambda text: exact_decimal(text, precision, scale)


def _boolean(value: Json, _: Kind) -> bool:
    if isinstance(value, bool):
        return value
    found = _BOOLEANS.get(to_text(value).strip(BLANK).lower())
    if found is None:
        raise ValueError("this is neither true nor false")
    return found


def _binary(form: Form) -> Read:
    of_text = _BYTES_OF[form.binary]

    def read(value: Json, _: Kind) -> bytes:
        if type(value) is not str:
            raise ValueError("bytes are a text")
        return of_text(value)

    return read


def _time(type_name: str, form: Form) -> Read:
    zone = zone_of(form.zone)
    stated = None if form.numbers_as_times == ADAPTIVE else form.numbers_as_times

    def read(value: Json, kind: Kind) -> int:
        text = to_text(value)
        if form.numbers_as_times is None and not _OF_TIMES.search(text):
            raise ValueError("the source writes no numbers for times")
        return _time_in(type_name, text, UNIT_OF.get(kind.logical or ""), stated, zone)

    return read


def _time_in(type_name: str, text: str, unit: str | None, stated: str | None, zone: tzinfo) -> int:
    match type_name:
        case "date":
            return date_of(text, unit, stated)
        case "timestamp":
            return timestamp_of(text, unit or stated, zone)
        case _:
            return local_timestamp_of(text, unit or stated)


def _array(column: Column, form: Form) -> Read:
    read_element = _or_null(reader_of(column.children[0], form))

    def read(value: Json, kind: Kind) -> list[Any]:
        match json_text.parse_nested(value):
            case list() as found:
                return [read_element(part, kind.element or UNKNOWN_KIND) for part in found]
        raise ValueError("this is no list")

    return read


def _map(column: Column, form: Form) -> Read:
    key, value_column = column.children
    read_key, read_value = reader_of(key, form), _or_null(reader_of(value_column, form))

    def read(value: Json, _: Kind) -> list[tuple[Any, Any]]:
        pairs = _object(value).items()
        found = [(read_key(name, UNKNOWN_KIND), read_value(of, UNKNOWN_KIND)) for name, of in pairs]
        if len({repr(name) for name, _ in found}) != len(found):
            raise ValueError("a key is there twice")
        return found

    return read


def _struct(column: Column, form: Form) -> Read:
    readers = {child.name: _or_null(reader_of(child, form)) for child in column.children}

    def read(value: Json, _: Kind) -> dict[str, Any]:
        fields = _object(value)
        if not form.ignore_fields and not fields.keys() <= readers.keys():
            raise ValueError("a field is not in the struct")
        return {name: of(fields.get(name), UNKNOWN_KIND) for name, of in readers.items()}

    return read


def _object(value: Json) -> dict[str, Any]:
    match json_text.parse_nested(value):
        case dict() as found:
            return found
    raise ValueError("this is no object")


def _or_null(read: Read) -> Read:
    return lambda value, kind: None if value is None else read(value, kind)
