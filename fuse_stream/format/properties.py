"""The table properties that this package reads, their defaults and their valid values. Pure.

Properties without the prefix `fuse.` are the user's own; they are stored and never read.

Quiet hours are the part of each day, in UTC, in which the optimizer does not work on a table.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from fuse_stream.errors import CorruptObjectError, InvalidInputError
from fuse_stream.format.jsonio import is_storable
from fuse_stream.format.records import Block
from fuse_stream.format.schema import Column, Schema

OWN_PREFIX = "fuse."
BLOCK_ROWS = "fuse.block.rows"
BLOCK_BYTES = "fuse.block.bytes"
CLUSTER_DEPTH = "fuse.cluster.depth"
"""The average depth of the cluster key's order up to which `recluster` does nothing."""
GRACE = "fuse.grace"
VACUUM_AGE = "fuse.vacuum.age"
LEDGER_RETAIN = "fuse.ledger.retain"
CONSUMER_LEASE = "fuse.consumer.lease"
RETAIN = "fuse.retain"
OPTIMIZE_BLOCKS = "fuse.optimize.blocks"
"""The number of imperfect blocks at which the optimizer compacts."""
OPTIMIZE_QUIET = "fuse.optimize.quiet"
DELETES_ROWS = "fuse.deletes.rows"
"""The share of hidden rows at which compaction rewrites a block, even one that is large enough."""
DELETES_AGE = "fuse.deletes.age"
"""The age of hidden rows at which compaction rewrites a block, however few they are."""
PRIVATE = "fuse.private"
"""Names of top columns, with commas between: no record and no footer has bounds for them."""
BLOOM = "fuse.bloom.columns"
"""Names of top columns, with commas between: new blocks have Bloom filters for them."""
DEFAULTS: Mapping[str, str] = {
    BLOCK_ROWS: "1000000",
    BLOCK_BYTES: str(100 * 1024 * 1024),
    CLUSTER_DEPTH: "4",
    GRACE: "1h",
    VACUUM_AGE: "24h",
    LEDGER_RETAIN: "90d",
    CONSUMER_LEASE: "1d",
    OPTIMIZE_BLOCKS: "25",
    OPTIMIZE_QUIET: "",
    DELETES_ROWS: "10%",
    DELETES_AGE: "7d",
    PRIVATE: "",
    BLOOM: "",
}
OWN_NAMES = frozenset({*DEFAULTS, RETAIN})
"""`fuse.retain` has no default: history is removed only if the user asks for it."""
PERFECT_FRACTION = 0.8
"""A block with at least this fraction of the target size is perfect."""

Duration = dt.timedelta | str

_FIXED_AT_CREATE = frozenset({GRACE})
_COUNTS = frozenset({BLOCK_ROWS, BLOCK_BYTES, CLUSTER_DEPTH, OPTIMIZE_BLOCKS})
_DURATIONS = frozenset({GRACE, VACUUM_AGE, LEDGER_RETAIN, CONSUMER_LEASE, RETAIN, DELETES_AGE})
_DURATION = re.compile(r"([0-9]{1,9})\s*(s|m|h|d)")
_COUNT = re.compile(r"[1-9][0-9]{0,17}")
_PERCENT = re.compile(r"([1-9][0-9]?|100)%")
MAX_DURATION_US = 1_000 * 366 * 86_400_000_000
_UNIT_US = {"s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTarget:
    """How blocks should be made; the limit that is reached first ends a block."""

    rows: int
    bytes: int
    """Uncompressed."""
    private: tuple[str, ...] = ()
    """The names of the columns without bounds."""
    filtered: tuple[str, ...] = ()
    """The names of the columns with Bloom filters."""

    @property
    def perfect_rows(self) -> int:
        return int(self.rows * PERFECT_FRACTION)

    @property
    def perfect_bytes(self) -> int:
        return int(self.bytes * PERFECT_FRACTION)

    def is_perfect(self, block: Block) -> bool:
        """True if a block is so large that compaction leaves it as it is."""
        return block.row_count >= self.perfect_rows or block.block_size >= self.perfect_bytes


def block_target(properties: Mapping[str, str]) -> BlockTarget:
    """Return how the blocks of a table should be made."""
    rows, size = (properties.get(name, DEFAULTS[name]) for name in (BLOCK_ROWS, BLOCK_BYTES))
    if not (_COUNT.fullmatch(rows) and _COUNT.fullmatch(size)):
        raise CorruptObjectError("a block's size is not a number", rows=rows[:50], bytes=size[:50])
    return BlockTarget(
        rows=int(rows),
        bytes=int(size),
        private=listed_names(properties.get(PRIVATE, "")),
        filtered=listed_names(properties.get(BLOOM, "")),
    )


def listed_names(text: str) -> tuple[str, ...]:
    """Return the names of columns in the value of a property that lists them, each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def iter_listed_columns(
    name: str, schema: Schema, properties: Mapping[str, str]
) -> Iterator[Column]:
    """Yield the columns of a table that the property `name` lists.

    Raises:
        InvalidInputError: the table has no such column.
    """
    known = {column.name: column for column in schema.columns}
    for listed in listed_names(properties.get(name, "")):
        if listed not in known:
            near = difflib.get_close_matches(listed, known, n=1)
            raise InvalidInputError(
                f"{name} names a column that the table does not have; names have commas between",
                column=listed,
                nearest=near[0] if near else None,
                columns=list(known),
            )
        yield known[listed]


def optimize_quiet(properties: Mapping[str, str]) -> QuietHours | None:
    """Return the hours of a day in which the optimizer does nothing; None without such hours."""
    text = properties.get(OPTIMIZE_QUIET, DEFAULTS[OPTIMIZE_QUIET])
    try:
        return quiet_hours(text)
    except InvalidInputError as error:
        raise CorruptObjectError(
            "a property does not have the form of quiet hours",
            property=OPTIMIZE_QUIET,
            value=text[:50],
        ) from error


def grace_us(properties: Mapping[str, str]) -> int:
    """Return the least time that a superseded snapshot stays readable, in microseconds."""
    return duration_property_us(properties, GRACE)


def duration_property_us(properties: Mapping[str, str], name: str) -> int:
    """Return the value of a duration property in microseconds.

    Raises:
        CorruptObjectError: the stored value is not a duration.
    """
    text = properties[name] if name in properties else DEFAULTS[name]
    try:
        return duration_us(text)
    except InvalidInputError as error:
        raise CorruptObjectError(
            "a property is not a duration", property=name, value=text[:50]
        ) from error


def duration_of(duration: Duration) -> int:
    """Return a duration that a caller gave in microseconds; errors of `duration_us`."""
    found = 0
    if isinstance(duration, dt.timedelta):
        found = duration // dt.timedelta(microseconds=1)
    elif isinstance(duration, str):
        found = duration_us(duration)
    if 0 < found <= MAX_DURATION_US:
        return found
    raise InvalidInputError(
        'a duration is a timedelta above zero, or a number and s, m, h or d, such as "7d"',
        duration=duration,
    )


def duration_us(text: str) -> int:
    """Return a duration such as "90s", "30m", "1h" or "7d" in microseconds.

    Raises:
        InvalidInputError: the text is not a duration.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if not match:
        raise InvalidInputError(
            'a duration is a number and s, m, h or d, such as "7d"', duration=text
        )
    duration = int(match[1]) * _UNIT_US[match[2]]
    if duration > MAX_DURATION_US:
        raise InvalidInputError("a duration is at most 1,000 years", duration=text)
    return duration


def check_properties(properties: Mapping[str, str], *, creating: bool) -> dict[str, str]:
    """Return `properties` as they are stored: names and values as text.

    Raises:
        InvalidInputError: an unknown name that begins with `fuse.`, an invalid value, or a
            property that cannot change after the table was created.
    """
    given: object = properties
    if not isinstance(given, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str | int) for name, value in given.items()
    ):
        raise InvalidInputError("properties are a mapping of names to texts", properties=properties)
    checked = {str(name): str(value) for name, value in properties.items()}
    for name, value in checked.items():
        if not (is_storable(name) and is_storable(value)):
            raise InvalidInputError(
                "a property's name or value has a character that UTF-8 cannot encode; remove it",
                property=name,
                value=value,
            )
        if not name.startswith(OWN_PREFIX):
            continue
        if name not in OWN_NAMES:
            near = difflib.get_close_matches(name, sorted(OWN_NAMES), n=1)
            raise InvalidInputError(
                "unknown table property; for a property of your own, use a name without `fuse.`",
                property=name,
                nearest=near[0] if near else None,
            )
        if name in _FIXED_AT_CREATE and not creating:
            raise InvalidInputError(
                "this property is fixed when the table is created; leave it out", property=name
            )
        _check_value(name, value)
    return checked


def changed_properties(
    before: Mapping[str, str], to_set: Mapping[str, str] | None, to_remove: Collection[str]
) -> dict[str, str]:
    """Return the properties of a table after some were set and others removed."""
    after = {**before, **(to_set or {})}
    return {name: value for name, value in after.items() if name not in to_remove}


def _check_value(name: str, value: str) -> None:
    """Raise InvalidInputError if the value of one of this package's properties is invalid."""
    if name in _DURATIONS:
        duration_us(value)
    if name == OPTIMIZE_QUIET:
        quiet_hours(value)
    if name == DELETES_ROWS and not _PERCENT.fullmatch(value):
        raise InvalidInputError(
            'the value of this property is a share from "1%" to "100%"',
            property=name,
            value=value,
        )
    if name in _COUNTS and not _COUNT.fullmatch(value):
        raise InvalidInputError(
            "the value of this property is a whole number from 1", property=name, value=value
        )


def count_property(properties: Mapping[str, str], name: str) -> int:
    """Return the value of a property that is a whole number from 1."""
    text = properties.get(name, DEFAULTS[name])
    if not _COUNT.fullmatch(text):
        raise CorruptObjectError("a property is not a number", property=name, value=text[:50])
    return int(text)


def percent_property(properties: Mapping[str, str], name: str) -> int:
    """Return the value of a property that is a share, in percent."""
    match = _PERCENT.fullmatch(properties.get(name, DEFAULTS[name]))
    if not match:
        raise CorruptObjectError("a property is not a share", property=name)
    return int(match[1])


DAY_US = 86_400_000_000
_MINUTE_US = 60_000_000
_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietHours:
    """From `start_us` to `end_us` of a day; over midnight if the end is the smaller one."""

    start_us: int
    """Microseconds after midnight, UTC."""
    end_us: int
    """Exclusive."""

    def end_of(self, now_us: int) -> int | None:
        """Return the end of the quiet hours that contain `now_us`; None outside quiet hours."""
        since_us = (now_us - self.start_us) % DAY_US
        length_us = (self.end_us - self.start_us) % DAY_US
        return now_us + length_us - since_us if since_us < length_us else None


def quiet_hours(text: str) -> QuietHours | None:
    """Return the quiet hours that a text such as "22:00-06:00" means; None for an empty text.

    Raises:
        InvalidInputError: the text has another form, or its start and end are the same.
    """
    if not text:
        return None
    match = _HOURS.fullmatch(text)
    if not match or match.group(1, 2) == match.group(3, 4):
        raise InvalidInputError(
            'quiet hours are a start and an end in UTC, such as "22:00-06:00", or empty for none; '
            "for the whole day turn the optimizer off",
            quiet=text,
        )
    hours = [int(part) for part in match.groups()]
    return QuietHours(
        start_us=(hours[0] * 60 + hours[1]) * _MINUTE_US,
        end_us=(hours[2] * 60 + hours[3]) * _MINUTE_US,
    )
