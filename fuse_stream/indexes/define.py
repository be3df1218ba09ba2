"""Create, drop and list the indexes of a branch.

Rules:
- A commit `index` is planned again on every head: it changes the list that it finds there. So no
  two of them conflict, and no other writer is in the way or waits.
- The list is one object. If it is lost, no index can be read; `drop_index` without a name starts
  anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from fuse_stream.commit.committer import Committer
from fuse_stream.commit.plan import Intent, NothingToDoError, Staged
from fuse_stream.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
)
from fuse_stream.format.indexes import (
    AGGREGATE,
    MAX_INDEXES,
    IndexDefinition,
    IndexList,
    IndexPart,
    is_index_name,
)
from fuse_stream.format.names import nearest
from fuse_stream.format.one_line import one_line
from fuse_stream.format.private import private_leaves
from fuse_stream.format.properties import block_target
from fuse_stream.format.records import Block, Operation, Snapshot
from fuse_stream.indexes.spec import Aggregate, bind
from fuse_stream.indexes.sql import parse_aggregate
from fuse_stream.objects.indexes import load_index_list, store_index_list
from fuse_stream.objects.slots import Stored
from fuse_stream.objects.snapshot_blocks import iter_blocks

Change = Callable[[Snapshot, IndexList], IndexList]
"""Returns the list of indexes that follows a head's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """An index of a branch, and what it covers of the newest snapshot."""

    name: str
    kind: str
    """`"aggregate"`."""
    sql: str
    created_us: int
    covered_blocks: int
    """Blocks of the newest snapshot whose rows need not be read."""
    block_count: int
    """All blocks of that snapshot. Small ones are not covered, nor those with deleted rows."""
    part_count: int
    byte_size: int
    """Stored bytes of all its parts."""

    __repr__ = one_line("name kind covered_blocks block_count part_count byte_size")


def create_aggregate(committer: Committer, name: str, sql: str) -> Snapshot:
    """Define an aggregate; arguments and errors of `Table.create_aggregate`."""
    index_id, now_us = committer.metadata.clock.new_id(), committer.metadata.clock.now_us()
    _check_name(name)

    def change(head: Snapshot, indexes: IndexList) -> IndexList:
        if indexes.find(name) is not None:
            raise AlreadyExistsError(
                "there is an index of this name; drop it, or use another name", name=name
            )
        if len(indexes.definitions) >= MAX_INDEXES:
            raise InvalidInputError("a table has no more indexes; drop one", most=MAX_INDEXES)
        columns = parse_aggregate(sql, head.schema)
        _check_private(head, bind(columns, head.schema))
        definition = IndexDefinition(
            id=index_id, name=name, kind=AGGREGATE, sql=sql, columns=columns, created_us=now_us
        )
        definitions = sorted((*indexes.definitions, definition), key=lambda one: one.name)
        return dataclasses.replace(indexes, definitions=tuple(definitions))

    return commit_indexes(committer, change, f"create aggregate {name}")


def drop_index(committer: Committer, name: str | None) -> Snapshot:
    """Drop one index or all; arguments and errors of `Table.drop_index`."""
    if name is None:
        return _drop_all(committer)

    def change(_head: Snapshot, indexes: IndexList) -> IndexList:
        dropped = get_definition(indexes, name)
        return dataclasses.replace(
            indexes,
            definitions=tuple(one for one in indexes.definitions if one is not dropped),
            parts=tuple(part for part in indexes.parts if part.index != dropped.id),
        )

    return commit_indexes(committer, change, f"drop index {name}")


def _drop_all(committer: Committer) -> Snapshot:
    def stage(on: Stored, _before: Staged | None) -> Staged:
        if on.snapshot.index_list is None:
            raise NotFoundError("the table has no index")
        return Staged(schema=on.snapshot.schema, is_for_one_head=True)

    intent = Intent(operation=Operation.INDEX, message="drop all indexes")
    return committer.commit(intent, stage).stored.snapshot


def index_states(committer: Committer) -> tuple[IndexState, ...]:
    """Return the indexes of the head; errors of `Table.indexes`."""
    head = committer.head().snapshot
    indexes = load_index_list(committer.metadata, head.index_list)
    if not indexes.definitions:
        return ()
    blocks = list(iter_blocks(committer.metadata, head))
    found = []
    for definition in indexes.definitions:
        parts = indexes.parts_of(definition)
        covered = covered_by(usable_parts(parts, definition, head))
        found.append(
            IndexState(
                name=definition.name,
                kind=definition.kind,
                sql=definition.sql,
                created_us=definition.created_us,
                covered_blocks=sum(
                    block.id in covered and block.hidden is None for block in blocks
                ),
                block_count=len(blocks),
                part_count=len(parts),
                byte_size=sum(part.byte_size for part in parts),
            )
        )
    return tuple(found)


def get_definition(indexes: IndexList, name: str) -> IndexDefinition:
    """Return the definition of an index.

    Raises:
        NotFoundError: there is none of this name; names the nearest one.
    """
    found = indexes.find(name)
    if found is None:
        known = [one.name for one in indexes.definitions]
        raise NotFoundError(
            "the table has no such index; create it with Table.create_aggregate",
            name=name,
            nearest=nearest(str(name), known),
            indexes=known,
        )
    return found


def usable_parts(
    parts: tuple[IndexPart, ...], definition: IndexDefinition, snapshot: Snapshot
) -> tuple[IndexPart, ...]:
    """Return the parts whose types are those of a snapshot; none if it lacks a column."""
    types = {column.id: column.type for column in snapshot.schema.columns}
    wanted = tuple(types.get(column, "") for column in definition.column_ids)
    return tuple(part for part in parts if part.types == wanted)


def covered_by(parts: tuple[IndexPart, ...]) -> dict[str, IndexPart]:
    """Return the part that covers each block, by block id. Of two parts, the first one counts."""
    found: dict[str, IndexPart] = {}
    for part in parts:
        for block_id in part.blocks:
            found.setdefault(block_id, part)
    return found


def can_cover(block: Block, head: Snapshot) -> bool:
    """True if an index of a branch is to cover a block of its head."""
    return block.hidden is None and block_target(head.properties).is_perfect(block)


def private_columns(aggregate: Aggregate, head: Snapshot) -> list[str]:
    """Return the names of private columns whose values the states of an aggregate would hold."""
    private = private_leaves(head.schema, head.properties)
    return [
        one.column.name
        for one in aggregate.columns
        if one.column is not None and one.column.id in private and one.shown.holds_values
    ]


def commit_indexes(committer: Committer, change: Change, message: str) -> Snapshot:
    """Commit a change of the list of indexes, on whatever head, and return the snapshot.

    Raises:
        NothingToDoError: the change returns the list that it gets.
        CorruptObjectError: the list of the head is missing or damaged.
    """

    def stage(on: Stored, _before: Staged | None) -> Staged:
        head = on.snapshot
        before = load_index_list(committer.metadata, head.index_list)
        after = change(head, before)
        if after == before:
            raise NothingToDoError
        return Staged(
            schema=head.schema,
            index_list=store_index_list(committer.metadata, after),
            is_for_one_head=True,
        )

    intent = Intent(operation=Operation.INDEX, message=message)
    return committer.commit(intent, stage).stored.snapshot


def _check_private(head: Snapshot, aggregate: Aggregate) -> None:
    if names := private_columns(aggregate, head):
        raise InvalidInputError(
            "an aggregate would keep values of a private column (fuse.private) outside of blocks; "
            "leave it out, or only count it",
            columns=names,
        )


def _check_name(name: str) -> None:
    if not is_index_name(name):
        raise InvalidInputError(
            "the name of an index has up to 100 letters, digits, dots, dashes and underscores, "
            "and begins with none of the dots and dashes",
            name=name,
        )
