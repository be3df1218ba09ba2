"""`rewind`, `revert`, `publish` and `rebuild-checkpoint`: going back, and going on from there.

How rewinds, publishes and rebuilt checkpoints look: records -> renderables, and JSON. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from fuse_stream.cli.as_json import Json, log_entry
from fuse_stream.cli.grid import Grid, Heading
from fuse_stream.cli.names import Names
from fuse_stream.cli.options import Target, on_table, writes
from fuse_stream.cli.output import Meter, Output, error_document
from fuse_stream.cli.render import facts_view, log_view, section
from fuse_stream.cli.text import (
    cell,
    count,
    iso,
    plural,
    printable,
    short_id,
    size,
)
from fuse_stream.errors import FuseError
from fuse_stream.format.records import Snapshot
from fuse_stream.recovery.forks import Fork
from fuse_stream.recovery.losses import Dropped, PassedConsumer
from fuse_stream.recovery.publish import Publication
from fuse_stream.recovery.rebuild_checkpoint import RebuiltCheckpoint
from fuse_stream.recovery.rewind import PipelineRewind, Rewind
from fuse_stream.table.verbs import rebuild_checkpoint as rebuild
from fuse_stream.table.verbs import rewind as set_back

Command = Callable[..., Any]

_retire = click.option(
    "--retire",
    multiple=True,
    metavar="APP",
    help="An application that is given up knowingly; repeatable.",
)
_replan = click.option(
    "--on-conflict",
    type=click.Choice(["error", "replan"]),
    default="error",
    show_default=True,
    help="If another writer commits in between: give up, or look again.",
)


def _described(command: Command) -> Command:
    """Add `--message` and `--author`."""
    author = click.option("--author", default="", metavar="NAME", help="Shown by the log.")
    message = click.option("--message", "-m", default="", metavar="TEXT", help="Shown by the log.")
    return message(author(command))


@click.command()
@on_table
@click.argument("others", nargs=-1, metavar="[PATH]...")
@click.option("--version", metavar="VERSION", help="Back to this version, tag or id; or")
@click.option("--timestamp", metavar="TIME", help="to the last one at or before this time; or")
@click.option(
    "--after-batch",
    type=click.IntRange(min=0),
    metavar="N",
    help="to the last one before any writer of the application stood past this batch.",
)
@click.option("--app-id", metavar="APP", help='Whose batch that is; "default" if left out.')
@click.option(
    "--checkpoint",
    "checkpoints",
    nargs=2,
    multiple=True,
    metavar="OLD NEW",
    help="Fork the checkpoint OLD into the new folder NEW; repeatable.",
)
@_retire
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
@_replan
@_described
@writes
def rewind(
    target: Target,
    *,
    others: tuple[str, ...],
    checkpoints: tuple[tuple[str, str], ...],
    dry_run: bool,
    **options: Any,
) -> int:
    """Set the table, its ledger and the checkpoints of its streams back.

    Stop the queries first. Each query that has committed since then goes on from a fork of its
    checkpoint: start it with NEW as its checkpointLocation. A command that died half way is
    finished by the same command.

    Name all tables that a query writes: they share its checkpoint and go back to the same batch.
    The version, the time or the batch is that of the first one.

    \b
    Example:
      fuse-stream rewind /lake/flights --after-batch 41 --checkpoint /ckpt/a /ckpt/b --dry-run
      fuse-stream rewind /lake/flights /lake/delays --after-batch 41 --checkpoint /ckpt/a /ckpt/b
      fuse-stream rewind /lake/flights --version good-run --retire nightly

    With --dry-run the exit code is 1 if something stands in the way.

    With --json: path, branch, target (as in log), snapshot (as in log, or null), dropped
    (application, writer, query_id, first_batch, last_batch, rows), forks (old, new, applications,
    old_query_id, query_id, batches, reruns, state, file_count, byte_size), retired, deleted_rows,
    inserted_rows, consumers that have read past the target (consumer, version, is_live,
    deleted_rows, inserted_rows), obstacles (class, message, context). Of several tables: branch,
    tables (path, target, snapshot, dropped, retired, deleted_rows, inserted_rows, consumers),
    forks, obstacles.
    """  # noqa: D301 - click's mark for lines to keep
    output = target.output
    paths = [target.path, *others]
    if len(dict(checkpoints)) < len(checkpoints):
        raise click.BadParameter("a checkpoint was named twice; it can be forked once in one call")
    with output.progress("looking") as meter:
        done = set_back(
            paths,
            checkpoints=dict(checkpoints),
            dry_run=dry_run,
            progress=_told(meter),
            **target.keywords,
            **options,
        )
    if target.json:
        obstacles = [error_document(error)["error"] for error in done.obstacles]
        document = rewind_document(done, paths)
        output.show_json({"branch": target.branch, **document, "obstacles": obstacles})
    else:
        output.show(*rewind_view(done, paths))
        _advise(output, dry_run=dry_run, forks=len(done.forks), obstacles=len(done.obstacles))
    return int(bool(done.obstacles))


@click.command()
@on_table
@click.argument("version")
@_replan
@_described
@writes
def revert(target: Target, *, version: str, **options: Any) -> None:
    """Undo one commit, VERSION, as a new commit.

    Its rows go, and those that it removed return. The ledger stays: a batch that is undone is not
    delivered again.

    \b
    Example:
      fuse-stream revert /lake/flights 12 -m "the files of the 3rd were wrong"

    With --json: path, branch, reverted, snapshot (as in log).
    """  # noqa: D301 - the same
    table = target.open()
    undone = table.snapshot(version)
    before = table.head()
    snapshot = table.revert(version, **options)
    change = snapshot.summary.row_count - before.summary.row_count
    if target.json:
        place = {"path": target.path, "branch": target.branch, "reverted": undone.version}
        target.output.show_json({**place, "snapshot": log_entry(snapshot, change)})
        return
    target.output.show(
        f"version {snapshot.version} undoes version {undone.version} ({undone.operation}): "
        f"{change:+,} rows"
    )


@click.command()
@on_table
@click.argument("source")
@click.option(
    "--expected-head",
    type=click.IntRange(min=0),
    metavar="N",
    help="Replace this head, where the branch has moved since the fork.",
)
@_retire
@_replan
@_described
@writes
def publish(target: Target, *, source: str, **options: Any) -> None:
    """Give the branch the content and the ledger of the branch SOURCE, as one snapshot.

    SOURCE must have forked off the branch's head; else --expected-head names the head that it
    replaces. Merging two lines that have both moved is not offered. Stop the queries that write to
    SOURCE first: what they commit there afterwards is not in this branch.

    \b
    Example:
      fuse-stream publish /lake/flights rehearsal

    With --json: path, branch, source, snapshot, source_head, lost (each as in log).
    """  # noqa: D301 - the same
    done = target.open().publish(source, **options)
    if target.json:
        place = {"path": target.path, "branch": target.branch, "source": source}
        target.output.show_json({**place, **publication_document(done)})
        return
    target.output.show(*publication_view(done, source, target.output.width))
    target.output.note(
        f"start its queries with branch={target.branch!r} from now on, on the same checkpoints"
    )


@click.command("rebuild-checkpoint")
@on_table
@click.argument("new_checkpoint")
@click.option(
    "--also",
    "others",
    multiple=True,
    metavar="PATH",
    help="Another table that the query writes; repeatable.",
)
@click.option("--app-id", default="default", show_default=True, metavar="APP", help="Whose it was.")
@click.option("--version", metavar="VERSION", help="Whose ledger tells; else the newest.")
@click.option("--survivors", metavar="OLD", help="What is left of the old checkpoint.")
@writes
def rebuild_checkpoint(target: Target, *, others: tuple[str, ...], **options: Any) -> None:
    """Make the lost checkpoint of a query again, in the folder NEW_CHECKPOINT.

    For queries without state, from the source offsets in the ledger: Kafka and fuse; the file and
    rate sources if their folders in the old checkpoint's `sources` survive. The last batch runs
    again. Name all tables that the query writes: one may hold a batch that another one lacks.

    \b
    Example:
      fuse-stream rebuild-checkpoint /lake/flights /ckpt/again --survivors /ckpt/broken
      fuse-stream rebuild-checkpoint /lake/flights /ckpt/again --also /lake/delays

    With --json: path, checkpoint, query_id, batch_id, adopt.
    """  # noqa: D301 - the same
    paths = [target.path, *others]
    made = rebuild(paths, **target.keywords, **options)
    if target.json:
        target.output.show_json({"path": target.path, **rebuilt_document(made)})
    else:
        target.output.show(*rebuilt_view(made))


def _told(meter: Meter) -> Callable[[str, int, int], None]:
    def tell(what: str, done: int, total: int) -> None:
        meter.say(what, done, total)

    return tell


def _advise(output: Output, *, dry_run: bool, forks: int, obstacles: int) -> None:
    if obstacles:
        output.note(f"nothing was done: {plural(obstacles, 'obstacle')}")
    elif dry_run:
        output.note("nothing was done; leave out --dry-run to do it")
    elif forks:
        output.note("start each query again with its new folder as the checkpointLocation")


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
