"""`rewind`, `revert`, `publish` and `rebuild-checkpoint`: going back to an earlier version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from fuse_stream.cli.as_json import Json, json_value, log_entry, pick
from fuse_stream.cli.grid import Grid, facts_view, section
from fuse_stream.cli.history import Names
from fuse_stream.cli.log import log_view
from fuse_stream.cli.options import (
    Target,
    WholeNumber,
    also_option,
    described,
    dry_run_option,
    forks_option,
    in_flags,
    on_table,
    writes,
)
from fuse_stream.cli.output import error_text
from fuse_stream.cli.text import count, iso, plural, printable, short_id
from fuse_stream.format.sizes import size
from fuse_stream.recovery.forks import Fork
from fuse_stream.recovery.losses import Dropped, PassedConsumer
from fuse_stream.recovery.result import Rewind
from fuse_stream.recovery.rewind import PipelineRewind
from fuse_stream.table.pipelines import publish as publish_several
from fuse_stream.table.pipelines import rewind as set_back
from fuse_stream.table.verbs import rebuild_checkpoint as rebuild

_retire = click.option(
    "--retire",
    multiple=True,
    metavar="APP",
    help="Retire this application: its queries cannot continue; repeatable.",
)
_replan = click.option(
    "--on-conflict",
    type=click.Choice(["error", "replan"]),
    default="error",
    show_default=True,
    help="If another writer commits meanwhile: stop with an error, or plan again.",
)


@click.command()
@on_table
@click.argument("others", nargs=-1, metavar="[PATH]...")
@click.option("--version", metavar="VERSION", help="Go back to this version, tag or id.")
@click.option(
    "--timestamp", metavar="TIME", help="Go back to the last version at or before this time."
)
@click.option(
    "--after-batch",
    type=WholeNumber(min=0),
    metavar="N",
    help="Go back to the last version without a later batch of the application.",
)
@click.option(
    "--app-id", metavar="APP", help='The application of that batch; "default" if left out.'
)
@forks_option
@_retire
@dry_run_option
@_replan
@described
@writes
def rewind(
    target: Target,
    *,
    others: tuple[str, ...],
    checkpoints: tuple[tuple[str, str], ...],
    dry_run: bool,
    **options: Any,
) -> int:
    """Set tables, their ledgers and the checkpoints of their queries back.

    Stop the queries first. A query that has committed since the target continues from a fork of its
    checkpoint: start it with NEW as its checkpointLocation. If the command is interrupted, run it
    again: it finishes the work.

    Name all tables that a query writes, and all that are made from them, with the checkpoints of
    all their queries: each goes back as far as what it has read. --version, --timestamp and
    --after-batch choose the target in the first table.

    With --dry-run the exit code is 1 if there is an obstacle.

    \b
    Example:
      fuse-stream rewind /lake/flights --after-batch 41 --checkpoint /ckpt/a /ckpt/b --dry-run
      fuse-stream rewind /lake/bronze /lake/silver --after-batch 41 \\
        --checkpoint /ckpt/ingest /ckpt/ingest-2 --checkpoint /ckpt/clean /ckpt/clean-2
      fuse-stream rewind /lake/flights --version good-run --retire nightly
    """  # noqa: D301 - click's mark for lines to keep
    output = target.output
    paths = [target.path, *others]
    if len(dict(checkpoints)) < len(checkpoints):
        raise click.BadParameter("a checkpoint is named twice; name it once, with one new folder")
    named = sum(options[name] is not None for name in ("version", "timestamp", "after_batch"))
    if named != 1:
        one = "only one" if named else "one"
        raise click.UsageError(f"name {one} of --version, --timestamp, --after-batch")
    if options["app_id"] is not None and options["after_batch"] is None:
        raise click.UsageError("leave out --app-id, or use --after-batch")
    with output.progress("looking") as meter:
        done = set_back(
            paths,
            checkpoints=dict(checkpoints),
            dry_run=dry_run,
            progress=meter.say,
            **target.keywords,
            **options,
        )
    if target.json:
        output.show_json({"branch": target.branch, **rewind_document(done, paths)})
    else:
        output.show(*rewind_view(done, paths, output.width))
        output.note(_advice(done, dict(checkpoints), dry_run=dry_run))
    return int(bool(done.obstacles))


@click.command()
@on_table
@click.argument("version")
@_replan
@described
@writes
def revert(target: Target, *, version: str, **options: Any) -> None:
    """Undo one commit, VERSION, as a new commit.

    The rows that it added are removed, and those that it removed return. The ledger stays as it is:
    an undone batch is not delivered again.

    \b
    Example:
      fuse-stream revert /lake/flights 12 -m "the files of the 3rd were wrong"
    """  # noqa: D301 - the same
    table = target.open()
    undone = table.snapshot(version)
    before = table.head()
    snapshot = table.revert(version, **options)
    change = snapshot.summary.row_count - before.summary.row_count
    if target.json:
        target.show_json({"reverted": undone.version, "snapshot": log_entry(snapshot, change)})
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
    "expected_head",
    type=WholeNumber(min=0),
    multiple=True,
    metavar="N",
    help="The head to replace, if the branch has commits since SOURCE forked off; with --also once "
    "for each table, in their order.",
)
@also_option
@_retire
@_replan
@described
@writes
def publish(
    target: Target,
    *,
    source: str,
    expected_head: tuple[int, ...],
    others: tuple[str, ...],
    **options: Any,
) -> None:
    """Give the branch the content and the ledger of the branch SOURCE, as one snapshot.

    SOURCE must have forked off the branch's head; if not, --expected-head names the head that is
    replaced. Two branches that both have new commits are not merged. Stop the queries that write to
    SOURCE first: their later commits there are not in this branch.

    \b
    Example:
      fuse-stream publish /lake/flights rehearsal
      fuse-stream publish /lake/bronze fix --also /lake/silver --also /lake/gold
    """  # noqa: D301 - the same
    paths = [target.path, *others]
    if expected_head and len(expected_head) != len(paths):
        raise click.UsageError("name --expected-head once for each table, or leave it out")
    if others:
        heads = dict(zip(paths, expected_head, strict=False))
        _publish_all(target, paths, source, heads, **options)
        return
    expected = expected_head[0] if expected_head else None
    done = target.open().publish(source, expected_head=expected, **options)
    if target.json:
        target.show_json({"source": source, **pick(done, "snapshot source_head=source lost")})
        return
    rows = plural(done.snapshot.summary.row_count, "row")
    content = f"{source}@{done.source.version}: {rows}"
    target.output.show(f"version {done.snapshot.version} has the content of {content}")
    if done.lost:
        lines = [(snapshot, None) for snapshot in done.lost]
        lost = log_view(lines, Names(), target.output.width)
        target.output.show(*section("lost to this branch", lost))
    target.output.note(
        f"start its queries with branch={target.branch!r} from now on, on the same checkpoints"
    )


def _publish_all(
    target: Target, paths: list[str], source: str, heads: dict[str, int], **options: Any
) -> None:
    done = publish_several(paths, source, expected_head=heads, **target.keywords, **options)
    if target.json:
        keys = "snapshot source_head=source lost"
        tables = [
            {"path": path, **(pick(one, keys) if one else {"snapshot": None})}
            for path, one in zip(paths, done, strict=True)
        ]
        target.show_json({"source": source, "tables": tables})
        return
    rows = [
        (
            Text(printable(path), style="bold"),
            str(one.snapshot.version) if one else "published before",
            count(one.snapshot.summary.row_count) if one else "",
            plural(len(one.lost), "commit") if one and one.lost else "",
        )
        for path, one in zip(paths, done, strict=True)
    ]
    grid = Grid.of("table", ">version", ">rows", "lost to it", rows=rows).without_empty()
    target.output.show(grid.whole(target.output.width))
    target.output.note(
        f"start the queries with branch={target.branch!r} from now on, on the same checkpoints"
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
@click.option(
    "--app-id",
    default="default",
    show_default=True,
    metavar="APP",
    help="The application of the query.",
)
@click.option(
    "--version",
    metavar="VERSION",
    help="Use the ledger of this version; of the newest if left out.",
)
@click.option(
    "--survivors", metavar="OLD", help="The folder with what is left of the old checkpoint."
)
@writes
def rebuild_checkpoint(target: Target, *, others: tuple[str, ...], **options: Any) -> None:
    """Rebuild the lost checkpoint of a query in the folder NEW_CHECKPOINT.

    It is made from the source offsets in the ledger. The query must have no state, and read Kafka
    or fuse sources; or file or rate sources whose folders in the old checkpoint's `sources` still
    exist. The last batch runs again. Name all tables that the query writes: one may have a batch
    that another one lacks.

    \b
    Example:
      fuse-stream rebuild-checkpoint /lake/flights /ckpt/again --survivors /ckpt/broken
      fuse-stream rebuild-checkpoint /lake/flights /ckpt/again --also /lake/delays
    """  # noqa: D301 - the same
    paths = [target.path, *others]
    made = rebuild(paths, **target.keywords, **options)
    if target.json:
        target.show_json(json_value(made), branch=False)
    else:
        facts = {
            "checkpoint": made.checkpoint,
            "query": made.query_id,
            "runs again": f"batch {made.batch_id}",
            "its sink needs": f'adopt="{made.adopt}"' if made.adopt else "",
        }
        target.output.show(facts_view(facts))


def _advice(done: PipelineRewind, checkpoints: Mapping[str, str], *, dry_run: bool) -> str:
    if done.is_repeated:
        forks = ", ".join(checkpoints.values())
        verb = "forks are" if len(checkpoints) > 1 else "fork is"
        return f"this was done already; the {verb} {forks}" if forks else "this was done already"
    if done.obstacles:
        return f"nothing was done: {plural(len(done.obstacles), 'obstacle')}"
    if dry_run:
        return "nothing was done; leave out --dry-run to do it"
    if done.forks:
        return "start each query again with its new folder as the checkpointLocation"
    return ""


def rewind_view(
    done: PipelineRewind, paths: Sequence[str], width: int | None = None
) -> list[RenderableType]:
    """Return the report of a rewind of the tables at `paths`; lines of `width` cut nothing."""
    parts: list[RenderableType] = []
    if len(paths) == 1:
        parts += _table_view(done.tables[0], width)
        for fork in done.forks:
            parts += section(
                "fork", facts_view(_fork_facts(fork, is_planned=done.outcome == "planned"))
            )
    else:
        parts += [tables_grid(done.tables, paths).whole(width)]
        if done.forks:
            parts += section("queries", forks_grid(done.forks).whole(width))
        for path, table in zip(paths, done.tables, strict=True):
            if table.consumers:
                title = f"consumers that have read past it: {printable(path)}"
                parts += section(title, _passed_grid(table.consumers).whole(width))
    if done.notes:
        parts += section("notes", *[Text(printable(note)) for note in done.notes])
    if done.obstacles:
        errors = [error_text(error, in_flags(error.message, rewind)) for error in done.obstacles]
        parts += section("what prevents it", Group(*errors))
    return parts


def tables_grid(tables: Sequence[Rewind], paths: Sequence[str]) -> Grid:
    rows = [
        (
            Text(printable(path), style="bold"),
            "" if table.before is None else str(table.before),
            str(table.target.version) if table.target else "expired",
            str(table.snapshot.version) if table.snapshot else "",
            ", ".join(f"{item.application} {_batches(item)}" for item in table.dropped),
            "?" if table.deleted_rows is None else count(table.deleted_rows),
            count(table.inserted_rows) if table.inserted_rows else "",
            ", ".join(table.retired),
        )
        for path, table in zip(paths, tables, strict=True)
    ]
    headings = ("table", ">from", ">to", ">as", "batches undone", ">rows", ">rows back", "given up")
    return Grid.of(*headings, rows=rows).without_empty()


def forks_grid(forks: Sequence[Fork]) -> Grid:
    rows = [
        (
            fork.old,
            Text(printable(fork.new), style="bold"),
            f"after batch {fork.batches[-1]}" if fork.batches else "from scratch",
            "" if fork.reruns is None else f"batch {fork.reruns}",
            ", ".join(one.name for one in fork.sources),
            "" if fork.state.value == "absent" else fork.state.value,
        )
        for fork in forks
    ]
    headings = ("checkpoint", "its fork", "goes on", "runs again", "reads on from", "state")
    return Grid.of(*headings, rows=rows).without_empty()


def _batches(item: Dropped) -> str:
    if item.first_batch == item.last_batch:
        return str(item.first_batch)
    return f"{item.first_batch} to {item.last_batch}"


def _table_view(done: Rewind, width: int | None) -> list[RenderableType]:
    target = done.target
    at_most = "at most " if done.deleted_rows and done.inserted_rows else ""
    facts = {
        "back to": f"version {target.version}, {target.operation}, {iso(target.timestamp_us)}"
        if target
        else "a version that has expired, by an earlier call",
        "as": f"version {done.snapshot.version}" if done.snapshot else "",
        "rows": count(target.summary.row_count) if target else "",
        "followers get": at_most + _undoing(done) if target else "",
        "given up": ", ".join(done.retired),
    }
    parts: list[RenderableType] = [facts_view(facts)]
    if done.dropped:
        parts += section("no longer in the table", _dropped_grid(done.dropped).whole(width))
    if done.consumers:
        passed = _passed_grid(done.consumers).whole(width)
        parts += section("consumers that have read past it", passed)
    return parts


def rewind_document(done: PipelineRewind, paths: Sequence[str]) -> Json:
    """Return the JSON object of a rewind of the tables at `paths`."""
    keys = "before target snapshot dropped by_hand retired deleted_rows inserted_rows consumers"
    tables = [
        {"path": path, **pick(table, keys)} for path, table in zip(paths, done.tables, strict=True)
    ]
    return {
        **(tables[0] if len(tables) == 1 else {"tables": tables}),
        **pick(done, "forks notes obstacles"),
    }


def _undoing(done: Rewind | PassedConsumer) -> str:
    if done.deleted_rows is None or done.inserted_rows is None:
        return "an unknown number of rows: fsck shows what is damaged"
    return f"{plural(done.deleted_rows, 'row')} deleted, {count(done.inserted_rows)} inserted"


def _dropped_grid(dropped: tuple[Dropped, ...]) -> Grid:
    rows = [
        (
            item.application,
            item.writer,
            _batches(item),
            count(item.rows),
            short_id(item.query_id or ""),
        )
        for item in dropped
    ]
    headings = ("application", "writer", "batches", ">rows", "query")
    return Grid.of(*headings, rows=rows).without_empty()


def _passed_grid(consumers: tuple[PassedConsumer, ...]) -> Grid:
    rows = [
        (
            Text(printable(item.consumer), style="bold"),
            str(item.version),
            _undoing(item),
            "lives" if item.is_live else "lapsed",
        )
        for item in consumers
    ]
    return Grid.of("consumer", ">has read", "is sent", "lease", rows=rows)


def _fork_facts(fork: Fork, *, is_planned: bool) -> dict[str, str | Text]:
    # The id of a plan is not that of the fork that will be made.
    new = "a new query" if is_planned else short_id(fork.query_id)
    held = f"{fork.batches[0]} to {fork.batches[-1]}" if fork.batches else "none: from scratch"
    return {
        "of": fork.old,
        "in": Text(printable(fork.new), style="bold"),
        "applications": ", ".join(fork.applications),
        "query": f"{short_id(fork.old_query_id)} continues as {new}",
        "batches": held,
        "runs again": "" if fork.reruns is None else f"batch {fork.reruns}",
        "state": fork.state.value,
        "files": f"{count(fork.file_count)}, {size(fork.byte_size)}",
    }
