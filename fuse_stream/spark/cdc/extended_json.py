"""MongoDB's extended JSON as plain JSON.

The characters `{"$` cannot be within a string of JSON, where a quote has a backslash: so objects
such as `{"$oid": "…"}` are found in the text itself, at any depth.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql.functions import regexp_replace

_TEXT = r'"[^"\\]*"'
_SCALAR = (
    r'\{\s*"\$(?:oid|uuid|numberInt|numberLong|numberDouble|numberDecimal)"\s*:\s*'
    rf"({_TEXT}|-?[0-9.eE+]+)" + r"\s*\}"
)
_DATE = rf'\{{\s*"\$date"\s*:\s*({_TEXT}|-?[0-9]+)\s*\}}'  # its number was made plain before
_BINARY = (
    rf'\{{\s*"\$binary"\s*:\s*\{{\s*"base64"\s*:\s*({_TEXT})\s*,'
    rf'\s*"subType"\s*:\s*{_TEXT}\s*\}}\s*\}}'
)
_OLD_BINARY = rf'\{{\s*"\$binary"\s*:\s*({_TEXT})\s*,\s*"\$type"\s*:\s*{_TEXT}\s*\}}'


def plain_json(text: Column) -> Column:
    """Return a document with its ids, numbers, dates and bytes as plain texts and numbers.

    A date that is a number counts milliseconds. Other objects, such as `$timestamp`, stay.
    """
    for pattern in (_SCALAR, _DATE, _BINARY, _OLD_BINARY):
        text = regexp_replace(text, pattern, "$1")
    return text
