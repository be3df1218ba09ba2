"""How rewinds, publishes and rebuilt checkpoints look: records -> renderables, and JSON. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from fuse_stream.cli.as_json import Json, log_entry
from fuse_stream.cli.grid import Grid, Heading
from fuse_stream.cli.names import Names
from fuse_stream.cli.render import facts_view, log_view, section
from fuse_stream.cli.text import cell, count, iso, plural, printable, short_id, size
from fuse_stream.errors import FuseError
from fuse_stream.format.records import Snapshot
from fuse_stream.recovery.departed import Dropped
from fuse_stream.recovery.forks import Fork
from fuse_stream.recovery.passed import PassedConsumer
from fuse_stream.recovery.publish import Publication
from fuse_stream.recovery.rebuilt import RebuiltCheckpoint
from fuse_stream.recovery.rewind import PipelineRewind, Rewind


def rewind_view(done: PipelineRewind, paths: Sequence[str]) -> list[RenderableType]:
    """Return what a rewind of the tables at `paths` did, or would do."""
    parts: list[RenderableType] = []
    for path, table in zip(paths, done.tables, strict=True):
        of_table = _table_view(table)
        parts += section(printable(path), Group(*of_table)) if len(paths) > 1 else of_table
    for fork in done.forks:
        parts += section("fork", facts_view(_fork_facts(fork)))
    if done.obstacles:
        parts += section("in the way", Group(*(_obstacle(error) for error in done.obstacles)))
    return parts


def _table_view(done: Rewind) -> list[RenderableType]:
    target = done.target
    facts = {
        "back to": Text(
            f"version {target.version}, {target.operation}, {iso(target.timestamp_us)}"
            if target
            else "set back by an earlier call; that version has expired since"
        ),
        "as": Text(f"version {done.snapshot.version}" if done.snapshot else ""),
        "rows": Text(count(target.summary.row_count) if target else ""),
        "followers get": Text(_sent(done) if target else ""),
        "given up": Text(", ".join(printable(name) for name in done.retired)),
    }
    parts: list[RenderableType] = [facts_view({name: text for name, text in facts.items() if text})]
    if done.dropped:
        parts += section("no longer in the table", _dropped_grid(done.dropped).table())
    if done.consumers:
        parts += section("consumers that have read past it", _passed_grid(done.consumers).table())
    return parts


def rewind_document(done: PipelineRewind, paths: Sequence[str]) -> Json:
    """Return a rewind of the tables at `paths` as JSON values, its obstacles left out."""
    forks = {"forks": [dataclasses.asdict(fork) for fork in done.forks]}
    tables = [
        {"path": path, **_table_document(table)}
        for path, table in zip(paths, done.tables, strict=True)
    ]
    return {**(tables[0] if len(tables) == 1 else {"tables": tables}), **forks}


def _table_document(done: Rewind) -> Json:
    return {
        "target": _entry(done.target),  # null: an earlier call's, and expired since
        "snapshot": _entry(done.snapshot),
        "dropped": [dataclasses.asdict(item) for item in done.dropped],
        "retired": list(done.retired),
        "deleted_rows": done.deleted_rows,
        "inserted_rows": done.inserted_rows,
        "consumers": [dataclasses.asdict(item) for item in done.consumers],
    }


def publication_view(done: Publication, branch: str, width: int | None) -> list[RenderableType]:
    """Return what a publish did."""
    rows = plural(done.snapshot.summary.row_count, "row")
    source = f"{branch}@{done.source.version}"
    parts: list[RenderableType] = [
        f"version {done.snapshot.version} holds what {source} does: {rows}"
    ]
    if done.lost:
        lines = [(snapshot, None) for snapshot in done.lost]
        parts += section("lost to this branch", log_view(lines, Names(), width))
    return parts


def publication_document(done: Publication) -> Json:
    """Return a publish as JSON values."""
    return {
        "snapshot": _entry(done.snapshot),
        "source_head": _entry(done.source),
        "lost": [_entry(snapshot) for snapshot in done.lost],
    }


def rebuilt_view(made: RebuiltCheckpoint) -> list[RenderableType]:
    """Return what a checkpoint that was made again holds."""
    facts = {
        "checkpoint": Text(printable(made.checkpoint)),
        "query": Text(made.query_id),
        "runs again": Text(f"batch {made.batch_id}"),
        "its sink needs": Text(f'adopt="{made.adopt}"' if made.adopt else ""),
    }
    return [facts_view({name: text for name, text in facts.items() if text})]


def rebuilt_document(made: RebuiltCheckpoint) -> Json:
    """Return the same as JSON values."""
    return dataclasses.asdict(made)


def _entry(snapshot: Snapshot | None) -> Json | None:
    return None if snapshot is None else log_entry(snapshot, None)


def _sent(done: Rewind) -> str:
    return _undoing(done.deleted_rows, done.inserted_rows)


def _undoing(deleted: int, inserted: int) -> str:
    at_most = "at most " if deleted and inserted else ""
    return f"{at_most}{plural(deleted, 'row')} deleted, {count(inserted)} inserted"


def _dropped_grid(dropped: tuple[Dropped, ...]) -> Grid:
    headings = (
        Heading(text="application"),
        Heading(text="writer"),
        Heading(text="batches"),
        Heading(text="rows", right=True),
        Heading(text="query"),
    )
    rows = [
        [
            Text(printable(item.application)),
            Text(printable(item.writer)),
            Text(
                str(item.first_batch)
                if item.first_batch == item.last_batch
                else f"{item.first_batch} to {item.last_batch}"
            ),
            Text(count(item.rows)),
            Text(short_id(item.query_id or "")),
        ]
        for item in dropped
    ]
    return Grid(headings=headings, rows=rows).without_empty()


def _passed_grid(consumers: tuple[PassedConsumer, ...]) -> Grid:
    headings = (
        Heading(text="consumer"),
        Heading(text="has read", right=True),
        Heading(text="is sent"),
        Heading(text="lease"),
    )
    rows = [
        [
            Text(printable(item.consumer), style="bold"),
            Text(str(item.version)),
            Text(
                f"{plural(item.deleted_rows, 'row')} deleted, {count(item.inserted_rows)} inserted"
            ),
            Text("lives" if item.is_live else "lapsed"),
        ]
        for item in consumers
    ]
    return Grid(headings=headings, rows=rows)


def _fork_facts(fork: Fork) -> dict[str, Text]:
    held = f"{fork.batches[0]} to {fork.batches[-1]}" if fork.batches else "none: from scratch"
    facts = {
        "of": Text(printable(fork.old)),
        "in": Text(printable(fork.new), style="bold"),
        "applications": Text(", ".join(printable(name) for name in fork.applications)),
        "query": Text(f"{short_id(fork.old_query_id)} goes on as {short_id(fork.query_id)}"),
        "batches": Text(held),
        "runs again": Text("" if fork.reruns is None else f"batch {fork.reruns}"),
        "state": Text(fork.state.value),
        "files": Text(f"{count(fork.file_count)}, {size(fork.byte_size)}"),
    }
    return {name: text for name, text in facts.items() if text}


def _obstacle(error: FuseError) -> Text:
    text = Text(f"{type(error).__name__}: ", style="bold red")
    text.append(printable(error.message), style="default")
    for name, value in error.context.items():
        if value is not None:
            text.append(f"\n  {name}: ", style="dim").append(cell(value))
    return text
