"""Read Parquet files of other writers as rows of a table's schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fuse_stream.errors import FuseError, InvalidInputError, UnsupportedTypeError
from fuse_stream.format.arrow import PRIMITIVES, adapt, arrow_schema, columns_of_arrow
from fuse_stream.format.evolve import first_schema, relaxed, resolve, with_ids_of
from fuse_stream.format.schema import Column, Schema, decimal_of
from fuse_stream.objects.adopted import flaw_of_footer
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import each
from fuse_stream.transfer.parts import Progress
from fuse_stream.transfer.sources import Source, SourceFile

FOOTERS_AT_ONCE = 8
ROWS_AT_ONCE = 65_536
"""Rows that are read at a time; more than that of one file are never in memory."""
_INT96 = "INT96"
_NO_ID = 1_000_000_000
"""From here on are the ids of what a file has and the table has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """What the footer of a file says."""

    columns: tuple[Column, ...]
    row_count: int


def load_footer(store: Store, file: SourceFile) -> Footer:
    """Return the columns and rows of a file.

    Raises:
        InvalidInputError: it is no Parquet file.
        UnsupportedTypeError: the format has no such type as a column's.
    """
    with opened(store, file) as parquet:
        return Footer(
            columns=columns_of_arrow(pa.schema(_fields(parquet, file))),
            row_count=parquet.metadata.num_rows,
        )


def load_schema(
    store: Store, source: Source, report: Progress
) -> tuple[Schema, tuple[Footer, ...]]:
    """Return the schema of a table with the rows of all files, and the files' footers.

    Files may lack columns of others, and have narrower types.

    Raises:
        SchemaMismatchError: columns of one name have types that do not fit each other.
        InvalidInputError, UnsupportedTypeError: as of `load_footer`.
    """
    footers = []
    read = each(partial(load_footer, store), source.files, store, at_once=FOOTERS_AT_ONCE, ahead=2)
    for number, footer in enumerate(read, 1):
        footers.append(footer)
        report("reading footers", number, len(source.files))
    if source.columns is not None:
        return first_schema(source.columns), tuple(footers)
    kinds = list(dict.fromkeys(footer.columns for footer in footers))
    schema = first_schema(kinds[0], nullable=len(kinds) > 1)
    for columns in kinds[1:]:
        other = relaxed(first_schema(columns)).columns
        schema, _ = resolve(schema, other, merge_schema=True)
    there = set(schema.names())
    added = tuple(one for one in source.partition_columns if one.name not in there)
    fields = [*arrow_schema(schema), *(pa.field(one.name, type_of(one)) for one in added)]
    return first_schema(columns_of_arrow(pa.schema(fields))), tuple(footers)


def find_flaw(store: Store, file: SourceFile, source: Source, schema: Schema) -> str | None:
    """Return why a file is no block of `schema`; None if its footer shows nothing."""
    with opened(store, file) as parquet:
        names = parquet.schema_arrow.names
        if any(one.name not in names for one in source.partition_columns):
            return "columns that only folders or a log have"
        return flaw_of_footer(parquet.metadata, parquet.schema_arrow, schema)


def iter_tables(
    store: Store, files: Sequence[SourceFile], source: Source, schema: Schema
) -> Iterator[pa.Table]:
    """Yield the rows of files, in their order, as tables of `schema`; a part at a time.

    Raises:
        InvalidInputError: a value does not fit its column, or a file is damaged.
    """
    for file in files:
        with opened(store, file) as parquet:
            stored = _fields(parquet, file)
            fields = [field for field in stored if field.name in schema.names()]
            names = [field.name for field in fields]
            added = [one for one in source.partition_columns if one.name not in names]
            columns = with_ids_of(
                schema.columns,
                (*columns_of_arrow(pa.schema(fields)), *added),
                iter(range(_NO_ID, 2 * _NO_ID)).__next__,
            )
            for batch in parquet.iter_batches(batch_size=ROWS_AT_ONCE, columns=names):
                arrays = [_as_field(batch.column(field.name), field) for field in fields]
                arrays += [_repeated(file, one, batch.num_rows) for one in added]
                rows = pa.table(arrays, names=[*names, *(one.name for one in added)])
                with _named(file):
                    yield adapt(rows, columns, schema)


@contextmanager
def opened(store: Store, file: SourceFile) -> Iterator[pq.ParquetFile]:
    """Open a file; an error of reading it names the file.

    Raises:
        InvalidInputError: it is no Parquet file, or damaged.
    """
    try:
        with store.open_input(file.key, file.size) as data:
            yield pq.ParquetFile(
                data, page_checksum_verification=True, coerce_int96_timestamp_unit="us"
            )
    except FuseError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            "a file cannot be read as Parquet: it is damaged, encrypted, or no Parquet file; "
            "restore it, or move it out of the folder",
            file=file.key,
            path=store.url,
            reason=str(error)[:200],
        ) from error


def type_of(column: Column) -> pa.DataType:
    """Return the Arrow type of a column without parts."""
    decimal = decimal_of(column.type)
    return pa.decimal128(*decimal) if decimal else PRIMITIVES[column.type]


def _fields(parquet: pq.ParquetFile, file: SourceFile) -> list[pa.Field]:
    """Return the columns of a file. Timestamps of the type INT96 are instants, as Spark's are.

    Raises:
        UnsupportedTypeError: such a timestamp is within a nested column.
    """
    stored = parquet.schema
    leaves = [stored.column(at) for at in range(len(stored))]
    instants = {leaf.path for leaf in leaves if leaf.physical_type == _INT96}
    fields = list(parquet.schema_arrow)
    if nested := instants - {one.name for one in fields if pa.types.is_timestamp(one.type)}:
        raise UnsupportedTypeError(
            "a timestamp of the old type INT96 is within a nested column: read the file with "
            "Spark, and write its rows with fuse.write",
            column=min(nested),
            file=file.key,
        )
    return [
        one.with_type(PRIMITIVES["timestamp"]) if one.name in instants else one for one in fields
    ]


def _as_field(values: pa.Array, field: pa.Field) -> pa.Array:
    """Return values with the type of `_fields`."""
    return values if values.type.equals(field.type) else pc.assume_timezone(values, "UTC")


def _repeated(file: SourceFile, column: Column, count: int) -> pa.Array:
    """Return the value that the folders of a file say, once for each row."""
    text, wanted = file.values.get(column.name), type_of(column)
    if text is None:
        return pa.nulls(count, wanted)
    try:
        return pa.repeat(_value(text, wanted), count)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(
            "the value that a folder, or a log, says of a column is not of the column's type",
            column=column.name,
            value=text[:100],
            type=column.type,
            file=file.key,
        ) from error


def _value(text: str, wanted: pa.DataType) -> pa.Scalar:
    if pa.types.is_timestamp(wanted) and wanted.tz and not text.endswith("Z"):
        raise ValueError("an instant without its zone")
    if pa.types.is_binary(wanted):
        return pa.scalar(text.encode(), wanted)
    return pc.cast(pa.scalar(text), wanted)


@contextmanager
def _named(file: SourceFile) -> Iterator[None]:
    """Add the file to the error of a value that does not fit."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(error.message, **{**error.context, "file": file.key}) from error
