r"""How an address is written so that Spark's readers take it for one file.

Seen with Spark 4.3.0 and 28 folder names: `spark.read.parquet` takes a path as it stands, `%`, `#`,
`=`, spaces and letters of any script included, with and without `file://`; a percent-encoded one is
not found. But it reads every path as a glob: `{}`, `[]` and `\` must be escaped. One thing has no
escape: a folder with a colon below or beside such a character, where Hadoop raises.
"""

from __future__ import annotations

_GLOB_ESCAPES = str.maketrans({character: f"\\{character}" for character in "\\{}[]*?"})


def escape_globs(address: str) -> str:
    """Return a path or URL that Spark's globbing resolves to exactly `address`."""
    return address.translate(_GLOB_ESCAPES)
