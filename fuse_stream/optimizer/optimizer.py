"""The service as a process of its own, for many tables: `Optimizer`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from fuse_stream.errors import InvalidInputError
from fuse_stream.format.layout import MAIN
from fuse_stream.optimizer.process import OptimizerProcess
from fuse_stream.table.location import TableLocation

STOP_S = 10.0
"""How long the step at hand may take to end; what is cut off after that does no harm."""


class Optimizer:
    """Keeps tables in good shape, in a niced process beside this one, until it is stopped.

    It compacts and reclusters, and where a table's `fuse.retain` asks for it, expires and vacuums:
    what streams do for their own tables by default. What it did is in the log. A table that is not
    there yet, or fails, is tried again. It ends with this process, however this one ends.

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
        """Name the tables; nothing is started yet.

        Args:
            paths: local paths or fsspec URLs.
            branch: which branch of each.
            storage_options: fsspec's, for remote stores.
            origins: where the tables are whose blocks may be read, if some are clones.
            unsafe_single_writer: allow a store that cannot tell two writers apart.

        Raises:
            InvalidInputError: no path is named, or one is not a path.
        """
        if isinstance(paths, str | os.PathLike) or not paths:
            raise InvalidInputError("name the tables in a list of paths", paths=paths)
        named = tuple(paths)
        location = TableLocation.of(
            named[0],
            branch=branch,
            storage_options=storage_options,
            origins=origins,
            unsafe_single_writer=unsafe_single_writer,
        )
        self._locations = location.each(named)
        self._process: OptimizerProcess | None = None

    def __repr__(self) -> str:
        paths = [location.path for location in self._locations]
        return f"Optimizer({paths!r}, is_running={self.is_running})"

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.exit_code is None

    def start(self) -> None:
        """Start; nothing if it runs."""
        if not self.is_running:
            self._process = OptimizerProcess(self._locations)

    def stop(self) -> None:
        """Stop, after the step at hand if that is short; nothing if it does not run."""
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
