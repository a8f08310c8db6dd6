"""Members of one group with confluent-kafka, polled in turns by one thread, as one test sees them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from tests.compat.confluent import TIMEOUT_S, dotted

SESSION_MS: Final = 6000  # the least that a node takes by default


class Member:
    """A consumer, what it was assigned and how often, and what it read."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        defaults = {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": 1000,
            "reconnect.backoff.max.ms": 200,
        }
        self.consumer = Consumer({"bootstrap.servers": bootstrap, **defaults, **dotted(settings)})
        self.is_cooperative = settings.get("partition_assignment_strategy") == "cooperative-sticky"
        self.owned: set[int] = set()
        self.rebalances = 0
        self.read: list[tuple[int, int]] = []
        self.errors: list[Any] = []
        self.is_closed = False
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        self.rebalances += 1
        new = {partition.partition for partition in partitions}
        self.owned = self.owned | new if self.is_cooperative else new

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        self.rebalances += 1
        self.owned -= {partition.partition for partition in partitions}

    def _lost(self, consumer: Any, partitions: list[Any]) -> None:
        self._revoked(consumer, partitions)

    def poll(self, commits: bool = True) -> None:
        message = self.consumer.poll(0.02)
        if message is None:
            return
        if message.error():
            self.errors.append(message.error())
            return
        self.read.append((message.partition(), message.offset()))
        if commits:
            try:
                self.consumer.commit(message=message, asynchronous=False)
            except KafkaException as refused:
                # In a rebalance: whoever owns the partition next reads the record again.
                if refused.args[0].code() == KafkaError._FATAL:
                    raise
                self.errors.append(refused.args[0])

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.consumer.close()


def poll_until(members: list[Member], done: Callable[[], bool], what: str, commits: bool = True) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline_s, f"{what}: {[(one.owned, one.errors) for one in members]}"
        for member in members:
            member.poll(commits)


def share(members: list[Member], partitions: int) -> bool:
    """Each has something, everything is had, and nothing twice."""
    owned = sorted(partition for member in members for partition in member.owned)
    return owned == list(range(partitions)) and all(member.owned for member in members)
