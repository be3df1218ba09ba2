"""The option `waitForTable`: a query is loaded before the table that it reads is created."""

from __future__ import annotations

import logging

from fuse_stream.clock import SYSTEM_CLOCK, Clock
from fuse_stream.errors import NotFoundError
from fuse_stream.format.layout import MAIN
from fuse_stream.objects.other_files import find_other_files
from fuse_stream.objects.slots import Metadata
from fuse_stream.spark.options import ReadOptions

PAUSE_S = 0.5
"""Between two looks."""

_LOG = logging.getLogger(__name__)


def wait_for_table(options: ReadOptions, clock: Clock = SYSTEM_CLOCK) -> None:
    """Wait until there is a table, as long as the option allows; return at once without it.

    Raises:
        NotFoundError: there is none after that time; or the folder holds something else, so that
            none can be created there.
    """
    if options.wait_for_table_us is None:
        return
    metadata, path = Metadata(options.location.store(), clock), options.location.path
    wait_s = options.wait_for_table_us / 1_000_000
    end_s = clock.monotonic_s() + wait_s
    is_told = False
    while not _is_made(metadata):
        left_s = end_s - clock.monotonic_s()
        if left_s <= 0:
            if metadata.find_table_file() is not None:
                return  # begun and not finished: the read says what to do
            raise NotFoundError(
                "there is still no fuse_stream table here: start the query that creates it, check "
                "the path, or give it more time with the option waitForTable",
                path=path,
                waitForTable=f"{wait_s:g}s",
            )
        if not is_told:
            if find_other_files(metadata.store) is not None:
                metadata.load_table_file()  # raises, unless the table was created just now
                continue
            # A warning: Python shows no lower level unless told, and load() would seem to hang.
            _LOG.warning("waiting up to %g s for a table that is not there yet: %s", wait_s, path)
            is_told = True
        clock.sleep(min(PAUSE_S, left_s))


def _is_made(metadata: Metadata) -> bool:
    """True if there is a table with its first version; a clone also needs its content."""
    try:
        found = metadata.find_table_file()
        if found is None:
            return False
        return metadata.load_head(MAIN).snapshot.version > 0 or not found.origins
    except NotFoundError:
        return False
