from __future__ import annotations

import json
import random
from typing import Any

import pytest

from fuse_stream.cdc.json_text import MAX_DEPTH, Number, parse, to_text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "[1,]",
        '{"a":1}{"a":1}',
        '{"a":1} x',
        "{'a':1}",
        '{"a":1,"a":1}',
        '{"a":{"b":1,"b":2}}',
        "NaN",
        "[Infinity]",
        "-Infinity",
        "01",
        "1.",
        "+1",
        '"\x00"',
        '"\\ud800"',
        '["\\uDfff"]',
        '{"\\udc00x":1}',
        "\ufeff1",
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
    ],
)
def test_what_is_not_one_value_of_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own messages
        parse(text)


@pytest.mark.parametrize(
    "text", ["0", "-0", "1.50", "1e400", "123456789012345678901234567890.10", "9" * 5000, "-1E-7"]
)
def test_a_number_is_its_text(text: str) -> None:
    found = parse(text)

    assert isinstance(found, Number)
    assert to_text(found) == text


def test_values_become_text_and_are_read_again() -> None:
    draw = random.Random(7)

    def value(depth: int) -> Any:
        kind = draw.randrange(7 if depth else 5)
        match kind:
            case 0:
                return None
            case 1:
                return draw.random() < 0.5
            case 2:
                return draw.randrange(-(10**30), 10**30)
            case 3 | 4:
                return "".join(draw.choices('aä"\\\n\u2028😀{}[],:$', k=draw.randrange(6)))
            case 5:
                return [value(depth - 1) for _ in range(draw.randrange(4))]
            case _:
                return {str(n): value(depth - 1) for n in range(draw.randrange(4))}

    for _ in range(500):
        made = [value(4)]
        found = parse(json.dumps(made, ensure_ascii=draw.random() < 0.5))
        assert parse(to_text(found)) == found
        assert json.loads(to_text(found)) == made


def test_pairs_of_surrogates_are_text() -> None:
    assert parse('"\\ud83d\\ude00"') == "😀"


def test_the_deepest_value_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH

    assert to_text(parse(text)) == text
