"""What every test shares. Imports no Spark: most tests need no JVM."""

from __future__ import annotations

import os
from importlib.metadata import version

from hypothesis import settings

# A first example may import half of pyarrow; whether a law holds matters here, not how fast.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_report_header() -> str:
    return f"spark: {version('pyspark')}, pyarrow: {version('pyarrow')}"
