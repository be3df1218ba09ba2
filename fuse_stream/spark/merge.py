"""Merge a DataFrame into a table: the clauses of SQL's MERGE, in the words of PySpark's writer."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, lit, when

from fuse_stream.commit.ledger import Batch
from fuse_stream.commit.plan import Intent, check_texts
from fuse_stream.dml.result import ChangeResult
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.evolve import check_not_hidden
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names import flag_in
from fuse_stream.format.records import Operation
from fuse_stream.format.schema import Schema
from fuse_stream.spark.change_rows import as_column, by_column, commit_changes
from fuse_stream.spark.change_writer import KIND, Kind
from fuse_stream.spark.read import FILE, ROW
from fuse_stream.spark.types import is_case_sensitive, quoted
from fuse_stream.table.arriving import api_batch
from fuse_stream.table.location import TableLocation

MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE = "matched", "not matched", "not matched by source"
_SOURCE, _CLAUSE = "_fuse_source", "_fuse_clause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """What happens to some rows of a merge."""

    rows: str
    """`MATCHED`, `NOT_MATCHED` or `NOT_MATCHED_BY_SOURCE`."""
    condition: str | Column | None
    kind: Kind
    values: Mapping[str, str] | Mapping[str, Column] | None = None
    """Expressions by column; None for the source's columns of the same names."""


def merge(
    df: DataFrame,
    path: str | os.PathLike[str],
    on: str,
    *,
    branch: str = MAIN,
    app_id: str | None = None,
    batch_id: int | None = None,
    writer: str = "",
    merge_schema: bool = False,
    message: str = "",
    author: str = "",
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[str] = (),
    unsafe_single_writer: bool = False,
) -> Merge:
    """Return a merge of `df`, the source `s`, into the table `t`; `execute` commits it.

    ```
    made = fuse.merge(df, path, on="t.id = s.id").when_matched("s.op = 'd'").delete()
    made.when_matched().update_all().when_not_matched().insert_all().execute()
    ```

    Of the clauses for a row the first one whose condition holds applies. A merge that only inserts
    is an append. With `app_id` and `batch_id` the call is safe to repeat.

    Args:
        df: the source; its plan runs once, and again if another writer commits meanwhile.
        path: the table: a local path or an fsspec URL.
        on: the SQL condition by which rows of `t` and `s` match.
        branch: the branch to change.
        app_id: the application that delivers the batch.
        batch_id: the batch's number; it grows.
        writer: a name for each stream of batches, if one application has several.
        merge_schema: let the source add columns and widen types.
        message: shown by the log.
        author: shown by the log; never taken from the system.
        storage_options: fsspec's, for a remote store.
        origins: the locations of the origins whose blocks may be read, for a clone.
        unsafe_single_writer: allow a store that cannot tell two writers apart.

    Raises:
        InvalidInputError: an argument is not valid.
    """
    location = TableLocation.of(
        path, branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
    )
    if not isinstance(on, str):
        raise InvalidInputError('on is a SQL condition, such as "t.id = s.id"', on=on)
    source: object = df
    if not isinstance(source, DataFrame) or source.isStreaming:
        raise InvalidInputError(
            "the source is a batch DataFrame; merge the batches of a stream in foreachBatch",
            type=type(source).__name__,
        )
    check_texts(message=message, author=author)
    return Merge(
        df=df,
        location=location,
        on=on,
        batch=api_batch(app_id, batch_id, writer),
        merge_schema=flag_in("merge_schema", merge_schema),
        message=message,
        author=author,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A merge that is being described; each method returns a new one."""

    df: DataFrame
    location: TableLocation
    on: str | Column
    batch: Batch | None
    merge_schema: bool
    message: str
    author: str
    clauses: tuple[Clause, ...] = ()
    names: tuple[str, str] = ("t", "s")
    """By which expressions call the table and the source."""

    def when_matched(self, condition: str | None = None) -> WhenMatched:
        """Say what happens to a row of the table that a row of the source matches."""
        return WhenMatched(self, condition)

    def when_not_matched(self, condition: str | None = None) -> WhenNotMatched:
        """Say what happens to a row of the source that matches no row of the table."""
        return WhenNotMatched(self, condition)

    def when_not_matched_by_source(self, condition: str | None = None) -> WhenNotMatchedBySource:
        """Say what happens to a row of the table that no row of the source matches."""
        return WhenNotMatchedBySource(self, condition)

    def execute(self) -> ChangeResult:
        """Commit the merge as one snapshot.

        Returns:
            The commit and the numbers of rows; no commit if nothing has to change.

        Raises:
            AmbiguousMergeError: several rows of the source act on one row of the table, or rows of
                a table with a key would not be unique; nothing was committed.
            InvalidInputError: Spark refuses an expression, or a column is unknown or reserved.
            SchemaMismatchError: a value's type does not fit its column.
            StreamIdentityError: a batch lower than the last one.
            ConflictError: other writers won every attempt; nothing was committed.
            CommitStateUnknownError: the store failed; the commit may have landed.
        """
        if not self.clauses:
            raise InvalidInputError(
                "a merge needs a clause, such as when_matched().update_all()", on=self.on
            )
        check_not_hidden(self.df.columns)
        intent = Intent(
            operation=Operation.MERGE,
            batch=self.batch,
            message=self.message,
            author=self.author,
        )
        return commit_changes(
            self.df.sparkSession,
            self.location,
            self._changed,
            intent,
            merge_schema=self.merge_schema,
        )

    def with_clause(self, clause: Clause) -> Merge:
        """Return the merge with one more clause."""
        return dataclasses.replace(self, clauses=(*self.clauses, clause))

    def _changed(self, rows: DataFrame, schema: Schema) -> DataFrame:
        """Return the changed rows of a head, of which `rows` are those of the table."""
        source = self.df.withColumn(_SOURCE, lit(1)).alias(self.names[1])
        joined = rows.alias(self.names[0]).join(source, as_column(self.on), self._join())
        is_of_table, is_of_source = col(ROW).isNotNull(), col(_SOURCE).isNotNull()
        sides = {
            MATCHED: is_of_table & is_of_source,
            NOT_MATCHED: ~is_of_table & is_of_source,
            NOT_MATCHED_BY_SOURCE: is_of_table & ~is_of_source,
        }
        chosen = lit(None).cast("int")
        for at, clause in reversed(list(enumerate(self.clauses))):
            holds = sides[clause.rows]
            if clause.condition is not None:
                holds = holds & coalesce(as_column(clause.condition), lit(0).cast("boolean"))
            chosen = when(holds, lit(at)).otherwise(chosen)
        acting = joined.withColumn(_CLAUSE, chosen).where(col(_CLAUSE).isNotNull())
        images = [self._values(clause, rows.sparkSession, schema) for clause in self.clauses]
        names = [*schema.names(), *self._further(rows.sparkSession, schema)]
        return acting.select(
            _chosen([lit(int(clause.kind)) for clause in self.clauses]).alias(KIND),
            FILE,
            ROW,
            *(_chosen([image.get(name) for image in images]).alias(name) for name in names),
        )

    def _named(self, side: int, column: str) -> Column:
        return col(f"{quoted(self.names[side])}.{quoted(column)}")

    def _join(self) -> str:
        rows = {clause.rows for clause in self.clauses}
        if NOT_MATCHED in rows:
            return "full_outer" if NOT_MATCHED_BY_SOURCE in rows else "right_outer"
        return "left_outer" if NOT_MATCHED_BY_SOURCE in rows else "inner"

    def _further(self, spark: SparkSession, schema: Schema) -> list[str]:
        """Return the columns that the source adds to the table."""
        if not self.merge_schema or all(clause.values is not None for clause in self._images()):
            return []
        is_exact = is_case_sensitive(spark)
        known = {name if is_exact else name.casefold() for name in schema.names()}
        return [
            name for name in self.df.columns if (name if is_exact else name.casefold()) not in known
        ]

    def _images(self) -> list[Clause]:
        return [clause for clause in self.clauses if clause.kind is not Kind.DELETE]

    def _values(
        self, clause: Clause, spark: SparkSession, schema: Schema
    ) -> dict[str, Column | None]:
        """Return the columns of a row after a clause; a missing one is null.

        Raises:
            InvalidInputError: the source lacks a column, or the clause names an unknown one.
        """
        if clause.kind is Kind.DELETE:
            return {}
        found: dict[str, Column | None] = {}
        if clause.kind is Kind.UPDATE:
            found |= {name: self._named(0, name) for name in schema.names()}
        if clause.values is not None:
            given = by_column(spark, schema, clause.values)
            return found | {name: as_column(value) for name, value in given.items()}
        is_exact = is_case_sensitive(spark)
        of_source = {name if is_exact else name.casefold(): name for name in self.df.columns}
        missing = []
        for name in (*schema.visible.names(), *self._further(spark, schema)):
            own = of_source.get(name if is_exact else name.casefold())
            if own is not None:
                found[name] = self._named(1, own)
            else:
                missing.append(name)
        if missing and not self.merge_schema:
            raise InvalidInputError(
                "the source lacks columns of the table: name what each column gets with update or "
                "insert, or pass merge_schema=True to leave these as they are, or null",
                missing=missing,
            )
        return found


def _chosen(values: Sequence[Column | None]) -> Column:
    """Return for each row the value of its clause; null if the clause has none."""
    found: Column | None = None
    for at, value in enumerate(values):
        if value is None:
            continue
        holds = col(_CLAUSE) == at
        found = when(holds, value) if found is None else found.when(holds, value)
    return lit(None) if found is None else found


@dataclass(frozen=True, slots=True)
class WhenMatched:
    """What happens to a row of the table that a row of the source matches."""

    merge: Merge
    condition: str | None

    def update_all(self) -> Merge:
        """Give the row the values of the source's columns of the same names."""
        return self._then(Kind.UPDATE)

    def update(self, values: Mapping[str, str]) -> Merge:
        """Set columns to SQL expressions on `t` and `s`, such as `{"total": "t.total + s.n"}`."""
        return self._then(Kind.UPDATE, _checked(values))

    def delete(self) -> Merge:
        """Delete the row."""
        return self._then(Kind.DELETE)

    def _then(self, kind: Kind, values: Mapping[str, str] | None = None) -> Merge:
        return self.merge.with_clause(
            Clause(rows=MATCHED, condition=self.condition, kind=kind, values=values)
        )


@dataclass(frozen=True, slots=True)
class WhenNotMatched:
    """What happens to a row of the source that matches no row of the table."""

    merge: Merge
    condition: str | None

    def insert_all(self) -> Merge:
        """Add a row with the values of the source's columns of the same names."""
        return self._then()

    def insert(self, values: Mapping[str, str]) -> Merge:
        """Add a row of SQL expressions on `s`; the other columns are null."""
        return self._then(_checked(values))

    def _then(self, values: Mapping[str, str] | None = None) -> Merge:
        return self.merge.with_clause(
            Clause(rows=NOT_MATCHED, condition=self.condition, kind=Kind.INSERT, values=values)
        )


@dataclass(frozen=True, slots=True)
class WhenNotMatchedBySource:
    """What happens to a row of the table that no row of the source matches."""

    merge: Merge
    condition: str | None

    def update(self, values: Mapping[str, str]) -> Merge:
        """Set columns to SQL expressions on `t`."""
        return self._then(Kind.UPDATE, _checked(values))

    def delete(self) -> Merge:
        """Delete the row."""
        return self._then(Kind.DELETE)

    def _then(self, kind: Kind, values: Mapping[str, str] | None = None) -> Merge:
        return self.merge.with_clause(
            Clause(rows=NOT_MATCHED_BY_SOURCE, condition=self.condition, kind=kind, values=values)
        )


def _checked(values: Mapping[str, str]) -> Mapping[str, str]:
    given: object = values
    if isinstance(given, Mapping) and all(
        isinstance(name, str) and isinstance(text, str) for name, text in given.items()
    ):
        return values
    raise InvalidInputError(
        'values are SQL expressions by column, such as {"a": "s.a + 1"}', values=values
    )
