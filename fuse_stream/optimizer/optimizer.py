"""`Optimizer`: optimize many tables in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import MAIN
from fuse_stream.optimizer.process import OptimizerProcess
from fuse_stream.table.location import TableLocation

STOP_S = 10.0
"""How long the current step may take to end; an unfinished step does no harm."""


class Optimizer:
    """Optimizes tables, in a process of low priority beside this one, until it is stopped.

    It compacts and reclusters; a table that has the property `fuse.retain` it also expires and
    vacuums. Streams do this for their own tables by default. The log shows what it did. A table
    that does not exist yet, or fails, is tried again. The process ends when this one ends, in
    whatever manner.

        with fuse.Optimizer(["/lake/flights", "/lake/delays"]):
            ...
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        branch: str = MAIN,
        storage_options: Mapping[str, object] | None = None,
        origins: Sequence[str | os.PathLike[str]] = (),
        unsafe_single_writer: bool = False,
    ) -> None:
        """Set the tables; start nothing yet.

        Args:
            paths: local paths or fsspec URLs.
            branch: the branch of each table to optimize.
            storage_options: fsspec's, for remote stores.
            origins: for clones, the locations of the tables whose blocks may be read.
            unsafe_single_writer: allow a store that cannot create an object exactly once.

        Raises:
            InvalidInputError: no path is given, or one is not a path.
        """
        given: object = paths
        is_text = isinstance(given, str | bytes | os.PathLike)
        named = tuple(paths) if isinstance(given, Iterable) and not is_text else ()
        if not named:
            raise InvalidInputError("paths must be a list: name the tables in it", paths=paths)
        location = TableLocation.of(
            named[0], branch, storage_options, origins, unsafe_single_writer=unsafe_single_writer
        )
        self._locations = location.each(named)
        self._process: OptimizerProcess | None = None

    def __repr__(self) -> str:
        paths = [location.path for location in self._locations]
        return f"Optimizer({paths!r}, is_running={self.is_running})"

    @property
    def is_running(self) -> bool:
        """True while its process runs."""
        return self._process is not None and self._process.exit_code is None

    def start(self) -> None:
        """Start the process, unless it runs."""
        if not self.is_running:
            self._process = OptimizerProcess(self._locations)

    def stop(self) -> None:
        """Stop the process if it runs, after the current step if that ends within 10 seconds."""
        if self._process is not None:
            self._process.stop(STOP_S)
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
