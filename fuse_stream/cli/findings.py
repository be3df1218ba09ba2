"""The findings of `doctor`: records, and how they are shown. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fuse_stream.cli.text import plural, printable


class Status(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """It works, or may work; look at it."""
    PROBLEM = "problem"
    """Something will not work."""


_STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.PROBLEM: "bold red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    check: str
    status: Status = Status.OK
    found: str
    remedy: str = ""
    """What to do; empty if the status is ok."""


def ok(check: str, found: str) -> Finding:
    """Return a finding with the status ok."""
    return Finding(check=check, found=found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """Return a finding with the status warning."""
    return Finding(check=check, status=Status.WARNING, found=found, remedy=remedy)


def problem(check: str, found: str, remedy: str) -> Finding:
    """Return a finding with the status problem."""
    return Finding(check=check, status=Status.PROBLEM, found=found, remedy=remedy)


def is_healthy(findings: Sequence[Finding]) -> bool:
    """True if no finding is a problem."""
    return not any(finding.status is Status.PROBLEM for finding in findings)


def findings_view(findings: Sequence[Finding]) -> RenderableType:
    """Return a line for each check, with its remedy below; what is wrong comes last."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in sorted(findings, key=lambda finding: [*Status].index(finding.status)):
        text = Text(printable(finding.found))
        if finding.remedy:
            text.append("\n-> ", style="bold").append(printable(finding.remedy), style="bold")
        status = Text(finding.status.value, style=_STYLES[finding.status])
        grid.add_row(status, Text(finding.check), text)
    return grid


def findings_note(findings: Sequence[Finding]) -> str:
    """Return the number of problems and of warnings, as text."""
    counts = {status: sum(f.status is status for f in findings) for status in Status}
    problems, warnings = counts[Status.PROBLEM], counts[Status.WARNING]
    return f"{plural(problems, 'problem')}, {plural(warnings, 'warning')}"
