"""Change the columns of a table: several changes, one commit.

Rules:
- Nothing is rewritten: a new column is null in the rows that are there, values of a narrower type
  are widened as they are read, and a column keeps its name in files.
- A column is set NOT NULL only if the statistics of every block show that it has no null.
- Each change is checked when it is made, and again for the head of the commit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

import pyarrow as pa

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Intent, NothingToDoError, Staged
from fuse_stream.errors import ConflictError, InvalidInputError, SchemaMismatchError
from fuse_stream.format import alter_schema
from fuse_stream.format.arrow import columns_of_arrow
from fuse_stream.format.properties import BLOOM, PRIVATE, listed_names
from fuse_stream.format.records import Operation, Snapshot
from fuse_stream.format.schema import PRIMITIVES, Column, Schema, decimal_of
from fuse_stream.objects.indexes import check_dropped_columns
from fuse_stream.objects.slots import Metadata, Stored
from fuse_stream.objects.snapshot_blocks import iter_blocks

Edit = Callable[[Schema], Schema]
ColumnType: TypeAlias = "pa.DataType | str"


class SchemaUpdate:
    """Changes of a table's columns, committed together when its `with` block ends."""

    def __init__(
        self, committer: Committer, *, replan: bool, message: str = "", author: str = ""
    ) -> None:
        """Collect changes for the head of now; callers use `Table.update_schema`."""
        self._committer = committer
        self._replan = replan
        self._message = message
        self._author = author
        self._base = committer.head().snapshot
        self._edits: list[Edit] = []
        self._lines: list[str] = []
        self.schema: Schema = self._base.schema
        """The columns after the changes so far."""
        self.snapshot: Snapshot | None = None
        """The snapshot of the commit; None before it, and if nothing changed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()

    # ---- changes

    def add_column(
        self,
        path: str | Sequence[str],
        type: ColumnType | Column,  # noqa: A002 - PyIceberg's word
        *,
        comment: str | None = None,
        first: bool = False,
        after: str | None = None,
    ) -> Self:
        """Add a column, which is null in the rows that are there.

        Args:
            path: its name; or, for a field of a struct, the names from the top column down, as a
                tuple or with dots between. In an array the struct is `element`, in a map `value`.
            type: a pyarrow type, or the name of one of the format's types without parts.
            comment: a text about the column.
            first: True to put it before the other columns of its level.
            after: the column of its level behind which it is put; behind all if not given.

        Raises:
            AlreadyExistsError: the table has a column of this name.
            NotFoundError: there is no such struct, or no column `after`.
            InvalidInputError: the name or the type is not valid.
            UnsupportedTypeError: the format does not have the type.
        """
        column = type if isinstance(type, Column) else _column(type)
        column = dataclasses.replace(column, comment=comment or column.comment)

        def edit(schema: Schema) -> Schema:
            names = alter_schema.path_of(schema, path)
            return alter_schema.add_column(schema, names, column, first=first, after=after)

        return self._do(edit, f"add column {_text(path)}")

    def rename_column(self, path: str | Sequence[str], name: str) -> Self:
        """Give a column another name; the rows that are there have it under this name, too.

        Raises:
            NotFoundError: there is no such column.
            AlreadyExistsError: the table has a column of this name.
            InvalidInputError: the name is not valid.
        """

        def edit(schema: Schema) -> Schema:
            return alter_schema.rename_column(schema, alter_schema.path_of(schema, path), name)

        return self._do(edit, f"rename column {_text(path)} to {name}")

    def delete_column(self, path: str | Sequence[str]) -> Self:
        """Drop a column; older versions keep it, and compaction removes its values from files.

        Raises:
            NotFoundError: there is no such column.
            InvalidInputError: it is in the cluster key, in the key of the rows or in an index, it
                has Bloom filters, or it is the last one.
        """

        def edit(schema: Schema) -> Schema:
            return alter_schema.delete_column(schema, alter_schema.path_of(schema, path))

        return self._do(edit, f"drop column {_text(path)}")

    def move_first(self, path: str | Sequence[str]) -> Self:
        """Put a column before the others of its level; raises NotFoundError without it."""

        def edit(schema: Schema) -> Schema:
            names = alter_schema.path_of(schema, path)
            return alter_schema.move_column(schema, names, first=True)

        return self._do(edit, f"move column {_text(path)}")

    def move_after(self, path: str | Sequence[str], after: str) -> Self:
        """Put a column behind another one of its level; raises NotFoundError without the two."""

        def edit(schema: Schema) -> Schema:
            names = alter_schema.path_of(schema, path)
            return alter_schema.move_column(schema, names, after=after)

        return self._do(edit, f"move column {_text(path)}")

    def move_before(self, path: str | Sequence[str], before: str) -> Self:
        """Put a column before another one of its level; raises NotFoundError without the two."""

        def edit(schema: Schema) -> Schema:
            names = alter_schema.path_of(schema, path)
            return alter_schema.move_column(schema, names, before=before)

        return self._do(edit, f"move column {_text(path)}")

    def update_column(
        self,
        path: str | Sequence[str],
        *,
        type: ColumnType | None = None,  # noqa: A002 - PyIceberg's word
        nullable: bool | None = None,
        comment: str | None = None,
    ) -> Self:
        """Change a column's type to a wider one, whether it may be null, or its comment.

        Args:
            path: the column, as for `add_column`.
            type: a type that has every value of the present one.
            nullable: False only for a column that is not nested, and whose statistics show that no
                row has a null in it; rows that were deleted count, until compaction.
            comment: a text about the column; an empty one removes the comment.

        Raises:
            NotFoundError: there is no such column.
            InvalidInputError: the type is no wider one, or a row has a null.
            UnsupportedTypeError: the format does not have the type.
        """
        type_name = None if type is None else _column(type).type

        def edit(schema: Schema) -> Schema:
            return alter_schema.update_column(
                schema,
                alter_schema.path_of(schema, path),
                type=type_name,
                nullable=nullable,
                comment=comment,
            )

        said = [f"to {type_name}"] if type_name else []
        said += [] if nullable is None else ["nullable" if nullable else "not null"]
        said += [] if comment is None else ["comment"]
        return self._do(edit, f"change column {_text(path)} {', '.join(said)}".rstrip())

    # ---- the commit

    def commit(self) -> Snapshot | None:
        """Commit the changes, unless there is none; return the snapshot.

        Raises:
            ConflictError: another writer changed the columns meanwhile, or committed first, and
                the changes may not be planned again.
            InvalidInputError: a column may not be dropped, or has nulls.
        """

        def stage(head: Stored, _before: Staged | None) -> Staged:
            return self._staged(head.snapshot)

        intent = Intent(
            operation=Operation.ALTER,
            message=self._message or "; ".join(self._lines),
            author=self._author,
        )
        try:
            outcome = self._committer.commit(intent, stage, replan=self._replan)
        except NothingToDoError:
            return None
        self.snapshot = outcome.stored.snapshot
        return self.snapshot

    def _do(self, edit: Edit, line: str) -> Self:
        schema = edit(self.schema)
        _check(self._base, schema)
        self.schema = schema
        self._edits.append(edit)
        self._lines.append(line)
        return self

    def _staged(self, head: Snapshot) -> Staged:
        if head.schema != self._base.schema and not self._replan:
            raise ConflictError(
                "another writer changed the columns meanwhile; read the table and decide again, or "
                'pass on_conflict="replan"',
                version=head.version,
            )
        schema = head.schema
        for edit in self._edits:
            schema = edit(schema)
        if schema == head.schema:
            raise NothingToDoError
        metadata = self._committer.metadata
        _check(head, schema)
        check_dropped_columns(metadata, head, _dropped(head, schema))
        _check_no_nulls(metadata, head, schema)
        return Staged(
            schema=dataclasses.replace(schema, id=head.schema.id + 1),
            properties=_properties(head, schema),
            is_for_one_head=True,  # a later append may bring nulls
        )


def _column(type_: Any) -> Column:
    """Return a column of a type, which a user gave.

    Raises:
        InvalidInputError: it is none.
    """
    if isinstance(type_, pa.DataType):
        (column,) = columns_of_arrow(pa.schema([pa.field("x", type_)]))
        return column
    if isinstance(type_, str) and (type_ in PRIMITIVES or decimal_of(type_)):
        return Column(id=1, name="x", type=type_)
    raise InvalidInputError(
        "a type is one of pyarrow's, or a name of one without parts",
        type=type_,
        names=[*sorted(PRIMITIVES), "decimal(p,s)"],
    )


def _text(path: str | Sequence[str]) -> str:
    return path if isinstance(path, str) else ".".join(path)


def _dropped(head: Snapshot, schema: Schema) -> dict[int, str]:
    """Return the names of the top columns that a head has and `schema` lacks, by id."""
    left = {column.id for column in schema.columns}
    return {column.id: column.name for column in head.schema.columns if column.id not in left}


def _check(head: Snapshot, schema: Schema) -> None:
    """Raise if the rows of a head do not let its columns change so.

    Raises:
        SchemaMismatchError: the rows come from events, and a change is more than that of a column
            that is added behind the others, of a wider type or of a comment.
        InvalidInputError: a column that the table needs is dropped.
    """
    filtered = listed_names(head.properties.get(BLOOM, ""))
    uses = {
        "the cluster key (cluster_by([]) removes it)": head.cluster_key,
        "the key of the rows (set_key([]) removes it)": head.key,
        f"the property {BLOOM} (set it without the column)": tuple(
            column.id for column in head.schema.columns if column.name in filtered
        ),
    }
    for column, name in _dropped(head, schema).items():
        for use, ids in uses.items():
            if column in ids:
                raise InvalidInputError(
                    f"a column that the table needs cannot be dropped; it is in {use}", column=name
                )
    if head.sequence is not None or head.sides:
        before = list(map(_shape, head.schema.columns))
        if list(map(_shape, schema.columns))[: len(before)] != before:
            raise SchemaMismatchError(
                "the rows of this table come from events, which name their columns: a column can "
                "be added behind the others, get a wider type, or a comment; write the rows to a "
                "new table for other changes"
            )


def _shape(column: Column) -> tuple[object, ...]:
    children = tuple(map(_shape, column.children))
    return column.id, column.name, column.nullable, children


def _check_no_nulls(metadata: Metadata, head: Snapshot, schema: Schema) -> None:
    """Raise InvalidInputError if a column that is set NOT NULL may have a null in a block."""
    before = {column.id: column for column in head.schema.columns}
    strict = {
        column.id: column.name
        for column in schema.columns
        if not column.nullable and (column.id not in before or before[column.id].nullable)
    }
    if not strict:
        return
    for block in iter_blocks(metadata, head):
        for column, name in strict.items():
            stats = block.col_stats.get(column)
            if stats is None or stats.null_count:
                raise InvalidInputError(
                    "a column with nulls cannot be set NOT NULL: update or delete the rows where "
                    "it is null, and compact the table, for deleted rows count until then",
                    column=name,
                    block=block.id,
                    null_count=block.row_count if stats is None else stats.null_count,
                )


def _properties(head: Snapshot, schema: Schema) -> dict[str, str]:
    """Return the properties that name columns, if they must name others now."""
    before = {column.id: column.name for column in head.schema.columns}
    names = {before[one.id]: one.name for one in schema.columns if one.id in before}
    found = {}
    if filtered := listed_names(head.properties.get(BLOOM, "")):
        found[BLOOM] = ",".join(names.get(name, name) for name in filtered)
    if private := listed_names(head.properties.get(PRIVATE, "")):
        # Old names stay: a rewind brings them back.
        also = (names.get(name, name) for name in private)
        found[PRIVATE] = ",".join(dict.fromkeys([*private, *also]))
    return {name: value for name, value in found.items() if value != head.properties.get(name)}
