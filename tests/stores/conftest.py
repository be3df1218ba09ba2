"""Real servers of object stores: one of each kind, for all tests of a worker."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.kit.servers import Place, serve

_folders = itertools.count()


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """The buckets that have been asked for, by the kind of their server."""
    with ExitStack() as servers:
        yield Places(servers, tmp_path_factory)


class Places(dict[str, Place]):
    """Starts a server when it is asked for."""

    def __init__(self, servers: ExitStack, folders: pytest.TempPathFactory) -> None:
        super().__init__()
        self._servers = servers
        self._folders = folders

    def __missing__(self, kind: str) -> Place:
        folder = self._folders.mktemp("servers") / kind
        self[kind] = self._servers.enter_context(serve(kind, folder))
        return self[kind]


@pytest.fixture(params=["s3", "azure", "gcs"])
def place(request: pytest.FixtureRequest, places: dict[str, Place]) -> Place:
    """A bucket on a server of each kind."""
    return places[request.param]


@pytest.fixture
def url(place: Place) -> str:
    """A location in the bucket that no other test has."""
    return f"{place.url}/{next(_folders)}/some table"
