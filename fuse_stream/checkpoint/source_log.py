"""The log that a file source keeps in `sources/<n>/`: which files each of its entries holds. Pure.

Entry k is the file `k`: a line `v1`, then one JSON line a file, which says `"batchId":k`. Every
tenth entry or so is `k.compact` instead and holds the lines of all entries up to its own; the files
that it made needless are deleted later. Spark wants the newest `.compact` and every entry after it,
under these very names: it takes the interval between compactions from them.

So a log is cut at an entry by keeping what is there up to it, and where that is no longer there,
by cutting the files that Spark had then out of a later `.compact`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fuse_stream.errors import CorruptObjectError, NotFoundError, UnsupportedFormatError
from fuse_stream.format.jsonio import load_json

_ENTRY = re.compile(r"(\d+)(\.compact)?")
_VERSION = b"v1"
_DEFAULT_INTERVAL = 10
"""Of `spark.sql.streaming.fileSource.log.compactInterval`, which Spark takes where it finds no
`.compact`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """A file to be made of some lines of a `.compact`."""

    name: str
    first: int
    last: int
    """The entries that it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCut:
    """How the log of one source is cut."""

    keep: frozenset[str]
    """Names of files."""
    compact: str = ""
    """The file that `parts` are cut out of, if there are any."""
    parts: tuple[LogPart, ...] = ()


def plan_log_cut(names: Iterable[str], end: int) -> LogCut:
    """Return how a log is cut after the entry `end`; -1 leaves nothing.

    Raises:
        NotFoundError: entries up to `end` are neither there nor in a later `.compact`.
    """
    entries, compacts, keep = set[int](), set[int](), set[str]()
    for name in names:
        if found := _ENTRY.fullmatch(name):
            (compacts if found[2] else entries).add(int(found[1]))
        else:
            keep.add(name)
    keep |= {str(entry) for entry in entries if entry <= end}
    keep |= {_compact(entry) for entry in compacts if entry <= end}
    later = sorted(entry for entry in compacts if entry > end)
    start = max((entry for entry in compacts if entry <= end), default=-1)
    missing = set(range(start + 1, end + 1)) - entries
    if not missing:
        return LogCut(keep=frozenset(keep))
    if not later:
        raise NotFoundError(
            "the log of a file source lacks entries that this batch needs; fork a later batch, "
            "or use a new checkpoint",
            missing=sorted(missing),
        )
    parts = []
    if start < 0:
        interval = later[1] - later[0] if len(later) > 1 else _DEFAULT_INTERVAL
        start = (end + 1) // interval * interval - 1
        if start >= 0:
            parts.append(LogPart(name=_compact(start), first=0, last=start))
    parts += [
        LogPart(name=str(entry), first=entry, last=entry)
        for entry in sorted(missing)
        if entry > start
    ]
    return LogCut(keep=frozenset(keep), compact=_compact(later[0]), parts=tuple(parts))


def cut_log(data: bytes, parts: Iterable[LogPart]) -> dict[str, bytes]:
    """Return the files that `parts` make of a `.compact`, by name.

    Raises:
        UnsupportedFormatError: a newer Spark wrote it.
        CorruptObjectError: it is not what Spark writes.
    """
    version, *lines = data.split(b"\n")
    if version != _VERSION:
        raise UnsupportedFormatError(
            "this log of a file source is not of a version that this release knows; update "
            "fuse_stream",
            version=version[:40].decode(errors="replace"),
        )
    marked = [(_entry_of(line), line) for line in lines if line]
    return {
        part.name: b"\n".join(
            [_VERSION, *(line for entry, line in marked if part.first <= entry <= part.last)]
        )
        for part in parts
    }


def _entry_of(line: bytes) -> int:
    match load_json(line):
        case {"batchId": int(entry)}:
            return entry
        case _:
            raise CorruptObjectError(
                "the log of a file source holds a line without its batchId; use a new checkpoint",
                line=line[:200].decode(errors="replace"),
            )


def _compact(entry: int) -> str:
    return f"{entry}.compact"
