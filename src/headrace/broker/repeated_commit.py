# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Commits that a connection sends again and again, with other offsets each time: nothing else of them is read twice.

A consumer's commit is the same request every time but for its offsets. From the second one on its frame is compared
with what is known of it, and goes from there to the shard, as any other; and so does its reply, whose bytes are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.response_errors import count_errors
from headrace.coordinator.hosted import HostedShard
from headrace.coordinator.offsets.commit_plan import CommitPlan
from headrace.coordinator.runtime import Runtime
from headrace.errors import Error
from headrace.metrics.requests import RequestFigures
from headrace.net.connection import Connection, Slot
from headrace.protocol import messages as m
from headrace.protocol.commit_frame import CommitFrame
from headrace.protocol.frame import Request, write_response
from headrace.protocol.kernel_types import Row
from headrace.protocol.message import Message

if TYPE_CHECKING:
    from headrace.coordinator.groups.shard import GroupShard

COMMIT_KEY: Final = 8
PARTITIONS_MAX: Final = 100
"""Larger ones are rare, and take long for what they are."""
FRAME_BYTES_MAX: Final = 8 << 10
GROUP_BYTES_MAX: Final = 255
"""A plan stays as long as its connection, and has the group's id in the key of each partition."""
MISSES_MAX: Final = 16
"""A connection that commits this and that is not worth a plan each time."""


def prepare(connection: Connection, request: Request, groups: Runtime[GroupShard], figures: RequestFigures) -> None:
    """Prepares the connection for this request to come again."""
    known = connection.repeated.get(COMMIT_KEY)
    if isinstance(known, RepeatedCommit) and not known.is_worn():
        return
    body: m.OffsetCommitRequest = request.body
    if not 0 < sum(len(topic.partitions) for topic in body.topics) <= PARTITIONS_MAX:
        return
    frame = CommitFrame.of(body, request.version, request.client_id)
    if frame is None or frame.size_bytes > FRAME_BYTES_MAX or len(body.group_id.encode()) > GROUP_BYTES_MAX:
        return
    hosted = groups.hosted_of(body.group_id)
    shard: GroupShard | None = None if hosted is None else hosted.shard
    if hosted is None or shard is None:
        return
    plan = shard.offsets.plan(body, request.version)
    if plan is not None:
        connection.repeated[COMMIT_KEY] = RepeatedCommit(plan, frame, groups, hosted, figures)


class RepeatedCommit:
    __slots__ = ("_figures", "_frame", "_groups", "_hits", "_hosted", "_misses", "_partitions", "plan", "size", "tail")

    def __init__(
        self,
        plan: CommitPlan,
        frame: CommitFrame,
        groups: Runtime[GroupShard],
        hosted: HostedShard,
        figures: RequestFigures,
    ) -> None:
        self.plan = plan
        self._frame = frame
        self._groups = groups
        self._partitions = groups.partitions
        """With how many of them the group is in this shard."""
        self._hosted = hosted
        self._figures = figures
        self._hits = self._misses = 0
        reply = b"".join(write_response(plan.response, plan.version, 0))
        self.size, self.tail = reply[:4], reply[8:]

    def is_worn(self) -> bool:
        """Another commit came: this is to be replaced by it, unless it would be the next to be replaced."""
        self._misses += 1
        return self._hits > 0 or self._misses > MISSES_MAX

    def take(self, connection: Connection, frame: memoryview) -> RequestFigures | None:
        """Handles such a frame. None when it is another request, or has to be looked at anew."""
        found = self._frame.read(frame)
        if found is None:
            return None
        hosted = self._hosted
        shard: GroupShard | None = hosted.shard_with_room(self.plan.size_bytes)
        if shard is None or self._groups.partitions != self._partitions or not self.plan.holds(shard.context.image):
            connection.repeated.pop(COMMIT_KEY, None)
            return None
        self._hits += 1
        stopwatch = connection.stopwatch
        if stopwatch.count:
            stopwatch.close()
        correlation_id, places = found
        hosted.ask_again(CommitAgain(connection.reserve(), self, correlation_id, places))
        return self._figures

    def send_other(self, slot: Slot, correlation_id: bytes, message: Message) -> None:
        slot.fill(write_response(message, self.plan.version, int.from_bytes(correlation_id, signed=True)))
        count_errors(message, self._figures.errors)


class CommitAgain:
    """See `coordinator.shard.Again`."""

    __slots__ = ("_correlation_id", "_places", "_repeated", "_slot", "size_bytes")

    def __init__(self, slot: Slot, repeated: RepeatedCommit, correlation_id: bytes, places: list[bytes]) -> None:
        self._slot = slot
        self._repeated = repeated
        self._correlation_id = correlation_id
        self._places = places
        self.size_bytes = repeated.plan.size_bytes

    def decide(self, shard: GroupShard, now_ms: int, rows: list[Row], offset: int) -> Message:
        return self._repeated.plan.decide(self._places, shard, now_ms, rows, offset)

    def __call__(self, message: Message, /) -> None:
        repeated = self._repeated
        if message is repeated.plan.response:
            self._slot.fill([repeated.size + self._correlation_id + repeated.tail])
        else:
            repeated.send_other(self._slot, self._correlation_id, message)

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        self(self._repeated.plan.refused(error))
