"""`rewind`, `revert`, `publish` and `rebuild-checkpoint`: going back, and going on from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from fuse_stream.cli.as_json import log_entry
from fuse_stream.cli.options import (
    Target,
    on_table,
    origins,
    storage_options,
    unsafe_single_writer,
    writes,
)
from fuse_stream.cli.output import Meter, Output, error_document
from fuse_stream.cli.render_recovery import (
    publication_document,
    publication_view,
    rebuilt_document,
    rebuilt_view,
    rewind_document,
    rewind_view,
)
from fuse_stream.cli.text import plural
from fuse_stream.verbs import rebuild_checkpoint as rebuild
from fuse_stream.verbs import rewind as set_back

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
            branch=target.branch,
            checkpoints=dict(checkpoints),
            dry_run=dry_run,
            storage_options=storage_options(),
            origins=origins(),
            unsafe_single_writer=unsafe_single_writer(),
            progress=_told(meter),
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
    replaces. Merging two lines that have both moved is not offered.

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
    made = rebuild(
        paths,
        branch=target.branch,
        storage_options=storage_options(),
        origins=origins(),
        unsafe_single_writer=unsafe_single_writer(),
        **options,
    )
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
