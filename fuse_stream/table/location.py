"""Where a service works: a branch, and what opens its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fuse_stream.format.layout import MAIN
from fuse_stream.storage.secrets import StorageOptions
from fuse_stream.table.handle import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A branch that a service is to look after, and what opens its table."""

    path: str
    branch: str = MAIN
    storage_options: Mapping[str, object] = field(default_factory=StorageOptions)
    origins: tuple[str, ...] = ()
    unsafe_single_writer: bool = False

    @property
    def name(self) -> tuple[str, str]:
        """What tells it from others."""
        return self.path, self.branch

    def open(self) -> Table:
        """Open the table."""
        return Table.open(
            self.path,
            branch=self.branch,
            storage_options=self.storage_options,
            origins=self.origins,
            unsafe_single_writer=self.unsafe_single_writer,
        )
