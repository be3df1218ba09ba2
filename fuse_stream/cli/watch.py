"""`optimize --watch`: the service in this process, until it is told to end."""

from __future__ import annotations

import logging
import signal
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from fuse_stream.cli.text import json_text, plural, printable
from fuse_stream.service.place import Place
from fuse_stream.service.rounds import Rounds, Stop

_LOGGER = "fuse_stream"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def watch_tables(places: Sequence[Place], *, as_json: bool) -> None:
    """Look after tables until SIGTERM or Ctrl-C; say on stdout what was done, a line a run.

    The step at hand comes to its end, or is given up: a commit has landed or not.
    """
    with _ended_by_signals(), _told(as_json=as_json):
        if not as_json:
            click.echo(f"watching {plural(len(places), 'table')}; Ctrl-C ends it", err=True)
        Rounds(places).go()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    def stop(number: int, _: types.FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # whoever is in a hurry asks twice
        raise Stop

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    except Stop:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _told(*, as_json: bool) -> Iterator[None]:
    logger = logging.getLogger(_LOGGER)
    handler = _Lines(as_json=as_json)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Lines(logging.Handler):
    """Prints what the service did; with JSON, a document a line."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        text = printable(record.getMessage())
        if self._as_json:
            facts = getattr(record, "fuse", {"message": text})
            click.echo(json_text({**facts, "level": record.levelname}, indented=False, default=str))
        else:
            click.echo(text, err=record.levelno > logging.INFO)
