"""Processes that race to create the same objects."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from fuse_stream.errors import AlreadyExistsError
from fuse_stream.storage.base import Store

RIVALS, KEYS = 4, 100


def check_one_creates_each(open_one: Callable[[], Store], *, start_method: str) -> None:
    """Race for each of the keys; check that one rival wins it, and that its bytes are stored.

    Args:
        open_one: opens the store, in each process; with the method "spawn" it is pickled.
        start_method: of `multiprocessing`.
    """
    context: Any = multiprocessing.get_context(start_method)
    names = [f"rival {number}" for number in range(RIVALS)]
    start, wins = context.Barrier(RIVALS), context.Queue()
    processes = [
        context.Process(target=_create_all, args=(open_one, name, start, wins)) for name in names
    ]
    for process in processes:
        process.start()
    won = dict(wins.get(timeout=120) for _ in names)
    for process in processes:
        process.join()
    store = open_one()
    stored = [store.get(_key(number)).decode() for number in range(KEYS)]

    assert sorted(number for numbers in won.values() for number in numbers) == list(range(KEYS))
    assert all(stored[number] == f"{name}/{number}" for name in names for number in won[name])
    assert sum(1 for numbers in won.values() if numbers) > 1, "one won all: there was no race"


def _create_all(open_one: Callable[[], Store], name: str, start: Any, wins: Any) -> None:
    store, won = open_one(), []
    for number in range(KEYS):
        start.wait(timeout=60)  # before every key, or one process might run alone
        try:
            store.put_if_absent(_key(number), f"{name}/{number}".encode())
        except AlreadyExistsError:
            continue
        won.append(number)
    wins.put((name, won))


def _key(number: int) -> str:
    return f"_ss/main/{number:03}"
