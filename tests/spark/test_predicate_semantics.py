"""The mask of this package equals Spark's answer, for any predicate on any row."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.evolve import first_schema
from fuse_stream.predicate.bind import bind
from fuse_stream.predicate.bound import Bound, BoundConstant
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.predicate.parse import parse_where
from fuse_stream.spark.read import read
from fuse_stream.spark.where import analyse
from fuse_stream.table.handle import Table
from tests.kit.predicates import SCHEMA, random_table, random_where

ROW_COUNT = 200
PREDICATE_COUNT = 200
LOCAL = datetime(1970, 1, 2)  # noqa: DTZ001 - a TIMESTAMP_NTZ
AT = "spark.sql.session.timeZone"
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Without this, Spark compiles hundreds of predicates for a few rows."""
ZONES = ["UTC", "America/New_York", "Asia/Kathmandu"]


def bindable(random: Random, zone: str) -> dict[str, Bound]:
    """Return supported predicates of one or a few comparisons, by their text."""
    bounds: dict[str, Bound] = {}
    while len(bounds) < PREDICATE_COUNT:
        text = random_where(random, depth=random.choice([0, 0, 1, 2]))
        try:
            bounds[text] = bind(parse_where(text), SCHEMA, time_zone=zone)
        except InvalidInputError as error:
            # The only generated predicate that is refused: this local time does not exist.
            if "skip an hour" not in error.message:
                raise
    return bounds


@pytest.mark.parametrize("zone", ZONES)
def test_the_mask_equals_sparks_answer(spark: SparkSession, zone: str) -> None:
    random = Random(f"predicates {zone}")
    table = pa.concat_tables([random_table(random, ROW_COUNT // 4) for _ in range(4)])
    bounds = bindable(random, zone)
    session = spark.newSession()
    for name, value in {AT: zone, **INTERPRETED}.items():
        session.conf.set(name, value)
    frame = session.createDataFrame(table).coalesce(1)

    answers = frame.selectExpr(*(f"coalesce(({text}), false)" for text in bounds)).toArrow()

    masks = {text: filter_mask(bound, table) for text, bound in bounds.items()}
    differing = {
        text: table.filter(pc.xor(mask, answer)).slice(0, 2).to_pylist()
        for (text, mask), answer in zip(masks.items(), answers.columns, strict=True)
        if not mask.equals(answer)
    }
    assert differing == {}


# ---- with and without ANSI mode


ANSI = "spark.sql.ansi.enabled"
MODES: dict[str, dict[str, str]] = {
    "ANSI": {},
    "not ANSI": {ANSI: "false"},
    "not ANSI, elsewhere": {ANSI: "false", AT: "America/New_York"},
    "raw strings": {"spark.sql.parser.escapedStringLiterals": "true"},
    "quoted names": {
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
        "spark.sql.ansi.enforceReservedKeywords": "true",
    },
    "local times": {"spark.sql.timestampType": "TIMESTAMP_NTZ", AT: "America/New_York"},
    "local times, not ANSI": {"spark.sql.timestampType": "TIMESTAMP_NTZ", ANSI: "false"},
    "case": {"spark.sql.caseSensitive": "true"},
    "old numbers": {
        "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true",
        "spark.sql.legacy.literal.pickMinimumPrecision": "false",
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    },
    "old numbers, not ANSI": {
        ANSI: "false",
        "spark.sql.legacy.allowNegativeScaleOfDecimal": "true",
        "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true",
    },
    "old text": {
        "spark.sql.legacy.consecutiveStringLiterals.enabled": "true",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "true",
        "spark.sql.legacy.nullInEmptyListBehavior": "true",
        ANSI: "false",
    },
}
QUICK_MODES = ["ANSI", "not ANSI, elsewhere", "local times"]
LONG_MODES = [
    pytest.param(mode, marks=pytest.mark.long) for mode in MODES if mode not in QUICK_MODES
]
PREDICATES = [
    *("single = 16777217", "single IN (16777217, 0.1)", "single > 0.1", "single <= 0.1F"),
    *("whole = 1.0D OR whole = '5'", "whole > ' 5 '", "whole = 1e2", "whole > -1e40"),
    *("big = '9223372036854775807'", "big < 1e18", "big = 1e18", "tiny = 300", "tiny < '1000'"),
    *("money = '1.5'", "money = 1.005", "money IN (1.5, 1e0, '5')", "fraction = 0.1BD"),
    *("wide > 9007199254740992.5", "fraction < 1e0", "double = 'NaN'", "double > 1e300"),
    *("double IN (0, -0.0D)", "whole < 9223372036854775808", "big >= 9223372036854775808"),
    *("flag = 'true'", "flag", "NOT flag", "flag IN (TRUE, NULL)", "flag <=> NULL"),
    *(r"name = 'a\nb'", r"name = 'a\\nb'", r"name = r'a\nb'", r"name IN ('a\\nb', 'a\tb')"),
    *("\"name\" = 'a'", 'name = "a"', "name = 'a''b'", "name IN ('a' 'b', 'c')", "NAME = 'a'"),
    *("name LIKE 'a!%b' ESCAPE '!'", "name LIKE 'a%'", "name LIKE 'a_%b'", r"name LIKE 'a\%%'"),
    *("name NOT LIKE 'a%'", "name LIKE name", "name = X'61'", "name COLLATE UTF8_LCASE = 'A'"),
    *("raw = 'a'", "raw > X'7f'", "raw IN (X'', X'ff')", "day = '2020-01-01 10:00:00'"),
    *("day >= TIMESTAMP '2020-01-01 00:00:00'", "at >= TIMESTAMP '2020-11-01 01:30:00'"),
    *("at = '2020-01-01'", "at > DATE '2020-01-01'", "at < TIMESTAMP_NTZ '2020-01-01'"),
    *("at IN (TIMESTAMP_LTZ '2020-01-01 05:00:00Z', '2020-01-01')", "at < now()"),
    *("local > TIMESTAMP '2020-01-01 05:00:00'", "local = '2020-01-01'", "local IN ('2020', NULL)"),
    *("whole BETWEEN 1 AND 5.5", "at NOT BETWEEN '2020-01-01' AND '2020-03-08 04:00:00'"),
    *("whole BETWEEN 0 AND big", "whole = 1 AND length(name) = 1", "small BETWEEN -1 AND '5'"),
    *("whole = 1 OR length(name) = 1", "NOT (whole = 1 AND length(name) = 1)", "PART.Whole = 1"),
    *("part.whole = 1", "part.name LIKE 'a%'", "part IS NULL", "part.`whole` IN (1, 5)"),
    *("CASE WHEN flag THEN whole = 1 ELSE whole = 5 END", "1 = 1", "whole <=> 1 + 0"),
    *("whole IN (1, big)", "1 < whole", "tiny = 1Y AND NOT small IN (5S, 100)"),
]
UNLESS_ANSI = [
    *("whole IN ('1.0', 1)", "whole <= 'abc' OR whole = 1", "whole = '1.5'", "flag = 1", "at = 5"),
    *("CAST(whole AS TINYINT) = -24", "CAST(money AS INT) = 1", "NOT CAST(big AS INT) > 5"),
    *("CAST(money AS DECIMAL(3, 0)) = 2", "NOT CAST(wide AS DECIMAL(38, 20)) > 5"),
    *("CAST(whole AS DECIMAL(3, 0)) IS NULL", "NOT (CAST(whole AS DECIMAL(3, 0)) <=> 100)"),
    *("NOT (CAST(whole AS DECIMAL(3, 0)) <=> NULL)", "CAST(single AS INT) = 1", "day < 'x'"),
    *("name = 5", "name > DATE '2020-01-01'", "name < TRUE", "day = 18262", "local = 0"),
]
"""Predicates that ANSI mode refuses, or on which it fails for some row."""


def answers_of(frame: DataFrame, texts: list[str]) -> dict[str, pa.ChunkedArray]:
    """Return for each predicate that Spark can evaluate which rows its WHERE keeps."""
    try:
        found = frame.selectExpr(*(f"coalesce(({text}), false)" for text in texts)).toArrow()
    except PySparkException:
        if len(texts) == 1:
            return {}
        answers: dict[str, pa.ChunkedArray] = {}
        step = -(-len(texts) // 8)
        for start in range(0, len(texts), step):
            answers |= answers_of(frame, texts[start : start + step])
        return answers
    return dict(zip(texts, found.columns, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("mode", [*QUICK_MODES, *LONG_MODES])
def test_pruned_blocks_hold_no_row_that_the_session_would_keep(
    spark: SparkSession, mode: str
) -> None:
    random = Random(f"conditions {mode}")
    table = pa.concat_tables([random_table(random, ROW_COUNT // 4) for _ in range(4)])
    lax = UNLESS_ANSI if ANSI in MODES[mode] else []
    drawn = [random_where(random, depth=1) for _ in range(40)]
    texts = list(dict.fromkeys([*PREDICATES, *lax, *drawn]))
    session = spark.newSession()
    session.conf.set(
        "spark.sql.timestampType", "TIMESTAMP_NTZ"
    )  # the value of a time without a zone
    frame = session.createDataFrame(table).coalesce(1)
    session.conf.unset("spark.sql.timestampType")
    for name, value in {**MODES[mode], **INTERPRETED}.items():
        session.conf.set(name, value)

    answers = answers_of(frame, texts)

    schema = first_schema(columns_of_arrow(SCHEMA))
    bounds = {text: analyse(session, schema, text)[0].bound for text in answers}
    lost = {
        text: table.filter(pc.and_not(answer, filter_mask(bounds[text], table))).to_pylist()[:2]
        for text, answer in answers.items()
    }
    assert {text: rows for text, rows in lost.items() if rows} == {}
    ruling = [text for text, bound in bounds.items() if bound != BoundConstant(value=True)]
    assert len(answers) > len(texts) // 2, texts
    assert len(ruling) > len(answers) // 2


NEW_YORK_FALL = datetime(2024, 11, 3, 6, 30, tzinfo=UTC)
READS = [
    ("single = 16777217", {ANSI: "false"}, 1),
    ("whole IN ('1.0', 1)", {ANSI: "false"}, 1),
    ("whole <= 'abc' OR whole = 1", {ANSI: "false"}, 1),
    (
        "at IN (TIMESTAMP_LTZ '2024-11-03 01:30:00-04:00', '2024-03-10')",
        {ANSI: "false", AT: "America/New_York"},
        3,
    ),
    (r"name = 'a\tb'", {"spark.sql.parser.escapedStringLiterals": "true"}, 1),
    ("\"name\" = 'q'", {"spark.sql.ansi.doubleQuotedIdentifiers": "true"}, 1),
    (
        "at > TIMESTAMP '2024-11-03 01:30:00'",
        {"spark.sql.timestampType": "TIMESTAMP_NTZ", AT: "America/New_York"},
        3,
    ),
    ("length(name) = 1 AND whole = 2", {}, 1),
    ("whole + 1 = 3", {}, 1),
    ("whole IN (SELECT 2)", {}, 1),
    ("like(name, 'a!%b', '!')", {}, 1),
    ("name LIKE 'a!%${end}'", {"end": "b' ESCAPE '!"}, 1),
    ("name LIKE 'a!%${end}' AND whole < 9", {"end": "b' ESCAPE '!"}, 1),
    ("at < timestamp'${when}'", {"when": "now"}, 3),
    ("shout(name) = 'q!'", {}, 1),
    ("shout(name) = 'q!' AND whole = 2", {}, 1),
    ("shout(name) = (SELECT 'q!')", {}, 1),
]


@pytest.mark.parametrize(("where", "settings", "row_count"), READS, ids=[item[0] for item in READS])
def test_fuse_read_keeps_the_rows_that_the_session_keeps(
    spark: SparkSession, tmp_path: Path, where: str, settings: dict[str, str], row_count: int
) -> None:
    rows = pa.table(
        {
            "single": pa.array([16777216.0, 1.0, 2.0], pa.float32()),
            "name": ["a\\tb", "q", "a%b"],
            "whole": pa.array([1, 2, 3], pa.int32()),
            "at": pa.array([NEW_YORK_FALL] * 3, pa.timestamp("us", "UTC")),
        }
    )
    table = Table.create(tmp_path / "t", rows.schema)
    for place in range(len(rows)):
        table.append(rows.slice(place, 1))
    session = spark.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)
    session.sql(
        "CREATE TEMPORARY FUNCTION shout(text STRING) RETURNS STRING RETURN concat(text, '!')"
    )

    kept = read(session, tmp_path / "t", where=where).collect()

    assert len(kept) == row_count
    assert sorted(kept) == sorted(read(session, tmp_path / "t").where(where).collect())


def test_blocks_are_pruned_without_ansi_mode_too(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.schema([("a", pa.int64()), ("b", pa.string())]))
    for number in range(5):
        table.append(pa.table({"a": [number], "b": [str(number)]}))
    session = spark.newSession()
    session.conf.set(ANSI, "false")

    for where in ("a = '3' AND length(b) = 1", "a IN (3) OR b = '3'", "a BETWEEN '3' AND 3L"):
        frame = read(session, tmp_path / "t", where=where)
        assert len(frame.inputFiles()) == 1
        assert [row.a for row in frame.collect()] == [3]


def test_a_time_that_the_parser_substitutes_is_the_same_for_pruning_and_filtering(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = spark.newSession()
    session.conf.set("when", "now")
    rows = pa.table({"at": pa.array([NEW_YORK_FALL], pa.timestamp("us", "UTC"))})
    table = Table.create(tmp_path / "t", rows.schema)
    table.append(rows)
    where = "at < timestamp'${when}'"

    frame = read(session, tmp_path / "t", where=where)

    condition, column = analyse(session, table.head().schema, where)
    twice = [frame._jdf.filter(column).queryExecution().analyzed().toString() for _ in range(2)]  # noqa: SLF001 - the plan
    assert twice[0] == twice[1]
    assert condition.bound != BoundConstant(value=True)
    assert frame.count() == 1


@pytest.mark.parametrize("where", ["whole + ", "nothing = 1", "sum(a) > 1", "a", "", "NULL"])
def test_what_spark_refuses_is_a_typed_error(
    spark: SparkSession, tmp_path: Path, where: str
) -> None:
    Table.create(tmp_path / "t", pa.schema([("a", pa.int64())]))

    with pytest.raises(InvalidInputError, match="Spark refuses the predicate"):
        read(spark, tmp_path / "t", where=where)


# ---- text that is not UTF-8

BYTES = [b"a", b"b", b"\xff", b"\xc3", b"\xa9", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f", b"\x80"]
BYTES += [
    "é".encode(),
    "€".encode(),
    "😀".encode(),
    "\ufffd".encode(),
    b"\xf4\x90",
    b"\xc0\xaf",
    b"\n",
]
PATTERN_PARTS = ["a", "b", "é", "€", "\ufffd", "%", "%", "_", "_", "ab", "!%", "!_"]


def test_text_that_is_not_utf8_matches_as_it_does_in_spark(spark: SparkSession) -> None:
    random = Random("bytes")
    values = [b"".join(random.choices(BYTES, k=random.randint(0, 5))) for _ in range(600)]
    raw = pa.array([*values, None], pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    patterns = [
        "%a",
        "a%",
        "a%b",
        "%a%",
        "é%a",
        "%",
        "_",
        "__",
        "\ufffd%",
        "a\ufffd%",
        "%\ufffd",
        "",
    ]
    patterns += ["".join(random.choices(PATTERN_PARTS, k=random.randint(1, 5))) for _ in range(60)]
    tests = [f"s LIKE '{item}' ESCAPE '!'" for item in patterns]
    tests += [f"s LIKE '{item}'" for item in patterns if "!" not in item]
    tests += [f"s NOT LIKE '{item}'" for item in patterns if "!" not in item]
    tests += [f"s {op} '{item}'" for op in ("=", "<", ">=") for item in ("a", "é", "\ufffd", "aé")]
    session = spark.newSession()
    for name, value in INTERPRETED.items():
        session.conf.set(name, value)
    frame = session.createDataFrame(pa.table({"raw": raw})).selectExpr("CAST(raw AS STRING) AS s")

    answers = answers_of(frame.coalesce(1), list(dict.fromkeys(tests)))

    table = pa.table({"s": text})
    differing = {}
    for test, answer in answers.items():
        mask = filter_mask(bind(parse_where(test), table.schema), table)
        if not mask.equals(answer):
            differing[test] = raw.filter(pc.xor(mask, answer).combine_chunks()).to_pylist()[:3]
    assert differing == {}
    assert len(answers) == len(set(tests))
