"""Requests as a hostile client makes them: real ones of every API and version that is served, then damaged."""

from __future__ import annotations

from random import Random
from struct import pack
from typing import Any, Final

from headrace.protocol import messages as m
from headrace.protocol.apis import Api, find_api
from headrace.protocol.frame import write_request
from headrace.protocol.message import Message
from tests.compat.requests import fetch_partition, fetch_request, produce_request
from tests.fuzz import batches
from tests.fuzz.messages import damage
from tests.protocol.generate import Generator

SIZE_BYTES: Final = 4
LENGTHS: Final = (-1, -(2**31), 0, 1, 7, 2**31 - 1, 100 << 20, (100 << 20) + 1, 50 << 20, 0x16030102, 0x47455420)
"""Frame lengths that lie, two of them the first bytes of TLS and of HTTP."""


class Hostile:
    """Makes frames by chance. `served` are (key, first version, last version) as ApiVersions told them."""

    def __init__(self, random: Random, served: list[tuple[int, int, int]], topic: str, topic_id: bytes) -> None:
        self._random = random
        self._generator = Generator(random)
        self._topic = topic
        self._topic_id = topic_id
        self._served = [
            (api, version)
            for key, first, last in served
            if (api := find_api(key)) is not None
            for version in range(max(first, min(api.versions)), last + 1)
        ]

    def frame(self) -> bytes:
        """One frame whose length is true, or nearly always so."""
        random = self._random
        api, version = random.choice(self._served)
        message = (
            self._sensible(api, version) if random.random() < 0.7 else self._generator.message(api.request, version)
        )
        frame = b"".join(write_request(message, version, random.randrange(2**31), "hostile"))
        way = random.random()
        if way < 0.1:  # as it is: nonsense may be well-formed
            return frame
        if way < 0.2:
            key, version = random.choice((api.key, random.randrange(-2, 100))), random.randrange(-2, 100)
            return frame[:SIZE_BYTES] + pack(">hh", key, version) + frame[SIZE_BYTES + 4 :]
        if way < 0.9:
            head = SIZE_BYTES if random.random() < 0.2 else SIZE_BYTES + 8  # mostly past key, version and id
            body = frame[SIZE_BYTES:head] + damage(frame[head:], random)
            return pack(">i", len(body)) + body
        return pack(">i", random.choice(LENGTHS)) + frame[SIZE_BYTES:]

    def _sensible(self, api: Api, version: int) -> Message:
        """A request that gets through to the topic, before it is damaged."""
        random, topic, topic_id = self._random, self._topic, self._topic_id
        match api.key:
            case 0:
                records: Any = batches.sound(random)
                if random.random() < 0.7:
                    records = batches.mend(batches.damage(records, random), random)
                produce: Message = produce_request(topic, topic_id, records, acks=random.choice((0, 1, -1, -1)))
                return produce
            case 1:
                partitions = [fetch_partition(random.choice((0, 1, 5, 2**40, -1)), random.randrange(3))]
                fields = {"max_wait_ms": random.choice((0, 0, 50)), "max_bytes": random.choice((0, 1, -1, 2**31 - 1))}
                if version >= 7:
                    fields["session_id"] = random.choice((0, 1, 2**31 - 1))
                    fields["session_epoch"] = random.choice((-1, 0, 1, 9))
                fetch: Message = fetch_request(topic, topic_id, partitions, **fields)
                return fetch
            case 2:
                asked = m.ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=random.randrange(3), current_leader_epoch=-1, timestamp=random.randrange(-7, 9)
                )
                named = m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])
                return m.ListOffsetsRequest(replica_id=random.choice((-1, -2, 1)), topics=[named])
            case 3:
                by_id = version >= 12 and random.random() < 0.5
                wanted = m.MetadataRequest.MetadataRequestTopic(
                    name=None if by_id else topic, topic_id=topic_id if by_id else bytes(16)
                )
                return m.MetadataRequest(topics=random.choice(([wanted], [wanted] * 50, [] if version < 1 else None)))
            case 19:
                creatable = m.CreateTopicsRequest.CreatableTopic(
                    name=random.choice((topic, "..", f"hostile-{random.randrange(5)}", "x" * 300)),
                    num_partitions=random.choice((-1, 0, 1, 3)),
                    replication_factor=random.choice((-1, 1, 3)),
                    configs=[m.CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="no")]
                    * random.randrange(2),
                )
                return m.CreateTopicsRequest(topics=[creatable], timeout_ms=1000, validate_only=random.random() < 0.5)
            case 20:
                name = f"hostile-{random.randrange(5)}"
                if version < 6:
                    return m.DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
                state = m.DeleteTopicsRequest.DeleteTopicState(name=name)
                return m.DeleteTopicsRequest(topics=[state], timeout_ms=1000)
            case 23:
                ended = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                    partition=0, current_leader_epoch=random.choice((-1, 0, 5)), leader_epoch=random.choice((-1, 0, 9))
                )
                of = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[ended])
                return m.OffsetForLeaderEpochRequest(replica_id=-1, topics=[of])
            case _:
                return self._generator.message(api.request, version)
