"""Install servers of object stores for the tests: `python -m scripts.fetch_servers`.

S3 by versitygw, which Go builds; Azure's store by Azurite, which npm installs. They are kept in
`.cache/servers`. Where Go or npm is missing, or has no network, the tests of that store are
skipped.
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


SERVERS: Mapping[str, Server] = {
    "s3": Server(
        program=FOLDER / "bin" / "versitygw",
        command=("go", "install", "github.com/versity/versitygw/cmd/versitygw@v1.8.0"),
        environment={"GOBIN": str(FOLDER / "bin"), "GOFLAGS": "-modcacherw"},
    ),
    "azure": Server(
        program=FOLDER / "node_modules" / ".bin" / "azurite-blob",
        command=("npm", "install", "--no-audit", "--no-fund", "azurite@3.35.0"),
        environment={},
    ),
}
"""By the name of the package's extra that reads the store."""


if __name__ == "__main__":
    for name, server in SERVERS.items():
        if problem := server.fetch():
            sys.stderr.write(f"{problem}\nno server for {name}: its tests are skipped\n")
