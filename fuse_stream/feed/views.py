"""The options of a stream's reader, and how it reads each schema that the branch has had.

Rows are read with the schema of the snapshot in which they were visible: its columns are found by
id. Then they are converted to the reader's columns by name: widened, and null where that schema has
no such column. So what a commit delivers follows from that commit and the reader's columns, and not
from the columns that the table had before or after.

A stream is loaded with one schema. It reads the commits up to the newest version with that schema.
The first commit after that version has another schema, and ends the stream. If that commit only
drops columns, as a rewind does, it is still delivered: the rows that it removes have the stream's
columns, which a stream that is loaded again would no longer have.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fuse_stream.errors import InvalidInputError, SchemaChangedError
from fuse_stream.format.evolve import completed, unreadable, with_ids_of
from fuse_stream.format.layout import MAIN
from fuse_stream.format.names_in_files import clashes
from fuse_stream.format.schema import Column, Schema
from fuse_stream.reading.history import History
from fuse_stream.reading.line import Line
from fuse_stream.reading.scan import Selection, select, select_matches

LATEST: Literal["latest"] = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that one batch may hold; None means no limit."""

    rows: int | None = None
    bytes: int | None = None
    """The stored size of the blocks."""
    commits: int | None = None
    """A first full read counts as one commit; a commit that changes no row does not count."""


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of a stream's reader."""

    branch: str = MAIN
    feed: Literal["changes", "append", "upserts", "blocks"] = "changes"
    columns: tuple[str, ...] | None = None
    where: str | None = None
    time_zone: str = "UTC"
    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: str | None = None
    after_version: int | None = None
    """As if the stream had read everything through this version, which is in the history."""
    ending_version: int | None = None
    ending_timestamp: str | None = None
    skip_change_commits: bool = False
    is_history: bool = False
    """True to deliver every commit, also one that was undone before the reader came to it."""
    limits: Limits = NO_LIMITS
    consumer: str | None = None
    """The consumer whose lease keeps what the stream has yet to read."""
    on_expired: Literal["fail", "resync"] = "fail"
    """What to do if commits that the stream has yet to read have expired after a lost lease."""


def select_columns(request: Request, schema: Schema) -> Selection:
    """Return the selection of a stream on a table with `schema`; raises what `select` raises."""
    return select(schema, columns=request.columns, where=request.where, time_zone=request.time_zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How a reader reads the blocks of one schema."""

    selection: Selection
    """The reader's columns, with that schema's ids."""
    sent: Selection | None
    """`selection` without what only planning needs; None if it is the reader's own selection."""


class Views:
    """A reader's views of the schemas that a branch has had; each is made once."""

    def __init__(
        self, request: Request, selection: Selection, *, are_checked: bool = False
    ) -> None:
        """Read the columns of `selection`: that of `request` for the reader's own schema.

        With `are_checked`, no name of a column is known to mean another column in a schema.
        """
        self.selection = selection
        self._are_checked = are_checked
        self._request = request
        self._views: dict[Schema, View] = {}

    def find(self, schema: Schema, *, version: int) -> View:
        """Return the view of `schema`, the schema of the rows that commit `version` changed.

        Raises:
            SchemaChangedError: the reader's columns cannot hold those rows; names `version`.
        """
        if schema not in self._views:
            misfits = self.misfits(schema)
            if misfits:
                raise _unreadable(version, misfits)
            try:
                selection = self._selection(schema)
            except InvalidInputError as error:  # the predicate does not fit this schema's columns
                raise _unreadable(version, [f"where: {error}"]) from error
            is_same = selection == self.selection
            sent = None if is_same else dataclasses.replace(selection, leaf_ids={})
            self._views[schema] = View(
                selection=self.selection if is_same else selection, sent=sent
            )
        return self._views[schema]

    def misfits(self, schema: Schema) -> list[str]:
        """Return a line of text for each column of `schema` that the reader's cannot hold."""
        if self._is_of_blocks:
            return []
        lines = list(unreadable(self._wanted(schema), self.selection.schema.columns))
        lines += self._clashes(schema)
        present = {column.name.casefold(): column for column in schema.columns}
        exact = set(schema.names())
        for column in self._looked_at():
            other = present.get(column.name.casefold())
            if other is not None and column.name not in exact:
                lines.append(f"+ {other.name} {other.type}")
        return lines

    def _clashes(self, schema: Schema) -> list[str]:
        """Return a line for each of the reader's columns that has another name in `schema`.

        Also for each whose name is that of another column there.
        """
        if self._are_checked:
            return []
        known = {column.id for column in self.selection.read.columns}
        names = {column.name for column in self.selection.read.columns}
        seen = (one for one in schema.columns if one.id in known or one.name in names)
        return clashes(self.selection.read, dataclasses.replace(schema, columns=tuple(seen)))

    @property
    def _is_of_blocks(self) -> bool:
        """True if the feed is `blocks`: only the reader's predicate reads columns."""
        return self._request.feed == "blocks"

    def _selection(self, schema: Schema) -> Selection:
        request = self._request
        new_id = iter(range(schema.last_column_id + 1, 1_000_000_000)).__next__
        columns: tuple[Column, ...] = ()
        if not self._is_of_blocks:
            columns = with_ids_of(schema.columns, self.selection.schema.columns, new_id)
            columns = _unlike_files(columns, schema)
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
        """Return the reader's columns, those of `schema`, and those that the predicate needs.

        A column that only the predicate reads keeps the type that it has in `schema`.
        """
        names = {column.name for column in columns}
        others = (column for column in schema.columns if column.name not in names)
        return (*columns, *_unlike_files(completed(others, self._looked_at(), new_id), schema))

    def _looked_at(self) -> Iterator[Column]:
        """Yield the columns that only the reader's predicate reads."""
        chosen = set() if self._is_of_blocks else set(self.selection.schema.names())
        return (column for column in self.selection.read.columns if column.name not in chosen)

    def _wanted(self, schema: Schema) -> tuple[Column, ...]:
        """Return the requested columns that `schema` has."""
        names = self._request.columns
        if names is None:
            return schema.visible.columns
        exact = {column.name: column for column in schema.columns}
        folded = {column.name.casefold(): column for column in schema.columns}
        own = set(self.selection.schema.names())
        found = (
            # A name that is spelled exactly as a column of the reader matches no other spelling.
            exact.get(name) or (None if name in own else folded.get(name.casefold()))
            for name in names
        )
        return tuple(dict.fromkeys(column for column in found if column is not None))


def _unlike_files(columns: tuple[Column, ...], schema: Schema) -> tuple[Column, ...]:
    """Return columns of which files with `schema` lack some, with names for these that none has."""
    if not schema.has_stored_names:
        return columns
    return tuple(
        dataclasses.replace(column, stored=f"{column.name}__{column.id}")
        if column.id > schema.last_column_id
        else dataclasses.replace(column, children=_unlike_files(column.children, schema))
        for column in columns
    )


def _unreadable(version: int, misfits: list[str]) -> SchemaChangedError:
    return SchemaChangedError(
        "a commit has columns or types that this read does not, and reading on would lose values; "
        "all commits before it are delivered. If the table has them now, load it again. If not, "
        "name all columns but those in `difference` (option `columns`); or, if a type is narrower "
        "now (~), widen it again (Table.append of no rows, with merge_schema), and load it again",
        version=version,
        difference=misfits,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaReach:
    """The last version that a stream can read with its schema, and how it reads up to there."""

    last_version: int
    line: Line
    """The line that the last version is on."""
    views: Views

    @property
    def selection(self) -> Selection:
        """How the stream reads rows of its own schema."""
        return self.views.selection


class SchemaTracker:
    """Finds the last version that a stream can read with its schema; caches what it has read."""

    def __init__(self, request: Request, columns: tuple[Column, ...] | None) -> None:
        """Track `columns`, by name and type; None if the stream can read any schema."""
        self._request = request
        self._columns = columns
        self._reach: SchemaReach | None = None
        self._views: dict[Schema, Views | None] = {}

    def get_reach(
        self, history: History, *lines: Line, since: int | None, end: int = -1
    ) -> SchemaReach:
        """Return the last version of a line that the stream can read.

        That is the newest version with the stream's schema, even if versions before it have
        another one; or the version after it, if that only drops columns. The version at which the
        lines start counts. The first line on which the stream can read up to `end` is taken.

        `since` is the version that the stream has delivered; None if it has delivered nothing.

        Raises:
            SchemaChangedError: none of these versions has the stream's schema; or a column has the
                name that another column had at `since`.
        """
        reach = self._get_reach(history, lines, end)
        if since is not None and history.head.snapshot.schema.has_stored_names:
            _check_same_columns(reach, history, max(since, history.floor))
        return reach

    def _get_reach(self, history: History, lines: Sequence[Line], end: int) -> SchemaReach:
        known, start = self._reach, lines[0].start
        first: SchemaReach | None = None
        for line in lines:
            reach = self._find_reach(history, line)
            if reach is not None and reach.last_version >= end:
                return reach
            first = first or reach
        if first is not None:
            return first
        if known is not None and known.last_version <= start:
            # The stream has delivered the version where its schema ended.
            return SchemaReach(last_version=start, line=lines[0], views=known.views)
        raise SchemaChangedError(
            "no version of the table since the stream's position has the stream's schema; load "
            "the stream again and restart it",
            stream=[f"{column.name} {column.type}" for column in self._columns or ()],
            table=[
                f"{column.name} {column.type}" for column in history.head.snapshot.schema.columns
            ],
        )

    def _find_reach(self, history: History, line: Line) -> SchemaReach | None:
        known = self._reach
        for version in itertools.chain(line.iter_back(), (line.start,)):
            if version < history.floor:
                break
            if known is not None and known.last_version == version:
                return self._reaching(known.views, version, line, history)
            views = self._find_views(history.load(version).snapshot.schema)
            if views is not None:
                return self._reaching(views, version, line, history)
        return None

    def _reaching(self, views: Views, version: int, line: Line, history: History) -> SchemaReach:
        """Return the reach whose newest version with the stream's schema is `version`."""
        self._reach = reach = SchemaReach(last_version=version, line=line, views=views)
        after = line.find_after(version)
        if after is None or views.misfits(history.load(after).snapshot.schema):
            return reach
        return dataclasses.replace(reach, last_version=after)

    def changed_after(self, reach: SchemaReach, history: History) -> SchemaChangedError:
        """Return the error that names the first commit after `reach`."""
        version = reach.line.find_after(reach.last_version)
        assert version is not None
        new = history.load(version).snapshot.schema
        with contextlib.suppress(InvalidInputError):  # a requested column may be gone
            new = select_columns(self._request, new).schema
        return SchemaChangedError(
            "the table's schema changed; all commits before this one are delivered. Load the "
            "stream again and start it with the same checkpoint: it continues with the new schema",
            version=version,
            difference=schema_difference(reach.selection.schema.columns, new.columns),
        )

    def _find_views(self, schema: Schema) -> Views | None:
        """Return the stream's views if `schema` has exactly the stream's columns; else None."""
        if schema not in self._views:
            self._views[schema] = None
            with contextlib.suppress(InvalidInputError):  # `schema` may lack a requested column
                found, own = select_columns(self._request, schema), self._columns
                if own is None or _shape(found.schema.columns) == _shape(own):
                    self._views[schema] = Views(self._request, found)
        return self._views[schema]


def _check_same_columns(reach: SchemaReach, history: History, since: int) -> None:
    """Raise if a name of the stream's columns was another column's at the version `since`.

    A column under a new name is the same: the stream was loaded again with it.
    """
    before = history.load(since).snapshot.schema
    if lines := list(_exchanged(before.columns, reach.selection.read.columns, "")):
        raise SchemaChangedError(
            "a column of the stream has the name that another column had, which was renamed or "
            "dropped; all commits before that are delivered. Start a new checkpoint at a later "
            "version (startingVersion), or leave the column out (option `columns`)",
            since=since,
            version=reach.last_version,
            difference=lines,
        )


def _exchanged(before: Iterable[Column], now: Iterable[Column], path: str) -> Iterator[str]:
    """Yield one line of text for each name of a column of `now` that was given again."""
    before = tuple(before)
    by_name, by_id = ({one.name: one for one in before}, {one.id: one for one in before})
    for column in now:
        name, same_name = f"{path}{column.name}", by_name.get(column.name)
        if same_name is not None and same_name.id != column.id:
            yield f"~ {name}: another column"
        elif column.id in by_id:
            yield from _exchanged(by_id[column.id].children, column.children, f"{name}.")
        elif column.stored is not None:  # its name in files was taken
            yield f"~ {name}: another column"


def schema_difference(old: Iterable[Column], new: Iterable[Column], path: str = "") -> list[str]:
    """Return one line of text for each difference between two lists of columns."""
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
    """Return names, types and nullability, without the ids, which Spark does not keep."""
    return tuple(
        (column.name, column.type, column.nullable, _shape(column.children)) for column in columns
    )
