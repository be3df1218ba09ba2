"""Take each rule of deleted rows out: then rows are lost, come back, or are counted wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import pytest

from fuse_stream.dml.find import RowFinder
from fuse_stream.errors import FuseError
from fuse_stream.format.features import DELETION_FILES
from fuse_stream.format.positions import BlockRows, Positions
from fuse_stream.format.records import (
    Block,
    DeletionFileRef,
    Operation,
    Snapshot,
)
from fuse_stream.recovery.target import Goal
from fuse_stream.table.handle import Table
from fuse_stream.testing.memory import MemoryStore
from fuse_stream.testing.model import assert_sound, rows_of
from tests.dml.two_writers import Act, interleavings, made, opened, rows, serial
from tests.recovery.histories import rewind


def sorted_by_key() -> MemoryStore:
    store = made(cluster_by=["k"])
    opened(store, 3).set_properties({"fuse.cluster.depth": "1"})
    return store


@dataclass(frozen=True)
class Meeting:
    """Shown by two writers that meet; the effect is that of the order in which they landed."""

    first: Act
    second: Act
    base: Callable[[], MemoryStore] = made

    def __call__(self) -> None:
        base, acts = self.base(), (self.first, self.second)
        for end in interleavings(base, *acts):
            errors = [one for one in end.results if isinstance(one, BaseException)]
            for error in errors:
                raise error
            expected = [serial(base, *(acts[at] for at in order)) for order in orders_of(end.order)]
            assert end.rows in expected, end.schedule


def orders_of(landed: list[int]) -> list[tuple[int, ...]]:
    """Return the orders that the landed commits allow; one that did nothing fits anywhere."""
    found = [(0, 1), (1, 0)]
    return [order for order in found if list(order) == landed or len(landed) < 2]


@dataclass(frozen=True)
class Alone:
    """Shown by one writer."""

    act: Act

    def __call__(self) -> None:
        store = made()
        self.act(opened(store, 3))
        table = opened(store, 4)
        assert_sound(store, table)
        rows_of(table.to_arrow())


def delete(where: str) -> Act:
    return lambda table: table.delete(where)


def compact(table: Table) -> object:
    return table.compact()


def back_to(version: int) -> Act:
    return lambda table: rewind(table.committer, Goal(version=version), replan=True).snapshot


# ---- the code without a rule


def with_hidden_rows(prune: Callable[..., Iterator[Block]]) -> Callable[..., Iterator[Block]]:
    """Find rows whether they are hidden or not."""
    return lambda *args: (block.hiding(None) for block in prune(*args))


def among(known: Callable[[dict[str, Block], Block], Block | None]) -> Callable[[Any], object]:
    """Find, on any but the first head, what `known` returns for the blocks of the first one."""

    def without_rule(find: Callable[..., list[Block]]) -> Callable[..., list[Block]]:
        first: dict[int, dict[str, Block]] = {}

        def instead(self: RowFinder, *args: Any) -> list[Block]:
            found = find(self, *args)
            if id(self) not in first:
                kept.append(self)  # its id is not used again
                first[id(self)] = {block.id: block for block in found}
                return found
            chosen = (known(first[id(self)], block) for block in found)
            return [block for block in chosen if block is not None]

        kept: list[RowFinder] = []
        return instead

    return without_rule


def in_old_blocks(first: dict[str, Block], block: Block) -> Block | None:
    return block if block.id in first else None


def in_known_rows(first: dict[str, Block], block: Block) -> Block | None:
    """Return the rows of a known block that were found on the first head, and are still shown."""
    if block.id not in first:
        return block
    rows = first[block.id].shown & block.shown
    return block.showing(rows) if rows else None


def with_all_files(stage_hidden: Callable[..., Any]) -> Callable[..., object]:
    def instead(
        metadata: Any, head: Snapshot, *, leaving: object, hidden: BlockRows
    ) -> tuple[DeletionFileRef, ...]:
        new: tuple[DeletionFileRef, ...] = stage_hidden(
            metadata, dataclasses.replace(head, deletion_files=()), leaving=(), hidden=hidden
        )
        return (*head.deletion_files, *new)

    return instead


def unsorted(find_moved: Callable[..., dict[str, Positions]]) -> Callable[..., object]:
    """Leave the sort of the rewritten rows out."""

    def instead(store: object, schema: object, group: Any, rows: BlockRows) -> object:
        outputs = tuple(dataclasses.replace(block, cluster_stats=None) for block in group.outputs)
        return find_moved(store, schema, dataclasses.replace(group, outputs=outputs), rows)

    return instead


def with_files_kept(next_snapshot: Callable[..., Snapshot]) -> Callable[..., Snapshot]:
    def instead(head: Snapshot, *args: Any, **options: Any) -> Snapshot:
        new = next_snapshot(head, *args, **options)
        if new.operation is not Operation.OVERWRITE:
            return new
        summary = dataclasses.replace(new.summary, row_count=new.stored_rows - head.hidden_rows)
        return dataclasses.replace(
            new,
            deletion_files=head.deletion_files,
            required_features=tuple(sorted({*new.required_features, DELETION_FILES})),
            summary=summary,
        )

    return instead


def always(instead: object) -> Callable[[Any], object]:
    return lambda _rule: instead


RULES: dict[str, tuple[str, Callable[[Any], object], Callable[[], None]]] = {
    "positions hidden meanwhile are not hidden twice": (
        "dml.find:prune",
        with_hidden_rows,
        Meeting(delete("k IN (1, 4)"), delete("k IN (1, 6)")),
    ),
    "blocks that came are searched": (
        "dml.find:RowFinder.find",
        among(in_old_blocks),
        Meeting(delete("k IN (1, 4)"), lambda table: table.append(rows(1, 7))),
    ),
    "blocks of which rows came back are searched": (
        "dml.find:RowFinder.find",
        among(in_known_rows),
        Meeting(delete("k IN (1, 2, 3)"), back_to(3)),
    ),
    "no deletion file names a block that is gone": (
        "commit.replace:stage_hidden",
        with_all_files,
        Alone(compact),
    ),
    "rows hidden during a compaction are hidden in its outputs": (
        "commit.replace:find_moved",
        always(lambda *_: {}),
        Meeting(delete("k IN (1, 4)"), compact),
    ),
    "rows hidden during a rewrite that sorts are hidden where they are now": (
        "commit.replace:find_moved",
        unsorted,
        Meeting(delete("k IN (1, 4)"), lambda table: table.recluster(), base=sorted_by_key),
    ),
    "a group whose folded row is shown again is dropped": (
        "commit.replace:_shows_again",
        always(lambda *_: False),
        Meeting(compact, back_to(4)),
    ),
    "an overwrite drops the deletion files": (
        "commit.committer:next_snapshot",
        with_files_kept,
        Alone(lambda table: table.overwrite(rows(1, 2, 3, 4))),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_some_row_is_wrong(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, instead, shown = RULES[rule]
    path = f"fuse_stream.{place}"
    monkeypatch.setattr(path.replace(":", "."), instead(resolve_name(path)))

    with pytest.raises((AssertionError, FuseError)):
        shown()


@pytest.mark.parametrize("rule", RULES)
def test_with_the_rule_all_rows_are_right(rule: str) -> None:
    RULES[rule][2]()
