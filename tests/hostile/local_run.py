"""Try verbs and commands on hostile folders of a local disk, and watch what the process opens.

`python -m tests.hostile.local_run FOLDER PART PARTS` exits with 1, and says why, if one of them
opens a file outside the table, changes one, waits, or fails in another way than by a FuseError.
"""

from __future__ import annotations

import faulthandler
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from click.testing import CliRunner

from fuse_stream.cli.main import main as command_line
from fuse_stream.clock import SYSTEM_CLOCK
from fuse_stream.table.location import TableLocation
from fuse_stream.table.pipelines import rewind
from fuse_stream.table.verbs import clone
from tests.hostile.cases import OUTSIDE, folders
from tests.hostile.tables import made
from tests.hostile.trials import VERBS, chosen_verbs
from tests.hostile.verbs import Verb
from tests.hostile.watch import BrokenRuleError, outcomes_of

SECRET = b"what is outside the table"
COMMANDS = ("show", "log", "stats", "doctor", "fsck", "ledger", "blocks", "tag", "consumers")
LONGEST_S = 60
"""A process that does nothing for so long waits for ever."""


class Opened:
    """An audit hook that notes every file below a folder that this process opens or changes."""

    def __init__(self) -> None:
        self.outside = "/nowhere"
        self.found: list[str] = []

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if not event.startswith(("open", "os.")) or not arguments:
            return
        for one in arguments[:2]:
            if isinstance(one, str | os.PathLike) and event not in {"os.readlink", "os.chdir"}:
                self._note(event, os.fspath(one), arguments)

    def _note(self, event: str, path: str, arguments: tuple[object, ...]) -> None:
        flags = arguments[2] if event == "open" and len(arguments) > 2 else 0
        is_link_kept = isinstance(flags, int) and bool(flags & os.O_NOFOLLOW)
        # What these do to a link, they do to the link itself.
        is_link_kept |= event in {"os.remove", "os.rename", "os.link", "os.unlink"}
        folder, name = os.path.split(path)
        real = f"{os.path.realpath(folder)}/{name}" if is_link_kept else os.path.realpath(path)
        if real.startswith(self.outside):
            self.found.append(f"{event} {path}")


def main(root: Path, part: int, parts: int) -> int:
    """Try the folders of one part; return the exit code."""
    hook = Opened()
    sys.addaudithook(hook)
    tried = 0
    for name in sorted(folders())[part::parts]:
        place = root / str(tried)
        outside = place / OUTSIDE
        for wrong in _wrong_with(name, place, hook):
            sys.stdout.write(f"{name}: {wrong}\n")
            return 1
        if (outside / "secret").read_bytes() != SECRET:
            sys.stdout.write(f"{name}: a file outside the table was changed\n")
            return 1
        tried += 1
    sys.stdout.write(f"tried {tried} folders\n")
    return 0


def _wrong_with(name: str, place: Path, hook: Opened) -> Iterator[str]:
    outside, table = place / OUTSIDE, place / "table"
    outside.mkdir(parents=True)
    for key, data in made("plain").items():
        (table / key).parent.mkdir(parents=True, exist_ok=True)
        (table / key).write_bytes(data)
    (outside / "secret").write_bytes(SECRET)
    folders()[name](table)
    before = _tree(outside)
    for what, act in _acts(table, random.Random(name)).items():
        faulthandler.dump_traceback_later(LONGEST_S, exit=True)
        hook.outside, hook.found = str(outside), []
        try:
            outcomes_of({what: act})
        except BrokenRuleError as error:
            yield str(error)
        hook.outside = "/nowhere"
        if hook.found:
            yield f"{what} opened {hook.found[0]}"
        if _tree(outside) != before:
            yield f"{what} changed what is outside the table"


def _acts(table: Path, choose: random.Random) -> dict[str, Callable[[], object]]:
    def on_store(verb: Verb) -> Callable[[], object]:
        return lambda: verb(TableLocation.of(table).store(), SYSTEM_CLOCK)

    def on_command_line(command: str) -> Callable[[], object]:
        return lambda: _run(command, table)

    return {
        **{verb: on_store(VERBS[verb]) for verb in chosen_verbs(choose, 8)},
        **{f"fuse-stream {name}": on_command_line(name) for name in choose.sample(COMMANDS, 3)},
        "clone of a path": lambda: clone(table, table.parent / "clone"),
        "rewind of a path": lambda: rewind(table, version=2, retire=["*"]),
    }


def _run(command: str, table: Path) -> None:
    """Run a command; raise BrokenRuleError if it fails in another way than by a message."""
    result = CliRunner().invoke(command_line, [command, str(table)])
    if result.exit_code not in {0, 1} or "Traceback" in result.output:
        raise BrokenRuleError(f"{command} ended with {result.exit_code}: {result.output[-2000:]}")


def _tree(folder: Path) -> list[tuple[str, int, int]]:
    """Return the names, sizes and times of everything below a folder."""
    found = []
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        found.append((str(path.relative_to(folder)), status.st_size, status.st_mtime_ns))
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
