"""Drivers of one query: each has a checkpoint, and these may be copies that diverged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.protocol.model.commits import Head, find_head, next_of, put_slot
from tests.protocol.model.records import MAIN, Rules
from tests.protocol.model.script import Again, Note, Steps
from tests.protocol.model.store import Put


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch as a checkpoint has planned it: rows of the source, from `first` to before `stop`."""

    number: int
    first: int
    stop: int
    is_empty: bool = False
    """True if the query's filter removes all its rows."""

    @property
    def name(self) -> str:
        return f"line|{self.number}|{self.first}|{self.stop}"


def planned_in(names: frozenset[str]) -> Iterator[Planned]:
    """Yield the batches of queries among the names of a ledger or of blocks."""
    for name in names:
        if name.startswith("line|"):
            number, first, stop = (int(part) for part in name.split("|")[1:])
            yield Planned(number, first, stop)


def driver(
    rules: Rules,
    checkpoint: tuple[Planned, ...],
    *,
    done: int,
    known: Head | None = None,
    has_put: bool = False,
) -> Steps:
    """Deliver the batches of a checkpoint from number `done` on, as the ledger allows it.

    An empty batch is judged on the head that the driver remembers, and commits nothing.
    """
    if done == len(checkpoint):
        return None
    batch = checkpoint[done]
    if batch.is_empty:
        return _next(rules, checkpoint, done=done + 1, known=known)
    head = yield from find_head(rules, MAIN, known)
    if head is None:
        return None
    last = max(planned_in(head.snapshot.ledger), key=lambda one: one.number, default=None)
    if last is not None:
        if batch == last:
            yield Note(("replayed", batch.name, MAIN, head.snapshot.version))
            return _next(rules, checkpoint, done=done + 1, known=head)
        own = next((one for one in checkpoint if one.number == last.number), None)
        is_other = own is not None and (own.first, own.stop) != (last.first, last.stop)
        if batch.number <= last.number or (rules.continuity and is_other):
            return None  # StreamIdentityError
    block = f"{batch.name}'{checkpoint[-1].stop}"
    if not has_put:
        yield Put(("block", block), batch.name)
    candidate = next_of(
        MAIN,
        head.snapshot,
        block,
        "append",
        blocks=head.snapshot.blocks | {(batch.name, block)},
        ledger=head.snapshot.ledger | {batch.name},
    )
    if (yield from put_slot(rules, head, candidate)):
        yield Note(("acknowledged", MAIN, candidate.version, block))
        return _next(rules, checkpoint, done=done + 1, known=Head(candidate, head.read))
    return _next(rules, checkpoint, done=done, known=head, has_put=True)


def _next(rules: Rules, checkpoint: tuple[Planned, ...], **named: object) -> Again:
    return Again(driver, (rules, checkpoint), tuple(sorted(named.items())))
