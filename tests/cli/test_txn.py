"""`headrace txn`, as a user runs it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from headrace.cli.txn import _not_known
from headrace.client import Client
from headrace.client.admin import ProducerInfo, TransactionDetail, TransactionListing
from headrace.errors import HeadraceError
from tests.cli.running import Cli


@contextmanager
def open_transaction(cli: Cli, topic: str, name: str) -> Iterator[list[HeadraceError]]:
    """A transaction with a record in partition 1; at the end it is committed, or says why it can't be."""
    is_open, is_over = threading.Event(), threading.Event()
    errors: list[HeadraceError] = []

    async def work() -> None:
        async with Client(cli.bootstrap) as client:
            producer = client.transactional_producer(name)
            await producer.begin()
            await producer.send(topic, b"open", partition=1)
            is_open.set()
            await asyncio.to_thread(is_over.wait)
            try:
                await producer.commit()
            except HeadraceError as error:
                errors.append(error)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert is_open.wait(60)
        yield errors
    finally:
        is_over.set()
        thread.join()


def test_an_open_transaction_is_seen_and_aborted(cli: Cli, topic: str, name: str) -> None:
    with open_transaction(cli, topic, name) as errors:
        (listed,) = cli.done("txn", "list", f"{name}*", "--json").json
        assert (listed["state"], listed["partitions"]) == ("Ongoing", [{"topic": topic, "partition": 1}])
        rows = cli.done("txn", "list", name, "--state", "ongoing").rows
        assert rows[1][:2] == [name, "Ongoing"]
        assert cli("txn", "list", name, "--longer-than", "1h").out == ""
        (told,) = cli.done("txn", "describe", name, "--json").json
        assert told["partitions"] == [{"topic": topic, "partition": 1}]
        assert f"{topic}-1" in cli.done("txn", "describe", name).out
        assert cli.done("txn", "find-hanging", topic, "--older-than", "1ms").out.startswith("No transaction hangs")
        assert cli.done("txn", "abort", name, "--dry-run").out == f"Would abort the transaction of {name}.\n"
        assert "say --yes" in cli.failed("txn", "abort", name, code=2)
        assert cli.done("txn", "abort", name, "--yes").out == f"Aborted the transaction of {name}.\n"
    assert len(errors) == 1, "its producer is fenced"
    assert "nothing was done" in cli.done("txn", "abort", name, "--yes").out
    assert cli.done("consume", topic, "-p", "1", "--until", "end", "--read-committed").out == ""


def test_a_transaction_is_ended_in_the_log_past_its_coordinator(cli: Cli, topic: str, name: str) -> None:
    with open_transaction(cli, topic, name):
        place = ["--topic", topic, "--partition", "1"]
        assert "Would abort the transaction of producer" in cli.done("txn", "abort", *place, "--dry-run").out
        assert cli.failed("txn", "abort", *place, "--producer-id", "999999", "-y") == (
            f"There is no open transaction of producer 999999 in {topic}-1."
        )
        told = cli.done("txn", "abort", *place, "--yes", "--json").json
        assert (told["topic"], told["partition"], told["aborted"]) == (topic, 1, True)
        assert cli.failed("txn", "abort", *place, "--yes") == f"There is no open transaction in {topic}-1."


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["abort"], "Say which transaction: its ID, or --topic TOPIC --partition N"),
        (["abort", "--topic", "x"], "Say which transaction"),
        (["abort", "x", "--topic", "x", "--partition", "0"], "Say which transaction"),
        (["abort", "x", "--producer-id", "1"], "--producer-id goes with --topic"),
        (["list", "--state", "ongoin"], "--state ongoin: there is no such state; the nearest is Ongoing"),
        (["list", "--longer-than", "long"], "long is no time"),
        (["find-hanging", "--older-than", "x"], "x is no time"),
    ],
)
def test_wrong_use(cli: Cli, arguments: list[str], said: str) -> None:
    assert said in cli.failed("txn", *arguments, code=2)


def test_what_is_not_there(cli: Cli, topic: str) -> None:
    assert "There is no transactional id 'nobody'" in cli.failed("txn", "describe", "nobody")
    assert "There is no transactional id 'nobody'" in cli.failed("txn", "abort", "nobody", "-y")
    assert "did you mean" in cli.failed("txn", "abort", "--topic", f"{topic}x", "--partition", "0", "-y")
    assert "has no partition 9" in cli.failed("txn", "abort", "--topic", topic, "--partition", "9", "-y")


def test_what_hangs_is_open_in_a_log_and_known_to_no_coordinator() -> None:
    """A log has it open; its coordinator has ended it, has another one under way, or has never heard of it."""

    class Admin:
        async def list_transactions(self, *, producer_ids: list[int]) -> dict[str, TransactionListing]:
            assert producer_ids == [1, 2, 3, 4]
            return {name: TransactionListing(name, number, "?", 1) for number, name in enumerate("abc", 1)}

        async def describe_transactions(self, names: list[str]) -> dict[str, TransactionDetail]:
            (name,) = names
            states = {"a": "Ongoing", "b": "Ongoing", "c": "CompleteAbort"}
            places = {"a": [("t", 0)], "b": [("t", 9)], "c": [("t", 0)]}
            return {name: TransactionDetail(name, states[name], 1, 0, 1000, 0, places[name])}

    client = cast("Client", SimpleNamespace(admin=Admin()))
    open_ = [("t", 0, ProducerInfo(number, 0, 0, 0, 0, 5)) for number in (1, 2, 3, 4)]
    found = asyncio.run(_not_known(client, open_))
    assert [(one.producer_id, name) for _, _, one, name in found] == [(2, "b"), (3, "c"), (4, None)]
