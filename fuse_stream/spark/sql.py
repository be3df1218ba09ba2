"""SQL statements that change rows: Spark parses them, and has no plan of its own for such tables.

The parts of a statement are taken from the tree of Spark's parser and given to the functions that
do the same, so they mean what they mean to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

from fuse_stream.commit.plan import Intent, check_texts
from fuse_stream.dml.result import ChangeResult
from fuse_stream.errors import InvalidInputError, UnsupportedStorageError
from fuse_stream.format.records import Operation
from fuse_stream.spark.change_rows import commit_changes, deletes, updates
from fuse_stream.spark.change_writer import Kind
from fuse_stream.spark.collect import SPARK_ERRORS
from fuse_stream.spark.merge import (
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    Clause,
    Merge,
)
from fuse_stream.spark.where import reason_of
from fuse_stream.table.location import TableLocation

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject


def sql(
    spark: SparkSession,
    statement: str,
    *,
    message: str = "",
    author: str = "",
    storage_options: Mapping[str, object] | None = None,
    origins: Sequence[str] = (),
    unsafe_single_writer: bool = False,
) -> ChangeResult:
    """Run a `DELETE`, `UPDATE` or `MERGE` statement of Spark's SQL on a table.

    The table is named by its path: ``DELETE FROM fuse.`/lake/flights` WHERE dep_delay IS NULL``.
    `MERGE WITH SCHEMA EVOLUTION` lets the source add columns.

    Args:
        spark: a classic session, with the views that the statement names.
        statement: the statement.
        message: shown by the log.
        author: shown by the log; never taken from the system.
        storage_options: fsspec's, for a remote store.
        origins: the locations of the origins whose blocks may be read, for a clone.
        unsafe_single_writer: allow a store that cannot tell two writers apart.

    Returns:
        The commit and the numbers of rows; no commit if nothing had to change.

    Raises:
        InvalidInputError: Spark refuses the statement, it is another one, or names no such table.
        AmbiguousMergeError, SchemaMismatchError, ConflictError, CommitStateUnknownError: as of a
            merge.
    """
    check_texts(statement=statement, message=message, author=author)
    if not hasattr(spark, "_jsparkSession"):
        raise UnsupportedStorageError(
            "Spark Connect shows no parsed statement: use Table.delete, Table.update and "
            "Table.upsert there"
        )
    session: Any = spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
    try:
        parsed = session.sessionState().sqlParser().parsePlan(statement)
    except SPARK_ERRORS as error:
        raise _refused(error) from error
    statement_kind = parsed.getClass().getSimpleName()
    tables = {"DeleteFromTable": "table", "UpdateTable": "table", "MergeIntoTable": "targetTable"}
    if statement_kind not in tables:
        raise InvalidInputError(
            "the statement is none of DELETE, UPDATE and MERGE; to select, query a temporary view "
            "of fuse.read with spark.sql",
            statement=statement[:100],
        )
    target = _target(getattr(parsed, tables[statement_kind])())
    location = TableLocation.of(
        target.path,
        storage_options=storage_options,
        origins=origins,
        unsafe_single_writer=unsafe_single_writer,
    )
    tree = _Tree(spark, target.name)
    if statement_kind == "MergeIntoTable":
        return tree.merge(parsed, location, message=message, author=author).execute()
    if statement_kind == "UpdateTable":
        where = tree.column_in(parsed.condition())
        values = tree.values(parsed.assignments())
        intent = Intent(operation=Operation.UPDATE, message=message, author=author)
        plan = updates("true" if where is None else where, values)
    else:
        intent = Intent(operation=Operation.DELETE, message=message, author=author)
        plan = deletes(tree.column(parsed.condition()))

    def aliased(rows: DataFrame, schema: Any) -> DataFrame:
        return plan(rows.alias(target.name), schema)

    return commit_changes(spark, location, aliased, intent)


@dataclass(frozen=True, slots=True)
class _Target:
    """The table of a statement, and the name by which its expressions call it."""

    path: str
    name: str


def _target(plan: Any) -> _Target:
    name = "t"
    if plan.getClass().getSimpleName() == "SubqueryAlias":
        name, plan = plan.identifier().name(), plan.child()
    parts = (
        list(_items(plan.multipartIdentifier()))
        if plan.getClass().getSimpleName() == "UnresolvedRelation"
        else []
    )
    if len(parts) != 2 or parts[0].lower() != "fuse":
        raise InvalidInputError(
            "name the table by its path, in backticks after `fuse`: fuse.`/lake/flights`",
            table=".".join(parts),
        )
    return _Target(parts[1], name)


class _Tree:
    """Takes the parts of a parsed statement as columns and clauses."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm  # noqa: SLF001 - pyspark offers no public way
        self._table = table

    def column(self, expression: JavaObject) -> Column:
        return ClassicColumn(
            self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression)
        )

    def column_in(self, option: Any) -> Column | None:
        return self.column(option.get()) if option.isDefined() else None

    def values(self, assignments: Any) -> dict[str, Column]:
        """Return the new values by column.

        Raises:
            InvalidInputError: a field of a struct is set, or a column twice.
        """
        found: dict[str, Column] = {}
        for assignment in _items(assignments):
            parts = list(_items(assignment.key().nameParts()))
            if len(parts) == 2 and parts[0].lower() == self._table.lower():
                parts = parts[1:]
            if len(parts) != 1:
                raise InvalidInputError(
                    "set whole columns: a field of a struct is set by a new struct",
                    column=".".join(parts),
                )
            if parts[0] in found:
                raise InvalidInputError("a column is set twice", column=parts[0])
            found[parts[0]] = self.column(assignment.value())
        return found

    def merge(self, parsed: Any, location: TableLocation, *, message: str, author: str) -> Merge:
        source = parsed.sourceTable()
        name = "s"
        if source.getClass().getSimpleName() == "SubqueryAlias":
            name = source.identifier().name()
        elif source.getClass().getSimpleName() == "UnresolvedRelation":
            name = list(_items(source.multipartIdentifier()))[-1]
        user = self._spark._jsparkSession  # noqa: SLF001 - pyspark offers no public way
        try:
            rows = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(user, source)
        except SPARK_ERRORS as error:
            raise _refused(error) from error
        actions = (
            (MATCHED, parsed.matchedActions()),
            (NOT_MATCHED, parsed.notMatchedActions()),
            (NOT_MATCHED_BY_SOURCE, parsed.notMatchedBySourceActions()),
        )
        return Merge(
            df=DataFrame(rows, self._spark),
            location=location,
            on=self.column(parsed.mergeCondition()),
            batch=None,
            merge_schema=parsed.withSchemaEvolution(),
            message=message,
            author=author,
            clauses=tuple(self._clauses(actions)),
            names=(self._table, name),
        )

    def _clauses(self, actions: Iterable[tuple[str, Any]]) -> Iterator[Clause]:
        kinds = {"Delete": Kind.DELETE, "Update": Kind.UPDATE, "Insert": Kind.INSERT}
        for rows, of_rows in actions:
            for action in _items(of_rows):
                name = action.getClass().getSimpleName().removesuffix("Action")
                is_whole = name == "Delete" or name.endswith("Star")
                yield Clause(
                    rows=rows,
                    condition=self.column_in(action.condition()),
                    kind=kinds[name.removesuffix("Star")],
                    values=None if is_whole else self.values(action.assignments()),
                )


def _refused(error: Exception) -> InvalidInputError:
    return InvalidInputError(
        "Spark refuses the statement: correct it. Of fuse tables it may name only the one that "
        "changes; make temporary views of others with fuse.read",
        reason=reason_of(error),
    )


def _items(sequence: Any) -> Iterator[Any]:
    """Yield the items of a sequence of Scala's."""
    return (sequence.apply(at) for at in range(sequence.size()))
