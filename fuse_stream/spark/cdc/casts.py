"""Values of columns from the text that an event has for them.

Rules:
- `value_of` is null if the text is null, or is no value of the type; no setting of the session
  and no text makes it raise. A text that is not null with a value that is, is a failed cast.
- Nothing is rounded, cut off or guessed: such a value is a failed cast.
- A list, map or struct is a failed cast if anything in it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import types as spark_types
from pyspark.sql.functions import abs as absolute
from pyspark.sql.functions import (
    array_distinct,
    array_except,
    array_size,
    coalesce,
    encode,
    isnan,
    length,
    lit,
    lower,
    map_from_arrays,
    map_keys,
    map_values,
    regexp_replace,
    struct,
    transform,
    translate,
    try_element_at,
    try_parse_json,
    try_to_binary,
    try_variant_get,
    when,
)
from pyspark.sql.functions import filter as filter_array

from fuse_stream.spark.cdc.binding import let
from fuse_stream.spark.cdc.messages import OBJECT
from fuse_stream.spark.cdc.numbers import scaled_text
from fuse_stream.spark.cdc.times import (
    clear_unit,
    date_of,
    local_timestamp_of,
    timestamp_of,
    unit_of,
)

ADAPTIVE = "adaptive"
PRECISE = "precise"

LATIN_1 = "latin1"

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_ANY_SCALE = "io.debezium.data.VariableScaleDecimal"
_MAYBE_BYTES = r"^([0-9]{4})+$"
_EXACT_DIGITS = 15
"""A double has this many decimal digits; a number with an exponent and more may be rounded."""
_MAX_DIGITS = 38

_INTEGERS = (
    spark_types.ByteType,
    spark_types.ShortType,
    spark_types.IntegerType,
    spark_types.LongType,
)
_FLOATS = (spark_types.FloatType, spark_types.DoubleType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a source writes values where its messages do not say it."""

    zone: str = "UTC"
    """The zone of timestamps that have none."""
    binary: str = "base64"
    """`base64`, `hex`, or `latin1`: a character for each byte."""
    numbers_as_times: str | None = None
    """The unit of numbers for timestamps, or `adaptive`; None if the source writes texts only."""
    decimals: str | None = None
    """`precise`, `string` or `adaptive`; None if the source never writes decimals as bytes."""
    ignore_fields: bool = False
    """Leave out fields of structs that the schema does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What the schema in a message says of a value; all null if the message has none."""

    type: Column
    logical: Column
    scale: Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """What is known of a column: of its value, and of the elements if it is a list."""

    value: Kind
    element: Kind


def unknown_kind() -> Kind:
    """Return what is known where messages have no schema, and of what is within structs."""
    nothing = lit(None).cast("string")
    return Kind(type=nothing, logical=nothing, scale=nothing)


def kinds_of(known: Column) -> Kinds:
    """Return what a struct of `type`, `logical`, `scale`, and of `item_type` and so on, says."""
    value, element = (
        Kind(
            type=known[f"{prefix}type"],
            logical=known[f"{prefix}logical"],
            scale=known[f"{prefix}scale"],
        )
        for prefix in ("", "item_")
    )
    return Kinds(value=value, element=element)


def value_of(
    text: Column, data_type: spark_types.DataType, form: Form, kinds: Kinds | None = None
) -> Column:
    """Return the value of a text in a type; null if it is none."""
    if kinds is None:
        kinds = Kinds(value=unknown_kind(), element=unknown_kind())
    match data_type:
        case spark_types.ArrayType():
            return _array(text, data_type, form, kinds)
        case spark_types.MapType():
            return _map(text, data_type, form)
        case spark_types.StructType():
            return _struct(text, data_type, form)
        case spark_types.BinaryType():
            return _binary(text, form)
        case spark_types.BooleanType():
            return text.try_cast("boolean")
        case spark_types.DateType() | spark_types.TimestampType() | spark_types.TimestampNTZType():
            return _time(text, data_type, form, kinds.value)
        case _:
            return _plain(text, data_type, form, kinds.value)


def _plain(text: Column, data_type: spark_types.DataType, form: Form, kind: Kind) -> Column:
    """Return a number or a text."""
    if form.decimals is not None:
        text = _number_text(text, data_type, form, kind)
    if isinstance(data_type, spark_types.DecimalType):
        return let(text, lambda known: _decimal(known, data_type))
    if isinstance(data_type, _FLOATS):
        return let(text, lambda known: _float(known, data_type))
    if isinstance(data_type, _INTEGERS):
        return text.try_cast(data_type)
    return text


def _number_text(text: Column, data_type: spark_types.DataType, form: Form, kind: Kind) -> Column:
    """Return a text with the decimal that a value in bytes stands for."""
    is_number = isinstance(data_type, (*_INTEGERS, *_FLOATS, spark_types.DecimalType))
    is_decimal, is_no = isinstance(data_type, spark_types.DecimalType), lit(False)  # noqa: FBT003
    is_any_scale = kind.logical == _ANY_SCALE
    if is_number:  # in a column of text it may be any JSON
        is_any_scale = is_any_scale | (kind.logical.isNull() & text.startswith("{"))
    scale = coalesce(kind.scale, lit("0")).try_cast("int")
    is_encoded = kind.logical == _DECIMAL
    if isinstance(data_type, spark_types.DecimalType) and form.decimals == PRECISE:
        is_encoded = is_encoded | (kind.type.isNull() & ~text.startswith("{"))
        scale = coalesce(kind.scale, lit(str(data_type.scale))).try_cast("int")
    encoded = when(
        is_any_scale, try_variant_get(try_parse_json(text), "$", "struct<value:string,scale:int>")
    ).otherwise(struct(text.alias("value"), scale.alias("scale")))
    decoded = let(encoded, lambda parts: scaled_text(parts["value"], parts["scale"]))
    found = when(coalesce(is_any_scale, is_no) | coalesce(is_encoded, is_no), decoded)
    if is_decimal and form.decimals == ADAPTIVE:
        # Such a text may be in base64, too.
        found = found.when(kind.type.isNull() & text.rlike(_MAYBE_BYTES), lit(None).cast("string"))
    return found.otherwise(text)


def _decimal(text: Column, data_type: spark_types.DecimalType) -> Column:
    held = text.try_cast(data_type)
    whole_digits = data_type.precision - data_type.scale
    exact = text.try_cast(spark_types.DecimalType(_MAX_DIGITS, _MAX_DIGITS - whole_digits))
    mantissa = translate(regexp_replace(text, "[eE].*$", ""), "+-. ", "")
    is_rounded = text.rlike("[eE]") & (length(mantissa) > _EXACT_DIGITS)
    return when((held == exact) & ~is_rounded, held)


def _float(text: Column, data_type: spark_types.DataType) -> Column:
    # Java's own suffixes are no part of a number, and a number beyond the type is no infinity.
    value = text.try_cast(data_type)
    is_suffixed = text.rlike(r"[0-9.][dDfF]\s*$")
    is_infinite = absolute(value) == lit(float("inf")).cast(data_type)
    is_overflow = ~isnan(value) & is_infinite & ~lower(text).contains("inf")
    return when(~is_suffixed & ~is_overflow, value)


def _time(text: Column, data_type: spark_types.DataType, form: Form, kind: Kind) -> Column:
    """Return a date or a timestamp."""
    if form.numbers_as_times is None:
        no_unit = lit(None).cast("string")
        kept = when(text.rlike("[-:]"), text)
        return let(kept, lambda known: _time_in(known, data_type, form.zone, no_unit, no_unit))
    stated = form.numbers_as_times
    fallback = clear_unit(text) if stated == ADAPTIVE else lit(stated)
    units = struct(
        text.alias("text"), unit_of(kind.logical).alias("unit"), fallback.alias("fallback")
    )
    return let(
        units,
        lambda known: _time_in(
            known["text"], data_type, form.zone, known["unit"], known["fallback"]
        ),
    )


def _time_in(
    text: Column, data_type: spark_types.DataType, zone: str, unit: Column, fallback: Column
) -> Column:
    match data_type:
        case spark_types.DateType():
            return date_of(text, unit, fallback)
        case spark_types.TimestampType():
            return timestamp_of(text, coalesce(unit, fallback), zone)
        case _:
            return local_timestamp_of(text, coalesce(unit, fallback))


def _binary(text: Column, form: Form) -> Column:
    if form.binary == LATIN_1:
        return when(text.rlike(r"^[\x00-\xFF]*$"), encode(text, "ISO-8859-1"))
    if form.binary == "base64":  # also in its variant for URLs
        text = translate(text, "-_", "+/")
    return try_to_binary(text, lit(form.binary))


def _array(text: Column, data_type: spark_types.ArrayType, form: Form, kinds: Kinds) -> Column:
    texts = try_variant_get(try_parse_json(text), "$", "array<string>")
    within = Kinds(value=kinds.element, element=unknown_kind())
    return _all_of(texts, data_type.elementType, form, within)


def _all_of(
    texts: Column, data_type: spark_types.DataType, form: Form, kinds: Kinds | None = None
) -> Column:
    """Return the values of a list of texts; null if one of them is none."""
    values = transform(texts, lambda text: value_of(text, data_type, form, kinds))
    both = struct(texts.alias("texts"), values.alias("values"))
    return let(
        both,
        lambda known: when(_nulls(known["values"]) == _nulls(known["texts"]), known["values"]),
    )


def _nulls(values: Column) -> Column:
    return array_size(filter_array(values, lambda value: value.isNull()))


def _map(text: Column, data_type: spark_types.MapType, form: Form) -> Column:
    texts = try_variant_get(try_parse_json(text), "$", OBJECT)
    both = let(
        texts,
        lambda known: struct(
            _all_of(map_keys(known), data_type.keyType, form).alias("keys"),
            _all_of(map_values(known), data_type.valueType, form).alias("values"),
        ),
    )

    def joined(known: Column) -> Column:
        keys, values = known["keys"], known["values"]
        is_unique = array_size(array_distinct(keys)) == array_size(keys)
        return when(is_unique & values.isNotNull(), map_from_arrays(keys, values))

    return let(both, joined)


def _struct(text: Column, data_type: spark_types.StructType, form: Form) -> Column:
    texts = try_variant_get(try_parse_json(text), "$", OBJECT)

    def pairs(known: Column) -> Column:
        parts = []
        for index, field in enumerate(data_type.fields):
            inner = try_element_at(known, lit(field.name))
            value = value_of(inner, field.dataType, form)
            parts += [value.alias(f"value_{index}"), inner.isNull().alias(f"is_null_{index}")]
        is_known = known.isNotNull()
        if not form.ignore_fields:
            is_known = is_known & (array_size(unknown_fields(known, data_type.names)) == 0)
        return struct(*parts, is_known.alias("is_known"))

    def joined(known: Column) -> Column:
        is_good, fields = known["is_known"], []
        for index, field in enumerate(data_type.fields):
            value = known[f"value_{index}"]
            is_good = is_good & (known[f"is_null_{index}"] | value.isNotNull())
            fields.append(value.alias(field.name))
        return when(is_good, struct(*fields))

    return let(let(texts, pairs), joined)


def unknown_fields(fields: Column, names: list[str]) -> Column:
    """Return the names of an object's fields that are not among `names`."""
    known = spark_types.ArrayType(spark_types.StringType())
    return array_except(map_keys(fields), lit(names) if names else lit(None).cast(known))
