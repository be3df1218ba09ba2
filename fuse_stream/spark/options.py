"""The options of `format("fuse")`, parsed here and nowhere else.

Rules:
- Spark passes names in lower case; messages show them in their own spelling.
- No option is ignored: one that is unknown, or has no meaning for this read or write, is an error
  that says what to write instead.
- No message and no repr shows values of storage options.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.names import Version
from fuse_stream.spark import option_values as values
from fuse_stream.spark.foreign_options import PREFIXES, REMEDIES
from fuse_stream.spark.option_values import LATEST, Feed
from fuse_stream.table.location import TableLocation

NO_PATH = (
    "the table's path is missing: pass it to load() or save(), or as the option `path`. Spark does "
    "not pass a catalog table's options to a Python source; in SQL write CREATE TEMPORARY VIEW "
    "<name> USING fuse OPTIONS (path '<path>')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a reader."""

    location: TableLocation
    feed: Feed | None = None
    """None if not given: a batch then reads the table, a stream its changes."""
    version_as_of: Version | None = None
    timestamp_as_of: str | None = None
    starting_version: Version | None = None
    """Also "latest": a stream then starts after the head."""
    starting_timestamp: str | None = None
    after_version: int | None = None
    """A stream starts after this version, the head or an earlier one. No option says so."""
    ending_version: Version | None = None
    """Inclusive."""
    ending_timestamp: str | None = None
    """Inclusive."""
    columns: tuple[str, ...] | None = None
    where: str | None = None
    side: str | None = None
    metadata: str | None = None
    """The name of a metadata table, whose rows are read instead of the table's."""
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_commits_per_trigger: int | None = None
    skip_change_commits: bool = False
    consumer: str | None = None
    on_expired: Literal["fail", "resync"] | None = None
    wait_for_table_us: int | None = None
    """How long `load()` waits for a table that is not there yet; None to fail at once."""
    time_zone: str = "UTC"
    """The zone of the predicate's times without a zone. An option, as for Spark's CSV and JSON:
    a Python source does not get the session's zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a writer."""

    location: TableLocation
    app_id: str | None = None
    writer: str = ""
    batch_id: int | None = None
    cluster_by: tuple[str, ...] = ()
    merge_schema: bool = False
    case_sensitive: bool = False
    adopt: str | None = None
    checkpoint_location: str | None = None
    commit_empty: bool = False
    message: str = ""
    author: str = ""


def parse_read_options(options: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """Return the options of a reader.

    Args:
        options: as Spark passes them.
        streaming: None if not known yet: Spark asks for the columns before it says whether a batch
            or a stream will read them.

    Raises:
        InvalidInputError: an option is missing, unknown or malformed, or has no meaning beside
            another one or for this kind of read; names it, and says what to write.
    """
    use = _READ_USES[streaming]
    read = ReadOptions(**_parse(options, _READ, use))
    if streaming is True:
        _check_stream(read)
    if streaming is False:
        _check_batch(read)
    _check_together(read)
    return read


def parse_write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Return the options of a writer; raises the errors of `parse_read_options`."""
    return WriteOptions(**_parse(options, _WRITE, _STREAM_WRITE if streaming else _BATCH_WRITE))


def location_options(location: TableLocation) -> dict[str, str]:
    """Return a location as options of a read or a write."""
    return {
        "path": location.path,
        "branch": location.branch,
        "storageOptions": json.dumps(dict(location.storage_options)),
        "origins": json.dumps(location.origins),
    }


def _check_stream(read: ReadOptions) -> None:
    if read.feed == "table":
        raise InvalidInputError(
            'a stream reads a feed: feed is "changes", "append", "upserts" or "blocks"',
            feed=read.feed,
        )
    if read.on_expired is not None and read.consumer is None:
        raise InvalidInputError(
            "onExpired is for a consumer whose lease was lost; name the consumer",
            onExpired=read.on_expired,
        )
    if read.on_expired == "resync" and read.feed not in {None, "changes"}:
        raise InvalidInputError(
            'onExpired = "resync" delivers a net difference, with deletes; use feed = "changes", '
            "the only feed that has deletes",
            feed=read.feed,
        )


def _check_batch(read: ReadOptions) -> None:
    if read.starting_version == LATEST:
        raise InvalidInputError(
            'startingVersion = "latest" is for readStream; a batch starts at a version',
            startingVersion=LATEST,
        )
    bounds = {
        "startingVersion": read.starting_version,
        "startingTimestamp": read.starting_timestamp,
        "endingVersion": read.ending_version,
        "endingTimestamp": read.ending_timestamp,
    }
    given = [name for name, value in bounds.items() if value is not None]
    if read.feed in {None, "table"}:
        if given:
            raise InvalidInputError(
                'these options are for a feed: add feed = "changes", or name one snapshot with '
                "versionAsOf or timestampAsOf",
                options=given,
            )
        return
    if read.side is not None:
        raise InvalidInputError(
            "a feed has the table's rows alone: leave out `feed` to read a side, or `side`",
            feed=read.feed,
            side=read.side,
        )
    if read.version_as_of is not None or read.timestamp_as_of is not None:
        raise InvalidInputError(
            "versionAsOf and timestampAsOf read the table; a feed takes startingVersion and "
            "endingVersion, or startingTimestamp and endingTimestamp",
            feed=read.feed,
        )
    if read.starting_version is None and read.starting_timestamp is None:
        raise InvalidInputError(
            "a batch read of a feed needs its start: startingVersion (0 is the table's first) or "
            "startingTimestamp",
            feed=read.feed,
        )


def _check_metadata(read: ReadOptions) -> None:
    others = {
        "feed": read.feed,
        "side": read.side,
        "columns": read.columns,
        "where": read.where,
        "timestampAsOf": read.timestamp_as_of,
        "startingVersion": read.starting_version,
        "startingTimestamp": read.starting_timestamp,
        "endingVersion": read.ending_version,
        "endingTimestamp": read.ending_timestamp,
    }
    given = [name for name, value in others.items() if value is not None]
    if read.metadata is not None and given:
        raise InvalidInputError(
            "the option metadata reads rows about the table: beside it use versionAsOf and branch "
            "alone, and filter the DataFrame",
            metadata=read.metadata,
            options=given,
        )


def _check_together(read: ReadOptions) -> None:
    _check_metadata(read)
    pairs = {
        ("startingVersion", "startingTimestamp"): (read.starting_version, read.starting_timestamp),
        ("endingVersion", "endingTimestamp"): (read.ending_version, read.ending_timestamp),
        ("versionAsOf", "timestampAsOf"): (read.version_as_of, read.timestamp_as_of),
    }
    for names, (version, timestamp) in pairs.items():
        if version is not None and timestamp is not None:
            raise InvalidInputError(
                f"{names[0]} and {names[1]} exclude each other; leave one out",
                version=version,
                timestamp=timestamp,
            )
    start, end = read.starting_version, read.ending_version
    if isinstance(start, int) and isinstance(end, int) and start > end:
        raise InvalidInputError(
            "the feed ends before it starts; make endingVersion at least startingVersion",
            startingVersion=start,
            endingVersion=end,
        )
    if read.skip_change_commits and read.feed != "append":
        raise InvalidInputError(
            'skipChangeCommits is for feed = "append"; the other feeds deliver deletes too',
            feed=read.feed,
        )
    if read.where is not None and read.feed == "blocks":
        raise InvalidInputError(
            'feed = "blocks" delivers blocks, and `where` filters rows; filter the DataFrame',
            where=read.where,
        )
    if read.where is not None and read.feed == "upserts":
        raise InvalidInputError(
            'feed = "upserts" leaves out updated rows as they were, so with `where` a row that no '
            "longer matches would stay where you join it: filter the DataFrame, and keep deletes",
            where=read.where,
        )
    if read.columns is not None and read.feed == "blocks":
        raise InvalidInputError(
            'feed = "blocks" has columns of its own; select from the DataFrame',
            columns=list(read.columns),
        )


# ---- names

_Parser = Callable[[str], object]

_BATCH_READ, _STREAM_READ, _READ_OF_ANY_KIND = "a batch read", "a stream read", "a read"
_BATCH_WRITE, _STREAM_WRITE = "a batch write", "a stream write"
_READ_USES = {None: _READ_OF_ANY_KIND, False: _BATCH_READ, True: _STREAM_READ}

_READ: dict[str, tuple[str, _Parser]] = {
    "path": ("path", values.some_text),
    "feed": ("feed", values.feed),
    "versionAsOf": ("version_as_of", values.version),
    "timestampAsOf": ("timestamp_as_of", values.time),
    "startingVersion": ("starting_version", values.start),
    "startingTimestamp": ("starting_timestamp", values.time),
    "endingVersion": ("ending_version", values.version),
    "endingTimestamp": ("ending_timestamp", values.time),
    "branch": ("branch", values.some_text),
    "columns": ("columns", values.names),
    "where": ("where", values.some_text),
    "side": ("side", values.some_text),
    "metadata": ("metadata", values.some_text),
    "maxRowsPerTrigger": ("max_rows_per_trigger", values.count),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", values.size_bytes),
    "maxCommitsPerTrigger": ("max_commits_per_trigger", values.count),
    "skipChangeCommits": ("skip_change_commits", values.flag),
    "storageOptions": ("storage_options", values.storage),
    "origins": ("origins", values.strings),
    "timeZone": ("time_zone", values.some_text),
    "consumer": ("consumer", values.consumer),
    "onExpired": ("on_expired", values.on_expired),
    "waitForTable": ("wait_for_table_us", values.duration),
}
_WRITE: dict[str, tuple[str, _Parser]] = {
    "path": ("path", values.some_text),
    "branch": ("branch", values.some_text),
    "appId": ("app_id", values.some_text),
    "writer": ("writer", values.any_text),
    "batchId": ("batch_id", values.whole),
    "clusterBy": ("cluster_by", values.names),
    "mergeSchema": ("merge_schema", values.flag),
    "caseSensitive": ("case_sensitive", values.flag),
    "adopt": ("adopt", values.some_text),
    "checkpointLocation": ("checkpoint_location", values.some_text),
    "commitEmpty": ("commit_empty", values.flag),
    "message": ("message", values.any_text),
    "author": ("author", values.any_text),
    "storageOptions": ("storage_options", values.storage),
    "origins": ("origins", values.strings),
    "unsafeSingleWriter": ("unsafe_single_writer", values.flag),
}

_AS_OF = "a stream starts at startingVersion or startingTimestamp"
_TRIGGER = "a batch has no triggers; leave it out"
_LEASE = "a lease keeps the versions that a stream has yet to read; leave it out"
_NO_QUERY = "a batch write has no query; leave it out"
_MISPLACED: dict[str, dict[str, str]] = {
    _BATCH_READ: {
        "maxRowsPerTrigger": _TRIGGER,
        "maxBytesPerTrigger": _TRIGGER,
        "maxCommitsPerTrigger": _TRIGGER,
        "consumer": _LEASE,
        "onExpired": _LEASE,
    },
    _STREAM_READ: {
        "versionAsOf": _AS_OF,
        "timestampAsOf": _AS_OF,
        "side": "a feed has the table's rows alone; read a side as a batch",
        "metadata": "rows about the table are read as a batch",
    },
    _BATCH_WRITE: {"adopt": _NO_QUERY, "checkpointLocation": _NO_QUERY, "commitEmpty": _NO_QUERY},
    _STREAM_WRITE: {"batchId": "a stream counts its batches itself; leave it out"},
}
_OF_EVENTS_AND_KEYS = frozenset({"mode", "keys", "sequenceby", "sequence_by"})
"""Arguments of `fuse_sink` and `fuse.write` that are no options of the format, in lower case."""
_WRITE_BY = {_BATCH_WRITE: "fuse.write", _STREAM_WRITE: "fuse.fuse_sink in foreachBatch"}
_SPARKS_OWN = {_STREAM_WRITE: frozenset({"queryname"})}
"""Options that Spark itself adds to the user's."""
_CATALOG_KEYS = frozenset({"provider", "owner"})
"""Options that only CREATE TABLE adds."""
_OF_LOCATION = frozenset(field.name for field in fields(TableLocation))


def _parse(
    options: Mapping[str, str], known: Mapping[str, tuple[str, _Parser]], use: str
) -> dict[str, Any]:
    given = {name.lower(): value for name, value in options.items()}
    spellings = {name.lower(): name for name in known}
    found: dict[str, Any] = {}
    if given.keys() >= _CATALOG_KEYS:
        raise InvalidInputError(NO_PATH)
    for lowered, value in given.items():
        if lowered in _SPARKS_OWN.get(use, ()):
            continue
        name = spellings.get(lowered)
        if name is None:
            raise _unknown(lowered, spellings, use)
        if advice := _MISPLACED.get(use, {}).get(name):
            raise InvalidInputError(f"this option has no meaning for {use}: {advice}", option=name)
        attribute, parser = known[name]
        found[attribute] = _parsed(name, value, parser)
    located = {name: found.pop(name) for name in _OF_LOCATION & found.keys()}
    if "path" not in located:
        raise InvalidInputError(NO_PATH)
    return {**found, "location": TableLocation(**located)}


def _parsed(name: str, value: str, parser: _Parser) -> object:
    try:
        return parser(value)
    except InvalidInputError:
        raise
    except ValueError as error:
        shown = {} if parser is values.storage else {"value": value}
        raise InvalidInputError(f"{name} must be {error}", option=name, **shown) from None


def _unknown(name: str, spellings: Mapping[str, str], use: str) -> InvalidInputError:
    if use in _WRITE_BY and name in _OF_EVENTS_AND_KEYS:
        return InvalidInputError(
            f'{use} with format("fuse") appends or overwrites; to upsert rows, or events, use '
            f'{_WRITE_BY[use]}, which takes mode="upsert" and keys=["id"]',
            option=name,
        )
    if name == "paths":
        return InvalidInputError("read one table at a time; union the DataFrames")
    remedy = REMEDIES.get(name) or next(
        (found for prefix, found in PREFIXES.items() if name.startswith(prefix)), None
    )
    if remedy is not None:
        return InvalidInputError(f"{use} has no such option; {remedy}", option=name)
    other = _WRITE if spellings.keys() == {key.lower() for key in _READ} else _READ
    elsewhere = {key.lower(): key for key in other}
    if name in elsewhere:
        return InvalidInputError(
            f"this option has no meaning for {use}; leave it out", option=elsewhere[name]
        )
    near = difflib.get_close_matches(name, spellings, n=1)
    if near:
        return InvalidInputError(
            "there is no such option; did you mean the nearest one?",
            option=name,
            nearest=spellings[near[0]],
        )
    return InvalidInputError(
        f"{use} has no such option", option=name, known=sorted(spellings.values())
    )
