"""The pages of the documentation: links, tables of contents, and what they list of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuse_stream.cli.main import main
from tests.test_architecture import FLOORS, PLUGIN

ROOT = Path(__file__).parent.parent
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "checkpoints_example" / "README.md",
]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
CONTENTS_LINKS = 3
"""A page that has so many links to its own headings before the first has a table of contents."""


def prose(page: Path) -> str:
    """Return the text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def headings(page: Path, level: str = "#+") -> list[str]:
    return re.findall(rf"^{level} (.+)$", prose(page), flags=re.MULTILINE)


def anchor(heading: str) -> str:
    """Return what a heading is called in a link, as GitHub spells it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def broken_links(page: Path) -> Iterator[str]:
    for match in LINK.finditer(re.sub(r"`[^`\n]*`", "", prose(page))):
        link = match[1] or match[2]
        if re.match(r"[a-z]+:", link):
            continue
        file, _, name = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (name and name not in map(anchor, headings(target))):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_table_of_contents_names_every_chapter_in_order(page: Path) -> None:
    before = prose(page).partition("\n## ")[0]
    listed = re.findall(r"\]\(#([^)]+)\)", before)

    if len(listed) >= CONTENTS_LINKS:
        assert listed == [anchor(heading) for heading in headings(page, "##")]


def test_the_readme_lists_every_command() -> None:
    table = (
        (ROOT / "README.md").read_text().partition("| `fuse-stream …` | |")[2].partition("\n\n")[0]
    )
    rows = re.findall(r"^\| (.+?) \|", table, flags=re.MULTILINE)
    named = [usage.split()[0] for row in rows for usage in re.findall(r"`([^`]+)`", row)]

    assert sorted(named) == sorted(main.commands)


def test_contributing_names_the_rooms_that_there_are() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    block = re.search(r"^## Where things are.*?^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert block
    # The last line says in words what its room may see.
    drawn = re.sub(r"->.* and .*", "", block[1])

    assert set(re.findall(r"\w+", drawn)) == {PLUGIN, *(room for rooms in FLOORS for room in rooms)}
