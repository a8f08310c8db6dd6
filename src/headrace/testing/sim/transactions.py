"""What clients saw of transactions, and what must not be in it: Jepsen's transactional anomalies. PURE.

Kafka's transactions are not isolated from each other's writes: two that write to the same partitions may interleave, so
cycles of writes alone are no anomaly. What read_committed promises is that nobody reads what was aborted, or before its
commit was asked for, or a part of a transaction for good; so nobody can read from each other in a circle.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


class End(enum.Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    """Its commit was never asked for, or surely not heard."""
    MAYBE = "maybe"


@dataclass(slots=True)
class Transaction:
    name: str
    writes: list[str] = field(default_factory=list)
    """Values that were acknowledged, and no others: each is unique."""
    attempts: list[str] = field(default_factory=list)
    """Values that nobody acknowledged."""
    reads: list[str] = field(default_factory=list)
    commit_asked: float = float("inf")
    end: End = End.MAYBE


class TransactionKind(enum.Enum):
    ABORTED_READ = "aborted read"
    TORN = "torn transaction"
    LOST = "lost transaction"
    READ_BEFORE_COMMIT = "read before its commit"
    CYCLE = "cycle between transactions"


@dataclass(slots=True, frozen=True)
class TransactionAnomaly:
    kind: TransactionKind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


def anomalies(
    transactions: Iterable[Transaction], read_at: Mapping[str, float], final: Iterable[str]
) -> list[TransactionAnomaly]:
    """`read_at` is when a value was first read by a reader of committed records, `final` what is there at the end."""
    known = list(transactions)
    there = dict.fromkeys(final)
    found: list[TransactionAnomaly] = []
    for transaction in known:
        found += _of_one(transaction, read_at, there)
    found += _cycles(known)
    return found


def _of_one(
    transaction: Transaction, read_at: Mapping[str, float], there: Mapping[str, None]
) -> Iterator[TransactionAnomaly]:
    name, written = transaction.name, [*transaction.writes, *transaction.attempts]
    read = [value for value in written if value in read_at]
    if transaction.end is End.ABORTED and read:
        yield TransactionAnomaly(TransactionKind.ABORTED_READ, f"{name} was aborted, and {read[0]!r} of it was read")
    for value in read:
        if read_at[value] < transaction.commit_asked and transaction.end is not End.ABORTED:
            text = f"{value!r} of {name} was read at {read_at[value]:g} s, before its commit was asked for"
            yield TransactionAnomaly(TransactionKind.READ_BEFORE_COMMIT, text)
    missing = [value for value in transaction.writes if value not in there]
    if transaction.end is End.COMMITTED and missing:
        yield TransactionAnomaly(TransactionKind.LOST, f"{name} was committed, and {missing[0]!r} of it is not there")
    elif missing and any(value in there for value in written):
        yield TransactionAnomaly(TransactionKind.TORN, f"a part of {name} is there, and {missing[0]!r} of it is not")


def _cycles(transactions: list[Transaction]) -> Iterator[TransactionAnomaly]:
    """One read from another which, by way of others, read from it."""
    writers = {value: one.name for one in transactions for value in (*one.writes, *one.attempts)}
    sources = {
        one.name: dict.fromkeys(writers[value] for value in one.reads if value in writers) for one in transactions
    }
    state: dict[str, int] = {}  # 1 while on the way, 2 when all of its sources were looked at
    for start in sources:
        if state.get(start):
            continue
        path, way = [start], [iter(sources[start])]
        state[start] = 1
        while path:
            following = next(way[-1], None)
            if following is None:
                state[path.pop()] = 2
                way.pop()
            elif state.get(following) == 1:
                circle = [*path[path.index(following) :], following]
                yield TransactionAnomaly(TransactionKind.CYCLE, " read from ".join(circle))
                return
            elif following in sources and not state.get(following):
                state[following] = 1
                path.append(following)
                way.append(iter(sources[following]))
