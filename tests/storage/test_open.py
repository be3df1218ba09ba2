"""A path or URL means one store, and only a store with a single winner is written."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from fuse_stream.errors import InvalidInputError, UnsupportedStorageError
from fuse_stream.storage import adapters, remote
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.open import open_store
from fuse_stream.storage.remote import FsspecStore
from fuse_stream.storage.wrappers import ReadOnlyStore
from tests.kit.memory_fs import MemoryFileSystem

WRITES = [("put", b"1"), ("put_if_absent", b"1"), ("replace", b"1"), ("delete", None)]


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


def test_the_home_of_a_user_that_does_not_exist_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidInputError, match=r"begin with \./") as raised:
        open_store("~nosuchuser/t")
    assert raised.value.context["folder"] == "./~nosuchuser/t"
    assert open_store("./~nosuchuser/t").url == str(Path("~nosuchuser/t").absolute())


@pytest.mark.parametrize("path", ["", "a\0b", "file:///a\0b", "memory://a\0b"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError):
        open_store(path)


# ---- URLs


def test_a_store_with_one_winner_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFileSystem, "buckets", {"b": {}})
    store = open_store("fusetest://b/t", storage_options={"a": 1})

    store.put_if_absent("_b/a", b"1")

    assert isinstance(store, FsspecStore)
    assert dict(store.options) == {"a": 1}
    assert "t/_b/a" in MemoryFileSystem.buckets["b"]


@pytest.mark.parametrize(("verb", "data"), WRITES)
def test_a_store_with_several_winners_is_read_but_not_written(
    verb: str, data: bytes | None
) -> None:
    # fsspec's own: its exclusive creation looks first and writes then.
    shelf = fsspec.filesystem("memory")
    shelf.pipe_file(f"/{verb}/t/_b/a", b"old")
    store = open_store(f"memory://{verb}/t")
    arguments = [] if data is None else [data]

    with pytest.raises(UnsupportedStorageError, match="unsafe_single_writer"):
        getattr(store, verb)("_b/a", *arguments)

    assert store.get("_b/a") == b"old"
    assert store.open_input("_b/a").read() == b"old"
    assert [info.key for info in store.list("_b/")] == ["_b/a"]
    assert store.location("_b/a") == f"memory://{verb}/t/_b/a"


def test_a_single_writer_may_write_anywhere_at_its_own_risk() -> None:
    store = open_store("memory://risk/t", unsafe_single_writer=True)

    store.put_if_absent("_b/a", b"1")

    assert fsspec.filesystem("memory").cat_file("/risk/t/_b/a") == b"1"


@pytest.mark.parametrize(
    ("name", "once"), [("s3fs", True), ("gcsfs", True), ("adlfs", True), ("another", False)]
)
def test_the_package_of_the_adapter_decides_not_the_protocol(
    monkeypatch: pytest.MonkeyPatch, name: str, *, once: bool
) -> None:
    adapter = type("FS", (fsspec.AbstractFileSystem,), {"__module__": f"{name}.core"})
    extended = type("Extended", (adapter,), {"__module__": "mine"})
    monkeypatch.setattr(remote, "get_filesystem_class", lambda protocol: extended)

    store = open_store("s3://b/t")

    assert isinstance(store, FsspecStore if once else ReadOnlyStore)
    assert adapters.is_atomic(extended) is once


@pytest.mark.parametrize("error", [ImportError("no module"), ModuleNotFoundError("no module")])
@pytest.mark.parametrize(
    ("url", "extra"),
    [("s3://b/t", "s3"), ("s3a://b/t", "s3"), ("gs://b/t", "gcs"), ("az://c/t", "azure")],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, extra: str, error: ImportError
) -> None:
    def fail(protocol: str) -> type:
        raise error

    monkeypatch.setattr(remote, "get_filesystem_class", fail)
    with pytest.raises(UnsupportedStorageError, match=rf"pip install 'fuse-stream\[{extra}\]'"):
        open_store(url)


@pytest.mark.parametrize("url", ["nonsense://b/t", "simplecache::s3://b/t"])
def test_an_unknown_kind_of_store_is_refused(url: str) -> None:
    with pytest.raises(UnsupportedStorageError, match="no such kind of store"):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:secret@bucket/t",
        "s3://AKIA:sec/ret@bucket/t",
        "s3://secret@bucket/t",
        "https://user:secret@host/t",
        "https://secret@host/t",
        "https://host/t?sig=secret",
        "abfss://key:secret@account.dfs.core.windows.net/t",
        "fusetest://key:secret@b/t",
    ],
)
def test_credentials_in_a_url_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(InvalidInputError, match="storage_options") as caught:
        open_store(url)

    assert "sec" not in str(caught.value)


@pytest.mark.parametrize(
    ("scheme", "rest"),
    [
        ("abfss", "container@account.dfs.core.windows.net/t"),
        ("github", "org:repo@main/t"),
        ("s3", "bucket/user@example.org/a:b"),
        ("https", "host:8080/t"),
    ],
)
def test_a_place_is_not_taken_for_a_credential(
    monkeypatch: pytest.MonkeyPatch, scheme: str, rest: str
) -> None:
    monkeypatch.setattr(remote, "get_filesystem_class", lambda protocol: MemoryFileSystem)

    assert open_store(f"{scheme}://{rest}").url == f"{scheme}://{rest}"


@pytest.mark.parametrize("url", ["s3://", "s3:///", "gs:////t", "az:///t"])
def test_a_url_without_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="names no bucket"):
        open_store(url)


@pytest.mark.parametrize("url", ["s3:/lake/t", "gs:lake/t", "abfss:/c/t"])
def test_a_url_that_lacks_a_slash_is_no_folder(url: str) -> None:
    with pytest.raises(InvalidInputError, match="two slashes") as caught:
        open_store(url)
    assert str(caught.value.context["url"]).endswith(("://lake/t", "://c/t"))
    assert open_store(f"./{url}").url.endswith(url)


@pytest.mark.parametrize(
    ("url", "option", "nearest"),
    [
        ("s3://b/t", "endpont_url", "endpoint_url"),
        ("az://c/t", "conection_string", "connection_string"),
        ("az://c/t", "fuse_timeot_s", "fuse_timeout_s"),
        ("gs://b/t", "projekt", "project"),
        ("gs://b/t", "fuse_limit", "fuse_timeout_s"),
    ],
)
def test_a_slip_in_the_name_of_a_storage_option_is_refused(
    url: str, option: str, nearest: str
) -> None:
    with pytest.raises(InvalidInputError, match="no such storage option") as caught:
        open_store(url, storage_options={option: "hidden value"})
    assert caught.value.context == {"option": option, "nearest": nearest}


def test_options_that_an_adapter_passes_on_are_taken() -> None:
    options = {"managed_identity_client_id": "x", "exclude_cli_credential": True}
    open_store("az://c/t", storage_options=options)
    open_store("s3://b/t", storage_options={"profile": "etl"})


def test_a_file_of_credentials_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    with pytest.raises(InvalidInputError, match="does not exist"):
        open_store("gs://b/t", storage_options={"token": str(file)})
    file.write_text("{}")
    open_store("gs://b/t", storage_options={"token": str(file)})


@pytest.mark.parametrize("path", ["a/../t", "./t", "..", "a//t", "/t"])
def test_a_url_whose_parts_a_server_may_resolve_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError, match="write the whole path"):
        open_store(f"s3://bucket/{path}")
