"""docs/cli.md is what the commands say of themselves."""

from __future__ import annotations

from scripts.write_cli_page import PAGE, page


def test_the_page_is_what_its_generator_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()  # python -m scripts.write_cli_page
