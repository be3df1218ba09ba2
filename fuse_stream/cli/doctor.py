"""`doctor`: is everything in place for Spark and for the table, and what to do where it is not.

It must help where things are broken: nothing here imports Spark, and each check is independent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from fuse_stream.cli.as_json import json_value
from fuse_stream.cli.doctor_python import (
    check_java,
    check_packages,
    check_plugins,
    check_spark_home,
    check_workers,
    find_version,
)
from fuse_stream.cli.doctor_table import check_place
from fuse_stream.cli.findings import Finding, findings_note, findings_view, is_healthy
from fuse_stream.cli.options import json_flag, opening, origin_option, storage_option
from fuse_stream.cli.output import Output
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.table.location import TableLocation


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
    """  # noqa: D301 - click's mark for lines to keep
    if path is None and opening().get("origins"):
        raise click.UsageError("--origin is for a clone: name its PATH")
    output = Output()
    with output.progress("checking") as _:
        findings = list(examine(path, write=not no_write))
    if as_json:
        output.show_json({"ok": is_healthy(findings), "checks": json_value(findings)})
    else:
        output.show(findings_view(findings))
        output.note(findings_note(findings))
    return int(not is_healthy(findings))


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
