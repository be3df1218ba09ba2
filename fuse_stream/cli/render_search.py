"""How the commits that brought some rows look: records -> renderables. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from fuse_stream.cli.grid import Grid, Heading
from fuse_stream.cli.render import VERSION_STYLE, operation_text
from fuse_stream.cli.text import count, first_line, iso, printable
from fuse_stream.commit.ledger import Batch
from fuse_stream.recovery.blame import BlamedCommit

_HEADINGS = (
    Heading(text="rows", right=True),
    Heading(text="version", right=True),
    Heading(text="branch"),
    Heading(text="time (UTC)"),
    Heading(text="operation"),
    Heading(text="batch"),
    Heading(text="message", shrinks=True),
    Heading(text="author"),
    Heading(text="query", shrinks=True),
)


def blame_view(found: Sequence[BlamedCommit], branches: Sequence[str]) -> RenderableType:
    """Return one line a commit; `branches` names those of other branches."""
    rows = [
        _exact(commit, branch) if commit.is_exact else _at_or_before(commit, branch)
        for commit, branch in zip(found, branches, strict=True)
    ]
    return Grid(headings=_HEADINGS, rows=rows).without_empty().table()


def _exact(commit: BlamedCommit, branch: str) -> list[Text]:
    batch = commit.batch
    return [
        Text(count(commit.row_count)),
        Text(str(commit.version), style=VERSION_STYLE),
        Text(printable(branch)),
        Text(iso(commit.timestamp_us)),
        operation_text(commit.operation),
        Text(printable(_spelt(batch)) if batch else ""),
        Text(first_line(commit.message)),
        Text(printable(commit.author)),
        Text(printable(batch.query_id or "") if batch else ""),
    ]


def _at_or_before(commit: BlamedCommit, branch: str) -> list[Text]:
    # What else is known of the commit is not what is known of the rows.
    known = [
        Text(count(commit.row_count)),
        Text(f"<= {commit.version}", style=VERSION_STYLE),
        Text(printable(branch)),
        Text(f"<= {iso(commit.timestamp_us)}"),
    ]
    return known + [Text("") for _ in _HEADINGS[len(known) :]]


def _spelt(batch: Batch) -> str:
    writer = f"/{batch.writer}" if batch.writer else ""
    return f"{batch.application}{writer} #{batch.batch_id}"
