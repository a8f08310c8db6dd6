"""Scripts for the transaction coordinator: who asked for what, and what came back.

    init a                       -> 0:0           a producer id and an epoch
    add a 0:0 t-0 t-1            -> NONE
    commit a 0:0                 -> 0:1           of transaction version 2; `commit1` is of the protocol before
    markers a                    -> commit 0:1 t-0 t-1
    state a                      -> PrepareCommit
    marked a                                      its markers are written
    state a                      -> CompleteCommit

A request that waits for the transaction before it is answered `waits`; what comes of it later is asked with
`answer init` (or add, verify, commit, abort).
"""

from __future__ import annotations

from itertools import count
from typing import Any

from headrace.config.transactions import TransactionConfig
from headrace.coordinator.transactions.responses import added_result
from headrace.coordinator.transactions.shard import TransactionShard, WriteMarkers
from headrace.coordinator.transactions.transaction import Identity
from headrace.coordinator.transactions.views import Filter
from headrace.errors import Error
from headrace.metadata.features import TRANSACTION_VERSION
from headrace.metadata.image import Image
from headrace.protocol import messages as m
from tests.coordinator.pure import Answer, ManualTimers, PureRuntime


class Coordinator:
    """A shard with transaction version 2, unless told otherwise, and with producer ids from 0 on."""

    def __init__(self, *, version: int = 2, **settings: Any) -> None:
        config = TransactionConfig(**settings)
        self.producer_ids = count()
        self.has_producer_ids = True
        self.epoch = 0
        self._answers: dict[str, Answer] = {}

        def make(timers: ManualTimers) -> TransactionShard:
            self.epoch += 1
            return TransactionShard(self.epoch, timers, config, self._take)

        self.runtime = PureRuntime(make, Image(features={TRANSACTION_VERSION: version} if version else {}))

    def _take(self) -> int | None:
        return next(self.producer_ids) if self.has_producer_ids else None

    @property
    def shard(self) -> TransactionShard:
        shard: TransactionShard = self.runtime.shard
        return shard

    def play(self, script: str) -> None:
        for number, line in enumerate(script.splitlines(), 1):
            words, arrow, expected = line.split("#")[0].partition("->")
            if words.strip():
                came = self.do(*words.split())
                wanted = " ".join(expected.split())
                assert came == wanted or not arrow, f"line {number}: {line.strip()}: {came}"

    def do(self, command: str, *words: str) -> str:
        method = getattr(self, "do_" + command.replace("-", "_"))
        told: str = method(*words)
        return told

    # ------------------------------------------------------------------------------------------------------- producers

    def do_init(self, name: str, *options: str) -> str:
        given = dict(option.split("=") for option in options if "=" in option)
        expected = _identity(given["expected"]) if "expected" in given else Identity(-1, -1)
        body = m.InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=int(given.get("timeout", 60_000)),
            producer_id=expected.producer_id,
            producer_epoch=expected.producer_epoch,
            enable_2pc="2pc" in options,
            keep_prepared_txn="keep" in options,
        )
        return self._ask("init", lambda shard, now, reply: shard.init_producer_id(body, reply, now))

    def do_add(self, name: str, identity: str, *partitions: str) -> str:
        return self._add(name, identity, partitions, 2)

    def do_add1(self, name: str, identity: str, *partitions: str) -> str:
        return self._add(name, identity, partitions, 0)

    def _add(self, name: str, identity: str, partitions: tuple[str, ...], version: int) -> str:
        wanted = [_partition(text) for text in partitions]

        def respond(error: Error) -> Any:
            return added_result(name, dict.fromkeys(wanted, error))

        return self._ask(
            "add",
            lambda shard, now, reply: shard.add_partitions(
                name, _identity(identity), wanted, version, reply, respond, now
            ),
        )

    def do_verify(self, name: str, identity: str, *partitions: str) -> str:
        wanted = [_partition(text) for text in partitions]
        return self._ask(
            "verify",
            lambda shard, now, reply: shard.verify_partitions(name, _identity(identity), wanted, reply, now),
        )

    def do_commit(self, name: str, identity: str) -> str:
        return self._end("commit", name, identity, True, 2)

    def do_abort(self, name: str, identity: str) -> str:
        return self._end("abort", name, identity, False, 2)

    def do_commit1(self, name: str, identity: str) -> str:
        return self._end("commit", name, identity, True, 0)

    def do_abort1(self, name: str, identity: str) -> str:
        return self._end("abort", name, identity, False, 0)

    def _end(self, command: str, name: str, identity: str, committed: bool, version: int) -> str:
        producer_id, producer_epoch = _identity(identity)
        body = m.EndTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=producer_epoch, committed=committed
        )
        return self._ask(command, lambda shard, now, reply: shard.end(body, version, reply, now))

    def _ask(self, command: str, operation: Any) -> str:
        answer = self._answers[command] = Answer()
        self.runtime.ask(lambda shard, now: operation(shard, now, answer), answer)
        return self.do_answer(command)

    def do_answer(self, command: str) -> str:
        self.runtime.wait(0)
        answer = self._answers[command]
        if not answer.is_there:
            return "waits"
        return answer.error.name if answer.error is not None else told(answer.message)

    # -------------------------------------------------------------------------------------------------------- the world

    def effect(self, name: str) -> WriteMarkers:
        """The last markers of a transactional id."""
        found: WriteMarkers = next(e for e in reversed(self.runtime.effects) if e.transactional_id == name)
        return found

    def do_markers(self, name: str) -> str:
        effect = self.effect(name)
        partitions = " ".join(f"{topic}-{index}" for topic, index in effect.partitions)
        word = "commit" if effect.is_commit else "abort"
        return f"{word} {effect.markers.producer_id}:{effect.markers.producer_epoch} {partitions}"

    def do_marked(self, name: str) -> str:
        effect = self.effect(name)
        self.runtime.ask(lambda shard, now: shard.markers_written(effect, now), Answer())
        return ""

    def do_wait(self, pause_ms: str) -> str:
        self.runtime.wait(int(pause_ms))
        return ""

    def do_fail_over(self) -> str:
        self.runtime.effects.clear()
        self.runtime.fail_over()
        return ""

    def do_state(self, name: str) -> str:
        transaction = self.shard.transactions.get(name)
        return "none" if transaction is None else transaction.state.text

    def do_list(self, *options: str) -> str:
        given = dict(option.split("=") for option in options)
        wanted = Filter(open_for_ms=int(given["open"]) if "open" in given else None)
        found = self.shard.listed(wanted, self.runtime.now_ms)
        return " ".join(transaction.transactional_id for transaction in found)

    def do_have_producer_ids(self, word: str) -> str:
        self.has_producer_ids = word == "yes"
        return ""

    def do_wear_out(self, name: str, epoch: str) -> str:
        """As if the producer had ended as many transactions."""
        transaction = self.shard.transactions[name]
        transaction.producer_epoch = int(epoch)
        return ""


def told(message: Any) -> str:
    """A response in a word."""
    if hasattr(message, "topic_results"):
        errors = [
            Error.of(found.partition_error_code).name
            for topic in message.topic_results
            for found in topic.results_by_partition
        ]
        return errors[0] if len(set(errors)) == 1 else " ".join(errors)
    if message.error_code:
        return Error.of(message.error_code).name
    text = f"{message.producer_id}:{message.producer_epoch}"
    if getattr(message, "ongoing_txn_producer_id", -1) != -1:
        text += f" keeps {message.ongoing_txn_producer_id}:{message.ongoing_txn_producer_epoch}"
    return text


def _identity(text: str) -> Identity:
    producer_id, epoch = text.split(":")
    return Identity(int(producer_id), int(epoch))


def _partition(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition("-")
    return topic, int(index)
