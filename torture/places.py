"""Tables for the campaigns' processes: in a folder, or on a server of S3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuse_stream.table.handle import Table
from scripts.fetch_servers import SERVERS
from tests.kit.servers import BUCKET, serve
from torture.settled import SCHEMA
from torture.writers import Place

QUICK = {"fuse.grace": "1s", "fuse.vacuum.age": "0s"}
"""Two vacuums delete what nobody needs; a version expires a second after its successor."""
GRACE_S = 1.1


def has_s3() -> bool:
    """True if the server of S3 is installed."""
    return SERVERS["s3"].program.exists()


@contextmanager
def table_at(folder: Path, *, is_on_s3: bool) -> Iterator[Place]:
    """Create a table, which exists until the end of the block."""
    if not is_on_s3:
        place = Place(url=str(folder / "table"), options={}, folder=folder / "table")
        Table.create(place.url, SCHEMA, properties=QUICK)
        yield place
        return
    with serve("s3", folder / "server") as bucket:
        place = Place(
            url=f"{bucket.url}/table",
            options=bucket.options,
            folder=folder / "server" / "root" / BUCKET / "table",
        )
        Table.create(place.url, SCHEMA, properties=QUICK, storage_options=dict(place.options))
        yield place
