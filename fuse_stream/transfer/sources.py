"""Find the Parquet files to import: one file, a folder with `k=v` folders, or a Delta table."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from urllib.parse import unquote

from fuse_stream.errors import (
    CorruptObjectError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFormatError,
)
from fuse_stream.format.layout import TABLE_KEY
from fuse_stream.format.schema import Column
from fuse_stream.storage.base import Store
from fuse_stream.transfer.delta import LOG, load_delta_table

ENDS = (".parquet", ".parq")
_NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,18})")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SHOWN = 5
_OTHERS = {
    "metadata/": "an Iceberg table, whose manifests say which of its files count: read it with "
    "Spark, and write its rows with fuse.write: "
    "fuse.write(spark.read.format('iceberg').load(path), new_path)",
    ".hoodie/": "a Hudi table, whose timeline says which of its files count: read it with Spark, "
    "and write its rows with fuse.write: "
    "fuse.write(spark.read.format('hudi').load(path), new_path)",
    "_spark_metadata/": "the output of Spark's file sink, whose log says which of its files count: "
    "read it with Spark, and write its rows with fuse.write: "
    "fuse.write(spark.read.parquet(path), new_path)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A Parquet file to import."""

    key: str
    size: int
    """Bytes."""
    modified_us: int
    values: Mapping[str, str | None]
    """What its folders, or a log, say of its rows, by column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The files to import."""

    kind: str
    files: tuple[SourceFile, ...]
    """In the order of their rows in the table."""
    columns: tuple[Column, ...] | None = None
    """The columns that a log says; None if the files say them."""
    partition_columns: tuple[Column, ...] = ()
    """Those of which `values` have the values."""


def find_source(store: Store, only: str | None) -> Source:
    """Return the files to import from a store; `only` is the key of the one file.

    Raises:
        NotFoundError: there is no Parquet file.
        InvalidInputError: it is a fuse_stream table; there are other files between; or folders
            `k=v` do not fit together.
        UnsupportedFormatError: it is a table of a kind that cannot be imported; says what to do.
        CorruptObjectError: the log of a Delta table is damaged, or a file of it is missing.
    """
    if only is not None:
        folder = only.rpartition("/")[0]
        infos = [info for info in store.list(f"{folder}/" if folder else "") if info.key == only]
        if not infos:
            raise NotFoundError("there is no such file; check the path", path=store.url, file=only)
        (info,) = infos
        file = SourceFile(key=only, size=info.size, modified_us=info.modified_us, values={})
        return Source(kind="a Parquet file", files=(file,))
    names = store.names("")
    if TABLE_KEY in names:
        raise InvalidInputError(
            "this is a fuse_stream table already: copy it with fuse.copy", path=store.url
        )
    if LOG in names:
        return _delta(store)
    for name, kind in _OTHERS.items():
        if name in names and any(True for _ in store.list(name)):
            raise UnsupportedFormatError(f"this is {kind}", path=store.url)
    return _folder(store)


def _delta(store: Store) -> Source:
    table = load_delta_table(store)
    infos = {info.key: info for info in store.list("")}
    if missing := [key for key in table.files if key not in infos]:
        raise CorruptObjectError(
            "files that the log of the Delta table names are missing: restore them first",
            path=store.url,
            missing=missing[:_SHOWN],
            count=len(missing),
        )
    files = tuple(
        SourceFile(
            key=key,
            size=infos[key].size,
            modified_us=infos[key].modified_us,
            values={name: value or None for name, value in values.items()},
        )
        for key, values in table.files.items()
    )
    by_name = {column.name: column for column in table.columns}
    return Source(
        kind=f"version {table.version} of a Delta table",
        files=files,
        columns=table.columns,
        partition_columns=tuple(by_name[name] for name in table.partition_columns),
    )


def _folder(store: Store) -> Source:
    infos = [info for info in store.list("") if not is_hidden(info.key)]
    files = [info for info in infos if info.key.endswith(ENDS)]
    if not files:
        raise NotFoundError(
            "there are no Parquet files here; check the path",
            path=store.url,
            found=[info.key for info in infos[:_SHOWN]],
        )
    if others := [info.key for info in infos if not info.key.endswith(ENDS)]:
        raise InvalidInputError(
            "there are other files between the Parquet files, whose names do not end in .parquet: "
            "move them out of the folder, or name a folder below it",
            path=store.url,
            others=others[:_SHOWN],
            count=len(others),
        )
    found = tuple(
        SourceFile(
            key=info.key,
            size=info.size,
            modified_us=info.modified_us,
            values=dict(_values(info.key)),
        )
        for info in files
    )
    _check_same_folders(store, found)
    return Source(
        kind="a folder of Parquet files",
        files=found,
        partition_columns=tuple(_partition_columns(found)),
    )


def is_hidden(key: str) -> bool:
    """True if a file is hidden, as for Hadoop: its name, or a folder's, begins with `.` or `_`."""
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part)
        for part in key.split("/")
    )


def _values(key: str) -> Iterator[tuple[str, str | None]]:
    for part in key.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals:
            text = unquote(value)
            yield unquote(name), None if text == _NULL else text


def _check_same_folders(store: Store, files: Sequence[SourceFile]) -> None:
    first = files[0]
    for file in files:
        if list(file.values) != list(first.values):
            raise InvalidInputError(
                "the folders of the files name other columns (k=v): import the folders that fit "
                "together, each to a table of its own",
                path=store.url,
                one=first.key,
                other=file.key,
            )


def _partition_columns(files: Sequence[SourceFile]) -> Iterator[Column]:
    for number, name in enumerate(files[0].values, 1):
        kind = _type_of(file.values[name] for file in files)
        yield Column(id=number, name=name, type=kind)


def _type_of(texts: Iterable[str | None]) -> str:
    """Return the type of the values in the names of folders: integers, dates, else text."""
    values = {text for text in texts if text is not None}
    if values and all(map(_INTEGER.fullmatch, values)):
        numbers = [int(value) for value in values]
        if all(-(2**31) <= number < 2**31 for number in numbers):
            return "integer"
        return "long" if all(-(2**63) <= number < 2**63 for number in numbers) else "string"
    return "date" if values and all(map(_is_date, values)) else "string"


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and date.fromisoformat(text) is not None
    except ValueError:
        return False


def file_in(path: str) -> tuple[str, str] | None:
    """Return the folder and the name in a path that may be one of a file; None for a folder."""
    folder, slash, name = path.rpartition("/")
    return ((folder or slash or os.curdir), name) if name.endswith(ENDS) else None
