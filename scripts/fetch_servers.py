"""Install servers of object stores for the tests: `python -m scripts.fetch_servers`.

versitygw for S3 and fake-gcs-server for Google's store are built by Go; Azurite for Azure's is
installed by npm, as is s3rver, a server of S3's protocol that ignores the condition of a creation.
They are kept in `.cache/servers`. Where Go or npm is missing, or has no network, the tests of that
store are skipped, but on CI they fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / ".cache" / "servers"
TIMEOUT_S = 420


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A program, and how it is installed."""

    program: Path
    command: tuple[str, ...]
    environment: Mapping[str, str]

    def fetch(self) -> str | None:
        """Install the program unless it is there; return why not, if it could not be installed."""
        if self.program.exists():
            return None
        tool = self.command[0]
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
        FOLDER.mkdir(parents=True, exist_ok=True)
        try:
            ran = subprocess.run(
                self.command,
                cwd=FOLDER,
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{tool} did not end within {TIMEOUT_S} s"
        if self.program.exists():
            return None
        return "\n".join((ran.stdout + ran.stderr).splitlines()[-12:])


def _by_go(program: str, module: str) -> Server:
    return Server(
        program=FOLDER / "bin" / program,
        command=("go", "install", module),
        environment={"GOBIN": str(FOLDER / "bin"), "GOFLAGS": "-modcacherw"},
    )


def _by_npm(program: str, package: str) -> Server:
    return Server(
        program=FOLDER / "node_modules" / ".bin" / program,
        command=("npm", "install", "--no-audit", "--no-fund", package),
        environment={},
    )


SERVERS: Mapping[str, Server] = {
    "s3": _by_go("versitygw", "github.com/versity/versitygw/cmd/versitygw@v1.8.0"),
    "azure": _by_npm("azurite-blob", "azurite@3.35.0"),
    "gcs": _by_go("fake-gcs-server", "github.com/fsouza/fake-gcs-server@v1.56.1"),
    "unconditional": _by_npm("s3rver", "s3rver@3.7.1"),
}
"""By the name of the package's extra that reads the store; one is not a store to use."""


if __name__ == "__main__":
    for name, server in SERVERS.items():
        if not server.program.exists() and shutil.which(server.command[0]):
            sys.stderr.write(f"installing {server.program.name}: a minute or more, once\n")
        if problem := server.fetch():
            sys.stderr.write(
                f"{problem}\nno server for {name}: its tests are skipped, or fail on CI\n"
            )
