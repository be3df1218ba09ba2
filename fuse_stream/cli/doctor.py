"""`doctor`: is everything in place for Spark and for the table, and what to do where it is not.

It must help where things are broken: nothing here imports Spark, and each check stands alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fuse_stream.cli.doctor_python import (
    check_java,
    check_packages,
    check_plugins,
    check_spark_home,
    check_workers,
    find_version,
)
from fuse_stream.cli.doctor_table import check_place
from fuse_stream.cli.findings import Finding, Status, findings_document
from fuse_stream.cli.options import json_flag, opening, origin_option, storage_option
from fuse_stream.cli.output import Output
from fuse_stream.cli.text import plural, printable
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.table.location import TableLocation

_STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.PROBLEM: "bold red"}


@click.command()
@click.argument("path", required=False)
@click.option("--no-write", is_flag=True, help="Do not try to write to PATH.")
@json_flag
@origin_option
@storage_option
def doctor(path: str | None, no_write: bool, as_json: bool) -> int:
    """Check what Spark and a table need, and say what to do.

    Java, packages, the workers' Python, the installed formats; with PATH also the store and the
    table there. An object is written to the store and removed, unless --no-write is given. The exit
    code is 1 if there is a problem.

    \b
    Example:
      fuse-stream doctor /lake/flights

    With --json: ok, checks (check, status: ok, warning or problem, found, remedy).
    """  # noqa: D301 - click's mark for lines to keep
    if path is None and opening().get("origins"):
        raise click.UsageError("--origin is for a clone: name its PATH")
    output = Output()
    with output.progress("checking") as _:
        findings = list(examine(path, write=not no_write))
    if as_json:
        output.show_json(findings_document(findings))
    else:
        output.show(findings_view(findings))
        output.note(_sum_up(findings))
    return int(any(finding.status is Status.PROBLEM for finding in findings))


def findings_view(findings: list[Finding]) -> RenderableType:
    """Return one line a check, the remedy below."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in findings:
        text = Text(printable(finding.found))
        if finding.remedy:
            text.append("\n-> ", style="bold").append(printable(finding.remedy), style="bold")
        status = Text(finding.status.value, style=_STYLES[finding.status])
        grid.add_row(status, Text(finding.check), text)
    return grid


def examine(path: str | None, *, write: bool) -> Iterator[Finding]:
    """Yield what each check finds, as it is found."""
    yield check_java(os.environ)
    yield from check_packages()
    yield from check_spark_home(os.environ, find_version("pyspark"))
    yield from check_workers(os.environ)
    yield from check_plugins(os.environ)
    if path is not None:
        location = TableLocation.of(path, **opening())
        yield from check_place(location, SYSTEM_CLOCK, write=write)


def _sum_up(findings: list[Finding]) -> str:
    counts = {status: sum(f.status is status for f in findings) for status in Status}
    problems, warnings = counts[Status.PROBLEM], counts[Status.WARNING]
    return f"{plural(problems, 'problem')}, {plural(warnings, 'warning')}"
