"""The command group: how a run ends. Errors become a line or a JSON document, never a traceback.

Exit codes: 0; 1 a `FuseError` (or what `doctor` or `fsck` found); 2 wrong usage; 130 Ctrl-C;
141 a closed pipe.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from rich.text import Text

from fuse_stream.cli.options import asks_for_json
from fuse_stream.cli.output import (
    EXIT_INTERRUPTED,
    Output,
    end_on_closed_pipe,
    error_document,
)
from fuse_stream.cli.terminal import printable_streams
from fuse_stream.cli.text import cell, json_text, printable
from fuse_stream.errors import FuseError

EXIT_ERROR, EXIT_USAGE = 1, 2


class CommandGroup(click.Group):
    """A click group whose runs end by the rules above."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run the command line and exit."""
        arguments = None if args is None else list(args)
        extra["standalone_mode"] = False
        with printable_streams():
            self._run(arguments, extra)

    def _run(self, arguments: list[str] | None, extra: dict[str, Any]) -> NoReturn:
        as_json = asks_for_json(arguments)
        result: object = None
        try:
            result = super().main(arguments, **extra)
            sys.stdout.flush()
        except FuseError as error:
            _report(error, as_json=as_json)
            sys.exit(EXIT_ERROR)
        except click.UsageError as error:
            if as_json:
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


def _report(error: FuseError, *, as_json: bool) -> None:
    if as_json:
        _report_json(error)
        return
    notes = Output().notes
    head = Text(f"{type(error).__name__}: ", style="bold red")
    notes.print(head.append(printable(error.message), style="default"), soft_wrap=True)
    for name, value in error.context.items():
        if value is not None:
            notes.print(Text(f"  {name}: ", style="dim").append(cell(value)), soft_wrap=True)


def _report_json(error: Exception) -> None:
    click.echo(json_text(error_document(error)), err=True)
