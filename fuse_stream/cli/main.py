"""The command line, `fuse-stream COMMAND`: its commands, and the end of a run.

An error is shown as a message or a JSON document, never as a traceback.

Exit codes: 0; 1 a `FuseError` (or a finding of `doctor`, `fsck` or `audit`); 2 wrong usage;
130 Ctrl-C; 141 a closed pipe.
"""

from __future__ import annotations

import platform
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

import click

from fuse_stream.cli.as_json import error_document
from fuse_stream.cli.change_rows import delete, update
from fuse_stream.cli.changes import changes, diff
from fuse_stream.cli.check import audit, fsck, restore_table_file
from fuse_stream.cli.consumers import consumers
from fuse_stream.cli.doctor import doctor
from fuse_stream.cli.erase import erase
from fuse_stream.cli.events import quarantine, retry, upsert
from fuse_stream.cli.expire import expire, vacuum
from fuse_stream.cli.indexes import indexes
from fuse_stream.cli.lineage import lineage
from fuse_stream.cli.log import ledger, log, show
from fuse_stream.cli.optimize import clustering, compact, optimize, recluster
from fuse_stream.cli.options import asks_for_json, in_flags, storage_option
from fuse_stream.cli.output import (
    EXIT_INTERRUPTED,
    Output,
    end_on_closed_pipe,
    error_text,
    printable_streams,
)
from fuse_stream.cli.refs import branch, clone, tag, unpin
from fuse_stream.cli.report import report
from fuse_stream.cli.rewind import publish, rebuild_checkpoint, revert, rewind
from fuse_stream.cli.schema import schema
from fuse_stream.cli.search import bisect, blame
from fuse_stream.cli.sql_server import sql_server
from fuse_stream.cli.stats import blocks, stats
from fuse_stream.cli.text import json_text, printable
from fuse_stream.cli.transfer import copy, import_files
from fuse_stream.errors import FuseError

EXIT_ERROR, EXIT_USAGE = 1, 2


class CommandGroup(click.Group):
    """A click group that reports errors, and exits with the codes above."""

    _arguments: list[str] | None = None
    """The arguments of this run; None for those of the process."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run the command line and exit."""
        self._arguments = None if args is None else list(args)
        extra["standalone_mode"] = False
        with printable_streams():
            self._run(extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; report a `FuseError` with its arguments spelled as flags."""
        try:
            return super().invoke(ctx)
        except FuseError as error:
            if asks_for_json(self._arguments):
                _report_json(error)
            else:
                message = in_flags(error.message, self.commands[str(ctx.invoked_subcommand)])
                Output().notes.print(error_text(error, message), soft_wrap=True)
            sys.exit(EXIT_ERROR)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by group."""
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(one.name or "", one.get_short_help_str(80)) for one in commands]
                )

    def _run(self, extra: dict[str, Any]) -> NoReturn:
        result: object = None
        try:
            result = super().main(self._arguments, **extra)
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(EXIT_USAGE)
        except click.UsageError as error:
            if asks_for_json(self._arguments):
                _report_json(click.UsageError(error.format_message()))
            else:
                click.UsageError(printable(error.format_message()), ctx=error.ctx).show()
            sys.exit(EXIT_USAGE)
        except click.Abort:
            sys.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            end_on_closed_pipe()
        except Exception:  # noqa: BLE001 - Python would print it past the streams of this run
            traceback.print_exc()
            sys.exit(EXIT_ERROR)
        sys.exit(result if isinstance(result, int) else 0)


def _report_json(error: Exception) -> None:
    click.echo(json_text(error_document(error)), err=True)


_PARTS = ("fuse-stream", "pyspark", "pyarrow")


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    click.echo(", ".join([*map(_versioned, _PARTS), f"Python {platform.python_version()}"]))
    context.exit()


def _versioned(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} (not installed)"


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="PATH is a folder or a URL (s3://, gs://, abfss://). VERSION is a number from 0, a tag, "
    "HEAD, 7 hex digits or more of an id, or a number or id on another branch: fix@12; fix@ is its "
    "head.",
)
@storage_option
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the versions and exit.",
)
def main() -> None:
    """Read, check, set back and maintain fuse_stream tables.

    \b
    Example:
      fuse-stream log /lake/flights
      fuse-stream --storage-option anon=true log s3://bucket/flights
    """  # noqa: D301 - click's mark for lines to keep


GROUPS = {
    "Snapshots and rows": (log, show, changes, diff, blame, bisect),
    "The state of a table": (report, stats, blocks, clustering, ledger, lineage, consumers),
    "Columns": (schema,),
    "Names, branches and clones": (tag, branch, publish, clone, unpin),
    "Coming and going": (import_files, copy),
    "Changing rows": (delete, update, upsert, quarantine, retry, erase),
    "Going back": (rewind, revert, rebuild_checkpoint),
    "Checking": (audit, fsck, restore_table_file, doctor),
    "Serving": (sql_server,),
    "Optimizing and expiring": (compact, recluster, optimize, indexes, expire, vacuum),
}
"""The commands by group."""

for group in GROUPS.values():
    for command in group:
        main.add_command(command)

if __name__ == "__main__":
    main()
