"""Rows and predicates at the edges of every type, from a seed.

For properties of any predicate: pruning drops no matching row; the mask equals Spark's answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("whole", pa.int32()),
        ("big", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("money", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(38, 10)),
        ("fraction", pa.decimal128(38, 38)),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("part", pa.struct([("whole", pa.int32()), ("name", pa.string())])),
    ]
)

_DAY_US = 86_400_000_000
_NAN, _INF = float("nan"), float("inf")
_WHOLE = [0, 1, -1, 5, 100, 127, -128]
_BIG = [2**31, -(2**31), 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 10**18]
_FLOATS = [0.0, -0.0, 1.5, 0.1, -1.0, 5.0, 100.0, _NAN, _INF, -_INF, 16777216.0, 1e18, 1e-30]
_TEXT = ["", "a", "ab", "abc", "a%b", "a_b", "a\nb", "A", "é", "😀", "\uffff", "5", "zz" * 30]
_DAYS = [0, 18262, 18263, -1, 18329, 18567, 20000]
_MIDNIGHTS = [day * _DAY_US + hour * 3_600_000_000 for day in _DAYS for hour in (0, 4, 5, 13)]
_TIMES = [*_MIDNIGHTS, 1, -1, 18262 * _DAY_US + 1]

_VALUES: dict[str, Sequence[Any]] = {
    "flag": [True, False],
    "tiny": _WHOLE,
    "small": [*_WHOLE, 128, 32767, -32768],
    "whole": [*_WHOLE, 128, 1000, 2**31 - 1, -(2**31), 16777217],
    "big": [*_WHOLE, *_BIG],
    "single": _FLOATS,
    "double": [*_FLOATS, 16777217.0, 2.0**53, 1e300],
    "money": [Decimal(item) for item in ("0", "1.5", "-1.50", "0.01", "5", "99999999.99", "-1")],
    "wide": [
        Decimal(item)
        for item in ("0", "1.5", "0.1", "5", "-1", f"{10**28 - 1}.9999999999", "9007199254740993")
    ],
    "fraction": [Decimal(item) for item in ("0", "0.1", "-0.5", "0." + "9" * 38, "0." + "4" * 38)],
    "name": _TEXT,
    "raw": [b"", b"a", b"\x00", b"\xff", b"\xff\xff", b"\x7f", b"\x80", b"ab" * 40],
    "day": _DAYS,
    "at": _TIMES,
    "local": _TIMES,
}
_NUMBERS = (
    "0 1 -1 5 127 128 -128 -129 1000 16777217 2147483647 2147483648 9007199254740993 5L 100S 1Y"
    " 9223372036854775807 -9223372036854775808L 9223372036854775808 99999999999999999999999 -0.0"
    " 1.5 0.1 5.0 1.50 -1.005 99999999.99 99999999.995 0.49999 1BD 1.5BD 1.123456789012"
    " 5D 0.1D 1.5D -0.0D 1e18 9007199254740992D 9.3e18 1e-30 -1e300 0.1F 1.5F 16777216F"
    " CAST('NaN'_AS_DOUBLE) CAST('-inf'_AS_DOUBLE) CAST(5_AS_DECIMAL(10,2)) CAST('0.1'_AS_FLOAT)"
    f" 0.{'4' * 38} 1e20 NULL"
).replace("_AS_", " AS ")
_NUMBER_LITERALS = [item.replace("|", " ") for item in _NUMBERS.replace(" AS ", "|AS|").split()]
_DAY_TEXT = ["1970-01-01", "2020-01-01", "2020-01-02", "2020-03-08", "2020-11-01", "1969-12-31"]
_TIME_TEXT = [*(f"{day} {hour}" for day in _DAY_TEXT for hour in ("00:00:00", "05:00:00", "1:30"))]
_ZONED_TEXT = [f"{day} 05:00:00{zone}" for day in _DAY_TEXT for zone in ("Z", "+1:00", " UTC")]
_TIME_LITERALS = [
    *(f"DATE '{text}'" for text in _DAY_TEXT),
    *(f"'{text}'" for text in [*_DAY_TEXT, *_TIME_TEXT, "2020", "2020-1"]),
    *(f"TIMESTAMP_NTZ '{text}'" for text in _TIME_TEXT),
    *(f"TIMESTAMP '{text}'" for text in [*_DAY_TEXT, *_TIME_TEXT, *_ZONED_TEXT]),
    "NULL",
]
_LITERALS: dict[str, Sequence[str]] = {
    "flag": ["TRUE", "FALSE", "'true'", "'0'", "NULL"],
    "integral": [*_NUMBER_LITERALS, "'5'", "' -1 '"],
    "real": [*_NUMBER_LITERALS, "'5'", "'1.5'", "'NaN'", "'-Infinity'", "' 1e2 '"],
    "name": [
        "''", "'a'", "'ab'", "'abc'", "'a%b'", r"'a\nb'", "'é'", "'😀'", "\"zz\"", "X'61'", "NULL",
        f"'{'zz' * 30}'", "'it''s'", r"'\uffff'",
    ],
    "raw": ["X''", "X'61'", "X'00'", "X'ff'", "X'fff'", "X'80'", "'a'", "'é'", "NULL"],
    "time": _TIME_LITERALS,
}  # fmt: skip
_PATTERNS = [
    "'%'", "'a%'", "'%b'", "'%b%'", "'a_b'", r"'a\%b'", r"'a\_%'", "'_'", "'__'", "'abc'", "''",
    "'zz%zz'", "'é%'", "'a!%b' ESCAPE '!'", "'%%a'", "'_%'", r"'a\n_'", "NULL",
]  # fmt: skip
_KIND = {"flag": "flag", "name": "name", "raw": "raw", "day": "time", "at": "time", "local": "time"}
_REALS = {"single", "double", "money", "wide", "fraction"}
_COLUMNS = [*_VALUES, "part.whole", "part.name"]
_OPS = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]


def random_table(random: Random, row_count: int) -> pa.Table:
    """Return a table of `SCHEMA`; few values per column, so that blocks have narrow bounds."""
    columns = {name: _column(random, pool, row_count) for name, pool in _VALUES.items()}
    parts = zip(
        _column(random, _VALUES["whole"], row_count),
        _column(random, _VALUES["name"], row_count),
        strict=True,
    )
    columns["part"] = [
        None if random.random() < 0.1 else {"whole": whole, "name": name} for whole, name in parts
    ]
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def random_where(random: Random, depth: int = 2) -> str:
    """Return a predicate on `SCHEMA` as SQL text, one that Spark can run on any row."""
    kind = random.random()
    if depth and kind < 0.45:
        operands = [random_where(random, depth - 1) for _ in range(random.randint(2, 3))]
        return "(" + random.choice([" AND ", " OR "]).join(operands) + ")"
    if depth and kind < 0.6:
        return f"NOT ({random_where(random, depth - 1)})"
    return _test(random)


def _column(random: Random, pool: Sequence[Any], row_count: int) -> list[Any]:
    some = random.sample(pool, random.randint(1, len(pool)))
    nulls = random.choice([0.0, 0.0, 0.2, 1.0])
    return [None if random.random() < nulls else random.choice(some) for _ in range(row_count)]


def _test(random: Random) -> str:
    column = random.choice(_COLUMNS)
    leaf = column.rpartition(".")[2]
    literals = _LITERALS[_KIND.get(leaf, "real" if leaf in _REALS else "integral")]
    first, second = random.choice(literals), random.choice(literals)
    forms = [
        f"{column} {random.choice(_OPS)} {first}",
        f"{first} {random.choice(_OPS)} {column}",
        f"{column} IN ({', '.join(random.choice(literals) for _ in range(random.randint(1, 4)))})",
        f"{column} NOT IN ({first}, {second})",
        f"{column} BETWEEN {first} AND {second}",
        f"{column} IS DISTINCT FROM {first}",
        f"{column} IS {random.choice(['', 'NOT '])}NULL",
    ]
    if leaf == "name":
        forms += [f"{column} {word} {random.choice(_PATTERNS)}" for word in ("LIKE", "NOT LIKE")]
    if leaf == "flag":
        forms += ["flag", "NOT flag", "flag IS TRUE", "flag IS NOT FALSE", "TRUE", "FALSE", "NULL"]
    return random.choice(forms)
