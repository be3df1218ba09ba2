"""What a check of `doctor` found, what to do about it, and how that looks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fuse_stream.cli.text import plural, printable


class Status(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """It works, or may work; somebody should look."""
    PROBLEM = "problem"
    """Something will not work."""


_STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.PROBLEM: "bold red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    check: str
    status: Status = Status.OK
    found: str
    remedy: str = ""
    """What to do; empty where all is well."""


def ok(check: str, found: str) -> Finding:
    """Return that all is well."""
    return Finding(check=check, found=found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """Return that somebody should look."""
    return Finding(check=check, status=Status.WARNING, found=found, remedy=remedy)


def problem(check: str, found: str, remedy: str) -> Finding:
    """Return that something will not work."""
    return Finding(check=check, status=Status.PROBLEM, found=found, remedy=remedy)


def is_healthy(findings: Sequence[Finding]) -> bool:
    """Whether there is no problem; warnings may be."""
    return not any(finding.status is Status.PROBLEM for finding in findings)


def findings_view(findings: Sequence[Finding]) -> RenderableType:
    """Return one line a check, the remedy below."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in findings:
        text = Text(printable(finding.found))
        if finding.remedy:
            text.append("\n-> ", style="bold").append(printable(finding.remedy), style="bold")
        status = Text(finding.status.value, style=_STYLES[finding.status])
        grid.add_row(status, Text(finding.check), text)
    return grid


def findings_note(findings: Sequence[Finding]) -> str:
    """Return how many problems and warnings there are."""
    counts = {status: sum(f.status is status for f in findings) for status in Status}
    problems, warnings = counts[Status.PROBLEM], counts[Status.WARNING]
    return f"{plural(problems, 'problem')}, {plural(warnings, 'warning')}"
