from __future__ import annotations

import math

import pytest

from fuse_stream.cdc.binary import from_base64, from_hex, from_latin_1
from fuse_stream.cdc.numbers import decimal_of, float_of, integer_of, scaled_text

BYTE = (-128, 127)
REFUSED = (ValueError, ArithmeticError)


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), (" -7\n", -7), ("+7", 7), ("7.0", 7), ("1e2", 100), ("-128", -128), ("007", 7)],
)
def test_integers(text: str, number: int) -> None:
    assert integer_of(text, *BYTE) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1.5",
        "128",
        "-129",
        "1_0",
        "1e999999",
        "0x1",
        "٣",
        "1 2",
        "1" * 5000,
        "true",
        "nan",
    ],
)
def test_what_is_no_integer_of_its_size_is_refused(text: str) -> None:
    with pytest.raises(REFUSED):
        integer_of(text, *BYTE)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("12.5", "12.50"),
        ("12.500", "12.50"),
        ("-0.01", "-0.01"),
        ("99999999.99", "99999999.99"),
        ("1.25E3", "1250.00"),
        ("0e5", "0.00"),
        (".5", "0.50"),
        ("5.", "5.00"),
    ],
)
def test_decimals_hold_the_digits_of_a_text(text: str, held: str) -> None:
    assert str(decimal_of(text, 10, 2)) == held


@pytest.mark.parametrize(
    "text",
    ["", "12.505", "100000000", "1e9", "1e-3", "nan", "1_0", "1.23456789012345678E1", "1e9999999"],
)
def test_a_decimal_is_never_rounded(text: str) -> None:
    with pytest.raises(REFUSED):
        decimal_of(text, 10, 2)


def test_doubles() -> None:
    assert float_of("1e308", is_single=False) == 1e308
    assert float_of(" -Infinity ", is_single=True) == -math.inf
    assert math.isnan(float_of("NaN", is_single=False))
    assert float_of("0.1", is_single=True) == pytest.approx(0.1, rel=1e-7)
    for text, is_single in (("1e309", False), ("1e39", True), ("1d", False), ("1_0", False)):
        with pytest.raises(REFUSED):
            float_of(text, is_single=is_single)


@pytest.mark.parametrize(
    ("encoded", "scale", "text"),
    [("AA==", 0, "0"), ("/w==", 2, "-0.01"), ("AN4=", 1, "22.2"), ("AQ==", -3, "1000")],
)
def test_decimals_in_bytes(encoded: str, scale: int, text: str) -> None:
    assert scaled_text(encoded, scale) == text


@pytest.mark.parametrize(
    ("encoded", "scale"), [("", 0), ("A", 0), ("AA==", 77), ("AAAA" * 8, 0), ("é", 0)]
)
def test_what_is_no_decimal_in_bytes_is_refused(encoded: str, scale: int) -> None:
    with pytest.raises(REFUSED):
        scaled_text(encoded, scale)


def test_bytes() -> None:
    assert from_base64("-_-_") == from_base64("+/+/") == b"\xfb\xff\xbf"
    assert (from_hex("00fF"), from_latin_1("\xff\x00")) == (b"\x00\xff", b"\xff\x00")
    for read, text in (
        (from_base64, "a b="),
        (from_hex, "0"),
        (from_hex, "ü"),
        (from_latin_1, "€"),
    ):
        with pytest.raises(REFUSED):
            read(text)
