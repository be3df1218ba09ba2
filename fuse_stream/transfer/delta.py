"""The live files of a Delta table, from its log: JSON commits, and checkpoints in Parquet.

Source: PROTOCOL.md of Delta Lake. What the files alone do not say is refused: column mapping,
deletion vectors, and reader features that this module does not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from fuse_stream.errors import CorruptObjectError, UnsupportedFormatError
from fuse_stream.format.columns import READING_ERRORS
from fuse_stream.format.schema import ARRAY, MAP, STRUCT, Column
from fuse_stream.storage.base import Store

LOG = "_delta_log/"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_NEWER_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.[0-9a-f-]{36}\.(json|parquet)")
_READABLE = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "vacuumProtocolCheck"})
"""Reader features that change nothing where no column is mapped and no file has deleted rows."""
_REMEDY = (
    "read the Delta table with Spark, and write its rows with fuse.write: "
    "fuse.write(spark.read.format('delta').load(path), new_path)"
)
_ACTIONS = ("add", "remove", "metaData", "protocol")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaTable:
    """A version of a Delta table."""

    version: int
    columns: tuple[Column, ...]
    partition_columns: tuple[str, ...]
    files: Mapping[str, Mapping[str, str | None]]
    """The keys of the live files, with their partition values."""


def load_delta_table(store: Store) -> DeltaTable:
    """Return the newest version of the Delta table in a store.

    Raises:
        CorruptObjectError: the log has a gap, or cannot be read.
        UnsupportedFormatError: the table has something that its files alone do not show.
    """
    names = store.names(LOG)
    state = _State()
    start = _load_checkpoint(store, names, state)
    commits = sorted(int(found[1]) for one in names if (found := _COMMIT.fullmatch(one)))
    later = [version for version in commits if version > start]
    has_gap = any(after - before != 1 for before, after in pairwise([start, *later]))
    if has_gap or (start < 0 and not later):
        if any(map(_NEWER_CHECKPOINT.fullmatch, names)):
            raise _refused(store, "it has a checkpoint of the kind V2")
        raise CorruptObjectError(
            "the log of the Delta table lacks a commit: restore it, or " + _REMEDY,
            path=store.url,
            after=start,
            commits=later[:5],
        )
    for version in later:
        data = store.get(f"{LOG}{version:020}.json")
        with _reading(store, version):
            state.apply([json.loads(line) for line in data.splitlines() if line.strip()])
    return _checked(store, state, later[-1] if later else start)


class _State:
    """What the actions so far leave."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, Any]] = {}
        self.metadata: dict[str, Any] | None = None
        self.protocol: dict[str, Any] = {}

    def apply(self, actions: list[dict[str, Any]]) -> None:
        # A commit may remove a file and add it again, with other deleted rows, in any order.
        for action in actions:
            if (removed := action.get("remove")) is not None:
                self.files.pop(removed["path"], None)
        for action in actions:
            if (added := action.get("add")) is not None:
                self.files[added["path"]] = added
            self.metadata = action.get("metaData") or self.metadata
            self.protocol = action.get("protocol") or self.protocol


def _load_checkpoint(store: Store, names: Sequence[str], state: _State) -> int:
    """Apply the newest whole checkpoint; return its version, -1 if there is none."""
    parts: dict[int, list[str]] = {}
    wanted: dict[int, int] = {}
    for name in names:
        if found := _CHECKPOINT.fullmatch(name):
            version = int(found[1])
            parts.setdefault(version, []).append(name)
            wanted[version] = int(found[3] or 1)
    whole = [version for version, held in parts.items() if len(held) >= wanted[version]]
    if not whole:
        return -1
    newest = max(whole)
    for name in sorted(parts[newest]):
        for actions in _checkpoint_actions(store, f"{LOG}{name}"):
            state.apply(actions)
    return newest


def _checkpoint_actions(store: Store, key: str) -> Iterator[list[dict[str, Any]]]:
    try:
        with store.open_input(key) as source:
            file = pq.ParquetFile(source)
            columns = [name for name in _ACTIONS if name in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=10_000, columns=columns):
                yield [_plain(row) for row in batch.to_pylist(maps_as_pydicts="strict")]
    except (pa.ArrowException, OSError) as error:
        raise CorruptObjectError(
            "a checkpoint of the Delta table cannot be read; " + _REMEDY, key=key, path=store.url
        ) from error


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


@contextmanager
def _reading(store: Store, version: int) -> Iterator[None]:
    try:
        yield
    except READING_ERRORS as error:
        raise CorruptObjectError(
            "a commit of the Delta table cannot be read; " + _REMEDY,
            version=version,
            path=store.url,
        ) from error


def _checked(store: Store, state: _State, version: int) -> DeltaTable:
    if state.metadata is None:
        raise CorruptObjectError(
            "the log of the Delta table does not say its columns; " + _REMEDY, path=store.url
        )
    configuration = state.metadata.get("configuration") or {}
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        raise _refused(store, "its columns are mapped to other names in the files")
    features = set(state.protocol.get("readerFeatures") or ())
    if unknown := sorted(features - _READABLE):
        raise _refused(store, "it needs reader features that are not known here", features=unknown)
    files: dict[str, Mapping[str, str | None]] = {}
    for path, added in state.files.items():
        if added.get("deletionVector"):
            raise UnsupportedFormatError(
                "the Delta table has files with deleted rows (deletion vectors): run REORG TABLE "
                "… APPLY (PURGE) on it first; or " + _REMEDY,
                path=store.url,
                file=path,
            )
        key = unquote(path)
        if "://" in key or key.startswith(("/", "file:")) or ".." in key.split("/"):
            raise _refused(store, "it has files outside its folder, as a shallow clone", file=path)
        files[key] = added.get("partitionValues") or {}
    with _reading(store, version):
        fields = json.loads(state.metadata["schemaString"])["fields"]
        columns = _columns(fields, iter(range(1, 1_000_000_000)))
    return DeltaTable(
        version=version,
        columns=columns,
        partition_columns=tuple(state.metadata.get("partitionColumns") or ()),
        files=dict(sorted(files.items())),
    )


def _columns(fields: list[dict[str, Any]], ids: Iterator[int]) -> tuple[Column, ...]:
    return tuple(_column(field["name"], field["type"], field["nullable"], ids) for field in fields)


def _column(name: str, kind: Any, nullable: Any, ids: Iterator[int]) -> Column:
    """Return a column of Spark's JSON of schemas, with ids depth first."""
    own = next(ids)
    children: tuple[Column, ...] = ()
    if isinstance(kind, str):
        type_name = kind.replace(" ", "")
    else:
        type_name = kind["type"]
        if type_name == STRUCT:
            children = _columns(kind["fields"], ids)
        elif type_name == ARRAY:
            children = (_column("element", kind["elementType"], kind["containsNull"], ids),)
        elif type_name == MAP:
            children = (
                _column("key", kind["keyType"], False, ids),  # noqa: FBT003 - as in the format
                _column("value", kind["valueType"], kind["valueContainsNull"], ids),
            )
    return Column(id=own, name=name, type=type_name, nullable=bool(nullable), children=children)


def _refused(store: Store, why: str, **context: object) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"this Delta table cannot be imported, since {why}: {_REMEDY}", path=store.url, **context
    )
