"""The way to the terminal: nothing that others wrote into a table acts on it.

Rules:
- A run's output leaves through the two streams of `printable_streams` or a `PrintableConsole`; both
  show control characters as escapes, by `text.printable`. Only a line's end passes, and what rich
  itself sends for colours and the cursor.
- Markup in data is text: `[red]` is shown as it is.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fuse_stream.cli.text import printable_lines


class PrintableStream:
    """A text stream that shows what it is given; `raw` is the one below."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw
        self.encoding = raw.encoding
        self.errors = raw.errors

    def write(self, text: str) -> int:
        self.raw.write(printable_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self.raw.flush()

    def isatty(self) -> bool:
        return self.raw.isatty()

    def fileno(self) -> int:
        return self.raw.fileno()


@contextmanager
def printable_streams() -> Iterator[None]:
    """Let what is written to stdout and stderr meanwhile be shown: by click, logs, tracebacks."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what the terminal cannot show
    sys.stdout, sys.stderr = (cast(TextIO, PrintableStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class PrintableConsole(Console):
    """A console whose renderables are data: literal, and shown."""

    def __init__(self, stream: TextIO, **options: Any) -> None:
        raw = stream.raw if isinstance(stream, PrintableStream) else stream
        super().__init__(file=raw, markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable_lines(text), style, control)
