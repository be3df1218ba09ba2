"""The text by which the quarantine keeps a message: its own, or base64 if it is no UTF-8."""

from __future__ import annotations

import base64

PREFIX = "base64:"
"""What the text of a message begins with that is no UTF-8."""


def text_of(message: bytes) -> str:
    """Return the text that keeps a message."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        return PREFIX + base64.b64encode(message).decode()


def bytes_of(text: str) -> bytes:
    """Return the message that a text keeps.

    A message in UTF-8 that is itself such a text of another one is taken for that one.
    """
    if text.startswith(PREFIX):
        try:
            message = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        except ValueError:  # a message that begins so
            return text.encode()
        if text_of(message) == text:
            return message
    return text.encode()
