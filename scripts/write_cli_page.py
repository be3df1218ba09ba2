"""Write docs/cli.md: `python -m scripts.write_cli_page`.

The commands come from the command line itself; the keys of `--json` from the documents that a test
compares with what the commands print.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from fuse_stream.cli.main import GROUPS, main

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "cli.md"
DOCUMENTS = ROOT / "tests" / "cli" / "documents.json"

SHARED = ("branch", "as_json", "origins", "storage_option", "unsafe_single_writer")
"""Options that are described once."""

MAPS = {
    "col_stats": "by column",
    "context": "values by name",
    "deleted": "by kind of object",
    "policy": "values by property",
    "properties": "values by property",
    "reasons": "numbers of files by reason",
    "set": "values by column",
    "sides": "by name",
    "unreachable": "by kind of object",
    "waiting": "by kind of object",
}
"""Objects whose keys are data."""

SAME_DOCUMENT = {"--dry-run", "--limit", "--release", "--stats"}
"""Options with which a document has the same keys."""

HEAD = """# Command line

This page is written by `python -m scripts.write_cli_page` from the commands themselves.

`fuse-stream COMMAND --help` prints a command's part of it. PATH is a folder or a URL (`s3://`,
`gs://`, `abfss://`). VERSION is a number from 0, a tag, `HEAD`, 7 hex digits or more of an id, or a
number or id on another branch: `fix@12`; `fix@` is the head of `fix`. A text that equals a tag is
the tag, also if it is a number of eight digits or more; `main@20261122` is the version.

| | |
|---|---|
"""

COMMON = """## Exit codes
| code | |
|---|---|
| 0 | done |
| 1 | an error; or what `doctor`, `fsck` or `audit` found; or obstacles of `rewind --dry-run` |
| 2 | wrong usage |
| 130 | Ctrl-C |
| 141 | whoever read the output closed the pipe |

An error is printed on stderr: its class, what to do next, and the values. Data goes to stdout, all
else to stderr.

## JSON
With `--json` a command prints one JSON document on stdout. An error is a document on stderr:
{error}.

The keys are promised: a release may add some, but never renames or drops one. Sizes are bytes,
times are ISO text in UTC, ids and hashes are whole. What is not known or does not apply is null.
In rows and bounds a decimal is text, binary is hex, a float that JSON lacks is `"NaN"`,
`"Infinity"` or `"-Infinity"`, a map is a list of `[key, value]`. A time or date outside the
years 1 to 9999 is text with its microseconds or days since 1970: `"253402300800000000 us"`,
`"2932897 d"`. In text that is not UTF-8 each wrong byte is an escape such as `\\xff`.

Several commands print a *snapshot*: {line}.
`row_count_change` is null if the version before has expired, or was not compared.
"""


def page() -> str:
    """Return the text of the page."""
    documents = json.loads(DOCUMENTS.read_text(encoding="utf-8"))
    line = documents["rewind PATH"]["target"]
    common = COMMON.format(
        error=_keys([documents["an error"]], ()), line=_keys([line], ())
    ) + "\n".join(["", "## Options of many commands", *_options(_shared()), ""])
    parts = [HEAD + "\n".join([*_contents(), "", ""]) + common]
    for commands in GROUPS.values():
        for command in commands:
            used = {usage: found for usage, found in documents.items() if _is_of(usage, command)}
            parts.append("\n".join(_described(command, used, tuple(line))))
    return "\n".join(parts)


def _contents() -> Iterator[str]:
    for title in ("Exit codes", "JSON", "Options of many commands"):
        yield f"| [{title}](#{title.lower().replace(' ', '-')}) | |"
    for title, commands in GROUPS.items():
        yield f"| **{title}** | |"
        yield from (f"| [`{one.name}`](#{one.name}) | {_first_line(one)} |" for one in commands)


def _described(
    command: click.Command, documents: dict[str, Any], line: tuple[str, ...]
) -> Iterator[str]:
    context = click.Context(command, info_name=f"fuse-stream {command.name}")
    own = [found for found in _options_of(command) if found.name not in SHARED]
    shared = [f"`{_flag(found)}`" for found in _options_of(command) if found.name in SHARED]
    text, _, example = inspect.cleandoc(command.help or "").partition("\b\n")
    yield f"## {command.name}"
    yield f"`{context.command_path} {' '.join(command.collect_usage_pieces(context))}`"
    yield ""
    yield text.strip()
    yield ""
    yield "```"
    yield inspect.cleandoc(example.removeprefix("Example:\n"))
    yield "```"
    yield ""
    if own:
        yield from _options(own)
        yield ""
    yield f"{'Also' if own else 'Options'}: {', '.join(shared)}."
    if not documents:
        return
    yield ""
    yield "| with `--json` | |"
    yield "|---|---|"
    alike: dict[object, list[str]] = {}
    for usage, document in documents.items():
        flags = {word for word in usage.split() if word.startswith("--")} - SAME_DOCUMENT
        alike.setdefault((*document, *flags), []).append(usage)
    for usages in alike.values():
        shown = min(usages, key=len).partition(",")[0]
        yield f"| `{shown}` | {_keys([documents[usage] for usage in usages], line)} |"
    yield ""


def _options(options: list[click.Option]) -> Iterator[str]:
    yield "| option | |"
    yield "|---|---|"
    for option in options:
        value = "" if option.is_flag else f" {option.make_metavar(click.Context(main))}"
        default = f" Default: `{option.default}`." if option.show_default else ""
        spelled = ", ".join(f"`{name}{value}`" for name in sorted(option.opts, key=len)[::-1])
        yield f"| {spelled.replace('|', ' or ')} | {option.help}{default} |"


def _keys(values: list[Any], line: tuple[str, ...]) -> str:
    """Return the keys of objects, those of lists and of objects in them in brackets."""
    keys = dict.fromkeys(key for value in values for key in value)
    is_line = bool(line) and set(line) <= keys.keys()
    parts = ["the keys of a snapshot"] if is_line else []
    if any(key.startswith("_") for key in keys) and "id" in keys and "sha256" not in keys:
        parts, keys = ["the columns"], {key: None for key in keys if key.startswith("_")}
    for key in keys:
        if not (is_line and key in line):
            parts.append(f"`{key}`{_inner(key, [v[key] for v in values if key in v], line)}")
    return ", ".join(parts)


def _inner(key: str, values: list[Any], line: tuple[str, ...]) -> str:
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    objects = [item for item in flat if isinstance(item, dict)]
    null = " or null" if None in flat else ""
    if objects and key in MAPS:
        inner = [item for one in objects for item in one.values() if isinstance(item, dict)]
        return f" ({MAPS[key]}{': ' + _keys(inner, line) if inner else ''}){null}"
    return f" ({_keys(objects, line)}){null}" if objects else null


def _shared() -> list[click.Option]:
    found = {option.name: option for one in main.commands.values() for option in _options_of(one)}
    return [found[name] for name in SHARED]


def _options_of(command: click.Command) -> list[click.Option]:
    return [found for found in command.params if isinstance(found, click.Option)]


def _flag(option: click.Option) -> str:
    return max(option.opts, key=len)


def _first_line(command: click.Command) -> str:
    return re.sub(r"\.$", "", inspect.cleandoc(command.help or "").split("\n")[0])


def _is_of(usage: str, command: click.Command) -> bool:
    return re.split(r"[ ,]", usage)[0] == command.name


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
