"""The search for the newest version of a branch, in rounds of reads that are made together.

Rules:
- A version is *taken* if its slot exists or its chunk has a floor marker. The taken versions have
  no gaps unless slots were lost, so steps that grow and then a division of what is left find the
  largest one, which is the head.
- A missing slot may have been freed. It shows the end only if the marker of its chunk, asked for
  after that, is missing, too. One marker counts for all missing slots of its chunk in a search: if
  they were freed since, more than the grace is over, and no head is trusted for a quarter of it.
- What comes after a head that was read less than a quarter of the grace ago cannot have been freed
  yet: no marker is asked for.
- A marker that is found tells that time has passed: what was missing before, slots and markers, is
  asked for again.
- One lost slot does not end the history: a search without a known head also asks for the slot after
  the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fuse_stream.errors import CorruptObjectError
from fuse_stream.format.layout import (
    LAST_VERSION,
    chunk_of,
    floor_key,
    last_of_chunk,
    slot_key,
)
from fuse_stream.format.refs import Forks, owner_of
from fuse_stream.storage.base import Store
from fuse_stream.storage.parallel import find_objects

LOOKS = 6
"""How many further versions a remote store is asked for in one round."""

MOST_ROUNDS = 2_000
"""Each finds a later version, or divides what is left; past a lost slot it starts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The answers of one round."""

    slots: dict[int, bytes]
    """The bytes of the slots that exist, by version."""
    is_expired: bool
    """True if the chunk of the version whose marker was asked for has one."""


Ask = Callable[[Sequence[int], int | None], Answers]
"""Asks for the slots of versions, and for the marker of one, if given."""


@dataclass(slots=True, kw_only=True)
class HeadSearch:
    """A search that starts at a version which is taken, or 0; `find` runs it."""

    ask: Ask
    looks: int
    """How many further versions are asked for in one round."""
    is_fresh: Callable[[], bool]
    """True if no version after the start can have been freed yet."""
    newest: int
    """The largest version known to be taken; 0 if none is."""
    slots: dict[int, bytes] = field(default_factory=dict)
    """The bytes of the slots of the newest version and the first one asked for, if found."""
    _missing: set[int] = field(default_factory=set)
    """Versions whose slots were not there."""
    _not_taken: set[int] = field(default_factory=set)
    """Those whose marker was not there after that."""

    def find(self, first: Sequence[int], step: int, *, past_gaps: bool) -> int:
        """Return the newest version; ask for the versions `first` at first.

        After them each round asks for more versions, `step` and then more apart, until one is
        missing. With `past_gaps` one lost slot is no end.

        Raises:
            CorruptObjectError: too many slots are lost.
        """
        versions, marker = first, None
        looks = 1
        for _ in range(MOST_ROUNDS):
            self._look(versions, marker)
            kept = {first[0], self.newest}
            self.slots = {one: data for one, data in self.slots.items() if one in kept}
            end = min((one for one in self._missing if one > self.newest), default=None)
            if end is None:
                looks = min(2 * looks, self.looks)  # at first few: mostly there is one commit more
                versions, marker = self._further(step, looks), None
                step *= max(2, looks)
                continue
            between = self._between(end, past_gaps=past_gaps)
            versions = [one for one in between if one not in self._missing]
            marker = None if self._is_end(end) else end
            if not versions and marker is None:
                return self.newest
        raise CorruptObjectError(
            "many slots of a branch are lost, so its newest one is not known; restore those that "
            "fuse-stream fsck names from a copy",
            version=self.newest,
        )

    def _look(self, versions: Sequence[int], marker: int | None) -> None:
        real = [one for one in versions if one <= LAST_VERSION]
        found = self.ask(real, marker)
        self.slots |= found.slots
        self._missing.update(set(versions) - found.slots.keys())
        self.newest = max(self.newest, *found.slots) if found.slots else self.newest
        if marker is not None and found.is_expired:
            self.newest = max(self.newest, last_of_chunk(marker))
            # They were asked for before, and may have been created, or freed, since.
            self._missing.clear()
            self._not_taken.clear()
        elif marker is not None:
            self._not_taken.add(marker)

    def _further(self, step: int, looks: int) -> list[int]:
        last = LAST_VERSION + 1  # no key has such a number, so no slot
        return [min(self.newest + step * count, last) for count in range(1, looks + 1)]

    def _between(self, end: int, *, past_gaps: bool) -> Iterator[int]:
        """Yield the versions to ask for between the newest one and the first missing one."""
        width = end - self.newest
        if width - 1 > self.looks:
            parts = self.looks + 1
            yield from (self.newest + width * part // parts for part in range(1, parts))
            return
        yield from range(self.newest + 1, end)
        if past_gaps:
            yield end + 1

    def _is_end(self, version: int) -> bool:
        """True if a missing slot was not freed."""
        if version in self._not_taken or version > LAST_VERSION or self.is_fresh():
            return True
        later = (one for one in self._not_taken if one > self.newest)  # one before it was lost
        return chunk_of(version) in map(chunk_of, later)


def ask_of(store: Store, branch_id: str, forks: Forks, expired: set[str]) -> Ask:
    """Return how a branch's versions are asked for.

    `expired` has the keys of the markers that were found; they are not asked for again.
    """

    def ask(versions: Sequence[int], marker: int | None) -> Answers:
        slots = {one: slot_key(owner_of(forks, branch_id, one), one) for one in versions}
        markers = set[str]()
        if marker is not None:
            markers.add(floor_key(owner_of(forks, branch_id, marker), marker))
        found = find_objects(store, [*slots.values(), *(markers - expired)])
        expired.update(key for key in markers - expired if found[key] is not None)
        data = {one: found[key] for one, key in slots.items()}
        return Answers(
            slots={one: held for one, held in data.items() if held is not None},
            is_expired=not expired.isdisjoint(markers),
        )

    return ask
