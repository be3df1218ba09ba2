"""All campaigns: every module of this folder that has a `CAMPAIGN`."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
from collections.abc import Callable
from pathlib import Path

from scripts.fetch_servers import SERVERS
from torture.campaign import Campaign

FOLDER = Path(__file__).parent


def load_campaigns() -> dict[str, Campaign]:
    """Return all campaigns by name, in the order of their modules."""
    found = {}
    for info in pkgutil.iter_modules([str(FOLDER)]):
        module = importlib.import_module(f"torture.{info.name}")
        if isinstance(campaign := getattr(module, "CAMPAIGN", None), Campaign):
            found[campaign.name] = campaign
    return found


def what_is_missing(campaign: Campaign) -> str:
    """Return what a campaign needs and this machine lacks; empty if nothing."""
    return ", ".join(_MISSING[need] for need in campaign.needs if not _FOUND[need]())


_FOUND: dict[str, Callable[[], bool]] = {
    "spark": lambda: "JAVA_HOME" in os.environ or shutil.which("java") is not None,
    "s3": SERVERS["s3"].program.exists,
}
_MISSING = {
    "spark": "there is no Java (make finds or downloads it)",
    "s3": "there is no server of S3 (python -m scripts.fetch_servers)",
}
