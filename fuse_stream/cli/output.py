"""Output: data to stdout, notes and errors to stderr; no text in it can control the terminal.

Rules:
- All output goes through the two streams of `printable_streams` or a `PrintableConsole`. Both show
  control characters as escapes, by `text.printable`, except line ends and rich's own codes for
  colours and the cursor.
- Markup in data is text: `[red]` is shown as it is.
- stdout has only data. A terminal gets colour and lines of its width; a pipe or file gets
  plain text in lines as long as their content, so that nothing is cut off before `grep`.
- `NO_COLOR`, `COLUMNS` and `TERM=dumb` are respected (rich does it).
- A closed pipe ends the program quietly, with the code that a shell gives for SIGPIPE.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

from fuse_stream.cli.text import cell, json_text, printable, printable_lines
from fuse_stream.errors import FuseError


class PrintableStream:
    """A text stream that writes to `raw`, with control characters as escapes."""

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
    """Show control characters as escapes in all that is printed in the `with` block."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for what the terminal cannot show
    sys.stdout, sys.stderr = (cast(TextIO, PrintableStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class PrintableConsole(Console):
    """A console without markup, which shows control characters as escapes."""

    def __init__(self, stream: TextIO, **options: Any) -> None:
        raw = stream.raw if isinstance(stream, PrintableStream) else stream
        super().__init__(file=raw, markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable_lines(text), style, control)


EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141
_UNLIMITED = 10_000
_PIECE = 16_384


class Output:
    """The two streams of one run; with `json` it shows no progress."""

    def __init__(self, *, json: bool = False) -> None:
        self.notes = PrintableConsole(sys.stderr)
        self._shows_progress = self.notes.is_terminal and not json
        self._console = _Console(sys.stdout, soft_wrap=False)
        self.ascii_only = self._console.options.ascii_only
        """True if stdout cannot encode Unicode."""
        self.width: int | None = None
        """The width of a line in columns; None if it is not limited."""
        if self._console.is_terminal or os.environ.get("COLUMNS", "").isdigit():
            self.width = self._console.width
        else:
            self._console.width = _UNLIMITED

    def show(self, *parts: RenderableType) -> None:
        """Print renderables to stdout, one below the other."""
        if self.width is not None:
            for part in parts:
                self._console.print(part, crop=False)
            return
        with self._console.capture() as captured:
            for part in parts:
                self._console.print(part, crop=False)
        # Rich fills the lines of a grid up to the longest one.
        self.show_text("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))

    def show_json(self, document: object) -> None:
        """Print one JSON document to stdout."""
        self.show_text(json_text(document) + "\n")

    def show_text(self, text: str) -> None:
        """Print a text to stdout as it is."""
        file = self._console.file
        try:
            # An unbuffered stdout takes a part of a long text and hides that the pipe was closed.
            for at in range(0, len(text), _PIECE):
                file.write(text[at : at + _PIECE])
            file.flush()
        except BrokenPipeError:
            end_on_closed_pipe()

    def note(self, text: str) -> None:
        """Print a note on stderr, on one line; nothing if the text is empty."""
        if not text:
            return
        self.notes.print(Text(printable(text), style="dim"), soft_wrap=True)

    @contextmanager
    def progress(self, label: str, total: int | None = None) -> Iterator[Meter]:
        """Show progress on stderr, and remove it at the end; a bar where the total is known."""
        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            *map(_IfCounted, (BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn())),
            console=self.notes,
            transient=True,
            disable=not self._shows_progress,
            redirect_stdout=False,  # else data would go to stderr
            redirect_stderr=False,
        )
        meter = Meter(bar, label, total)
        with bar:
            yield meter


class _IfCounted(ProgressColumn):
    """A column that is empty as long as the total is not known."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self._column = column

    def render(self, task: Task) -> RenderableType:
        return "" if task.total is None else self._column.render(task)


class Meter:
    """A progress bar."""

    def __init__(self, bar: Progress, label: str, total: int | None) -> None:
        self._bar = bar
        self._task = bar.add_task(label, total=total)
        self._label = label

    def reach(self, done: int, total: int | None = None) -> None:
        """Show the number that is done; `total` changes the total."""
        self._bar.update(self._task, completed=done, total=total)

    def say(self, what: str, done: int, total: int) -> None:
        """Show the current step, how much of it is done, and its total."""
        if what != self._label:  # a new step: the time that is left is not told by the last one
            self._bar.reset(self._task, total=total, description=what)
            self._label = what
        self.reach(done, total)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar in the `with` block, so that data can be printed."""
        self._bar.stop()
        yield
        self._bar.start()


class _Console(PrintableConsole):
    def on_broken_pipe(self) -> None:
        self.quiet = True
        end_on_closed_pipe()


def end_on_closed_pipe() -> NoReturn:
    """Exit with the code of SIGPIPE; write nothing more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(EXIT_CLOSED_PIPE)


def error_text(error: FuseError, message: str) -> Text:
    """Return an error as text: its class, the message, and a line for each context value."""
    text = Text(f"{type(error).__name__}: ", style="bold red")
    text.append(printable(message), style="default")
    for name, value in error.context.items():
        if value is not None:
            text.append(f"\n  {name}: ", style="dim").append(cell(value))
    return text
