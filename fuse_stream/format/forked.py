"""What the `metadata` of a forked checkpoint says beside the query's id. Spark ignores it. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

CLAIM_FIELD = "fuse_stream"
"""The field that holds who made the checkpoint, and from which one."""

ANCESTORS = "ancestors"

REBUILT_FROM = "rebuilt_from"
"""Of a checkpoint that was rebuilt under an id of its own, and of its forks: as an ancestor."""

UNKNOWN_CUT = -2
"""Of an ancestor of a checkpoint that was rebuilt: nothing tells where it was forked."""

UNKNOWN_KIND = -3
"""The same, and nothing tells whether it was forked, or another query took its place (`adopt`)."""

UNKNOWN = frozenset({UNKNOWN_CUT, UNKNOWN_KIND})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A query of whose checkpoint another one is a fork."""

    query_id: str
    through: int
    """The last batch of it that the fork holds; -1: none. Or one of `UNKNOWN`."""


def claim_in(metadata: object) -> dict[str, Any] | None:
    """Return who made a checkpoint and from which one, by the JSON value of `metadata`."""
    facts = metadata.get(CLAIM_FIELD) if isinstance(metadata, dict) else None
    return facts if isinstance(facts, dict) else None


def ancestors_in(metadata: object) -> tuple[Ancestor, ...]:
    """Return the queries of whose checkpoints one is a fork, the nearest first.

    Args:
        metadata: the JSON value of its file `metadata`.
    """
    return ancestors_of(claim_in(metadata))


def ancestors_of(facts: object) -> tuple[Ancestor, ...]:
    """Return the same, by the value of `CLAIM_FIELD`."""
    match facts:
        case {"old_query_id": str(nearest), "offsets_through": int() | None as through, **more}:
            cut = -1 if through is None else through
            older = (cut_at(ancestor, cut) for ancestor in _listed(more.get(ANCESTORS)))
            return (Ancestor(query_id=nearest, through=cut), *older)
        case {"ancestors": listed}:  # of a checkpoint that was rebuilt
            return _listed(listed)
    return ()


def rebuilt_from_in(metadata: object) -> Ancestor | None:
    """Return the query whose checkpoint was rebuilt as this one, or as one that it is a fork of.

    Args:
        metadata: the JSON value of the checkpoint's file `metadata`.
    """
    found = _listed([(claim_in(metadata) or {}).get(REBUILT_FROM)])
    return found[0] if found else None


def cut_at(ancestor: Ancestor, through: int) -> Ancestor:
    """Return an ancestor of a fork that is cut after a batch."""
    return dataclasses.replace(ancestor, through=min(ancestor.through, through))


def _listed(value: object) -> tuple[Ancestor, ...]:
    found = []
    for pair in value if isinstance(value, list) else []:
        match pair:
            case [str(query), int(through)]:
                found.append(Ancestor(query_id=query, through=through))
    return tuple(found)


def as_json(ancestors: tuple[Ancestor, ...]) -> list[list[object]]:
    """Return what `ANCESTORS` holds."""
    return [[ancestor.query_id, ancestor.through] for ancestor in ancestors]
