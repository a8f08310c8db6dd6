"""What a shard of a coordinator is: the state of one partition of a state topic, and the rules by which it changes.

A request reads the state and returns an `Outcome`: records to write, replies to send, effects to bring about. The state
that lives in the log changes only by `replay` of records: of its own as soon as they are decided, so that the next
request sees them, and of all of them when the partition is loaded. Replies and effects wait until everything that was
decided before them is committed: nobody is told what a fail-over could take back. When an append fails, the shard is
thrown away and loaded again from the log, and whoever waits is told to look for the coordinator again.

What a member waits for (a join that is not answered yet, a session's timer) lives beside it, and is lost with the
shard: clients ask again.

Shards are pure: the time comes with each call, timers are events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from headrace.errors import Error
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.named_tuple import NamedTuple
from headrace.plain import field, plain
from headrace.protocol.kernel_types import Row
from headrace.protocol.message import Message

S_contra = TypeVar("S_contra", contravariant=True)


class StateRecord(NamedTuple):
    """A record of a state topic, encoded. Without a value it is a tombstone."""

    key: bytes
    value: bytes | None


class ProducerStamp(NamedTuple):
    """Whose transaction the records of an outcome belong to (offsets that a transaction commits)."""

    producer_id: int
    producer_epoch: int


class Reply(Protocol):
    """Sends the response of a request, once. A shard keeps it until it knows what to say, and never calls it itself: it
    returns it with the response, in an outcome."""

    def __call__(self, message: Message, /) -> None: ...

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        """Sends the response that says only this, where the API has room for a text with it. The runtime does so with
        what it can't promise any more, and for an operation that raised Refused."""


RECORD_OVERHEAD_BYTES: Final = 32
"""At least what the lengths, the deltas and the attributes of a record take."""


class Again(Reply, Protocol[S_contra]):
    """A request that came before with other numbers, and the reply to it: what else it says is known already."""

    size_bytes: int
    """Of its records, as far as a batch has room for them."""

    def decide(self, shard: S_contra, now_ms: int, rows: list[Row], offset: int) -> Message:
        """Puts its records into `rows` and replays them, the first one at `offset`. Returns the response."""


Effect: TypeAlias = Any
"""Something to bring about outside of the shard: a value, which the shard's shell understands."""


@plain
class Outcome:
    """What a request, a timer or a change of the cluster led to. An empty one changes and says nothing."""

    records: list[StateRecord] = field(default_factory=list)
    """Written together, or not at all, unless `is_atomic` is false. More than fit into a batch are refused then."""
    replies: list[tuple[Reply, Message]] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    stamp: ProducerStamp | None = None
    is_atomic: bool = True
    """Each record is right by itself (tombstones of what is old): they may be written in several batches."""


class Timers(Protocol):
    """The timers of a shard, by key. A new one takes the place of the old one of its key."""

    def at(self, key: Any, deadline_ms: int, event: Callable[[int], Outcome]) -> None:
        """Calls `event(now_ms)` when the time has come, and deals with its outcome as with a request's."""

    def cancel(self, key: Any) -> None:
        """Harmless when there is none."""


class Shard(Protocol):
    """The state of one partition."""

    def replay(
        self, key: bytes, value: bytes | None, offset: int, timestamp_ms: int, stamp: ProducerStamp | None
    ) -> None:
        """A record of the log, in its order. Unknown kinds of records are left alone: a newer node wrote them."""

    def replay_end(self, stamp: ProducerStamp, is_commit: bool) -> None:
        """The transaction of a producer ended on this partition (a marker in the log)."""

    def settle(self, image: Image, now_ms: int) -> Iterator[None]:
        """Everything in the log was replayed: looks at all of it, in steps of well below a millisecond, and arms
        timers. Nothing but ends of transactions is replayed after it before `loaded`."""

    def loaded(self, image: Image, now_ms: int) -> Outcome:
        """From now on it is asked. What takes longer the more there is, belongs into `settle`."""

    def image_changed(self, delta: Delta, image: Image, now_ms: int) -> Outcome:
        """Topics were created or deleted, brokers came or went."""

    def unloaded(self, now_ms: int) -> Outcome:
        """Another node leads the partition now: replies only, for whoever waits (NOT_COORDINATOR)."""


S = TypeVar("S", bound=Shard)
Operation = Callable[[S, int], Outcome]
"""What a shard is asked, at a time in milliseconds."""
