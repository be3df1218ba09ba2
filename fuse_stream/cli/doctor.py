"""`doctor`: check what Spark and a table need, and say what to do about each problem.

It must work on a broken installation: nothing here imports Spark, and no check needs another one.
For a path it checks whether the store can be written, the table opens, and the clocks agree; on an
object store also each right of the caller, and whether Spark can read there itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

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
from fuse_stream.cli.doctor_store import Access, check_package, check_reader, find_service
from fuse_stream.cli.findings import (
    Finding,
    Status,
    findings_note,
    findings_view,
    is_healthy,
    ok,
    problem,
    warning,
)
from fuse_stream.cli.options import (
    describe_place,
    json_flag,
    opening,
    origin_option,
    storage_option,
)
from fuse_stream.cli.output import Output
from fuse_stream.cli.text import iso, plural
from fuse_stream.clock import SYSTEM_CLOCK, Clock
from fuse_stream.commit.create import MAX_SKEW_US
from fuse_stream.errors import CorruptObjectError, FuseError, UnsupportedStorageError
from fuse_stream.format.layout import PROBE_PREFIX, block_key, probe_key
from fuse_stream.format.records import FORMAT_VERSION
from fuse_stream.objects.slots import Metadata
from fuse_stream.storage.base import Store
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.open import open_store
from fuse_stream.storage.probe import probe
from fuse_stream.table.handle import open_table
from fuse_stream.table.location import TableLocation

_LARGE_OFFSET_US = 10_000_000


@click.command()
@click.argument("path", required=False)
@click.option("--no-write", is_flag=True, help="Do not try to write to PATH.")
@json_flag
@origin_option
@storage_option
def doctor(path: str | None, no_write: bool, as_json: bool) -> int:
    """Check what Spark and a table need, and say what to do.

    It checks Java, the packages, the workers' Python and the installed formats; with PATH also the
    store and the table there: it creates objects in the store and deletes them, unless
    --no-write is given, and says which. On S3, Azure and Google Cloud Storage it also checks the
    store's package, the credentials, each right that is needed, and whether Spark has a file system
    of its own for the store. The exit code is 1 if there is a problem.

    \b
    Example:
      fuse-stream doctor /lake/flights
      fuse-stream doctor s3://lake/flights --storage-option endpoint_url=http://localhost:9000
    """  # noqa: D301 - click's mark for lines to keep
    if path is None and opening().get("origins"):
        raise click.UsageError("--origin is for a clone: give its PATH")
    output = Output(json=as_json)
    with output.progress("checking") as _:
        findings = list(examine(path, write=not no_write))
    if as_json:
        output.show_json({"ok": is_healthy(findings), "checks": json_value(findings)})
    else:
        output.show(findings_view(findings))
        output.note(findings_note(findings))
    return int(not is_healthy(findings))


def examine(path: str | None, *, write: bool) -> Iterator[Finding]:
    """Yield the finding of each check as soon as it is known."""
    yield check_java(os.environ)
    yield from check_packages()
    yield from check_spark_home(os.environ, find_version("pyspark"))
    service = None if path is None else find_service(path)
    yield from check_workers(os.environ, *(() if service is None else (service.package,)))
    yield from check_plugins(os.environ)
    if path is not None:
        location = TableLocation.of(path, **opening())
        yield from check_place(location, SYSTEM_CLOCK, write=write)
        if service is not None:
            yield check_reader(service, path, os.environ)


def check_place(location: TableLocation, clock: Clock, *, write: bool) -> Iterator[Finding]:
    """Yield the findings of a location: of its table, its store and, with `write`, of a write."""
    service = find_service(location.path)
    if service is not None:
        yield (package := check_package(service))
        if package.status is Status.PROBLEM:
            return
    try:
        store = open_store(location.path, storage_options=location.storage_options)
        followed = location.store()
    except FuseError as error:
        yield _failed("store", error)
        return
    access = None if service is None else Access(store, service, clock, write=write)
    if access is not None:
        yield from access.findings()
        if not access.is_open:
            return
    yield (table_finding := _check_table(store, followed, clock))
    if not write:
        yield warning("store", "writing was not tried", "leave --no-write out")
    elif table_finding.remedy and isinstance(store, LocalStore):
        # Trying would make folders where nobody asked for any.
        yield _check_folder(store)
    elif access is not None and not access.may_probe:
        found = "whether it creates an object exactly once was not tried: that takes all rights"
        yield warning("store", found, "allow what is refused, and call again")
    else:
        yield from _check_store(store, clock)


def _check_table(store: Store, followed: Store, clock: Clock) -> Finding:
    check = "table"
    try:
        if Metadata(store, clock).find_table_file() is None:
            found = describe_place(store) or "there is no table here"
            return warning(check, found, "check the path; the first write to it creates a table")
        table = open_table(followed, clock=clock)
        head = table.head()
        for block in {block.origin: block for block in table.blocks()}.values():
            # The first bytes of one block of each table that holds some: rights may differ.
            with table.metadata.store.open_input(block_key(block.id, block.origin)) as file:
                file.read(4)
        table.branches()
        table.tags()
    except CorruptObjectError as error:
        remedy = f"fuse-stream fsck {store.url} says what is damaged and lost"
        return replace(_failed(check, error), remedy=remedy)
    except FuseError as error:
        return _failed(check, error)
    return ok(
        check,
        f"opens; version {head.version} of {iso(head.timestamp_us)}, "
        f"{plural(head.summary.row_count, 'row')}, format {head.format_version} "
        f"(this release: {FORMAT_VERSION}), id {table.table_id}",
    )


def _check_folder(store: LocalStore) -> Finding:
    folder = store.root
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        return problem("store", f"{folder} is a file", "name another path")
    if os.access(folder, os.W_OK | os.X_OK):
        return ok("store", f"this user may write to {folder}; not tried, because there is no table")
    return problem("store", f"this user may not write to {folder}", "change its rights or the user")


def _check_store(store: Store, clock: Clock) -> Iterator[Finding]:
    check = "store"
    try:
        offset_us = probe(store, new_key=lambda: probe_key(clock.new_id()), now_us=clock.now_us)
    except UnsupportedStorageError as error:
        yield problem(check, error.message, "use a local folder, S3, GCS or Azure for writing")
        return
    except FuseError as error:
        yield _failed(check, error)
        return
    yield ok(
        check,
        f"{store.url} creates an object exactly once, and this user may write; tried with one "
        f"object in {PROBE_PREFIX}, which is deleted",
    )
    yield judge_offset(offset_us)


def judge_offset(offset_us: int) -> Finding:
    """Return the finding for a store's clock that is ahead of this machine's by `offset_us`."""
    seconds = abs(offset_us) / 1_000_000
    found = (
        f"this machine's is {seconds:.1f} s {'behind' if offset_us > 0 else 'ahead of'} the store's"
    )
    remedy = "set this machine's clock (NTP)"
    if offset_us < -MAX_SKEW_US:
        return problem("clock", f"{found}, so commits are refused", remedy)
    if abs(offset_us) > _LARGE_OFFSET_US:
        return warning("clock", f"{found}, and so are the times in the log", remedy)
    return ok("clock", found)


def _failed(check: str, error: FuseError) -> Finding:
    values = ", ".join(f"{name}={value}" for name, value in error.context.items())
    found = f"{type(error).__name__}: {error.message}" + (f" [{values}]" if values else "")
    return problem(check, found, "do what the message says, and call again")
