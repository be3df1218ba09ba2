"""The examples in the pages of the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*(?: \w+)?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\n\Z")
_NEEDS = re.compile(r"<!-- needs: (\w+) -->\n\Z")
_SQL_TOKEN = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)|(?P<comment>--[^\n]*)|(?P<end>;)|.""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A block of code, a call on the command line, or the output of one of them."""

    page: str
    line: int
    """Number of the first line of the code, from 1."""
    chapter: str
    language: str
    """The words after the fence: `sql`; `sql delta` is for another table format, and is not run.

    Empty for output.
    """
    code: str
    not_run: str
    """Why it is left out; empty if it is run."""
    needs: str
    """A module without which it is left out; empty if it needs none."""


def examples_of(page: str) -> list[Example]:
    """Return the fenced blocks of a page, named from the root of the checkout, in order."""
    text = (ROOT / page).read_text()
    found = []
    for fence in _FENCE.finditer(text):
        above = text[: fence.start()]
        chapters = re.findall(r"^## (.+)$", above, re.MULTILINE)
        left_out, needs = _NOT_RUN.search(above), _NEEDS.search(above)
        found.append(
            Example(
                page=page,
                line=above.count("\n") + 2,
                chapter=chapters[-1] if chapters else "",
                language=fence[1],
                code=fence[2],
                not_run=left_out[1] if left_out else "",
                needs=needs[1] if needs else "",
            )
        )
    return found


def statements_of(code: str) -> list[str]:
    """Return the statements of SQL between semicolons, without their comments."""
    found = [""]
    for token in _SQL_TOKEN.finditer(code):
        if token["end"]:
            found.append("")
        elif not token["comment"]:
            found[-1] += token[0]
    return [statement.strip() for statement in found if statement.strip()]


def refused_on(page: str) -> list[tuple[str, str]]:
    """Return the rows of the tables of refused statements on a page: a statement, and its error.

    Such a table has the head `| refused | error |`; each piece of code in its first column is one
    statement.
    """
    found = []
    for table in re.findall(
        r"^\| refused \| error \|.*\n\|[-|]+\n((?:\|.*\n)+)",
        (ROOT / page).read_text(),
        re.MULTILINE,
    ):
        for row in table.splitlines():
            statements, error = row.split(" | ")[:2]
            found += [
                (statement, error.strip("` ")) for statement in re.findall(r"`([^`]+)`", statements)
            ]
    return found
