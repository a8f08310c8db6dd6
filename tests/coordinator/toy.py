"""A shard as small as can be, on a runtime whose loop, workers and disk are stepped by hand: counters by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.coordinator.runtime import Runtime
from headrace.coordinator.shard import RECORD_OVERHEAD_BYTES, Outcome, ProducerStamp, Reply, StateRecord, Timers
from headrace.errors import Error, Refused
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.protocol.kernel_types import Row
from headrace.protocol.message import Message
from headrace.testing.workers import SteppedWorkers
from tests.coordinator.pure import Answer
from tests.replica.hosts import Host

TOPIC = "__toys"


class Said(Message):
    """A response that is only a text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@dataclass
class Rung:
    """An effect."""

    name: str


class Toy:
    """Each name has a count. What a transaction counts is pending until its marker."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.counts: dict[str, int] = {}
        self.pending: dict[int, dict[str, int]] = {}
        self.offsets: dict[str, int] = {}
        self.held: list[Reply] = []
        self.images = 0
        self.is_loaded = False

    # --- what is asked ------------------------------------------------------------------------------------------------

    def add(self, name: str, reply: Reply, *, stamp: ProducerStamp | None = None, size: int = 0) -> Outcome:
        count = self.counts.get(name, 0) + 1
        record = StateRecord(name.encode(), str(count).encode() + b" " * size)
        return Outcome([record], [(reply, Said(f"{name}={count}"))], stamp=stamp)

    def get(self, name: str, reply: Reply) -> Outcome:
        return Outcome(replies=[(reply, Said(f"{name}={self.counts.get(name, 0)}"))])

    def refuse(self, reply: Reply) -> Outcome:
        raise Refused(Error.UNKNOWN_MEMBER_ID, "no")

    def hold(self, reply: Reply) -> Outcome:
        self.held.append(reply)
        return Outcome()

    def ring(self, name: str, deadline_ms: int) -> Outcome:
        self.timers.at(name, deadline_ms, lambda now_ms: self._rung(name))
        return Outcome()

    def _rung(self, name: str) -> Outcome:
        return Outcome([StateRecord(name.encode(), b"0")], effects=[Rung(name)])

    # --- a shard ------------------------------------------------------------------------------------------------------

    def replay(
        self, key: bytes, value: bytes | None, offset: int, timestamp_ms: int, stamp: ProducerStamp | None
    ) -> None:
        name = key.decode()
        self.offsets[name] = offset
        if value is None:
            self.counts.pop(name, None)
        elif stamp is not None:
            self.pending.setdefault(stamp.producer_id, {})[name] = int(value)
        else:
            self.counts[name] = int(value)

    def replay_end(self, stamp: ProducerStamp, is_commit: bool) -> None:
        pending = self.pending.pop(stamp.producer_id, {})
        if is_commit:
            self.counts |= pending

    def settle(self, image: Image, now_ms: int) -> Iterator[None]:
        return iter(())

    def loaded(self, image: Image, now_ms: int) -> Outcome:
        self.is_loaded = True
        return Outcome()

    def image_changed(self, delta: Delta, image: Image, now_ms: int) -> Outcome:
        self.images += 1
        return Outcome()

    def unloaded(self, now_ms: int) -> Outcome:
        return Outcome(replies=[(reply, Said("gone")) for reply in self.held])


class AddAgain(Answer):
    """`add` as what comes again. The names of "no" are refused, and those of "odd" fail."""

    def __init__(self, name: str, size: int = 0) -> None:
        super().__init__()
        self.name = name
        self.padding = b" " * size
        self.size_bytes = size + RECORD_OVERHEAD_BYTES

    def decide(self, shard: Toy, now_ms: int, rows: list[Row], offset: int) -> Message:
        count = shard.counts.get(self.name, 0) + 1
        if self.name == "no":
            return Said("no")
        if self.name == "odd":
            raise ValueError("odd")
        key, value = self.name.encode(), str(count).encode() + self.padding
        rows.append((key, value, (), now_ms))
        shard.replay(key, value, offset, now_ms, None)
        return Said(f"{self.name}={count}")


class Toys:
    """A node with a runtime of toys."""

    def __init__(
        self, host: Host | None = None, partitions: int = 1, loads: SteppedWorkers | None = None, **more: Any
    ) -> None:
        """`loads` are workers that only a test steps, for what loading reads."""
        more.setdefault("is_registered", lambda image: True)
        is_new = host is None
        self.host = host or Host()
        self.shards: list[Toy] = []
        self.rung: list[str] = []
        self.runtime: Runtime[Toy] = Runtime(
            TOPIC,
            self._make,
            self.host.replicas,
            self.host.workers if loads is None else loads,
            self.host.loop.soon.append,
            **more,
        )
        self.runtime.effects[Rung] = lambda effect: self.rung.append(effect.name)
        self.host.loader.subscribe(self.runtime.apply)
        if is_new:
            self.host.create(TOPIC, partitions)
        if loads is None:
            self.host.drain()

    def _make(self, timers: Timers, leader_epoch: int) -> Toy:
        self.shards.append(Toy(timers))
        return self.shards[-1]

    @property
    def shard(self) -> Toy:
        return self.shards[-1]

    def ask(self, operation: Callable[[Toy, Reply], Outcome]) -> Answer:
        answer = Answer()
        self.runtime.ask_shard(0, lambda shard, now_ms: operation(shard, answer), answer)
        return answer

    def add(self, name: str, **more: Any) -> Answer:
        return self.ask(lambda shard, reply: shard.add(name, reply, **more))

    def add_again(self, name: str, size: int = 0) -> AddAgain:
        answer = AddAgain(name, size)
        hosted = self.runtime.hosted_of(name)
        if hosted is None or hosted.shard is None:
            answer.refuse(Error.NOT_COORDINATOR)
        else:
            hosted.ask_again(answer)
        return answer

    def get(self, name: str) -> Answer:
        return self.ask(lambda shard, reply: shard.get(name, reply))

    def restart(self, *, power_lost: bool = False, clean: bool = False) -> Toys:
        """The next incarnation of the node."""
        if clean:
            self.runtime.stop()
        return Toys(self.host.restart(power_lost=power_lost, clean=clean))
