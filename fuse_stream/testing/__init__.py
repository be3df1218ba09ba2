"""Stores, a clock and a model for tests, of this package and of its users."""

from __future__ import annotations

from fuse_stream.testing.clock import ManualClock
from fuse_stream.testing.faults import Crash, Fault, FaultyStore
from fuse_stream.testing.memory import MemoryObject, MemoryStore
from fuse_stream.testing.model import ModelRefusalError, ModelTable, assert_sound, rows_of
from fuse_stream.testing.tables import open_table_in, temporary_table

__all__ = [
    "Crash",
    "Fault",
    "FaultyStore",
    "ManualClock",
    "MemoryObject",
    "MemoryStore",
    "ModelRefusalError",
    "ModelTable",
    "assert_sound",
    "open_table_in",
    "rows_of",
    "temporary_table",
]
