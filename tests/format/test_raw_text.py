from __future__ import annotations

import base64
import random

import pytest

from fuse_stream.format.raw_text import bytes_of, text_of


def test_each_message_is_kept_and_found_again() -> None:
    draw = random.Random(3)
    messages = [draw.randbytes(draw.randrange(9)) for _ in range(500)]

    assert [bytes_of(text_of(message)) for message in messages] == messages


@pytest.mark.parametrize("text", ["base64:", "base64:aGk=", "base64:*", "base64:/x==", "é", ""])
def test_a_text_that_only_looks_like_base64_is_itself(text: str) -> None:
    assert bytes_of(text) == text.encode()


def test_what_is_no_utf_8_is_in_base64() -> None:
    assert text_of(b"\xff") == "base64:" + base64.b64encode(b"\xff").decode()
