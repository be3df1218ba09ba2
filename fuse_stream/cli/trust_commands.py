"""`fsck` and `audit`: is the table whole, and does it hold what a checkpoint says.

And `restore-table-file`, for the one lost object that the rest of a table can make again.
"""

from __future__ import annotations

import click

from fuse_stream.cli.locate import describe_place
from fuse_stream.cli.options import (
    Target,
    json_flag,
    on_table,
    origin_option,
    origins,
    storage_option,
    storage_options,
    unsafe_single_writer,
    writes,
)
from fuse_stream.cli.output import Output
from fuse_stream.cli.render_trust import (
    audit_document,
    audit_notes,
    audit_view,
    fsck_document,
    fsck_notes,
    fsck_view,
    restored_document,
    restored_view,
)
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.commit.ledger import DEFAULT_APPLICATION
from fuse_stream.errors import NotFoundError
from fuse_stream.objects.origins import open_with_origins
from fuse_stream.recovery.fsck import check_table
from fuse_stream.recovery.table_file import restore_table_file as restore
from fuse_stream.storage.open import open_store
from fuse_stream.verbs import audit as audit_table


@click.command()
@click.argument("path")
@click.option("--deep", is_flag=True, help="Read every byte of every block, too.")
@json_flag
@storage_option
def fsck(path: str, *, deep: bool, as_json: bool) -> int:
    """Check that a table is whole, all branches and tags; say what is lost where it is not.

    Nothing is written. Works on a table that cannot be opened any more, too. The exit code is 1 if
    anything is damaged or missing.

    \b
    Example:
      fuse-stream fsck /lake/flights --deep

    With --json: path, deep, sound, findings (kind: missing, damaged, broken, unreadable or note;
    key, wrong, lost, row_count, versions: branch, first, last), branches (name, head, floor,
    last_good, takes_commits), snapshot_count, segment_count, block_count, unreachable (by kind:
    object_count, byte_size).
    """  # noqa: D301 - click's mark for lines to keep
    output = Output()
    store = open_store(path, storage_options=storage_options())
    with output.progress("checking", 1) as meter:
        try:
            report = check_table(store, SYSTEM_CLOCK, deep=deep, progress=meter.reach)
        except NotFoundError as error:
            found = describe_place(store)
            if found is None:
                raise
            raise NotFoundError(found, path=path) from error
    if as_json:
        output.show_json(fsck_document(report))
    else:
        output.show(fsck_view(report))
        for note in fsck_notes(report):
            output.note(note)
    return int(not report.is_sound)


@click.command("restore-table-file")
@click.argument("path")
@json_flag
@origin_option
@storage_option
@writes
def restore_table_file(path: str, *, as_json: bool) -> None:
    """Make a lost _fuse.json again, from the history of the table.

    Looks at all of the table before, as fsck does, and creates that one object. Of a clone, name
    the tables that hold its blocks with --origin, first the one that it was made of. One that is
    damaged, or another table's as fsck says, has to be moved away by hand before.

    \b
    Example:
      fuse-stream restore-table-file /lake/flights

    With --json: path, table_id, version (that it was made from), origins (table_id, location).
    """  # noqa: D301 - the same
    output = Output()
    store = open_with_origins(
        path,
        origins=origins(),
        storage_options=storage_options(),
        unsafe_single_writer=unsafe_single_writer(),
    )
    with output.progress("reading the history"):
        restored = restore(store, SYSTEM_CLOCK, origins=store.allowed)
    if as_json:
        output.show_json(restored_document(store.url, restored))
    else:
        output.show(restored_view(restored))


@click.command()
@on_table
@click.argument("checkpoint")
@click.option(
    "--app-id",
    default=DEFAULT_APPLICATION,
    show_default=True,
    metavar="APP",
    help="As given to the sink.",
)
@click.option("--writer", metavar="NAME", help="One of the query's sinks; all if left out.")
def audit(target: Target, *, checkpoint: str, app_id: str, writer: str | None) -> int:
    """Compare the table with the checkpoint of a query that writes to it.

    CHECKPOINT is the query's checkpointLocation. The exit code is 1 if anything differs: batches
    that are missing, doubled, of another query, out of order, or of other source offsets.

    \b
    Example:
      fuse-stream audit /lake/flights /ckpt/flights

    With --json: path, branch, checkpoint, query_id, application, head, first_version, agrees,
    planned, writers (writer, batch_count, row_count, last_batch, empty), findings (kind, writer,
    batches, versions, wrong, remedy), notes.
    """  # noqa: D301 - the same
    with target.output.progress("reading the history"):
        report = audit_table(
            target.path,
            checkpoint,
            app_id=app_id,
            writer=writer,
            branch=target.branch,
            storage_options=storage_options(),
            checkpoint_options=storage_options(),
            origins=origins(),
        )
    if target.json:
        target.output.show_json(audit_document(report))
    else:
        target.output.show(audit_view(report))
        for note in audit_notes(report):
            target.output.note(note)
    return int(not report.agrees)
