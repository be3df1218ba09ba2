"""The text of a checkpoint's `offsets/<batch>`: the end offset of each source in a batch. Pure.

Line 1 is the version, line 2 Spark's metadata of the batch, then one line per source: in `v1` in
the order of the query's plan, in `v2` with the source's name before a colon. `-` means that the
source has not returned any data yet.

The folders `sources/<n>` are numbered in the same order. But a source that the plan reads twice has
two lines and one folder, so the numbers of the following folders are lower than their lines'.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fuse_stream.errors import CorruptObjectError, InvalidInputError, UnsupportedFormatError
from fuse_stream.format.jsonio import is_storable, load_json
from fuse_stream.format.source_offset import (
    Offset,
    SourcePosition,
    find_offset,
    is_storable_offset,
)
from fuse_stream.storage.secrets import redact

NOTHING_YET = "-"

_IN_ORDER, _BY_NAME = "v1", "v2"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOffsets:
    """The end of a batch."""

    watermark_ms: int
    """0: the query has no watermark, or has not read a row yet."""
    lines: tuple[str, ...]
    """One per source: JSON text, or `NOTHING_YET`."""
    names: tuple[str, ...] | None
    """The names of the sources; None if the text does not have them."""

    def of_folder(self, name: str, folders: Collection[str]) -> str:
        """Return the line of the source with the folder `sources/<name>`, one of `folders`.

        Raises:
            InvalidInputError: the query reads a source twice, so the line is ambiguous.
        """
        if self.names is not None:
            return dict(zip(self.names, self.lines, strict=True)).get(name, NOTHING_YET)
        index = int(name) if name.isdecimal() else len(self.lines)
        possible = self.lines[index:]
        if not possible:
            return NOTHING_YET
        last = max((int(folder) for folder in folders if folder.isdecimal()), default=index)
        # The two lines of one source are always equal, and then there are fewer folders than lines.
        if len(set(self.lines)) == len(self.lines) or len(self.lines) == last + 1:
            return possible[0]
        if len({line for line in possible if is_of_files(line)}) > 1:
            raise InvalidInputError(
                "this query seems to read one source twice, so it is unknown which offset belongs "
                "to which file source; use a new checkpoint with another app_id",
                source=name,
                offsets=list(self.lines),
            )
        return next((line for line in possible if is_of_files(line)), possible[0])


def parse_offsets(text: str) -> BatchOffsets:
    """Return the parsed text of `offsets/<batch>`.

    Raises:
        UnsupportedFormatError: a newer Spark wrote it.
        CorruptObjectError: the text has another form.
    """
    version, *rest = text.removesuffix("\n").split("\n")
    if version not in {_IN_ORDER, _BY_NAME}:
        raise UnsupportedFormatError(
            "a newer Spark wrote these offsets; upgrade fuse-stream", version=version[:40]
        )
    if len(rest) < 2:
        raise _broken(text)
    note = load_json(rest[0].encode()) if rest[0].strip() else {}
    watermark_ms = note.get("batchWatermarkMs", 0) if isinstance(note, dict) else None
    if not isinstance(watermark_ms, int):
        raise _broken(text)
    lines, names = rest[1:], None
    if version == _BY_NAME:
        if not all(":" in line for line in lines):
            raise _broken(text)
        names = tuple(line.partition(":")[0] for line in lines)
        lines = [line.partition(":")[2] for line in lines]
    return BatchOffsets(watermark_ms=watermark_ms, lines=tuple(lines), names=names)


class PlannedSource(NamedTuple):
    """A source in the plan of a query."""

    path: str | None
    """The location that its reader was given; None if it has none."""
    name: str | None = None
    """The name that the user gave to it, if any."""


def find_sources(
    text: str, planned: Sequence[PlannedSource] = ()
) -> tuple[SourcePosition, ...] | None:
    """Return how far a batch has read the tables among its sources; None if there are none.

    Args:
        text: the text of `offsets/<batch>`.
        planned: the query's sources, in the order of its plan. Their paths are left out if the text
            has another number of sources.

    Raises:
        UnsupportedFormatError, CorruptObjectError: as `parse_offsets`.
    """
    offsets = parse_offsets(text)
    paths = [source.path for source in planned]
    if offsets.names is not None:
        named = {source.name: source.path for source in planned}
        paths = [named.get(name) for name in offsets.names]
    elif len(paths) != len(offsets.lines):
        paths = [None] * len(offsets.lines)
    found = []
    for line, path in zip(offsets.lines, paths, strict=True):
        offset = find_offset(offset_value(line))
        if offset is not None and is_storable_offset(offset):
            shown = redact(path, {}) if path is not None and is_storable(path) else None
            found.append(SourcePosition(offset=offset, path=shown))
    return tuple(found) or None


def move_branches(text: str, branch_of: Callable[[Offset], str]) -> str:
    """Return the text of `offsets/<batch>` with other branches in the positions of tables.

    `branch_of` returns for a position the id of the branch that it shall be on. All else stays as
    Spark wrote it, which compares positions as text.
    """
    offsets = parse_offsets(text)
    head = text.split("\n")[:2]
    lines = [_on_branch(line, branch_of) for line in offsets.lines]
    if offsets.names is not None:
        lines = [f"{name}:{line}" for name, line in zip(offsets.names, lines, strict=True)]
    end = "\n" if text.endswith("\n") else ""
    return "\n".join([*head, *lines]) + end


def _on_branch(line: str, branch_of: Callable[[Offset], str]) -> str:
    offset = find_offset(offset_value(line))
    if offset is None or branch_of(offset) == offset.branch_id:
        return line
    named = rf'("branch_id"\s*:\s*"){re.escape(offset.branch_id)}"'
    return re.sub(named, rf'\g<1>{branch_of(offset)}"', line)


def log_end(line: str) -> int | None:
    """Return the last log entry that the batch reads of a file source; None for other sources."""
    match offset_value(line):
        case {"logOffset": int(end), **more} if not more:
            return end
        case _:
            return None


def is_of_files(line: str) -> bool:
    """True if a line is that of a file source, or may be that of one without files."""
    return line == NOTHING_YET or log_end(line) is not None


def offset_value(line: str) -> Any:
    """Return the JSON value of a line; None if it is not JSON."""
    try:
        return load_json(line.encode())
    except CorruptObjectError:
        return None


def _broken(text: str) -> CorruptObjectError:
    return CorruptObjectError(
        "the text is not the offsets of a micro-batch; restore the checkpoint from a backup",
        text=text[:200],
    )
