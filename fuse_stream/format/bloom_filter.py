"""The record of a Bloom filter. `split_block` has its bits, `bloom` says which columns have one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomFilter:
    """The location of a column's Bloom filter in its block: of the bits, without their header."""

    offset: int
    len: int
    type: str
    """The type that the file stores: a hash depends on it, and the column may have been widened."""
