"""Rewrite the metadata of a clone's copy, whose blocks are all in its own folder.

A block record of a clone names the table that holds its file, and so does a part of an index. In
the copy no record may, so the segments and lists of indexes with such records are other bytes, and
so are the snapshots that name these, their children, and the refs that name those: each holds the
hash of another object.

What is not changed keeps its bytes. Ids, times and contents stay, so a stream's position in the
clone is one in the copy.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fuse_stream.expiry.mark import SlotName
from fuse_stream.format.codec import encode_fields, sha256_hex, without_origins
from fuse_stream.format.index_codec import encode_index_list, without_part_origins
from fuse_stream.format.indexes import IndexList, IndexListRef
from fuse_stream.format.jsonio import load_json
from fuse_stream.format.records import Segment, SegmentRef
from fuse_stream.format.refs import BranchRef, CloneRef, TagRef

Ref = BranchRef | TagRef | CloneRef


class StandAlone:
    """The new hashes of the segments and snapshots of a clone; of another table none."""

    def __init__(self) -> None:
        self._segments: dict[str, tuple[str, int]] = {}
        """New hash and size of each rewritten segment, by id."""
        self._index_lists: dict[str, str] = {}
        """New hash of each rewritten list of indexes, by id."""
        self._slots: dict[SlotName, str] = {}
        """New hash of each rewritten slot."""

    def segment(self, ref: SegmentRef, data: bytes, segment: Segment) -> bytes:
        """Return the bytes of a segment for the copy."""
        if all(block.origin is None for block in segment.blocks):
            return data
        rewritten = without_origins(data, ref.sha256)
        self._segments[ref.id] = sha256_hex(rewritten), len(rewritten)
        return rewritten

    def index_list(self, ref: IndexListRef, data: bytes, indexes: IndexList) -> bytes:
        """Return the bytes of a list of indexes for the copy."""
        if all(part.origin is None for part in indexes.parts):
            return data
        rewritten, self._index_lists[ref.id] = encode_index_list(without_part_origins(indexes))
        return rewritten

    def slot(self, at: SlotName, data: bytes) -> bytes:
        """Return the bytes of a slot for the copy; its parent and target were asked for before."""
        if not self._segments and not self._index_lists:
            return data
        fields: dict[str, Any] = load_json(data)
        changes = [
            self._renew_segment(ref)
            for held in (fields, *fields.get("sides", {}).values())
            for ref in held["segments"]
        ]
        changes.append(self._renew_index_list(fields.get("index_list")))
        changes += [self._renew_parent(fields.get(name)) for name in ("parent", "target")]
        if not any(changes):
            return data
        rewritten = encode_fields(fields)
        self._slots[at] = sha256_hex(rewritten)
        return rewritten

    def ref(self, ref: Ref) -> Ref:
        """Return a ref for the copy, after all slots."""
        forks = tuple(
            dataclasses.replace(
                fork, sha256=self._slots.get((fork.branch_id, fork.version), fork.sha256)
            )
            for fork in ref.forks
        )
        return ref if forks == ref.forks else dataclasses.replace(ref, forks=forks)

    def _renew_segment(self, ref: dict[str, Any]) -> bool:
        found = self._segments.get(ref["id"])
        if found is None:
            return False
        ref["sha256"], ref["byte_size"] = found
        return True

    def _renew_index_list(self, ref: dict[str, Any] | None) -> bool:
        if ref is None or ref["id"] not in self._index_lists:
            return False
        ref["sha256"] = self._index_lists[ref["id"]]
        return True

    def _renew_parent(self, parent: dict[str, Any] | None) -> bool:
        if parent is None:
            return False
        found = self._slots.get((parent["branch_id"], parent["version"]))
        if found is None:
            return False
        parent["sha256"] = found
        return True
