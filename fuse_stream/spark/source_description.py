"""What Spark shows of the source of a stream: in its progress, its logs and its plans."""

from __future__ import annotations

from fuse_stream.storage.secrets import redact

_BEFORE, _AFTER = "fuse[", "]"


def describe_source(path: str) -> str:
    """Return the description of a source that reads the table at `path`."""
    return f"{_BEFORE}{redact(path, {})}{_AFTER}"


def find_path(description: str) -> str | None:
    """Return the path of the table that a source reads; None if it is another kind of source."""
    is_ours = description.startswith(_BEFORE) and description.endswith(_AFTER)
    return description[len(_BEFORE) : -len(_AFTER)] if is_ours else None
