"""Merges, updates and deletes against Spark's own table for them: `scripts/fetch_oracle.py`.

Spark rewrites and runs the same statements on a table of its own in memory. A fuse table is
stricter in two ways only: a number that would lose digits is refused, and values are converted
between numbers only. It is laxer in one: of the rows of the source that match a row of the table
only those count on which a clause acts, and these may all delete it.

Two kinds of statements are left out, which Spark's table does not run right. Without a clause for
matched rows, but with one for rows that no row of the source matches, a merge doubles each row
that several rows of the source match. And some conditions on its partition column are filters that
it does not know.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import fuse_stream as fuse
from fuse_stream.dml.result import ChangeResult
from fuse_stream.errors import AmbiguousMergeError, FuseError
from fuse_stream.table.handle import Table
from fuse_stream.testing.model import assert_sound
from scripts.fetch_oracle import JAR
from tests.kit.strides import NIGHT
from tests.spark.merge_statements import (
    BY_SOURCE,
    MATCHED,
    SOURCES,
    TABLE,
    VIEW,
    Delete,
    Merge,
    Statement,
    Update,
    drawn_rows,
    drawn_statement,
)

CATALOG = "org.apache.spark.sql.connector.catalog.InMemoryRowLevelOperationTableCatalog"
SPARKS = "oracle.tests.t"
QUICK, LONG, MORE = range(2), range(100, 105), range(105, 144)
UNKNOWN_FILTER = "Unknown filter attribute"
QUICK_STEPS, LONG_STEPS = 2, 4
"""Statements in a history."""


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in which `SPARKS` can be made; without the jar there is no test, but on CI."""
    if not JAR.exists():
        assert not os.environ.get("CI"), f"{JAR} is missing: `make test` fetches it"
        pytest.skip(f"NO ORACLE: {JAR.name} could not be fetched; `make test` tries again")
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.oracle", CATALOG)
    yield session
    session.sql(f"DROP TABLE IF EXISTS {SPARKS}")


def texts(rows: pa.Table) -> Counter[str]:
    """Return rows as texts: -0.0 is not 0.0, and a NaN is one."""
    return Counter(repr(list(row.values())) for row in rows.to_pylist())


class Both:
    """A fuse table, and a table of Spark's that has the same rows."""

    def __init__(self, session: SparkSession, path: str, *queries: str) -> None:
        self.session = session
        self.path = path
        columns = ", ".join(f"{name} {kind}" for name, kind in TABLE.items())
        session.sql(f"CREATE TABLE {SPARKS} ({columns})")
        for query in queries:
            session.sql(f"INSERT INTO {SPARKS} {query}")
            fuse.write(session.sql(query).coalesce(1), path)

    def spark_runs(self, statement: Statement) -> str | None:
        """Run a statement on Spark's table; return why Spark refused it."""
        if isinstance(statement, Delete):  # the table asserts that it can delete by plain filters
            statement = Delete(where=f"coalesce({statement.where}, false)")
        try:
            self.session.sql(statement.sql(SPARKS))
        except (PySparkException, Py4JJavaError) as error:
            return str(error)
        return None

    def fuse_runs(self, statement: Statement, *, as_text: bool) -> ChangeResult | FuseError:
        """Run a statement on the fuse table; return the numbers of rows, or how it was refused."""
        try:
            if as_text:
                return fuse.sql(self.session, statement.sql(f"fuse.`{self.path}`"))
            return statement.run(self.session, self.path)
        except FuseError as error:
            return error

    def doubles_rows(self, statement: Statement) -> bool:
        """True if Spark's table would double rows: see above."""
        if not isinstance(statement, Merge):
            return False
        kinds = {clause.rows for clause in statement.clauses}
        if MATCHED in kinds or BY_SOURCE not in kinds:
            return False
        self._number_rows()
        found = self.session.sql(
            f"SELECT t.at FROM numbered AS t JOIN {VIEW} AS s ON {statement.on} "
            "GROUP BY t.at HAVING count(*) > 1"
        )
        return not found.isEmpty()

    def _number_rows(self) -> None:
        self.session.sql(
            f"SELECT *, monotonically_increasing_id() AS at FROM {SPARKS}"
        ).createOrReplaceTempView("numbered")

    def rows(self) -> tuple[Counter[str], Counter[str]]:
        """Return the rows of the fuse table, and of Spark's."""
        return texts(Table.open(self.path).to_arrow()), texts(self.session.table(SPARKS).toArrow())

    def is_ambiguous(self, merge: Merge) -> bool:
        """True if two rows of the source act on one row of Spark's table, and not all delete it."""
        self._number_rows()
        found = self.session.sql(
            f"SELECT count(*) FROM (SELECT t.at, {merge.acts()} AS act FROM numbered AS t "
            f"JOIN {VIEW} AS s ON {merge.on}) WHERE act IS NOT NULL GROUP BY at "
            "HAVING count(*) > 1 AND max(act) > 0"
        )
        return not found.isEmpty()


def check_history(session: SparkSession, path: str, seed: int, steps: int) -> Counter[str]:
    """Run a history on both tables; return how often which kind of thing happened."""
    draw = Random(seed)
    both = Both(session, path, *(drawn_rows(draw, TABLE, 7, distinct=False) for _ in range(2)))
    found, expected = both.rows()
    assert found == expected
    met: Counter[str] = Counter()
    for _ in range(steps):
        source = draw.choice(list(SOURCES.values()))
        query = drawn_rows(draw, source, draw.randrange(1, 8), distinct=draw.random() < 0.8)
        session.sql(query).createOrReplaceTempView(VIEW)
        statement = drawn_statement(draw, source)
        told, before = (seed, statement.sql("t"), query), found
        sparks = "doubles" if both.doubles_rows(statement) else both.spark_runs(statement)
        if sparks is not None and (sparks == "doubles" or UNKNOWN_FILTER in sparks):
            met["not run by Spark"] += 1
            continue
        ours = both.fuse_runs(statement, as_text=draw.random() < 0.5)
        found, expected = both.rows()
        kind = type(statement).__name__.lower()
        is_refused = isinstance(ours, FuseError)
        if isinstance(ours, FuseError):
            assert (told, found) == (told, before)
        else:
            grown = found.total() - before.total()
            assert (told, ours.inserted - ours.deleted) == (told, grown)
        if sparks is None:
            assert (told, is_refused) == (told, False), ours
            assert (told, found) == (told, expected)
            met[kind if found != before else f"{kind} of nothing"] += 1
        elif "MERGE_CARDINALITY_VIOLATION" in sparks and isinstance(statement, Merge):
            is_ambiguous = isinstance(ours, AmbiguousMergeError)
            assert (told, is_ambiguous) == (told, both.is_ambiguous(statement)), ours
            met["ambiguous" if is_ambiguous else "not ambiguous here"] += 1
            if not is_refused:
                break  # the tables differ from here on
        else:
            assert (told, is_refused) == (told, True), sparks
            met["refused"] += 1
        if draw.random() < 0.2:
            Table.open(path).compact()
    assert_sound(Table.open(path).metadata.store, Table.open(path))
    return met


@pytest.mark.long
@pytest.mark.parametrize("seed", QUICK)
def test_a_history_ends_as_on_sparks_own_table(
    session: SparkSession, tmp_path: Path, seed: int
) -> None:
    check_history(session, str(tmp_path / "t"), seed, QUICK_STEPS)


@pytest.mark.long
@pytest.mark.parametrize("seed", [*LONG, *(pytest.param(seed, marks=NIGHT) for seed in MORE)])
def test_a_longer_history_ends_as_on_sparks_own_table(
    session: SparkSession, tmp_path: Path, seed: int
) -> None:
    check_history(session, str(tmp_path / "t"), seed, LONG_STEPS)


@pytest.mark.parametrize(
    ("value", "sparks"), [("1.5", 1), ("CAST('2.9' AS DOUBLE)", 2), ("'7'", None), ("id", None)]
)
def test_a_fuse_table_refuses_to_lose_digits(
    session: SparkSession, tmp_path: Path, value: str, sparks: int | None
) -> None:
    """Spark cuts them off; both refuse other types, and numbers that are too large."""
    row = ", ".join(
        f"CAST({'3000000000' if name == 'id' else 'NULL'} AS {kind}) AS {name}"
        for name, kind in TABLE.items()
    )
    both = Both(session, str(tmp_path / "t"), f"SELECT {row}")
    update = Update(where="true", values={"n": value})
    refused = both.spark_runs(update) is not None

    assert refused == (sparks is None)
    assert isinstance(both.fuse_runs(update, as_text=False), FuseError)
    assert session.table(SPARKS).collect()[0].n == sparks
    assert Table.open(both.path).to_arrow()["n"].to_pylist() == [None]
