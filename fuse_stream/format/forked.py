"""What the `metadata` of a forked checkpoint says beside the query's id. Spark ignores it. Pure."""

from __future__ import annotations

CLAIM_FIELD = "fuse_stream"
"""The field that holds who made the checkpoint, and from which one."""

ANCESTORS = "ancestors"


def ancestors_in(metadata: object) -> tuple[str, ...]:
    """Return the queries of whose checkpoints one is a fork, the nearest first.

    Args:
        metadata: the JSON value of its file `metadata`.
    """
    match metadata:
        case {**fields} if isinstance(facts := fields.get(CLAIM_FIELD), dict):
            return ancestors_of(facts)
    return ()


def ancestors_of(facts: object) -> tuple[str, ...]:
    """Return the same, by the value of `CLAIM_FIELD`."""
    match facts:
        case {"old_query_id": str(nearest), **more}:
            older = more.get(ANCESTORS, [])
            named = older if isinstance(older, list) else []
            return (nearest, *(name for name in named if isinstance(name, str)))
    return ()
