"""What a reader asks of a branch, and its columns over all schemas that the branch has had.

Rows are read with the schema of the snapshot in which they were visible: its columns are found by
id. Then they are brought to the reader's columns by name: widened, and null where that schema has
no such column. So what a commit delivers follows from that commit and the reader's columns, and not
from the columns that the table has had before or after.

A stream is loaded with one schema. Commits up to the newest version with that schema are read so.
The first commit after it has another schema, and ends the stream. If that commit takes columns
away, as a rewind does, it is still delivered: the rows that it removes have the stream's columns,
and a stream that is loaded anew no longer has them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from fuse_stream.errors import InvalidInputError, SchemaChangedError
from fuse_stream.format.evolve import added, unreadable, with_ids_of
from fuse_stream.format.layout import MAIN
from fuse_stream.format.schema import Column, Schema
from fuse_stream.reading.history import History
from fuse_stream.reading.scan import Selection, select, select_matches

LATEST: Literal["latest"] = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that one batch takes; None is no limit."""

    rows: int | None = None
    bytes: int | None = None
    """Of blocks as stored."""
    commits: int | None = None
    """A first full read counts as one; a commit that changes no row does not count."""


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a stream's reader asked for."""

    branch: str = MAIN
    feed: Literal["changes", "append", "blocks"] = "changes"
    columns: tuple[str, ...] | None = None
    where: str | None = None
    time_zone: str = "UTC"
    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: str | None = None
    ending_version: int | None = None
    ending_timestamp: str | None = None
    skip_change_commits: bool = False
    limits: Limits = NO_LIMITS
    consumer: str | None = None
    """Whose lease keeps what the stream has yet to read."""
    on_expired: Literal["fail", "resync"] = "fail"
    """What is done where the lease was lost, and with it what the stream had yet to read."""


def select_columns(request: Request, schema: Schema) -> Selection:
    """Return what a stream reads of a table with `schema`; errors of `select`."""
    return select(schema, columns=request.columns, where=request.where, time_zone=request.time_zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How a reader reads the blocks of one schema."""

    selection: Selection
    """The reader's columns, with the ids of that schema."""
    sent: Selection | None
    """The same without what only planning needs; None where it is the reader's own selection."""


class Views:
    """A reader's views of the schemas that it meets; each is made once."""

    def __init__(self, request: Request, selection: Selection) -> None:
        """Read as `selection` does, which `select_columns` made of `request` for one schema."""
        self.selection = selection
        self._request = request
        self._views: dict[Schema, View] = {}

    def find(self, schema: Schema, *, version: int) -> View:
        """Return the view of `schema`, which the rows of a commit were visible in.

        Raises:
            SchemaChangedError: the reader's columns cannot hold those rows; names `version`.
        """
        if schema not in self._views:
            lines = self.misfits(schema)
            if lines:
                raise _unreadable(version, lines)
            try:
                self._views[schema] = self._view(schema)
            except InvalidInputError as error:  # the predicate does not fit this schema's columns
                raise _unreadable(version, [f"where: {error}"]) from error
        return self._views[schema]

    def misfits(self, schema: Schema) -> list[str]:
        """Return why rows of `schema` cannot be read in the reader's columns; none if they can."""
        if self._is_of_blocks:
            return []
        lines = list(unreadable(self._wanted(schema), self.selection.schema.columns))
        present = {column.name.casefold(): column for column in schema.columns}
        exact = set(schema.names())
        for column in self._looked_at():
            other = present.get(column.name.casefold())
            if other is not None and column.name not in exact:
                lines.append(f"+ {other.name} {other.type}")
        return lines

    @property
    def _is_of_blocks(self) -> bool:
        """Whether the reader is sent no column of the table: only its predicate is."""
        return self._request.feed == "blocks"

    def _view(self, schema: Schema) -> View:
        selection = self._selection(schema)
        if selection == self.selection:
            return View(selection=self.selection, sent=None)
        return View(selection=selection, sent=dataclasses.replace(selection, leaf_ids={}))

    def _selection(self, schema: Schema) -> Selection:
        request = self._request
        new_id = iter(range(schema.last_column_id + 1, 1_000_000_000)).__next__
        columns: tuple[Column, ...] = ()
        if not self._is_of_blocks:
            columns = with_ids_of(schema.columns, self.selection.schema.columns, new_id)
        seen = dataclasses.replace(schema, columns=columns)
        if request.where is None:
            return Selection(schema=seen, read=seen)
        full = dataclasses.replace(schema, columns=self._completed(schema, columns, new_id))
        if self._is_of_blocks:
            return select_matches(full, request.where, time_zone=request.time_zone)
        return select(full, columns=seen.names(), where=request.where, time_zone=request.time_zone)

    def _completed(
        self, schema: Schema, columns: tuple[Column, ...], new_id: Callable[[], int]
    ) -> tuple[Column, ...]:
        """Return the reader's columns, those of `schema`, and those that its predicate needs.

        A column that only the predicate looks at keeps the type that `schema` gives it.
        """
        names = {column.name for column in columns}
        others = tuple(column for column in schema.columns if column.name not in names)
        names.update(schema.names())
        lacking = (column for column in self._looked_at() if column.name not in names)
        return (*columns, *others, *(added(column, new_id) for column in lacking))

    def _looked_at(self) -> Iterator[Column]:
        """Yield the columns that only the reader's predicate looks at."""
        chosen = set() if self._is_of_blocks else set(self.selection.schema.names())
        return (column for column in self.selection.read.columns if column.name not in chosen)

    def _wanted(self, schema: Schema) -> tuple[Column, ...]:
        """Return the columns of `schema` that were asked for, as far as it has them."""
        names = self._request.columns
        if names is None:
            return schema.columns
        exact = {column.name: column for column in schema.columns}
        folded = {column.name.casefold(): column for column in schema.columns}
        own = set(self.selection.schema.names())
        found = (
            # A name that the reader's columns spell the same way means no other spelling.
            exact.get(name) or (None if name in own else folded.get(name.casefold()))
            for name in names
        )
        return tuple(dict.fromkeys(column for column in found if column is not None))


def _unreadable(version: int, lines: list[str]) -> SchemaChangedError:
    return SchemaChangedError(
        "a commit has columns that this read does not: all before it is delivered, and to go on "
        "would drop their values. If the table has these columns now, load it anew; if not, name "
        "the columns to read (option `columns`), and the others are left out of every commit",
        version=version,
        difference=lines,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaReach:
    """The last version that a stream's schema reaches, and how the stream reads up to it."""

    version: int
    views: Views

    @property
    def selection(self) -> Selection:
        """How the stream reads its own schema."""
        return self.views.selection


class SchemaTracker:
    """Looks out for the end of a stream's schema. Remembers how far it has seen."""

    def __init__(self, request: Request, columns: tuple[Column, ...] | None) -> None:
        """SchemaTracker for `columns`, by name and type; None where any schema will do."""
        self._request = request
        self._columns = columns
        self._reach: SchemaReach | None = None
        self._views: dict[Schema, Views | None] = {}

    def look(self, history: History, oldest: int) -> SchemaReach:
        """Return how far the stream's schema reaches, not looking back past `oldest`.

        That is the newest version with it, not the last in a row, since a schema that came back is
        read on; or the one after it, if that only takes columns away.

        Raises:
            SchemaChangedError: no version has the stream's schema.
        """
        reach = self._newest(history, oldest)
        after = reach.version + 1
        if after <= history.head.snapshot.version:
            schema = history.load(after).snapshot.schema
            if not reach.views.misfits(schema):
                return dataclasses.replace(reach, version=after)
        return reach

    def _newest(self, history: History, oldest: int) -> SchemaReach:
        known = self._reach
        oldest = known.version + 1 if known else max(oldest, history.floor)
        for stored in history.iter_back(oldest):
            views = self._find(stored.snapshot.schema)
            if views is not None:
                self._reach = SchemaReach(version=stored.snapshot.version, views=views)
                return self._reach
        if known is None:
            raise SchemaChangedError(
                "the stream's schema is none that the table has had since the place that the "
                "stream has reached; load the stream anew and start it again",
                stream=[f"{column.name} {column.type}" for column in self._columns or ()],
                table=[
                    f"{column.name} {column.type}"
                    for column in history.head.snapshot.schema.columns
                ],
            )
        return known

    def changed_after(self, reach: SchemaReach, history: History) -> SchemaChangedError:
        """Return the error that names the first commit out of reach."""
        version = reach.version + 1
        new = history.load(version).snapshot.schema
        with contextlib.suppress(InvalidInputError):  # a column that was asked for may be gone
            new = select_columns(self._request, new).schema
        return SchemaChangedError(
            "the table's schema changed; all before this commit is delivered. Load the stream "
            "anew and start it with the same checkpoint: it goes on with the new schema",
            version=version,
            difference=schema_difference(reach.selection.schema.columns, new.columns),
        )

    def _find(self, schema: Schema) -> Views | None:
        """Return how the stream reads from `schema` on if that gives it its columns, else None."""
        if schema not in self._views:
            self._views[schema] = None
            with contextlib.suppress(InvalidInputError):  # it may lack a column that was asked for
                found, own = select_columns(self._request, schema), self._columns
                if own is None or _shape(found.schema.columns) == _shape(own):
                    self._views[schema] = Views(self._request, found)
        return self._views[schema]


def schema_difference(old: Iterable[Column], new: Iterable[Column], path: str = "") -> list[str]:
    """Return one line for every way in which `new` differs from `old`."""
    before = {column.name: column for column in old}
    lines = []
    for column in new:
        name, known = f"{path}{column.name}", before.pop(column.name, None)
        if known is None:
            lines.append(f"+ {name} {column.type}")
            continue
        if known.type != column.type:
            lines.append(f"~ {name}: {known.type} -> {column.type}")
        if known.nullable != column.nullable:
            lines.append(f"~ {name}: {'nullable' if column.nullable else 'not nullable'} now")
        lines += schema_difference(known.children, column.children, f"{name}.")
    return lines + [f"- {path}{column.name} {column.type}" for column in before.values()]


def _shape(columns: Iterable[Column]) -> tuple[object, ...]:
    """Return names, types and nullability, without the ids, which Spark does not carry."""
    return tuple(
        (column.name, column.type, column.nullable, _shape(column.children)) for column in columns
    )
