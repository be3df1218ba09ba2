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
    program = SERVERS[kind].program
    if not program.exists():
        lack(f"no server for {kind}: make test-all fetches it, or says why it cannot")
    with _STARTS[kind](str(program), folder) as place:
        fsspec.url_to_fs(place.url, **place.options)[0].mkdir(BUCKET)
        yield place


def lack(reason: str) -> NoReturn:
    """Skip a test that lacks a program from outside; fail on CI, which installs all of them."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def _s3(program: str, folder: Path) -> Iterator[Place]:
    key, secret, port = f"test{secrets.token_hex(6)}", secrets.token_hex(16), free_port()
    (folder / "root").mkdir(parents=True)
    (folder / "meta").mkdir()
    (folder / "users").mkdir()
    command = [program, "--quiet", "--keep-alive", "--health", "/healthz"]
    command += ["--port", f"127.0.0.1:{port}", "--iam-dir", str(folder / "users")]
    command += ["posix", "--sidecar", str(folder / "meta")]
    endpoint = f"http://127.0.0.1:{port}"
    with _running(
        [*command, str(folder / "root")],
        {"ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret},
        f"{endpoint}/healthz",
        folder,
    ):
        options = {"key": key, "secret": secret, "endpoint_url": endpoint}
        yield Place(url=f"s3://{BUCKET}", options=options)


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


_STARTS: Mapping[str, Callable[[str, Path], AbstractContextManager[Place]]] = {
    "s3": _s3,
    "azure": _azure,
}


@contextmanager
def _running(
    command: list[str], environment: Mapping[str, str], answers: str, folder: Path
) -> Iterator[None]:
    """Run a program until the end of the block; begin when it answers to HTTP at all."""
    log = folder / "server.log"
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
