"""docs/cli.md equals the page made from the commands."""

from __future__ import annotations

from scripts.write_cli_page import PAGE, page


def test_the_page_equals_the_output_of_its_generator() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()  # python -m scripts.write_cli_page
