"""The options of `format("fuse")`, parsed here and nowhere else.

Rules:
- Names come from Spark in lower case; they are told to people in their own spelling.
- Nothing is ignored: an option that is unknown, or that has no meaning where it stands, is an
  error that says what to write instead.
- Values of storage options stand in no message and in no repr.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import MAIN
from fuse_stream.read.history import Version, timestamp_us
from fuse_stream.spark.foreign_options import PREFIXES, REMEDIES
from fuse_stream.storage.options import StorageOptions

Feed = Literal["table", "changes", "append", "blocks"]
FEEDS = ("table", "changes", "append", "blocks")

LATEST = "latest"

NO_PATH = (
    "the table's path is missing: pass it to load() or save(), or as the option `path`. A catalog "
    "table loses its options on the way to a Python source; in SQL write CREATE TEMPORARY VIEW "
    "<name> USING fuse OPTIONS (path '<path>')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a reader asked for."""

    path: str
    feed: Feed | None = None
    """None: not given; a batch reads the table, a stream its changes."""
    version_as_of: Version | None = None
    timestamp_as_of: str | None = None
    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: str | None = None
    ending_version: int | None = None
    """Inclusive."""
    ending_timestamp: str | None = None
    """Inclusive."""
    branch: str = MAIN
    columns: tuple[str, ...] | None = None
    where: str | None = None
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_commits_per_trigger: int | None = None
    skip_change_commits: bool = False
    storage_options: StorageOptions = field(default_factory=StorageOptions)
    origins: tuple[str, ...] = ()
    time_zone: str = "UTC"
    """In which the predicate's times without a zone are meant. A Python source is not told the
    session's, so there it is an option, as for Spark's CSV and JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a writer asked for."""

    path: str
    branch: str = MAIN
    app_id: str | None = None
    writer: str = ""
    batch_id: int | None = None
    cluster_by: tuple[str, ...] = ()
    merge_schema: bool = False
    adopt: str | None = None
    checkpoint_location: str | None = None
    commit_empty: bool = False
    message: str = ""
    author: str = ""
    storage_options: StorageOptions = field(default_factory=StorageOptions)
    unsafe_single_writer: bool = False


def parse_read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Return the options of a reader.

    Raises:
        InvalidInputError: one is missing, unknown, malformed, or has no meaning beside another or
            on this kind of read; says which, and what to write.
    """
    values = _parse(options, _READ, _STREAM_READ if streaming else _BATCH_READ)
    read = ReadOptions(**values)
    if streaming:
        _check_stream(read)
    else:
        _check_batch(read)
    _check_together(read)
    return read


def parse_write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Return the options of a writer; errors of `parse_read_options`."""
    return WriteOptions(**_parse(options, _WRITE, _STREAM_WRITE if streaming else _BATCH_WRITE))


def _check_stream(read: ReadOptions) -> None:
    if read.feed == "table":
        raise InvalidInputError(
            'a stream reads a feed: feed is "changes", "append" or "blocks"', feed=read.feed
        )


def _check_batch(read: ReadOptions) -> None:
    if read.starting_version == LATEST:
        raise InvalidInputError(
            'startingVersion = "latest" is for readStream; a batch starts at a number',
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


def _check_together(read: ReadOptions) -> None:
    pairs = {
        ("startingVersion", "startingTimestamp"): (read.starting_version, read.starting_timestamp),
        ("endingVersion", "endingTimestamp"): (read.ending_version, read.ending_timestamp),
        ("versionAsOf", "timestampAsOf"): (read.version_as_of, read.timestamp_as_of),
    }
    for names, (version, timestamp) in pairs.items():
        if version is not None and timestamp is not None:
            raise InvalidInputError(
                f"{names[0]} and {names[1]} name one place twice; leave one out",
                version=version,
                timestamp=timestamp,
            )
    start, end = read.starting_version, read.ending_version
    if isinstance(start, int) and end is not None and start > end:
        raise InvalidInputError(
            "the feed ends before it starts", startingVersion=start, endingVersion=end
        )
    if read.skip_change_commits and read.feed != "append":
        raise InvalidInputError(
            'skipChangeCommits is for feed = "append"; the other feeds deliver what changed',
            feed=read.feed,
        )
    if read.where is not None and read.feed == "blocks":
        raise InvalidInputError(
            'feed = "blocks" has no rows that `where` could choose; filter the DataFrame',
            where=read.where,
        )
    if read.columns is not None and read.feed == "blocks":
        raise InvalidInputError(
            'feed = "blocks" has columns of its own; select from the DataFrame',
            columns=list(read.columns),
        )


# ---- values


def _text(value: str) -> str:
    return value


def _nonempty(value: str) -> str:
    if not value.strip():
        raise ValueError("some text")
    return value


def _count(value: str) -> int:
    number = _whole(value)
    if number < 1:
        raise ValueError("a whole number from 1")
    return number


def _whole(value: str) -> int:
    text = value.strip()
    if not (text.isascii() and text.isdigit()):
        raise ValueError("a whole number from 0")
    return int(text)


def _size(value: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", value.lower(), re.ASCII)
    if match is None or int(match[1]) == 0:
        raise ValueError('a number of bytes from 1, such as 104857600 or "100m"')
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2]]


def _flag(value: str) -> bool:
    text = value.strip().lower()
    if text not in {"true", "false"}:
        raise ValueError("true or false")
    return text == "true"


def _version(value: str) -> Version:
    text = _nonempty(value).strip()
    return int(text) if text.isascii() and text.isdigit() else text


def _start(value: str) -> int | str:
    if value.strip().lower() == LATEST:
        return LATEST
    try:
        return _whole(value)
    except ValueError:
        raise ValueError('a version, a number from 0, or "latest"') from None


def _time(value: str) -> str:
    timestamp_us(value)
    return value


def _feed(value: str) -> str:
    text = value.strip().lower()
    if text not in FEEDS:
        raise ValueError('"changes", "append" or "blocks"; a batch also has "table"')
    return text


def _names(value: str) -> tuple[str, ...]:
    if value.lstrip().startswith("["):
        return _strings(value)
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise ValueError('names with commas between, or a JSON list, such as ["a", "b"]')
    return names


def _strings(value: str) -> tuple[str, ...]:
    items = _json(value, list, 'a JSON list of texts, such as ["a", "b"]')
    if not all(isinstance(item, str) for item in items):
        raise ValueError('a JSON list of texts, such as ["a", "b"]')
    return tuple(items)


def _storage(value: str) -> StorageOptions:
    return StorageOptions(_json(value, dict, 'a JSON object, such as {"anon": true}'))


def _json(value: str, kind: type, wanted: str) -> Any:
    try:
        found = json.loads(value)
    except ValueError:
        found = None  # the error would hold the text, and the text may hold a secret
    if not isinstance(found, kind):
        raise ValueError(wanted)  # noqa: TRY004 - of the option's text, not of an argument
    return found


def _unsupported(_value: str) -> object:
    raise InvalidInputError(
        "named consumers are not supported yet; leave out consumer and onExpired: the position "
        "of a stream is kept in its checkpoint"
    )


# ---- names

_Parser = Callable[[str], object]

_BATCH_READ, _STREAM_READ, _BATCH_WRITE, _STREAM_WRITE = (
    "a batch read",
    "a stream read",
    "a batch write",
    "a stream write",
)

_READ: dict[str, tuple[str, _Parser]] = {
    "path": ("path", _nonempty),
    "feed": ("feed", _feed),
    "versionAsOf": ("version_as_of", _version),
    "timestampAsOf": ("timestamp_as_of", _time),
    "startingVersion": ("starting_version", _start),
    "startingTimestamp": ("starting_timestamp", _time),
    "endingVersion": ("ending_version", _whole),
    "endingTimestamp": ("ending_timestamp", _time),
    "branch": ("branch", _nonempty),
    "columns": ("columns", _names),
    "where": ("where", _nonempty),
    "maxRowsPerTrigger": ("max_rows_per_trigger", _count),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _size),
    "maxCommitsPerTrigger": ("max_commits_per_trigger", _count),
    "skipChangeCommits": ("skip_change_commits", _flag),
    "storageOptions": ("storage_options", _storage),
    "origins": ("origins", _strings),
    "timeZone": ("time_zone", _nonempty),
    "consumer": ("consumer", _unsupported),
    "onExpired": ("on_expired", _unsupported),
}
_WRITE: dict[str, tuple[str, _Parser]] = {
    "path": ("path", _nonempty),
    "branch": ("branch", _nonempty),
    "appId": ("app_id", _nonempty),
    "writer": ("writer", _text),
    "batchId": ("batch_id", _whole),
    "clusterBy": ("cluster_by", _names),
    "mergeSchema": ("merge_schema", _flag),
    "adopt": ("adopt", _nonempty),
    "checkpointLocation": ("checkpoint_location", _nonempty),
    "commitEmpty": ("commit_empty", _flag),
    "message": ("message", _text),
    "author": ("author", _text),
    "storageOptions": ("storage_options", _storage),
    "unsafeSingleWriter": ("unsafe_single_writer", _flag),
}

_AS_OF = "a stream starts at startingVersion or startingTimestamp"
_TRIGGER = "a batch has no triggers; leave it out"
_NO_QUERY = "a batch write has no query; leave it out"
_MISPLACED: dict[str, dict[str, str]] = {
    _BATCH_READ: {
        "maxRowsPerTrigger": _TRIGGER,
        "maxBytesPerTrigger": _TRIGGER,
        "maxCommitsPerTrigger": _TRIGGER,
    },
    _STREAM_READ: {"versionAsOf": _AS_OF, "timestampAsOf": _AS_OF},
    _BATCH_WRITE: {
        "adopt": _NO_QUERY,
        "checkpointLocation": _NO_QUERY,
        "commitEmpty": _NO_QUERY,
    },
    _STREAM_WRITE: {"batchId": "a stream counts its batches itself; leave it out"},
}
_SPARKS_OWN: dict[str, frozenset[str]] = {
    _BATCH_READ: frozenset(),
    _STREAM_READ: frozenset(),
    _BATCH_WRITE: frozenset(),
    _STREAM_WRITE: frozenset({"queryname"}),
}
"""What Spark itself hands over beside the user's options."""


def _parse(
    options: Mapping[str, str], known: Mapping[str, tuple[str, _Parser]], use: str
) -> dict[str, Any]:
    given = {name.lower(): value for name, value in options.items()}
    spellings = {name.lower(): name for name in known}
    values: dict[str, Any] = {}
    for lowered, value in given.items():
        if lowered in _SPARKS_OWN[use]:
            continue
        name = spellings.get(lowered)
        if name is None:
            raise _unknown(lowered, spellings, use)
        if name in _MISPLACED[use]:
            raise InvalidInputError(
                f"this option has no meaning for {use}: {_MISPLACED[use][name]}", option=name
            )
        attribute, parser = known[name]
        values[attribute] = _parsed(name, value, parser)
    if "path" not in values:
        raise InvalidInputError(NO_PATH)
    return values


def _parsed(name: str, value: str, parser: _Parser) -> object:
    try:
        return parser(value)
    except InvalidInputError:
        raise
    except ValueError as error:
        shown = {} if parser is _storage else {"value": value}
        raise InvalidInputError(
            f"an option's value cannot be read: write {error}", option=name, **shown
        ) from None


def _unknown(name: str, spellings: Mapping[str, str], use: str) -> InvalidInputError:
    if name == "paths":
        return InvalidInputError("read one table at a time; union the DataFrames")
    remedy = REMEDIES.get(name) or next(
        (found for prefix, found in PREFIXES.items() if name.startswith(prefix)), None
    )
    if remedy is not None:
        return InvalidInputError(f"{use} has no such option; here it is {remedy}", option=name)
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
