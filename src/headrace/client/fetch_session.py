"""A fetch session with one broker (KIP-227): only what changed is asked for and answered. No I/O."""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.client.metadata import NO_TOPIC_ID
from headrace.protocol.messages import FetchRequest

__all__ = ["FetchSession", "Wanted"]

INITIAL_EPOCH: Final = 0
TopicPartition = tuple[str, int]


class Wanted(NamedTuple):
    """From where a partition is to be read."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    bytes_max: int


class FetchSession:
    __slots__ = ("_asked", "_epoch", "_session_id")

    def __init__(self) -> None:
        self._session_id = 0
        self._epoch = INITIAL_EPOCH
        self._asked: dict[TopicPartition, Wanted] = {}

    def reset(self) -> None:
        """The broker does not know the session, or the link broke: begin again with everything."""
        self._session_id, self._epoch, self._asked = 0, INITIAL_EPOCH, {}

    def answered(self, session_id: int) -> None:
        """A broker that has no room for sessions answers with session 0, and everything is asked for each time."""
        if session_id == 0:
            self.reset()
        else:
            self._session_id = session_id
            self._epoch = self._epoch % 0x7FFFFFFF + 1

    def fill(self, request: FetchRequest, wanted: dict[TopicPartition, Wanted]) -> dict[bytes, str]:
        """Put into the request what is new, and what to forget. The answer is the names by topic id."""
        request.session_id, request.session_epoch = self._session_id, self._epoch
        topics: dict[str, FetchRequest.FetchTopic] = {}
        for (name, index), want in wanted.items():
            if self._asked.get((name, index)) == want:
                continue
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchRequest.FetchTopic(topic=name, topic_id=want.topic_id)
                request.topics.append(topic)
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=want.leader_epoch,
                    fetch_offset=want.offset,
                    partition_max_bytes=want.bytes_max,
                )
            )
        forgotten: dict[tuple[str, bytes], list[int]] = {}
        for (name, index), before in self._asked.items():
            now = wanted.get((name, index))
            # A topic that was made again under its name has another id: the old one must go (KIP-516).
            if now is None or now.topic_id != before.topic_id:
                forgotten.setdefault((name, before.topic_id), []).append(index)
        request.forgotten_topics_data = [
            FetchRequest.ForgottenTopic(topic=name, topic_id=topic_id, partitions=indexes)
            for (name, topic_id), indexes in forgotten.items()
        ]
        self._asked = dict(wanted)
        return {want.topic_id: name for (name, _), want in wanted.items() if want.topic_id != NO_TOPIC_ID}
