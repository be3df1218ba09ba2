"""Check the lists of indexes that snapshots name, and their parts. No row depends on them."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from fuse_stream.check.findings import Evidence, Fault, FindingKind, Leftovers, left_over
from fuse_stream.format.codec import sha256_hex
from fuse_stream.format.index_codec import decode_index_list
from fuse_stream.format.indexes import IndexListRef, IndexPart
from fuse_stream.format.layout import (
    AGGREGATES_PREFIX,
    INDEX_LISTS_PREFIX,
    aggregates_key,
    index_list_key,
)

INDEX_LISTS, INDEX_PARTS = "lists of indexes", "parts of indexes"

_LIST_LOST = (
    "the indexes of the versions that name it, and no row: put it back from a copy, or drop all "
    "indexes (fuse-stream indexes --drop-all) and create them again"
)
_PART_LOST = (
    "only time, since what it holds is computed from the rows: drop the index and create it again"
)


class Indexes:
    """The lists of indexes and the parts that the snapshots checked so far name."""

    def __init__(self, evidence: Evidence, *, deep: bool) -> None:
        self._evidence = evidence
        self._deep = deep
        self._lists: dict[str, str] = {}
        """The hash of each list that was checked, by id."""
        self._parts: set[str] = set()
        self._sizes: dict[str, int] | None = None

    def see(self, ref: IndexListRef | None) -> None:
        """Check the list that a snapshot names, and its parts, unless that was done."""
        if ref is None:
            return
        key = index_list_key(ref.id)
        if ref.id in self._lists:
            if self._lists[ref.id] != ref.sha256:
                fault = Fault(FindingKind.BROKEN, "two snapshots name it by different hashes")
                self._evidence.report(fault, key, _LIST_LOST)
            return
        self._lists[ref.id] = ref.sha256
        found = self._evidence.load(key, partial(decode_index_list, sha256=ref.sha256))
        if isinstance(found, Fault):
            self._evidence.report(found, key, _LIST_LOST)
            return
        for part in found.parts:
            if part.origin is None and part.id not in self._parts:
                self._parts.add(part.id)
                fault_of_part = self._fault_of(part)
                if fault_of_part is not None:
                    self._evidence.report(fault_of_part, aggregates_key(part.id), _PART_LOST)

    def unreachable(
        self, leased_lists: Collection[str], leased_parts: Collection[str]
    ) -> dict[str, Leftovers]:
        """Return, by kind, the objects that no snapshot names, checked or leased; ids are given."""
        lists = {info.key: info.size for info in self._evidence.store.list(INDEX_LISTS_PREFIX)}
        return {
            INDEX_LISTS: left_over(lists, map(index_list_key, {*self._lists, *leased_lists})),
            INDEX_PARTS: left_over(
                self._listed(), map(aggregates_key, {*self._parts, *leased_parts})
            ),
        }

    def _listed(self) -> dict[str, int]:
        if self._sizes is None:
            listed = self._evidence.store.list(AGGREGATES_PREFIX)
            self._sizes = {info.key: info.size for info in listed}
        return self._sizes

    def _fault_of(self, part: IndexPart) -> Fault | None:
        key = aggregates_key(part.id)
        size = self._listed().get(key)
        if size is not None and not self._deep:
            wrong = f"it has {size} bytes, its record says {part.byte_size}"
            return None if size == part.byte_size else Fault(FindingKind.DAMAGED, wrong)
        # A listing may lack an object that exists: only a `get` decides.
        is_whole = self._evidence.load(key, lambda data: sha256_hex(data) == part.sha256)
        if isinstance(is_whole, Fault):
            return is_whole
        wrong = "it differs from the hash in its list"
        return None if is_whole else Fault(FindingKind.DAMAGED, wrong)
