"""The rows to erase, as one predicate over every schema that the table has had.

Rules:
- A version without a column of the predicate has null in it, as a reader of a newer version sees.
- A side has the columns of the predicate under the same names; the quarantine has them inside its
  events. Where it lacks one, no row of it can be judged. Markers without a key are never sought.
- A value is looked for in bounds where it stands for rows: if the predicate compares a column with
  it by `=` or `IN`, or if it names one column alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from fuse_stream.dml.event_sides import BY_HAND, OF_KEY, OP
from fuse_stream.erasure.quarantined import RAW, QuarantineTest, inside
from fuse_stream.erasure.traces import Given, Path
from fuse_stream.errors import InvalidInputError
from fuse_stream.format.arrow import arrow_schema
from fuse_stream.format.hidden_columns import KIND
from fuse_stream.format.records import ColumnStats, KeyRange, Value
from fuse_stream.format.schema import Column, Schema
from fuse_stream.format.sides import SideName
from fuse_stream.format.stats import bounds_of_one
from fuse_stream.predicate.bound import (
    Bound,
    BoundAnd,
    BoundColumn,
    BoundCompare,
    BoundConstant,
    BoundNot,
    BoundOneOf,
    BoundOr,
)
from fuse_stream.predicate.evaluate import filter_mask
from fuse_stream.predicate.parse import parse_where
from fuse_stream.predicate.tree import Op, Predicate
from fuse_stream.reading.scan import Selection, select_matches

Keeps = Callable[[pa.Table], pa.Array | pa.ChunkedArray]

ROWS = ""
"""The name of the list of the table's own rows, beside those of its sides."""
_NOTHING = BoundConstant(value=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTest:
    """How the sought rows of one list are told from the others."""

    selection: Selection
    """The columns to read, and the predicate; without one, `keeps` alone decides."""
    keeps: Keeps | None = None
    """True for each row that may be erased, of those that match the predicate."""
    unjudged: Keeps | None = None
    """True for each row of which the predicate cannot say whether it is sought."""


class Sought:
    """The predicate of an erasure, bound to one schema after another."""

    def __init__(
        self, where: str, schema: Schema, *, time_zone: str = "UTC", name: str = ROWS
    ) -> None:
        """Bind `where` to `schema`, that of the newest snapshot; for the list of rows `name`.

        Raises:
            InvalidInputError: an unknown column, or a broken predicate.
        """
        self.where = where
        self.schema = schema
        self._name = name
        self._time_zone = time_zone
        self._selections: dict[Schema, Selection] = {}
        self._sides: dict[str, Sought] = {}
        table = self if name == ROWS else Sought(where, schema, time_zone=time_zone)
        self._of_table = table
        self.given = tuple(_given(table.matches(schema).predicate))

    def of(self, name: str) -> Sought:
        """Return the same rows in another list: the table's own, or a side's."""
        if name == self._name:
            return self
        if name not in self._sides:
            self._sides[name] = Sought(
                self.where, self.schema, time_zone=self._time_zone, name=name
            )
        return self._sides[name]

    def matches(self, schema: Schema) -> Selection:
        """Return the selection of the rows, without columns, of a list with `schema`.

        Of a side without a column of the predicate nothing matches: it cannot be judged.
        """
        known = self._selections.get(schema)
        if known is None:
            known = self._selections[schema] = self._bound(schema)
        return known

    def can_judge(self, schema: Schema) -> bool:
        """True if a side with `schema` has the columns of the predicate."""
        return self.matches(schema).predicate != _NOTHING

    def _bound(self, schema: Schema) -> Selection:
        where: str | Predicate = self.where
        if self._name == SideName.QUARANTINE:
            where = inside(parse_where(self.where))
        try:
            return select_matches(schema, where, time_zone=self._time_zone)
        except InvalidInputError:
            if self._name != ROWS:
                nothing = dataclasses.replace(schema, columns=())
                return Selection(schema=nothing, read=nothing, predicate=_NOTHING)
            if schema == self.schema:
                raise
            wide = _with_columns_of(schema, self.schema)
            return select_matches(wide, where, time_zone=self._time_zone)

    def test(self, schema: Schema) -> RowTest:
        """Return how to find the rows in a list with `schema`."""
        selection = self.matches(schema)
        match self._name:
            case SideName.TOMBSTONES if self.can_judge(schema) and KIND in schema.names():
                return RowTest(selection=_reading(selection, schema, KIND), keeps=_is_of_key)
            case SideName.QUARANTINE if {OP, RAW}.issubset(schema.names()):
                selection = _reading(selection, schema, OP, RAW)
                events = QuarantineTest(
                    predicate=selection.predicate,
                    can_judge=self.can_judge(schema),
                    texts=self._of_table.matches(self.schema).predicate,
                )
                return RowTest(
                    selection=dataclasses.replace(selection, predicate=None),
                    keeps=events.matching,
                    unjudged=events.unjudged,
                )
        return RowTest(selection=selection)

    def shows(self, schema: Schema, stats: Mapping[int, ColumnStats]) -> tuple[str, ...]:
        """Return the names of the columns of which a bound may be a value of the rows."""
        tests = self._tests(schema)
        return tuple(
            ".".join(test.path)
            for column, test in tests.items()
            if (item := stats.get(column)) is not None
            and (test.is_shown(item.min) or test.is_shown(item.max))
        )

    def ranges(self, schema: Schema, key_range: KeyRange | None) -> tuple[str, ...]:
        """Return the names of the columns of which a key range may show a value of the rows."""
        if key_range is None:
            return ()
        bounds = zip(key_range.columns, key_range.min, key_range.max, strict=True)
        stats = {
            column: ColumnStats(min=low, max=high, null_count=0, in_memory_size=0)
            for column, low, high in bounds
        }
        return self.shows(schema, stats)

    def _tests(self, schema: Schema) -> dict[int, _BoundTest]:
        predicate = self.matches(schema).predicate
        if predicate is None:
            return {}
        columns = {column.path: column for column in _columns(predicate)}
        given: dict[Path, set[Value | None]] = {}
        for item in _given(predicate):
            given.setdefault(item.path, set()).update((item.value, *bounds_of_one(item.value)))
        only = next(iter(columns.values())) if len(columns) == 1 else None
        ids = schema.bounded_ids
        return {
            ids[path]: _BoundTest(
                path=path,
                given=frozenset(given.get(path, ())),
                predicate=predicate if only is not None else None,
                field=_field(schema, path),
            )
            for path in columns
            if path in ids
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _BoundTest:
    """Decides whether a bound of one column may be a value of the sought rows."""

    path: Path
    given: frozenset[Value | None]
    predicate: Bound | None
    """The predicate, if it names this column alone."""
    field: pa.Field

    def is_shown(self, bound: Value | None) -> bool:
        if bound is None:
            return False
        if bound in self.given:
            return True
        return self.predicate is not None and self._matches(self.predicate, bound)

    def _matches(self, predicate: Bound, bound: Value) -> bool:
        kind = self.field.type
        if pa.types.is_timestamp(kind):
            values = pa.array([bound], pa.int64()).cast(kind)
        elif pa.types.is_date(kind):
            values = pa.array([bound], pa.int32()).cast(kind)
        else:
            values = pa.array([bound], kind)
        for name in reversed(self.path[1:]):
            values = pa.StructArray.from_arrays([values], [name])
        row = pa.Table.from_arrays([values], [self.path[0]])
        return filter_mask(predicate, row)[0].as_py() is True


def _reading(selection: Selection, schema: Schema, *names: str) -> Selection:
    """Return a selection that reads some columns, too."""
    wanted = {*selection.read.names(), *names}
    read = tuple(column for column in schema.columns if column.name in wanted)
    return dataclasses.replace(selection, read=dataclasses.replace(schema, columns=read))


def _is_of_key(tombstones: pa.Table) -> pa.ChunkedArray:
    """True for the tombstones that have a key."""
    return pc.is_in(tombstones.column(KIND), value_set=pa.array([OF_KEY, BY_HAND]))


def _field(schema: Schema, path: Path) -> pa.Field:
    field = arrow_schema(schema).field(schema.names().index(path[0]))
    for name in path[1:]:
        field = field.type.field(field.type.get_field_index(name))
    return field


def _with_columns_of(schema: Schema, other: Schema) -> Schema:
    """Return `schema` with the columns that only `other` has.

    A column of the same id and name is that of `other`, which may have more fields. The others get
    ids that no block has, so they are null in every row.
    """
    known = {(column.id, column.name): column for column in other.columns}
    own = tuple(known.get((column.id, column.name), column) for column in schema.columns)
    names = {column.name for column in own}
    last = max(schema.last_column_id, other.last_column_id)
    added: list[Column] = []
    for column in other.columns:
        if column.name not in names:
            renumbered, last = _renumbered(column, last)
            added.append(dataclasses.replace(renumbered, nullable=True))
    return dataclasses.replace(schema, columns=(*own, *added), last_column_id=last)


def _renumbered(column: Column, last: int) -> tuple[Column, int]:
    own = last = last + 1
    children: list[Column] = []
    for child in column.children:
        renumbered, last = _renumbered(child, last)
        children.append(renumbered)
    # The parts stay as they are: the key of a map is never nullable.
    return dataclasses.replace(column, id=own, children=tuple(children)), last


def _given(predicate: Bound | None) -> Iterator[Given]:
    match predicate:
        case BoundAnd(operands=operands) | BoundOr(operands=operands):
            for operand in operands:
                yield from _given(operand)
        case BoundCompare(column=column, op=Op.EQ, value=value):
            yield Given(path=column.path, value=value)
        case BoundOneOf(column=column, values=values):
            yield from (Given(path=column.path, value=value) for value in values)


def _columns(predicate: Bound) -> Iterator[BoundColumn]:
    match predicate:
        case BoundConstant():
            return
        case BoundNot(operand=operand):
            yield from _columns(operand)
        case BoundAnd(operands=operands) | BoundOr(operands=operands):
            for operand in operands:
                yield from _columns(operand)
        case _:
            yield predicate.column
