"""Markers on their way to the leaders of partitions: batched, sent again, and never for nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.coordinator.markers import Markers
from headrace.coordinator.transactions.shard import WriteMarkers
from headrace.coordinator.transactions.transaction import Identity
from headrace.errors import Error
from headrace.metadata.image import Image, Partition, Topic
from headrace.protocol import messages as m
from headrace.replica.waits import Waits
from tests.replica.hosts import SteppedLoop


def image_of(**leaders: list[int]) -> Image:
    """Topics with the leaders of their partitions; -1 is nobody."""
    topics = {
        name.encode().ljust(16, b"-"): Topic(
            name,
            name.encode().ljust(16, b"-"),
            {index: Partition((leader,), (leader,), leader, 0, 0) for index, leader in enumerate(found)},
        )
        for name, found in leaders.items()
    }
    return Image(topics=topics, topic_ids={topic.name: topic_id for topic_id, topic in topics.items()})


class World:
    """Brokers that answer when they are told to."""

    def __init__(self, **leaders: list[int]) -> None:
        self.loop = SteppedLoop()
        self.image = image_of(**leaders)
        self.sent: list[tuple[int, m.WriteTxnMarkersRequest, Callable[[Any], None]]] = []
        self.written: list[str] = []
        self.is_led = True
        self.markers = Markers(
            lambda: self.image,
            lambda broker_id, request, answered: self.sent.append((broker_id, request, answered)),
            Waits(self.loop.call_at, self.loop.time),
            self.loop.soon.append,
            written=lambda effect: self.written.append(effect.transactional_id),
            is_led=lambda transactional_id: self.is_led,
        )

    def write(self, name: str, *partitions: tuple[str, int], producer_id: int = 5, epoch: int = 3) -> WriteMarkers:
        effect = WriteMarkers(name, Identity(producer_id, 1), True, partitions, epoch, 2)
        self.markers.write(effect)
        return effect

    def round(self) -> list[tuple[int, list[tuple[int, str, int]]]]:
        """The next round of the loop: to whom markers went, and for which producer and partitions."""
        before = len(self.sent)
        while self.loop.soon:
            self.loop.soon.popleft()()
        return [
            (
                broker_id,
                [
                    (marker.producer_id, topic.name, index)
                    for marker in request.markers
                    for topic in marker.topics
                    for index in topic.partition_indexes
                ],
            )
            for broker_id, request, _ in self.sent[before:]
        ]

    def answer(self, number: int = -1, **errors: Error) -> None:
        """One request is answered, with errors by topic."""
        _, request, answered = self.sent[number]
        kind = m.WriteTxnMarkersResponse
        answered(
            kind(
                markers=[
                    kind.WritableTxnMarkerResult(
                        producer_id=marker.producer_id,
                        topics=[
                            kind.WritableTxnMarkerTopicResult(
                                name=topic.name,
                                partitions=[
                                    kind.WritableTxnMarkerPartitionResult(
                                        partition_index=index, error_code=errors.get(topic.name, Error.NONE)
                                    )
                                    for index in topic.partition_indexes
                                ],
                            )
                            for topic in marker.topics
                        ],
                    )
                    for marker in request.markers
                ]
            )
        )


def test_all_that_is_decided_in_one_round_is_one_request_to_each_leader() -> None:
    world = World(t=[1, 2], u=[1])
    world.write("a", ("t", 0), ("t", 1))
    world.write("b", ("t", 0), ("u", 0), producer_id=6)
    assert world.round() == [(1, [(5, "t", 0), (6, "t", 0), (6, "u", 0)]), (2, [(5, "t", 1)])]
    (marker, _) = world.sent[0][1].markers
    assert (marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version) == (1, 3, 2)
    world.answer(0)
    assert world.written == ["b"]
    world.answer(1)
    assert world.written == ["b", "a"]
    assert len(world.markers) == 0


def test_what_could_not_be_written_is_sent_again_to_whoever_leads_then() -> None:
    world = World(t=[1], u=[1])
    world.write("a", ("t", 0), ("u", 0))
    world.round()
    world.answer(t=Error.NOT_LEADER_OR_FOLLOWER)
    assert world.round() == []
    world.image = image_of(t=[2], u=[1])
    world.loop.pass_ms(20)
    assert world.round() == [(2, [(5, "t", 0)])]
    world.sent[-1][2](None)  # it does not answer at all
    world.loop.pass_ms(39)
    assert world.round() == [], "the pauses grow"
    world.loop.pass_ms(1)
    assert world.round() == [(2, [(5, "t", 0)])]
    world.answer()
    assert world.written == ["a"]


def test_a_partition_without_a_leader_is_waited_for() -> None:
    world = World(t=[-1, 1])
    world.write("a", ("t", 0), ("t", 1))
    assert world.round() == [(1, [(5, "t", 1)])]
    world.answer()
    assert world.written == []
    world.image = image_of(t=[1, 1])
    world.loop.pass_ms(20)
    assert world.round() == [(1, [(5, "t", 0)])]
    world.answer()
    assert world.written == ["a"]


def test_a_topic_that_was_deleted_needs_no_marker() -> None:
    world = World(t=[1])
    world.write("a", ("gone", 0))
    assert world.written == ["a"]
    world.write("b", ("t", 0))
    world.round()
    world.answer(t=Error.UNKNOWN_TOPIC_OR_PARTITION)
    world.image = Image()
    world.loop.pass_ms(20)
    assert world.round() == []
    assert world.written == ["a", "b"]


def test_a_partition_that_has_seen_a_later_epoch_needs_none() -> None:
    world = World(t=[1])
    world.write("a", ("t", 0))
    world.round()
    world.answer(t=Error.INVALID_PRODUCER_EPOCH)
    assert world.written == ["a"]


def test_a_coordinator_that_is_fenced_leaves_it_to_the_next() -> None:
    world = World(t=[1], u=[2])
    world.write("a", ("t", 0), ("u", 0))
    world.round()
    world.answer(0, t=Error.TRANSACTION_COORDINATOR_FENCED)
    world.answer(1)
    world.loop.pass_ms(10_000)
    assert world.round() == []
    assert world.written == []
    assert len(world.markers) == 0


def test_a_coordinator_that_was_moved_sends_nothing_again() -> None:
    world = World(t=[1])
    world.write("a", ("t", 0))
    world.round()
    world.answer(t=Error.NOT_ENOUGH_REPLICAS)
    world.is_led = False
    world.loop.pass_ms(10_000)
    assert world.round() == []
    assert len(world.markers) == 0


def test_markers_of_a_coordinator_that_was_loaded_again_take_the_place_of_the_old_ones() -> None:
    world = World(t=[1])
    world.write("a", ("t", 0), epoch=3)
    world.round()
    world.write("a", ("t", 0), epoch=4)
    world.round()
    world.answer(0, t=Error.NOT_ENOUGH_REPLICAS)
    world.loop.pass_ms(10_000)
    assert world.round() == [], "only the new ones are sent"
    world.answer(1)
    assert world.written == ["a"]
