"""Update rows: hide them, and append them with other values; no block is rewritten.

Rules:
- The commit has the effect of an update that runs alone on the head on which it lands.
- A row that has the new values already is left alone.
- Memory holds the rows of one block of the target size at a time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Intent, Staged, check_may_change, is_stale
from fuse_stream.commit.stage import stage_deletions, stage_tables
from fuse_stream.dml.find import Progress, RowFinder
from fuse_stream.dml.result import ChangeResult, commit_change
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import adapt, arrow_schema
from fuse_stream.format.evolve import check_not_hidden
from fuse_stream.format.hidden_columns import is_computed
from fuse_stream.format.positions import BlockRows
from fuse_stream.format.records import Block, Operation, Snapshot, rows_of
from fuse_stream.format.schema import Column, Schema
from fuse_stream.objects.blocks import load_block
from fuse_stream.objects.slots import Stored
from fuse_stream.reading.scan import Selection, project, select_matches


def update(
    committer: Committer,
    where: str,
    values: Mapping[str, object],
    *,
    time_zone: str = "UTC",
    dry_run: bool = False,
    author: str = "",
    message: str = "",
    progress: Progress | None = None,
) -> ChangeResult:
    """Set columns of the rows that match; arguments and errors of `Table.update`."""
    metadata = committer.metadata
    finder = RowFinder(metadata, progress)
    staged_rows: BlockRows = {}
    staged_on: Snapshot | None = None

    def find(head: Snapshot) -> list[Block]:
        matching = select_matches(head.schema, where, time_zone=time_zone)
        assigned = assignments(head.schema, values)
        check_may_change(head)
        _check_not_key(head, assigned)
        return finder.find(head, _reading(matching, head.schema, assigned), assigned.differ)

    def stage(on: Stored, found: list[Block], before: Staged | None) -> Staged:
        nonlocal staged_rows, staged_on
        head, rows = on.snapshot, rows_of(found)
        is_reusable = before is not None and staged_on is not None and rows == staged_rows
        if before is None or not is_reusable or is_stale(_of_rows(before), staged_on or head, head):
            assigned = assignments(head.schema, values)
            tables = _updated(committer, head, found, assigned)
            before, staged_on = stage_tables(metadata, head, head.schema, tables), head
            staged_rows = rows
        return dataclasses.replace(
            before, deletions=stage_deletions(metadata, rows), is_for_one_head=True
        )

    intent = Intent(operation=Operation.UPDATE, author=author, message=message)
    snapshot, count = commit_change(committer, intent, find, stage, dry_run=dry_run)
    return ChangeResult(snapshot=snapshot, updated=count)


def _of_rows(staged: Staged) -> Staged:
    """Return what was staged without what fits one head only."""
    return dataclasses.replace(staged, deletions=(), is_for_one_head=False)


def _reading(matching: Selection, schema: Schema, assigned: Assignments) -> Selection:
    """Return a selection that reads the assigned columns besides those of the predicate."""
    wanted = {column.id for column in (*matching.read.columns, *assigned.columns)}
    read = tuple(column for column in schema.columns if column.id in wanted)
    return dataclasses.replace(matching, read=dataclasses.replace(schema, columns=read))


def _updated(
    committer: Committer, head: Snapshot, found: list[Block], assigned: Assignments
) -> Iterator[pa.Table]:
    for block in found:
        yield assigned.apply(load_block(committer.metadata.store, block, head.schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignments:
    """New values of columns."""

    columns: tuple[Column, ...]
    values: tuple[pa.Scalar, ...]

    def differ(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return for each row whether a column has another value than the new one."""
        parts = [
            _differs(rows.column(column.name), value)
            for column, value in zip(self.columns, self.values, strict=True)
        ]
        return reduce(pc.or_, parts)

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return `rows` with the new values."""
        for column, value in zip(self.columns, self.values, strict=True):
            at = rows.column_names.index(column.name)
            rows = rows.set_column(at, rows.schema.field(at), _repeated(value, len(rows)))
        return rows


def _repeated(value: pa.Scalar, count: int) -> pa.Array:
    if pa.types.is_nested(value.type):
        # Arrow's own way makes the parts of a null struct null, also those that must not be.
        return pa.array([value.as_py()] * count, value.type)
    return pa.repeat(value, count)


def assignments(schema: Schema, values: Mapping[str, object]) -> Assignments:
    """Return the new values of columns, as the columns' types.

    Raises:
        InvalidInputError: there is no such column, or its type cannot hold the value.
    """
    given: object = values
    if not isinstance(given, Mapping) or not given:
        raise InvalidInputError(
            'values names the columns to set, and their new values, such as {"a": 1}', values=values
        )
    check_not_hidden(map(str, values))
    columns = project(schema, list(values)).columns
    if len(columns) < len(values):
        raise InvalidInputError("a column is named twice", columns=list(values))
    fields = arrow_schema(dataclasses.replace(schema, columns=columns))
    scalars = [_scalar(field, value) for field, value in zip(fields, values.values(), strict=True)]
    row = pa.Table.from_arrays([_repeated(value, 1) for value in scalars], schema=fields)
    adapt(row, columns, dataclasses.replace(schema, columns=columns))  # raises for null parts
    return Assignments(columns=columns, values=tuple(scalars))


def _check_not_key(head: Snapshot, assigned: Assignments) -> None:
    """Raise if a column of the key gets a new value: several rows could then have one key."""
    of_events = () if head.sequence is None else head.sequence.keys
    for column in assigned.columns:
        if head.sequence is not None and is_computed(column.name):
            raise InvalidInputError(
                "the table makes this column of its events: send other events", column=column.name
            )
        if column.id in {*head.key, *of_events}:
            raise InvalidInputError(
                "a column of the key cannot be updated: delete the row, and upsert it with its new "
                "key",
                column=column.name,
            )


def _scalar(field: pa.Field, value: object) -> pa.Scalar:
    plain = value.as_py() if isinstance(value, pa.Scalar) else value
    if plain is None and not field.nullable:
        raise InvalidInputError("the column cannot be null", column=field.name)
    try:
        found = pa.scalar(plain, field.type)
        is_kept = _is_kept(plain, found.as_py())
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _misfit(field, value) from error
    if not is_kept:
        raise _misfit(field, value)
    return found


def _misfit(field: pa.Field, value: object) -> InvalidInputError:
    is_time = pa.types.is_timestamp(field.type)
    return InvalidInputError(
        "a value does not fit its column"
        + ("; a time needs a zone if the column has one, and else none" if is_time else ""),
        column=field.name,
        type=str(field.type),
        value=repr(value)[:100],
    )


def _is_kept(value: object, stored: object) -> bool:
    """True if a column's type holds a value as it is; a float may lose digits."""
    if isinstance(value, dict) and isinstance(stored, dict):
        return value.keys() == stored.keys() and all(
            _is_kept(value[name], stored[name]) for name in value
        )
    if isinstance(value, list | tuple) and isinstance(stored, list | tuple):
        return len(value) == len(stored) and all(map(_is_kept, value, stored))
    if isinstance(stored, float):
        return not isinstance(value, bool) and isinstance(value, int | float)
    return (type(value) is not bool and value == stored) or value is stored


def _differs(column: pa.ChunkedArray, value: pa.Scalar) -> pa.ChunkedArray | pa.Array:
    if not value.is_valid:
        return pc.is_valid(column)
    if pa.types.is_nested(column.type):
        return pc.or_(pc.is_valid(column), pc.is_null(column))  # Arrow compares no nested values
    if pa.types.is_floating(column.type) and math.isnan(value.as_py()):
        same = pc.is_nan(column)
    else:
        same = pc.equal(column, value)
    return pc.invert(pc.fill_null(same, fill_value=False))
