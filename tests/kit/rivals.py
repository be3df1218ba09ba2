"""Processes that race to create the same objects."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

from fuse_stream.errors import AlreadyExistsError
from fuse_stream.storage.base import Store

RIVALS = 4


def check_one_creates_each(
    opens: Sequence[Callable[[], Store]], *, start_method: str, keys: int
) -> None:
    """Race for each of the keys; check that one rival wins it, and that its bytes are stored.

    Args:
        opens: each opens the store, in a process; with the method "spawn" it is pickled.
        start_method: of `multiprocessing`.
        keys: how many objects are raced for.
    """
    context: Any = multiprocessing.get_context(start_method)
    names = [f"rival {number}" for number in range(len(opens))]
    start, wins = context.Barrier(len(opens)), context.Queue()
    processes = [
        context.Process(target=_create_all, args=(open_one, name, keys, start, wins))
        for open_one, name in zip(opens, names, strict=True)
    ]
    for process in processes:
        process.start()
    won = dict(wins.get(timeout=240) for _ in names)
    for process in processes:
        process.join()
    winners = [[name for name in names if number in won[name]] for number in range(keys)]
    several = [number for number in range(keys) if len(winners[number]) > 1]

    assert not several, f"several winners: {len(several)} of {keys} keys"
    store = opens[0]()
    stored = [store.get(_key(number)).decode() for number in range(keys)]
    assert stored == [f"{name}/{number}" for number, (name,) in enumerate(winners)]
    assert sum(1 for numbers in won.values() if numbers) > 1, "one won all: there was no race"


def _create_all(open_one: Callable[[], Store], name: str, keys: int, start: Any, wins: Any) -> None:
    store, won = open_one(), set()
    for number in range(keys):
        start.wait(timeout=120)  # before every key, or one process might run alone
        try:
            store.put_if_absent(_key(number), f"{name}/{number}".encode())
        except AlreadyExistsError:
            continue
        won.add(number)
    wins.put((name, won))


def _key(number: int) -> str:
    return f"_ss/main/{number:03}"
