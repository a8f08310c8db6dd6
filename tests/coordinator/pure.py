"""A runtime for tests of pure shards: no log and no loop. What is decided is replayed and counts at once."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from headrace.coordinator.shard import Effect, Outcome, ProducerStamp, Shard, StateRecord
from headrace.errors import Error, Refused
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.protocol.message import Message

START_MS = 1_700_000_000_000
MARKER = b""
"""The key of what stands in the log for the end of a transaction."""


class Answer:
    """A reply that remembers what it was given: `message`, or `error` where it was refused as a whole."""

    def __init__(self) -> None:
        self.message: Any = None
        self.error: Error | None = None
        self.text: str | None = None

    def __call__(self, message: Message, /) -> None:
        assert not self.is_there, "a request has one reply"
        self.message = message

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        assert not self.is_there, "a request has one reply"
        self.error, self.text = error, text

    @property
    def is_there(self) -> bool:
        return self.message is not None or self.error is not None


class ManualTimers:
    def __init__(self) -> None:
        self._timers: dict[Any, tuple[int, int, Callable[[int], Outcome]]] = {}
        self._number = 0

    def at(self, key: Any, deadline_ms: int, event: Callable[[int], Outcome]) -> None:
        self._number += 1
        self._timers[key] = (deadline_ms, self._number, event)

    def cancel(self, key: Any) -> None:
        self._timers.pop(key, None)

    def due(self, now_ms: int) -> tuple[int, Callable[[int], Outcome]] | None:
        """The first one whose time has come, taken out, and when it was due."""
        heap = [(deadline_ms, number, key) for key, (deadline_ms, number, _) in self._timers.items()]
        heapq.heapify(heap)
        if not heap or heap[0][0] > now_ms:
            return None
        deadline_ms, _, key = heap[0]
        return deadline_ms, self._timers.pop(key)[2]

    def keys(self) -> list[Any]:
        return list(self._timers)


class PureRuntime:
    """Asks a shard. `log` is what was written, so that another shard can be loaded from it."""

    def __init__(self, make: Callable[[ManualTimers], Any], image: Image | None = None) -> None:
        self.now_ms = START_MS
        self.image = image or Image()
        self.log: list[tuple[StateRecord, int, Any]] = []
        self.effects: list[Effect] = []
        self.timers = ManualTimers()
        self._make = make
        self.shard: Any = make(self.timers)
        self._load()

    def ask(self, operation: Callable[[Any, int], Outcome], reply: Answer) -> None:
        """`operation(shard, now_ms)`, as a handler hands it to the runtime."""
        try:
            outcome = operation(self.shard, self.now_ms)
        except Refused as refused:
            reply.refuse(refused.error, refused.text)
        else:
            self._take(outcome)

    def wait(self, pause_ms: int) -> None:
        """Time passes, and timers ring at theirs."""
        end_ms = self.now_ms + pause_ms
        while (due := self.timers.due(end_ms)) is not None:
            self.now_ms = max(self.now_ms, due[0])
            self._take(due[1](self.now_ms))
        self.now_ms = end_ms

    def change(self, delta: Delta, image: Image) -> None:
        self.image = image
        self._take(self.shard.image_changed(delta, image, self.now_ms))

    def end(self, stamp: ProducerStamp, is_commit: bool) -> None:
        """A marker comes: the transaction of a producer ended."""
        self.log.append((StateRecord(MARKER, b"commit" if is_commit else None), self.now_ms, stamp))
        self.shard.replay_end(stamp, is_commit)

    def fail_over(self) -> None:
        """Another node loads the shard from the log."""
        self._take(self.shard.unloaded(self.now_ms))
        self.timers = ManualTimers()
        self.shard = loaded_from(self._make, self.timers, self.log)
        self._load()

    def _load(self) -> None:
        for _ in self.shard.settle(self.image, self.now_ms):
            pass
        self._take(self.shard.loaded(self.image, self.now_ms))

    def _take(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self.log.append((record, self.now_ms, outcome.stamp))
            self.shard.replay(record.key, record.value, len(self.log) - 1, self.now_ms, outcome.stamp)
        for reply, message in outcome.replies:
            reply(message)
        self.effects += outcome.effects


def loaded_from(
    make: Callable[[ManualTimers], Shard], timers: ManualTimers, log: list[tuple[StateRecord, int, Any]]
) -> Shard:
    shard = make(timers)
    for offset, (record, timestamp_ms, stamp) in enumerate(log):
        if record.key == MARKER:
            shard.replay_end(stamp, record.value is not None)
        else:
            shard.replay(record.key, record.value, offset, timestamp_ms, stamp)
    return shard
