"""The examples in the pages of the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\n\Z")
_NEEDS = re.compile(r"<!-- needs: (\w+) -->\n\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A block of code, a call on the command line, or the output of one of them."""

    page: str
    line: int
    """Number of the first line of the code, from 1."""
    chapter: str
    language: str
    """Empty for output, and for blocks that are not run."""
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
