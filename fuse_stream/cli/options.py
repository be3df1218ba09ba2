"""The arguments that commands share, and the table that they name.

If there is no table, the error says what is there instead.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson
from click.core import ParameterSource

from fuse_stream.cli.as_json import Json
from fuse_stream.cli.output import Output
from fuse_stream.errors import FuseError, NotFoundError
from fuse_stream.format.layout import MAIN, TABLE_KEY
from fuse_stream.storage.base import Store, find_object
from fuse_stream.storage.local import LocalStore
from fuse_stream.storage.open import open_store
from fuse_stream.table.handle import Table, open_at
from fuse_stream.table.location import TableLocation

JSON_FLAG = "--json"
_OPENING = "opening"
_WORDS: dict[str, object] = {"true": True, "false": False}

Command = Callable[..., Any]

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
author_option = click.option("--author", default="", metavar="NAME", help="Shown by the log.")
message_option = click.option(
    "--message", "-m", default="", metavar="TEXT", help="Shown by the log."
)
version_option = click.option(
    "--version", metavar="VERSION", help="Of this version; else the newest."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table that a command reads or changes, and the command's output."""

    location: TableLocation
    is_branch_given: bool
    json: bool
    output: Output

    @property
    def path(self) -> str:
        return self.location.path

    @property
    def branch(self) -> str:
        return self.location.branch

    @property
    def keywords(self) -> dict[str, Any]:
        """The arguments, beside the path, with which a public function opens the table."""
        return {"branch": self.branch, **opening()}

    def open(self) -> Table:
        """Return the handle of the table.

        Raises:
            NotFoundError: there is no table; says what is there instead, if that is known.
        """
        try:
            return open_at(self.location)
        except NotFoundError as error:
            options = self.location.storage_options
            found = describe_place(open_store(self.path, storage_options=options))
            if found is None:
                raise
            raise NotFoundError(found, path=self.path) from error

    def show_json(self, document: Json, *, branch: bool = True) -> None:
        """Print a document, with the path and the branch before it."""
        place = {"path": self.path, **({"branch": self.branch} if branch else {})}
        self.output.show_json({**place, **document})


class WholeNumber(click.IntRange):
    """A whole number in a range."""

    name = "whole number"


def _check_folders(
    _context: click.Context, _: click.Parameter, pairs: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """Refuse an option where a folder is missing: it would be taken for the folder."""
    for pair in pairs:
        for name, folder in zip(("OLD", "NEW"), pair, strict=True):
            if folder.startswith("-"):
                raise click.UsageError(
                    f"--checkpoint takes two folders, OLD and NEW; {name} is missing before "
                    f"{folder} (a folder of this name is ./{folder})"
                )
    return pairs


also_option = click.option(
    "--also", "others", multiple=True, metavar="PATH", help="Another table; repeatable."
)
forks_option = click.option(
    "--checkpoint",
    "checkpoints",
    nargs=2,
    multiple=True,
    metavar="OLD NEW",
    callback=_check_folders,
    help="Fork the checkpoint OLD into the new folder NEW; repeatable.",
)


def described(command: Command) -> Command:
    """Add the options that say who made a commit, and why."""
    return message_option(author_option(command))


def opening() -> dict[str, Any]:
    """Return the keywords of a `TableLocation` that this run's options have set."""
    given: dict[str, Any] = click.get_current_context().meta.setdefault(_OPENING, {})
    return given


def _keep(_context: click.Context, option: click.Parameter, value: object) -> None:
    opening()[str(option.name)] = value


def _collect(_context: click.Context, _: click.Parameter, texts: tuple[str, ...]) -> None:
    collected = opening().setdefault("storage_options", {})
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            # The text may hold a secret: it is not repeated.
            raise click.BadParameter("an option is KEY=VALUE, such as anon=true")
        collected[name] = _parsed(name, value)


def _parsed(name: str, value: str) -> object:
    if not value.startswith(("{", "[")):
        return _WORDS.get(value, value)
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        raise click.BadParameter(f"the value of {name} begins like JSON but is not JSON") from None


origin_option = click.option(
    "--origin",
    "origins",
    multiple=True,
    metavar="PLACE",
    expose_value=False,
    callback=_keep,
    help="The location of a table whose blocks may be read, if PATH is a clone; repeatable.",
)
storage_option = click.option(
    "--storage-option",
    multiple=True,
    metavar="KEY=VALUE",
    expose_value=False,
    callback=_collect,
    help="Option of the remote store (fsspec's), repeatable; a value in {} or [] is JSON. "
    "Other users of the machine can see it: prefer the provider's environment variables.",
)
"""Allowed before and after the command's name."""
writes = click.option(
    "--unsafe-single-writer",
    is_flag=True,
    expose_value=False,
    callback=_keep,
    help="Write even to a store that cannot create an object exactly once. There, two writers "
    "at one time can lose commits: use it only if nobody else writes to the table.",
)
"""For a command that may write to a store."""
json_flag = click.option(
    JSON_FLAG,
    "as_json",
    is_flag=True,
    help="Print one JSON document; errors too, on stderr. docs/cli.md lists the keys.",
)


def on_table(command: Command) -> Command:
    """Add `PATH`, `--branch` and the options of all commands; `command` gets them as a `Target`.

    Apply it above the command's other options: `PATH` is the first argument.
    """

    @functools.wraps(command)
    def run(path: str, branch: str, as_json: bool, **others: Any) -> Any:
        context = click.get_current_context()
        _check_values(context)
        source = context.get_parameter_source("branch")
        target = Target(
            location=TableLocation.of(path, branch=branch, **opening()),
            is_branch_given=source is not ParameterSource.DEFAULT,
            json=as_json,
            output=Output(json=as_json),
        )
        return command(target, **others)

    branch_option = click.option(
        "--branch", default=MAIN, show_default=True, metavar="NAME", help="The branch."
    )
    shared = json_flag(origin_option(storage_option(run)))
    return click.argument("path")(branch_option(shared))


def _check_values(context: click.Context) -> None:
    """Refuse an option of the command as the value of another option, whose value is missing."""
    options = [one for one in context.command.params if isinstance(one, click.Option)]
    flags = {*context.help_option_names, *(flag for one in options for flag in one.opts)}
    given = {**opening(), **context.params}
    for one in options:
        value = given.get(str(one.name))
        for text in value if isinstance(value, tuple) else (value,):
            if text in flags:
                raise click.UsageError(f"{max(one.opts, key=len)} has no value before {text}")


_COMMANDS = {
    "clones()": "fuse-stream unpin PATH",
    "consumers()": "fuse-stream consumers PATH",
    "rebuild_checkpoint": "rebuild-checkpoint",
}
"""The commands for functions that messages of the library name."""


def in_flags(message: str, command: click.Command) -> str:
    """Return a message of the library with its parameters and calls spelled as on a command line.

    A parameter stays as it is if the message also names its flag.
    """
    for option in command.params:
        flag = max(option.opts, key=len)
        if isinstance(option, click.Option) and flag not in message:
            for pattern in _spellings(option):
                message = re.sub(pattern, functools.partial(_flagged, flag), message)
    for call, name in _COMMANDS.items():
        message = message.replace(call, name)
    return message


def _spellings(option: click.Option) -> Iterator[str]:
    """Yield the patterns by which messages of the library name a parameter."""
    assert option.name is not None
    name = option.name.removesuffix("s") + "s?"
    yield rf"(?:the )?options? `{name}`"
    yield rf"(?<![\w-]){name}=(?P<value>\[[^]]*\]|\{{[^}}]*\}}|<[^>]*>|\"[^\"]*\"|\w+)"
    yield rf"^{name}(?= (?:is|are|and|says?) )"
    yield rf"(?<=leave ){name}(?= out)"
    if option.multiple:
        yield rf"(?<=\bin ){name}\b"
    if option.is_flag:
        yield rf"(?<=\bwith ){name}\b"
    if "_" in name:  # no plain word; "another app_id" is one of the query, not of this command
        yield rf"(?<!another )(?<!own )(?<![\w-]){name}\b"


def _flagged(flag: str, match: re.Match[str]) -> str:
    """Return a flag and the value that the match has: `[APP]`, `{old: new}`, `"30d"` or `True`."""
    value = match.groupdict().get("value") or ""
    words = re.sub(r"[\[\]{}\"]|^True$", "", value).replace(": ", " ")
    return f"{flag} {words}".rstrip()


def asks_for_json(arguments: list[str] | None) -> bool:
    """True if a command line asks for JSON, even one that cannot be parsed."""
    return JSON_FLAG in (sys.argv[1:] if arguments is None else arguments)


_MARKS = (
    # what lies in the folder, how the names end, what that makes it
    ("_delta_log/", (".json", ".parquet"), "a Delta Lake table: read it with format('delta')"),
    ("metadata/", (".metadata.json",), "an Iceberg table: read it with format('iceberg')"),
    (".hoodie/", ("",), "a Hudi table: read it with format('hudi')"),
    ("offsets/", ("",), "the checkpoint of a Spark query: name the table's folder instead"),
    ("_spark_metadata/", ("",), "the output of Spark's file sink: read it with format('parquet')"),
)
_MOST_NAMED = 5


def describe_place(store: Store) -> str | None:
    """Return what is in `store` instead of a table; None if it is a table, or not known."""
    if find_object(store, TABLE_KEY) is not None:
        return None
    for prefix, endings, kind in _MARKS:
        with suppress(FuseError):  # only the hint is lost: the first error says what happened
            if any(info.key.endswith(endings) for info in store.list(prefix)):
                return f"this is no fuse_stream table but {kind}"
    return _describe_folder(store.root) if isinstance(store, LocalStore) else None


def _describe_folder(folder: Path) -> str | None:
    if not folder.exists():
        near = next((parent for parent in folder.parents if parent.exists()), folder)
        return f"there is nothing at this path; the folder that exists is {near}"
    if not folder.is_dir():
        return "this is a file; a table is a folder"
    for parent in folder.parents:
        if (parent / TABLE_KEY).is_file():
            return f"this folder is a part of the table at {parent}; name that"
    tables = sorted(found.parent.name for found in folder.glob(f"*/{TABLE_KEY}"))
    if tables:
        more = ", …" if len(tables) > _MOST_NAMED else ""
        return f"this folder is no table but holds some: {', '.join(tables[:_MOST_NAMED])}{more}"
    if next(folder.glob("*.parquet"), None):
        return "this is a folder of Parquet files without a table: read it with format('parquet')"
    return None
