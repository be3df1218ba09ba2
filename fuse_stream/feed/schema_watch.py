"""How far a stream can see: up to the newest version that has its schema.

A stream is loaded with one schema. Commits up to that version are read in it, those of other
schemas with nulls and widening (`views`); the first commit after it has another schema, and ends
the stream. If that commit takes columns away, as a rewind does, it is still delivered: the rows
that it removes have the stream's columns, which a stream that is loaded anew has no more.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from fuse_stream.errors import InvalidInputError, SchemaChangedError
from fuse_stream.feed.views import Request, Views, select_columns
from fuse_stream.format.schema import Column, Schema
from fuse_stream.reading.history import History
from fuse_stream.reading.scan import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The last version that the stream's schema reaches, and how the stream reads up to it."""

    version: int
    views: Views

    @property
    def selection(self) -> Selection:
        """How the stream reads its own schema."""
        return self.views.selection


class Watch:
    """Looks out for the end of a stream's schema. Remembers how far it has seen."""

    def __init__(self, request: Request, columns: tuple[Column, ...] | None) -> None:
        """Watch for `columns`, by name and type; None where any schema will do."""
        self._request = request
        self._columns = columns
        self._sight: Sight | None = None
        self._views: dict[Schema, Views | None] = {}

    def look(self, history: History, oldest: int) -> Sight:
        """Return how far the stream's schema reaches, not looking back past `oldest`.

        That is the newest version with it, not the last in a row, since a schema that came back is
        read on; or the one after it, if that only takes columns away.

        Raises:
            SchemaChangedError: no version has the stream's schema.
        """
        sight = self._newest(history, oldest)
        after = sight.version + 1
        if after <= history.head.snapshot.version:
            schema = history.load(after).snapshot.schema
            if not sight.views.misfits(schema):
                return dataclasses.replace(sight, version=after)
        return sight

    def _newest(self, history: History, oldest: int) -> Sight:
        known = self._sight
        oldest = known.version + 1 if known else max(oldest, history.floor)
        for stored in history.iter_back(oldest):
            views = self._find(stored.snapshot.schema)
            if views is not None:
                self._sight = Sight(version=stored.snapshot.version, views=views)
                return self._sight
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

    def changed_after(self, sight: Sight, history: History) -> SchemaChangedError:
        """Return the error that names the first commit out of sight."""
        version = sight.version + 1
        new = history.load(version).snapshot.schema
        with contextlib.suppress(InvalidInputError):  # a column that was asked for may be gone
            new = select_columns(self._request, new).schema
        return SchemaChangedError(
            "the table's schema changed; all before this commit is delivered. Load the stream "
            "anew and start it with the same checkpoint: it goes on with the new schema",
            version=version,
            difference=schema_difference(sight.selection.schema.columns, new.columns),
        )

    def _find(self, schema: Schema) -> Views | None:
        """Return how the stream reads from `schema` on if that gives it its columns, else None."""
        if schema not in self._views:
            self._views[schema] = self._found(schema)
        return self._views[schema]

    def _found(self, schema: Schema) -> Views | None:
        try:
            selection = select_columns(self._request, schema)
        except InvalidInputError:
            return None  # it lacks a column that was asked for
        if self._columns is None or _shape(selection.schema.columns) == _shape(self._columns):
            return Views(self._request, selection)
        return None


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
