"""Bytes of stored objects are changed; every answer is the same as before, or a typed error.

A table with a history, a branch, tags and a lease is drawn from the seed. One object after another
is damaged: a bit flipped, the end cut off, bytes swapped, zeroed, dropped or doubled, or the object
replaced by another one of its kind or deleted. Each damaged table is asked everything that a reader
asks, and then checked by `fsck`, in bounded time.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from fuse_stream.errors import FuseError
from fuse_stream.format.layout import MAIN, slot_of
from fuse_stream.format.refs import Lease
from fuse_stream.objects import blocks
from fuse_stream.objects.hints import store_hint
from fuse_stream.objects.leases import store_lease
from fuse_stream.storage.base import Store
from fuse_stream.testing.faults import FaultyStore
from fuse_stream.testing.memory import MemoryObject
from tests.oracle.reader import rows_of
from torture.campaign import Campaign, PromiseBrokenError
from torture.checks import BrokenError, check, feed_sum
from torture.histories import CLOCKS, READING, STEP_S, History, Site, drawn_history

DAMAGES = 60
"""How many times one trial damages its table."""
PATIENCE_S = 30.0
"""The longest time for all answers of one damaged table; a sound one takes less than a second."""
MOST_CALLS = 2_000
"""The most calls of the store for all answers of one damaged table."""
KINDS = {
    "_fuse.json": "table file",
    "_ss/": "slot",
    "_sg/": "segment",
    "_dv/": "deletion file",
    "_b/": "block",
    "_refs/": "ref",
    "_leases/": "lease",
    "_hint/": "hint",
    "_floor/": "marker",
    "_of/": "source offsets",
}
UNSEEN = frozenset({"table file", "hint"})
"""Objects of which no hash is anywhere: a change of theirs may be a valid record."""
REPEATED = frozenset(
    {"segment", "deletion file", "block", "older slot", "newest slot", "ref", "lease"}
)
"""Objects whose damage `fsck` finds, whatever readers need."""

UNNAMED = frozenset({"ref", "lease", "newest slot"})
"""Objects that no other one has to name."""
BUILDING = 800
"""The first seed, of those of a history, of the clocks of who adds names to its table."""

Harm = Callable[[random.Random, bytes, bytes], bytes | None]
"""Take an object's bytes and another one's; return the damaged bytes, None to delete it."""
Answers = dict[str, object]


def _flip(chance: random.Random, data: bytes, _other: bytes) -> bytes:
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(chance: random.Random, data: bytes, _other: bytes) -> bytes:
    return data[: chance.randrange(len(data))]


def _swap(chance: random.Random, data: bytes, _other: bytes) -> bytes:
    first, second = (chance.randrange(len(data)) for _ in range(2))
    changed = bytearray(data)
    changed[first], changed[second] = changed[second], changed[first]
    return bytes(changed)


def _zero(chance: random.Random, data: bytes, _other: bytes) -> bytes:
    start = chance.randrange(len(data))
    length = min(chance.randint(1, 512), len(data) - start)
    return data[:start] + bytes(length) + data[start + length :]


def _drop(chance: random.Random, data: bytes, _other: bytes) -> bytes:
    start = chance.randrange(len(data))
    return data[:start] + data[start + chance.randint(1, 8) :]


def _double(chance: random.Random, data: bytes, _other: bytes) -> bytes:
    start = chance.randrange(len(data))
    end = start + chance.randint(1, 8)
    return data[:end] + data[start:]


def _replace(_chance: random.Random, _data: bytes, other: bytes) -> bytes:
    return other


def _delete(_chance: random.Random, _data: bytes, _other: bytes) -> None:
    return None


HARMS: dict[str, Harm] = {
    "a bit flipped": _flip,
    "cut": _cut,
    "two bytes swapped": _swap,
    "zeroed": _zero,
    "bytes dropped": _drop,
    "bytes doubled": _double,
    "replaced by another of its kind": _replace,
    "deleted": _delete,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A table of which one object was changed."""

    objects: Mapping[str, MemoryObject]
    key: str
    kind: str
    harm: str


def trial(seed: int, _folder: Path) -> Counter[str]:
    """Damage the table of a seed again and again; odd seeds read its blocks as large ones."""
    # A small block is read as a whole and compared with its hash, of a large one the pages are.
    most = 0 if seed % 2 else blocks.MAX_WHOLE_BYTES
    with mock.patch.object(blocks, "MAX_WHOLE_BYTES", most):
        return _damage_again(seed)


def _damage_again(seed: int) -> Counter[str]:
    chance = random.Random(f"damage {seed}")
    history = drawn_history(seed, least=6, most=20)
    objects, now_us = _with_names(history)
    sound = _ask(objects, now_us)
    errors = {name: answer for name, answer in sound.items() if isinstance(answer, Told)}
    if errors.keys() - {"changes"}:  # which stop where a rewind took a column away
        raise PromiseBrokenError(f"6: the sound table gives errors: {errors}", history.names)
    outcomes: Counter[str] = Counter()
    for _ in range(DAMAGES):
        damaged = _damage(chance, objects)
        if damaged is None:
            continue
        try:
            with _bounded():
                outcome = _judge(damaged, now_us, sound)
        except BrokenError as error:
            where = f"{damaged.key} ({damaged.kind}): {damaged.harm}"
            raise PromiseBrokenError(str(error), [*history.names, where]) from error
        outcomes[f"{damaged.kind}: {outcome}"] += 1
    return outcomes


def _with_names(history: History) -> tuple[dict[str, MemoryObject], int]:
    """Return the table of a history with a branch, a tag, a lease and a hint; and the time."""
    site = history.end()
    table = site.opened(seed=history.seed * CLOCKS + BUILDING)
    table.create_branch("side")
    table.create_tag("kept")
    store_hint(site.store, MAIN, table.head().version)
    lease = Lease(
        consumer="reader",
        owner_id=table.metadata.clock.new_id(),
        branch_id=MAIN,
        forks=(),
        version=table.head().version,
        lease_us=1_000_000_000,
    )
    store_lease(table.metadata, lease)
    site.clock.advance(STEP_S)
    side = site.opened(branch="side", seed=history.seed * CLOCKS + BUILDING + 1)
    side.set_properties({"owner": "side"})
    site.clock.advance(STEP_S)
    table.set_properties({"owner": "last"}, on_conflict="replan")
    return site.objects(), site.clock.now_us()


def _kind_of(key: str, objects: Mapping[str, MemoryObject]) -> str:
    kind = next((kind for prefix, kind in KINDS.items() if key.startswith(prefix)), "other")
    if (place := slot_of(key)) is not None:
        newest = max(
            found[1]
            for other in objects
            if (found := slot_of(other)) is not None and found[0] == place[0]
        )
        kind = "newest slot" if place[1] == newest else "older slot"
    return kind


def _damage(chance: random.Random, objects: Mapping[str, MemoryObject]) -> Damaged | None:
    """Return the table with one object damaged; None if what was drawn changes no byte."""
    kinds: dict[str, list[str]] = {}
    for key in sorted(objects):
        kinds.setdefault(_kind_of(key, objects), []).append(key)
    kind = chance.choice(sorted(kinds))
    key = chance.choice(kinds[kind])
    harm = chance.choice(sorted(HARMS))
    data = objects[key].data
    other = objects[chance.choice(kinds[kind])].data
    changed = HARMS[harm](chance, data, other) if data else None
    if changed == data:
        return None
    left = {name: item for name, item in objects.items() if name != key}
    if changed is not None:
        left[key] = MemoryObject(data=changed, modified_us=objects[key].modified_us)
    return Damaged(objects=left, key=key, kind=kind, harm=harm)


@dataclass(frozen=True, slots=True)
class Told:
    """A typed error in place of an answer."""

    error: str


def _ask(objects: Mapping[str, MemoryObject], now_us: int) -> Answers:
    """Return all answers about a table, each by a process of its own."""
    answers: Answers = {}
    for name, question in QUESTIONS.items():
        store = FaultyStore(Site.of(objects, now_us).store)
        try:
            answers[name] = question(Site.of(objects, now_us), store)
        except FuseError as error:
            answers[name] = Told(type(error).__name__)
        except Exception as error:
            raise BrokenError(f"7: {name}: an error without a type: {error!r}") from error
        check(len(store.calls) < MOST_CALLS, f"7: {name} took {len(store.calls)} calls")
    return answers


def _rows(site: Site, store: Store) -> object:
    return rows_of(site.opened(store, seed=READING).to_arrow())


def _log(site: Site, store: Store) -> object:
    log = site.opened(store, seed=READING).log()
    return [(item.version, item.operation, item.snapshot_id, item.message) for item in log]


def _ledger(site: Site, store: Store) -> object:
    ledger = site.opened(store, seed=READING).ledger()
    return {key: (entry.batch_id, entry.fingerprint) for key, entry in ledger.items()}


def _old(site: Site, store: Store) -> object:
    table = site.opened(store, seed=READING)
    head = table.head()
    return rows_of(table.to_arrow(version=(head.floor + head.version) // 2))


def _changes(site: Site, store: Store) -> object:
    table = site.opened(store, seed=READING)
    head = table.head()
    first = max(head.floor + 1, head.version - 4)
    return feed_sum(table.changes(first).read_all()) if first <= head.version else None


def _names(site: Site, store: Store) -> object:
    table = site.opened(store, seed=READING)
    tags = [(tag.name, tag.target.version) for tag in table.tags()]
    return (
        tags,
        [branch.name for branch in table.branches()],
        rows_of(table.to_arrow(version="kept")),
    )


def _branch(site: Site, store: Store) -> object:
    table = site.opened(store, branch="side", seed=READING)
    return table.head().snapshot_id, rows_of(table.to_arrow()), dict(table.properties)


def _consumers(site: Site, store: Store) -> object:
    return [state.consumer for state in site.opened(store, seed=READING).consumers()]


QUESTIONS: dict[str, Callable[[Site, Store], object]] = {
    "rows": _rows,
    "ledger": _ledger,
    "log": _log,
    "an older version": _old,
    "changes": _changes,
    "names": _names,
    "a branch": _branch,
    "consumers": _consumers,
}


def _are_large() -> bool:
    return blocks.MAX_WHOLE_BYTES == 0


def _judge(damaged: Damaged, now_us: int, sound: Answers) -> str:
    """Return how a damage was met.

    Raises:
        BrokenError: an answer is another one, and no error says so; or `fsck` misses the damage.
    """
    answers = _ask(damaged.objects, now_us)
    told = sorted(
        {
            answer.error
            for name, answer in answers.items()
            if isinstance(answer, Told) and answer != sound[name]
        }
    )
    wrong = [
        name
        for name, answer in answers.items()
        if answer != sound[name] and not isinstance(answer, Told)
    ]
    # What is found by a listing or by its number, and is deleted, is as if it had never been.
    is_gone = damaged.harm == "deleted" and damaged.kind in UNNAMED
    # Pages have checksums, but not the footer; only `fsck` compares the hash of a large block.
    is_unchecked = damaged.kind == "block" and _are_large()
    if wrong and damaged.kind not in UNSEEN and not is_gone and not is_unchecked:
        raise BrokenError(f"7: another answer, and no error: {', '.join(wrong)}")
    if damaged.kind in REPEATED and not is_gone:
        _check_fsck(damaged, now_us)
    if wrong and is_gone:
        return "deleted, and as if it had never been"
    if wrong:
        return f"another answer ({', '.join(wrong)}): no hash covers it"
    return " or ".join(told) if told else "the same answers"


def _check_fsck(damaged: Damaged, now_us: int) -> None:
    """Check that `fsck` finds the damage, unless it would not miss the object."""
    if not _is_sound(damaged.objects, now_us):
        return
    without = {key: item for key, item in damaged.objects.items() if key != damaged.key}
    check(_is_sound(without, now_us), "7: fsck says that the damaged table is sound")


def _is_sound(objects: Mapping[str, MemoryObject], now_us: int) -> bool:
    try:
        return Site.of(objects, now_us).opened(seed=READING).fsck(deep=True).is_sound
    except FuseError:
        return False
    except Exception as error:
        raise BrokenError(f"7: fsck: an error without a type: {error!r}") from error


@contextmanager
def _bounded() -> Iterator[None]:
    """Raise `BrokenError` in what takes longer than `PATIENCE_S`."""

    def stop(_signal: int, _frame: object) -> None:
        raise BrokenError(f"7: the answers took longer than {PATIENCE_S:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


CAMPAIGN = Campaign(
    name="damage",
    does="bytes of stored objects are flipped, cut, swapped, zeroed or lost; every answer is the "
    "same or a typed error, in bounded time, and fsck finds what readers do not need",
    unit="damages",
    trial=trial,
    in_ci=5_000,
    in_night=500_000,
)
