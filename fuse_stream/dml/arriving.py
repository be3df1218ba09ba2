"""Arriving rows of a commit that looks at the rows of the head: put once, if possible."""

from __future__ import annotations

from collections.abc import Callable

from fuse_stream.commit.plan import Staged, is_stale
from fuse_stream.format.records import Snapshot
from fuse_stream.objects.slots import Stored

StageRows = Callable[[Stored, Staged | None], Staged]
"""Puts the arriving rows for a head, as an append does; gets what it staged before."""


class ArrivingRows:
    """Stages the same rows on one head after another."""

    def __init__(self, stage_rows: StageRows) -> None:
        self._stage_rows = stage_rows
        self._put: tuple[Staged, Snapshot] | None = None
        """The rows, and the head for which they were put."""

    def staged_on(self, on: Stored) -> Staged:
        """Return the rows, put for this head or for an earlier one if they fit as well."""
        if self._put is not None and not is_stale(*self._put, on.snapshot):
            return self._put[0]
        staged = self._stage_rows(on, self._put and self._put[0])
        self._put = staged, on.snapshot
        return staged
