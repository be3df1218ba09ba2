"""Real servers of object stores, each on a free port of this machine, for the time of a test."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import fsspec
import pytest

from scripts.fetch_servers import SERVERS

BUCKET = "fuse-test"
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = (  # of every Azurite: documented, and no secret
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_PATIENCE_S = 60

# Else gcsfs asks Google, not the server, of what type the bucket is; it looks once, when imported.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A bucket on a server that runs."""

    url: str
    options: Mapping[str, object]
    """fsspec's, for all tables in the bucket."""


@contextmanager
def serve(kind: str, folder: Path) -> Iterator[Place]:
    """Run a server that keeps its objects in `folder`, and make a bucket there.

    Skips the test if the server is not installed; on CI that is a failure.
    """
    with _STARTS[kind](_program(kind), folder) as place:
        fsspec.url_to_fs(place.url, **place.options)[0].mkdir(BUCKET)
        yield place


def lack(reason: str) -> NoReturn:
    """Skip a test that lacks a program from outside; fail on CI, which installs all of them."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def serve_without_locks(folder: Path) -> Iterator[tuple[Place, Place]]:
    """Run two servers of S3 on one folder that create objects without a lock: they lose a race.

    Skips the test if the server is not installed; on CI it fails.
    """
    program, keys, unlocked = _program("s3"), _S3Keys.new(), ("--disable-object-lock-file",)
    with (
        _versitygw(program, folder, keys, unlocked) as one,
        _versitygw(program, folder, keys, unlocked) as other,
    ):
        fsspec.url_to_fs(one.url, **one.options)[0].mkdir(BUCKET)
        yield one, other


def _program(kind: str) -> str:
    program = SERVERS[kind].program
    if not program.exists():
        lack(f"no server for {kind}: run python -m scripts.fetch_servers, or see why it cannot")
    return str(program)


@dataclass(frozen=True, slots=True, kw_only=True)
class _S3Keys:
    key: str
    secret: str

    @classmethod
    def new(cls) -> _S3Keys:
        return cls(key=f"test{secrets.token_hex(6)}", secret=secrets.token_hex(16))


def _s3(program: str, folder: Path) -> AbstractContextManager[Place]:
    return _versitygw(program, folder, _S3Keys.new())


@contextmanager
def _versitygw(
    program: str, folder: Path, keys: _S3Keys, options: tuple[str, ...] = ()
) -> Iterator[Place]:
    port = free_port()
    (folder / "root").mkdir(parents=True, exist_ok=True)
    (folder / "meta").mkdir(exist_ok=True)
    (folder / "users").mkdir(exist_ok=True)
    command = [program, "--quiet", "--keep-alive", "--health", "/healthz"]
    command += ["--port", f"127.0.0.1:{port}", "--iam-dir", str(folder / "users")]
    command += ["posix", *options]
    command += ["--sidecar", str(folder / "meta"), str(folder / "root")]
    endpoint = f"http://127.0.0.1:{port}"
    environment = {"ROOT_ACCESS_KEY": keys.key, "ROOT_SECRET_KEY": keys.secret}
    with _running(command, environment, f"{endpoint}/healthz", folder):
        yield Place(url=f"s3://{BUCKET}", options=_s3_options(keys, endpoint))


@contextmanager
def _s3rver(program: str, folder: Path) -> Iterator[Place]:
    port = free_port()
    folder.mkdir(parents=True)
    command = [program, "--directory", str(folder), "--address", "127.0.0.1", "--port", str(port)]
    endpoint = f"http://127.0.0.1:{port}"
    with _running([*command, "--silent", "--no-vhost-buckets"], {}, endpoint, folder):
        keys = _S3Keys(key="S3RVER", secret="S3RVER")  # the only ones it knows
        yield Place(url=f"s3://{BUCKET}", options=_s3_options(keys, endpoint))


def _s3_options(keys: _S3Keys, endpoint: str) -> Mapping[str, object]:
    return {"key": keys.key, "secret": keys.secret, "endpoint_url": endpoint}


@contextmanager
def _azure(program: str, folder: Path) -> Iterator[Place]:
    port = free_port()
    command = [program, "--inMemoryPersistence", "--silent", "--skipApiVersionCheck"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    endpoint = f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}"
    folder.mkdir(parents=True)
    with _running(command, {}, f"{endpoint}?comp=list", folder):
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY};"
            f"BlobEndpoint={endpoint};"
        )
        options = {"account_name": AZURE_ACCOUNT, "connection_string": connection}
        yield Place(url=f"az://{BUCKET}", options=options)


@contextmanager
def _gcs(program: str, folder: Path) -> Iterator[Place]:
    port = free_port()
    folder.mkdir(parents=True)
    command = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-backend", "memory", "-log-level", "error"]
    endpoint = f"http://127.0.0.1:{port}"
    with _running(command, {}, f"{endpoint}/storage/v1/b", folder):
        options = {"endpoint_url": endpoint, "token": "anon", "project": "test"}
        yield Place(url=f"gs://{BUCKET}", options=options)


_STARTS: Mapping[str, Callable[[str, Path], AbstractContextManager[Place]]] = {
    "s3": _s3,
    "azure": _azure,
    "gcs": _gcs,
    "unconditional": _s3rver,
}


@contextmanager
def _running(
    command: list[str], environment: Mapping[str, str], answers: str, folder: Path
) -> Iterator[None]:
    """Run a program until the end of the block; begin when it answers to HTTP at all."""
    log = folder / f"{Path(command[0]).name}-{secrets.token_hex(4)}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not _answers(answers):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server does not answer: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
