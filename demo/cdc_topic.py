"""A Kafka topic with Debezium's messages, as files: one file is what one micro-batch reads.

The messages arrive as a bad network delivers them: late, twice, shuffled, and some are broken.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from demo.cdc_database import Change, Order

KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp_ntz"
)
"""The columns of Spark's Kafka source; a stream from Kafka has them, too."""
TOPIC = "shop.public.orders"
MOST_LATE = 2
"""Rounds."""

_LATE, _TWICE, _PARTITIONS = 0.10, 0.05, 3
_POISON_A_ROUND = 4
"""Of each kind."""
_FIRST_S = 1_700_000_000

CUT, UNKNOWN, TEXT, NO_KEY = "cut", "unknown op", "text", "no key"
POISON = (CUT, UNKNOWN, TEXT, NO_KEY)
REASONS = {
    CUT: "unreadable",
    UNKNOWN: "unknown op: x",
    TEXT: 'failed cast: amount_cents="a lot"',
    NO_KEY: "no key",
}
"""Why each kind of poison cannot be applied."""
UNIT = " ct"
"""After the amounts that an old program writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the topic; without a value it is a tombstone of Kafka."""

    key: bytes | None
    value: bytes | None
    at_us: int
    change: Change | None = None
    """What it says, if it is good."""
    poison: str = ""
    mended: Change | None = None
    """What it says once it is mended."""
    partition: int = 0
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What arrives in one round."""

    messages: Sequence[Message]
    late: int
    """Messages of earlier rounds."""
    twice: int
    """Messages that have arrived before."""

    @property
    def events(self) -> int:
        """The messages that say something: all but tombstones."""
        return sum(message.value is not None for message in self.messages)

    @property
    def changes(self) -> list[Change]:
        """The changes of the database that arrive in good messages."""
        return [message.change for message in self.messages if message.change is not None]

    @property
    def mended(self) -> list[Change]:
        """The changes of the messages that have to be mended."""
        return [message.mended for message in self.messages if message.mended is not None]

    @property
    def poison(self) -> Counter[str]:
        """How many messages are bad, by kind; those to be mended have none."""
        return Counter(message.poison for message in self.messages if message.poison)


def plan_deliveries(
    rounds: Sequence[Sequence[Change]], seed: int, *, old_program_in: int
) -> list[Delivery]:
    """Return what arrives in each round; in the last one all has arrived.

    Args:
        rounds: the log of each round.
        seed: decides all.
        old_program_in: the round, from 0, in which an old program writes some amounts as text.
    """
    chance = random.Random(seed)
    arriving: list[list[tuple[Message, bool, bool]]] = [[] for _ in rounds]
    last = len(rounds) - 1

    def send(message: Message, number: int, *, again: bool = False) -> int:
        is_truncate = message.change is not None and message.change.op == "t"
        is_late = again or is_truncate or chance.random() < _LATE
        at = min(last, number + (chance.randint(1, MOST_LATE) if is_late else 0))
        arriving[at].append((message, at > number and not again, again))
        return at

    offsets: Counter[int] = Counter()
    for number, log in enumerate(rounds):
        is_old = number == old_program_in
        written = [message for change in log for message in _messages_of(change, chance, is_old)]
        for message in written + _poisoned(written, chance):
            offsets[message.partition] += 1
            numbered = replace(message, offset=offsets[message.partition])
            at = send(numbered, number)
            if chance.random() < _TWICE:
                # Half of the repeated ones are written again, the others are read again.
                if chance.random() < 0.5:
                    offsets[message.partition] += 1
                    numbered = replace(message, offset=offsets[message.partition])
                send(numbered, at, again=True)
    deliveries = []
    for found in arriving:
        chance.shuffle(found)
        deliveries.append(
            Delivery(
                messages=[message for message, _, _ in found],
                late=sum(is_late for _, is_late, _ in found),
                twice=sum(is_again for _, _, is_again in found),
            )
        )
    return deliveries


def deliver(delivery: Delivery, source: Path, number: int) -> None:
    """Put what arrives in a round, the first being 1, into the source of a stream."""
    source.mkdir(exist_ok=True)
    messages = delivery.messages
    rows = pa.table(
        {
            "key": pa.array([message.key for message in messages], pa.binary()),
            "value": pa.array([message.value for message in messages], pa.binary()),
            "topic": pa.array([TOPIC] * len(messages)),
            "partition": pa.array([message.partition for message in messages], pa.int32()),
            "offset": pa.array([message.offset for message in messages], pa.int64()),
            "timestamp": pa.array([message.at_us for message in messages], pa.timestamp("us")),
        }
    )
    hidden = source / f".{number}"  # Spark sees a file when it is whole
    pq.write_table(rows, hidden)
    os.utime(hidden, (_FIRST_S + number,) * 2)  # the order in which Spark takes them
    hidden.rename(source / f"round_{number:02}.parquet")


def _messages_of(change: Change, chance: random.Random, is_old: bool) -> list[Message]:  # noqa: FBT001
    key = None if change.key is None else _json({"id": change.key})
    partition = (change.key or 0) % _PARTITIONS
    envelope = _envelope(change)
    message = Message(
        key=key, value=_json(envelope), at_us=change.at_us, partition=partition, change=change
    )
    if is_old and change.op == "c" and chance.random() < 0.01:
        assert change.after is not None
        text = f"{change.after['amount_cents']}{UNIT}"
        envelope["after"] = {**change.after, "amount_cents": text}
        message = replace(message, value=_json(envelope), change=None, mended=change)
    if change.op != "d":
        return [message]
    return [message, Message(key=key, value=None, at_us=change.at_us, partition=partition)]


def _envelope(change: Change) -> dict[str, object]:
    """Return the value that Debezium's connector for PostgreSQL writes, without its schema."""
    before: dict[str, object] | None = None
    if change.op == "d":  # of a deleted row PostgreSQL logs the key alone
        before = {**dict.fromkeys(Order.__annotations__), "id": change.key}
    commit = None if change.last_commit is None else str(change.last_commit)
    return {
        "before": before,
        "after": change.after,
        "source": {
            "version": "3.3.1.Final",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": change.at_us // 1_000,
            "snapshot": "true" if change.op == "r" else "false",
            "db": "shop",
            "sequence": json.dumps([commit, str(change.lsn)]),
            "schema": "public",
            "table": "orders",
            "txId": change.transaction,
            "lsn": change.lsn,
            "xmin": None,
        },
        "transaction": None,
        "op": change.op,
        "ts_ms": change.at_us // 1_000 + 120,
    }


def _poisoned(written: Sequence[Message], chance: random.Random) -> list[Message]:
    """Return broken copies of some messages."""
    inserts = [one for one in written if one.change is not None and one.change.op == "c"]
    broken = []
    for kind in POISON:
        for message in chance.sample(inserts, min(_POISON_A_ROUND, len(inserts))):
            assert message.change is not None
            envelope = _envelope(message.change)
            value, key = _json(envelope), message.key
            match kind:
                case "cut":
                    value = value[: chance.randint(20, len(value) - 20)]
                case "unknown op":
                    value = _json({**envelope, "op": "x"})
                case "text":
                    value = _json({**envelope, "after": _with(message, "amount_cents", "a lot")})
                case _:
                    value, key = _json({**envelope, "after": _with(message, "id", None)}), None
            broken.append(replace(message, key=key, value=value, change=None, poison=kind))
    return broken


def _with(message: Message, name: str, value: object) -> dict[str, object]:
    assert message.change is not None
    assert message.change.after is not None
    return {**message.change.after, name: value}


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
