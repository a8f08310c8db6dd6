"""The checker of transactions: what it finds, and what it lets be."""

from __future__ import annotations

from headrace.testing.sim.transactions import End, Transaction, TransactionKind, anomalies


def kinds(
    *transactions: Transaction, read_at: dict[str, float] | None = None, final: str = ""
) -> list[TransactionKind]:
    return [found.kind for found in anomalies(transactions, read_at or {}, final)]


def committed(name: str, writes: str, reads: str = "") -> Transaction:
    return Transaction(name, list(writes), [], list(reads), 1.0, End.COMMITTED)


def test_a_committed_transaction_is_there_as_a_whole() -> None:
    assert kinds(committed("t", "ab"), read_at={"a": 2, "b": 3}, final="ab") == []
    assert kinds(committed("t", "ab"), final="a") == [TransactionKind.LOST]


def test_nothing_of_an_aborted_one_is_read() -> None:
    aborted = Transaction("t", ["a"], ["b"], end=End.ABORTED)
    assert kinds(aborted) == []
    assert kinds(aborted, read_at={"b": 5}) == [TransactionKind.ABORTED_READ]


def test_a_doubtful_one_is_there_or_not_but_not_in_part() -> None:
    doubtful = Transaction("t", ["a", "b"], ["c"], commit_asked=1.0)
    assert kinds(doubtful) == []
    assert kinds(doubtful, final="ab") == []
    assert kinds(doubtful, final="abc") == []
    assert kinds(doubtful, final="b") == [TransactionKind.TORN]
    assert kinds(doubtful, final="c") == [TransactionKind.TORN]


def test_nothing_is_read_before_its_commit_was_asked_for() -> None:
    assert kinds(committed("t", "a"), read_at={"a": 0.5}, final="a") == [TransactionKind.READ_BEFORE_COMMIT]


def test_who_reads_from_each_other_in_a_circle_is_found() -> None:
    assert kinds(committed("s", "a", "b"), committed("t", "b", "a"), final="ab") == [TransactionKind.CYCLE]
    assert kinds(committed("s", "a", "a"), final="a") == [TransactionKind.CYCLE]
    chain = [committed("s", "a"), committed("t", "b", "a"), committed("u", "c", "ab"), committed("v", "d", "c")]
    assert kinds(*chain, final="abcd") == []
    chain[0].reads.append("d")
    assert kinds(*chain, final="abcd") == [TransactionKind.CYCLE]
