"""`report`: a table's life as one page of HTML."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fuse_stream.cli.as_json import Json, pick
from fuse_stream.cli.options import Target, WholeNumber, on_table
from fuse_stream.cli.signals import first_signal
from fuse_stream.cli.text import json_text, printable
from fuse_stream.errors import FuseError, InvalidInputError
from fuse_stream.format.properties import duration_of
from fuse_stream.format.sizes import size
from fuse_stream.on_demand import OnDemand
from fuse_stream.table.handle import Table

if TYPE_CHECKING:
    from fuse_stream.report import facts, health, page
else:
    facts = OnDemand("fuse_stream.report.facts")
    health = OnDemand("fuse_stream.report.health")
    page = OnDemand("fuse_stream.report.page")

_SECOND_US = 1_000_000


@click.command()
@on_table
@click.option("--output", "-o", required=True, metavar="FILE", help="The HTML file to write.")
@click.option(
    "--limit",
    type=WholeNumber(min=1),
    default=2000,
    show_default=True,
    metavar="N",
    help="Read the newest N versions one by one; of older ones some, evenly spread.",
)
@click.option("--every", metavar="AGE", help="Write it again after each such time, such as 10s.")
def report(target: Target, output: str, limit: int, every: str | None) -> None:
    """Write a page that shows the health of a table, and its life.

    The page is one file of HTML without scripts, which a browser opens anywhere: health, rows and
    time of the commits, branches, blocks, storage, consumers, writers, changes of the columns. It
    opens no block. What is garbage is known if the table has at most --limit versions; else
    `fuse-stream stats --garbage` tells it.

    With --every it runs until SIGTERM or Ctrl-C, and a browser loads the page anew by itself. With
    --json it prints the health as a document, with --every one on a line.

    \b
    Example:
      fuse-stream report /lake/flights -o flights.html
      fuse-stream report /lake/flights -o flights.html --every 10s
    """  # noqa: D301 - click's mark for lines to keep
    wait_us = None if every is None else duration_of(every)
    table = target.open()
    with target.output.progress("reading the history"):
        document = _write(table, output, limit, wait_us)
    if wait_us is None:
        if target.json:
            target.show_json(document)
        else:
            _note(target, document)
        return
    _show(target, document)
    with first_signal() as came:
        while not came.wait(wait_us / _SECOND_US):
            try:
                _show(target, _write(table, output, limit, wait_us))
            except FuseError as error:  # the next round may succeed, and the old page stays
                click.echo(f"not written: {error}", err=True)


def _write(table: Table, output: str, limit: int, wait_us: int | None) -> Json:
    """Write the page, and return what `--json` shows of it."""
    found = facts.collect_facts(table, limit=limit)
    refresh_s = None if wait_us is None else max(wait_us // _SECOND_US, 1)
    text = page.render(found, refresh_s=refresh_s).encode("utf-8", "backslashreplace")
    place = Path(output)
    staged = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        staged.write_bytes(text)
        staged.replace(place)  # a browser never sees half of it
    except OSError as error:
        staged.unlink(missing_ok=True)
        raise InvalidInputError(
            "the page cannot be written there; name a file in a folder that exists",
            output=output,
            problem=str(error.strerror),
        ) from error
    checks = health.check_health(found)
    return {
        "output": output,
        "byte_size": len(text),
        "version": found.head.version,
        "level": str(health.worst(checks)),
        "checks": [pick(check, "level name text remedy") for check in checks],
    }


def _show(target: Target, document: Json) -> None:
    if target.json:
        click.echo(
            json_text({"path": target.path, "branch": target.branch, **document}, indented=False)
        )
    else:
        _note(target, document)


def _note(target: Target, document: Json) -> None:
    """Say on stderr what was written, and what needs a look."""
    place = printable(document["output"])
    target.output.note(f"{place}: {size(document['byte_size'])}, version {document['version']}")
    for check in document["checks"]:
        if check["level"] in {"warning", "bad"}:
            target.output.note(f"{check['level']}: {check['name']}: {check['text']}")
