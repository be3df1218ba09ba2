"""The command line of fuse_stream, run and shown: what a reader types next."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent


def run_command(console: Console, *arguments: str) -> None:
    """Show a command line of `fuse-stream`, and what it prints."""
    console.print(Text(f"  $ fuse-stream {shlex.join(arguments)}", style="dim"), soft_wrap=True)
    subprocess.run([sys.executable, "-m", "fuse_stream.cli.main", *arguments], check=True, cwd=ROOT)
