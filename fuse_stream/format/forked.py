"""The fields that a forked checkpoint's `metadata` has beside the query's id. Pure.

Spark ignores these fields.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

CLAIM_FIELD = "fuse_stream"
"""The field that says which command made the checkpoint, and from which other checkpoint."""

ANCESTORS = "ancestors"

REBUILT_FROM = "rebuilt_from"
"""The field of a checkpoint that was rebuilt under a new query id, and of its forks. It holds the
lost query as an ancestor."""

UNKNOWN_CUT = -2
"""`through` of an ancestor of a rebuilt checkpoint: it is unknown after which batch it was cut."""

UNKNOWN_KIND = -3
"""The same, and it is also unknown whether it was forked or replaced by `adopt`."""

UNKNOWN = frozenset({UNKNOWN_CUT, UNKNOWN_KIND})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A query whose checkpoint was forked, directly or through other forks."""

    query_id: str
    through: int
    """The last of its batches that the fork has; -1 for none, or one of `UNKNOWN`."""


def claim_in(metadata: object) -> dict[str, Any] | None:
    """Return the value of `CLAIM_FIELD` in the JSON of a file `metadata`; None without one."""
    facts = metadata.get(CLAIM_FIELD) if isinstance(metadata, dict) else None
    return facts if isinstance(facts, dict) else None


def ancestors_in(metadata: object) -> tuple[Ancestor, ...]:
    """Return the ancestors in the JSON of a checkpoint's `metadata`, the nearest first."""
    return ancestors_of(claim_in(metadata))


def ancestors_of(facts: object) -> tuple[Ancestor, ...]:
    """Return the ancestors in a value of `CLAIM_FIELD`, the nearest first."""
    match facts:
        case {"old_query_id": str(nearest), "offsets_through": int() | None as through, **more}:
            cut = -1 if through is None else through
            older = (cut_at(ancestor, cut) for ancestor in _listed(more.get(ANCESTORS)))
            return (Ancestor(query_id=nearest, through=cut), *older)
        case {"ancestors": listed}:  # the checkpoint was rebuilt
            return _listed(listed)
    return ()


def rebuilt_from_in(metadata: object) -> Ancestor | None:
    """Return the lost query in the `metadata` of a rebuilt checkpoint or its fork; else None."""
    found = _listed([(claim_in(metadata) or {}).get(REBUILT_FROM)])
    return found[0] if found else None


def cut_at(ancestor: Ancestor, through: int) -> Ancestor:
    """Return the ancestor of a fork that is cut after the batch `through`."""
    return dataclasses.replace(ancestor, through=min(ancestor.through, through))


def _listed(value: object) -> tuple[Ancestor, ...]:
    found = []
    for pair in value if isinstance(value, list) else []:
        match pair:
            case [str(query), int(through)]:
                found.append(Ancestor(query_id=query, through=through))
    return tuple(found)


def as_json(ancestors: tuple[Ancestor, ...]) -> list[list[object]]:
    """Return the JSON value of the field `ANCESTORS`."""
    return [[ancestor.query_id, ancestor.through] for ancestor in ancestors]
