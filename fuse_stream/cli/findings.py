"""What a check found, and what to do about it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """It works, or may work; somebody should look."""
    PROBLEM = "problem"
    """Something will not work."""


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


def findings_document(findings: Sequence[Finding]) -> dict[str, object]:
    """Return findings as JSON values: `ok` and `checks` (`check status found remedy`)."""
    return {
        "ok": not any(finding.status is Status.PROBLEM for finding in findings),
        "checks": [
            {
                "check": finding.check,
                "status": finding.status.value,
                "found": finding.found,
                "remedy": finding.remedy,
            }
            for finding in findings
        ],
    }


def satisfies(version: str, specifier: str) -> bool:
    """Whether a version lies in a range such as ">=4.2,<4.4", as `pyproject.toml` writes ranges.

    A pre-release counts as its release; a part that is not understood excludes nothing.
    """
    release = _release(version)
    for part in specifier.split(","):
        match = re.fullmatch(r"\s*(>=|<=|==|<|>)\s*([\d.]+)\s*", part)
        if match and not _COMPARE[match[1]](release, _release(match[2])):
            return False
    return True


def ranges(requirements: Sequence[str]) -> dict[str, str]:
    """Return the ranges of the packages that are always required, by name."""
    found = {}
    for requirement in requirements:
        wanted, _, marker = requirement.partition(";")
        match = re.fullmatch(r"\s*([A-Za-z0-9._-]+)\s*\(?([^()\[\]]*)\)?\s*", wanted)
        if match and "extra" not in marker:
            found[match[1].lower().replace("_", "-")] = match[2].strip()
    return found


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()  # 4.2 is 4.2.0
    return tuple(numbers)


_COMPARE = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
}
