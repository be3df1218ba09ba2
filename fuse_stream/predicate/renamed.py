"""The same predicate on columns that have other names. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from fuse_stream.predicate.bound import Bound, BoundConstant, BoundLeaf, with_leaves

Paths = Mapping[tuple[str, ...], tuple[str, ...]]


def renamed(bound: Bound, paths: Paths) -> Bound:
    """Return a predicate with the path of each column replaced by the one that `paths` gives."""

    def changed(leaf: BoundLeaf) -> Bound:
        if isinstance(leaf, BoundConstant):
            return leaf
        column = dataclasses.replace(leaf.column, path=paths[leaf.column.path])
        return dataclasses.replace(leaf, column=column)

    return with_leaves(bound, changed)
