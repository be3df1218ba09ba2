"""Cut the log of a file source, `sources/<n>/`, after an entry. Pure.

Entry k of the log is the file `k`: a line `v1`, then one JSON line per source file, with
`"batchId":k`. About every tenth entry is a file `k.compact` with the lines of all entries up to k;
Spark deletes the files of these entries later. Spark needs the newest `.compact` and every entry
after it, with exactly these names: it computes the interval between compactions from them.

So a cut keeps the files up to the entry. Files that no longer exist are made again from the lines
of a later `.compact`.
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
"""The default of `spark.sql.streaming.fileSource.log.compactInterval`, which Spark uses if there is
no `.compact`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """A file to make from some lines of a `.compact`."""

    name: str
    first: int
    last: int
    """The last of the entries in it; `first` is the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCut:
    """The files of a log after a cut."""

    keep: frozenset[str]
    """The names of the files to copy."""
    compact: str = ""
    """The file with the lines of `parts`, if there are any."""
    parts: tuple[LogPart, ...] = ()


def plan_log_cut(names: Iterable[str], end: int) -> LogCut:
    """Return the cut of a log after the entry `end`; -1 keeps no entry.

    Raises:
        NotFoundError: entries up to `end` are missing, and no later `.compact` has their lines.
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
    """Return the content of each of `parts` from the content of a `.compact`, by file name.

    Raises:
        UnsupportedFormatError: a newer Spark wrote the file.
        CorruptObjectError: the file does not have Spark's form.
    """
    version, *lines = data.split(b"\n")
    if version != _VERSION:
        raise UnsupportedFormatError(
            "a newer Spark wrote the log of a file source; upgrade fuse-stream",
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
                "the log of a file source has a line without batchId; use a new checkpoint",
                line=line[:200].decode(errors="replace"),
            )


def _compact(entry: int) -> str:
    return f"{entry}.compact"
