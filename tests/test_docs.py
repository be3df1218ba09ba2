"""The pages of the documentation: links, tables of contents, lists of commands and names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fuse_stream.cli.main import main
from fuse_stream.table.handle import Table
from tests.kit.pages import examples_of
from tests.test_architecture import FLOORS, PLUGIN

ROOT = Path(__file__).parent.parent
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "checkpoints_example" / "README.md",
]
GUIDE = ROOT / "docs" / "guide.md"
COMMANDS = ROOT / "docs" / "cli.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
INTERNAL = {"commit_rows"}
"""Methods of `Table` that other modules of the package call, and users do not."""
MANY = 30
FOR_USERS = [
    "README.md",
    "docs/getting-started.md",
    "docs/getting-started-sql.md",
    "docs/coming-from-delta.md",
    "docs/coming-from-iceberg.md",
    "docs/guide.md",
    "docs/object-stores.md",
    "docs/operations.md",
    "docs/recovery.md",
    "docs/coming-and-going.md",
    "docs/upgrade.md",
    "docs/compare.md",
    "docs/limits.md",
    "docs/sql.md",
]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
CONTENTS_LINKS = 3
"""A page with this many links to its own headings before the first one has a table of contents."""


def prose(page: Path) -> str:
    """Return the text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def headings(page: Path, level: str = "#+") -> list[str]:
    return re.findall(rf"^{level} (.+)$", prose(page), flags=re.MULTILINE)


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub spells it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def commands_on(page: Path) -> Iterator[str]:
    """Return the calls of `fuse-stream` in a page's blocks of code."""
    for example in examples_of(str(page.relative_to(ROOT))):
        if example.language in {"", "bash"}:
            code = example.code.replace("\\\n", " ")
            yield from re.findall(r"^(?:\$ )?fuse-stream ([a-z].*)$", code, re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: of its headings and of its elements with an id."""
    return {*map(anchor, headings(page)), *re.findall(r'<a id="([^"]+)">', prose(page))}


def broken_links(page: Path) -> Iterator[str]:
    for match in LINK.finditer(re.sub(r"`[^`\n]*`", "", prose(page))):
        link = match[1] or match[2]
        if re.match(r"[a-z]+:", link):
            continue
        file, _, name = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (name and name not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_a_target(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_table_of_contents_names_every_chapter_in_order(page: Path) -> None:
    before = prose(page).partition("\n## ")[0]
    listed = re.findall(r"\]\(#([^)]+)\)", before)

    if len(listed) >= CONTENTS_LINKS and headings(page, "##"):
        assert listed == [anchor(heading) for heading in headings(page, "##")]


def names_in_table(page: Path, head: str) -> list[str]:
    """Return the first word of each code span in the first column of the table under `head`."""
    table = page.read_text().partition(head)[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.+?) \|", table, flags=re.MULTILINE)
    return [re.split(r"[ (]", usage)[0] for row in rows for usage in re.findall(r"`([^`]+)`", row)]


def test_the_page_of_commands_lists_every_command() -> None:
    named = re.findall(r"^\| \[`([a-z-]+)`\]", COMMANDS.read_text(), flags=re.MULTILINE)

    assert sorted(named) == sorted(main.commands)


def test_the_guide_lists_every_method_and_property_of_a_table() -> None:
    named = names_in_table(GUIDE, "| method or property of `Table` | |")
    public = {name for name in dir(Table) if not name.startswith("_")} - INTERNAL

    assert sorted(named) == sorted(public)


def test_the_glossary_is_in_order_and_linked_from_every_page_for_users() -> None:
    words = re.findall(
        r"^- <a id=\"([^\"]+)\"></a>\*\*(.+?)\*\*", GLOSSARY.read_text(), re.MULTILINE
    )

    assert [word for _, word in words] == sorted(word for _, word in words)
    assert [name for name, word in words if name != word.replace(" ", "-")] == []
    assert [page for page in FOR_USERS if "glossary.md" not in (ROOT / page).read_text()] == []


def test_the_commands_on_the_pages_parse() -> None:
    written = [
        page for page in PAGES if page.name != "cli.md"
    ]  # that page is generated from the commands
    calls = [(page.name, call) for page in written for call in commands_on(page)]
    refused = []
    for page, call in calls:
        name, *arguments = shlex.split(call, comments=True)
        try:
            main.commands[name].make_context(name, [*arguments], resilient_parsing=False)
        except (click.ClickException, KeyError) as error:
            refused.append((page, call, str(error)))

    assert len(calls) > MANY
    assert refused == []


def test_contributing_lists_exactly_the_existing_rooms() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    block = re.search(r"^## Where things are.*?^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert block
    # The last row describes in words the rooms that it may import.
    drawn = re.sub(r"->.* and .*", "", block[1])

    assert set(re.findall(r"\w+", drawn)) == {PLUGIN, *(room for rooms in FLOORS for room in rooms)}
