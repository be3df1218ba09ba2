"""A path or URL means one store."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuse_stream.errors import InvalidInputError
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.open import open_store


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/data/t", "/data/t"),
        (Path("/data/t"), "/data/t"),
        ("file:///data/t", "/data/t"),
        ("file:/data/t", "/data/t"),
        ("file://localhost/data/t", "/data/t"),
        ("local:///data/t", "/data/t"),
        ("file:///data/a%20b#c?d", "/data/a%20b#c?d"),
        ("~/t", str(Path("~/t").expanduser())),
        ("a:b", str(Path("a:b").absolute())),
    ],
)
def test_a_local_path_is_a_local_store(path: str | Path, root: str) -> None:
    store = open_store(path)

    assert isinstance(store, LocalStore)
    assert store.url == root


@pytest.mark.parametrize("path", ["", "file://host/share", "file://relative"])
def test_a_path_that_names_no_folder_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError):
        open_store(path)


def test_the_home_of_a_user_that_does_not_exist_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidInputError, match=r"begin with \./") as raised:
        open_store("~nosuchuser/t")
    assert raised.value.context["folder"] == "./~nosuchuser/t"
    assert open_store("./~nosuchuser/t").url == str(Path("~nosuchuser/t").absolute())


@pytest.mark.parametrize("path", ["", "a\0b", "file:///a\0b", "memory://a\0b"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError):
        open_store(path)
