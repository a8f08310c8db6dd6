"""A voter of three, alone on its disk: whatever it has said before a crash, it stands by after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.protocol.message import Message
from headrace.protocol.messages import VoteRequest, VoteResponse
from headrace.raft.node import Send
from headrace.raft.node.rpc import METADATA_TOPIC, partition_of
from headrace.testing.disk import Crash, Faults, FaultyDisk, Platter
from tests.raft.memory import CLUSTER, key, voter_set
from tests.raft.single import Running

VOTERS = voter_set(1, 2, 3)


def vote_request(candidate: int, epoch: int) -> VoteRequest:
    return VoteRequest(
        cluster_id=CLUSTER,
        voter_id=1,
        topics=[
            VoteRequest.TopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    VoteRequest.PartitionData(
                        replica_epoch=epoch,
                        replica_id=candidate,
                        replica_directory_id=key(candidate).directory_id,
                        voter_directory_id=key(1).directory_id,
                        last_offset_epoch=0,
                        last_offset=0,
                    )
                ],
            )
        ],
    )


def ask(node: Running, candidate: int, epoch: int, granted: list[int]) -> None:
    def reply(response: Message) -> None:
        if partition_of(response).vote_granted:
            granted.append(candidate)

    node.driver.request(vote_request(candidate, epoch), reply)
    node.settle()


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_voter_votes_once_in_an_epoch_wherever_it_crashes(power_lost: bool) -> None:
    call, crashed, twice = 0, True, 0
    while crashed:
        call += 1
        crashed = False
        granted: list[int] = []
        disk = FaultyDisk(Platter(call), Faults(crash_at_call=call))
        try:
            ask(Running(disk, voters=VOTERS).settle(), 2, 5, granted)
        except Crash:
            crashed = True
        node = Running(disk.restart(power_lost=power_lost), voters=VOTERS).settle()
        ask(node, 3, 5, granted)
        assert len(granted) <= 1, f"crashed at call {call}"
        ask(node, 2, 5, granted)
        assert granted in ([2], [2, 2], [3])
        twice += granted == [3]
    assert call > 10
    assert 0 < twice < call, "some crashes come before the vote, and some after it"


def test_a_vote_does_not_leave_before_it_is_durable() -> None:
    node = Running(FaultyDisk(), voters=VOTERS).settle()
    replies: list[Message] = []
    node.driver.request(vote_request(2, 5), replies.append)
    assert replies == []
    node.settle()
    assert partition_of(replies[0]).vote_granted


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_candidate_asks_for_votes_after_its_own_is_durable_and_leads_after_that_is(power_lost: bool) -> None:
    call, crashed, led = 0, True, 0
    while crashed:
        call += 1
        crashed = False
        asked: list[tuple[int, bool]] = []
        disk = FaultyDisk(Platter(call), Faults(crash_at_call=call))
        try:
            node = elect(disk, asked)
            led += node.driver.node.is_leader
        except Crash:
            crashed = True
        again = Running(disk.restart(power_lost=power_lost), voters=VOTERS)
        epochs = [epoch for epoch, pre_vote in asked if not pre_vote]
        assert again.driver.node.epoch >= max(epochs, default=0)
        granted: list[int] = []
        if epochs and again.driver.node.epoch == epochs[-1]:
            ask(again, 3, epochs[-1], granted)
            assert granted == [], "it has voted for itself in that epoch"
    assert led == 1


def elect(disk: FaultyDisk, asked: list[tuple[int, bool]]) -> Running:
    """Lets it stand; the others grant it everything."""
    answers: list[Callable[[], None]] = []

    def send(to: Send, answered: Callable[[Message | None], None]) -> None:
        if isinstance(to.request, VoteRequest):
            partition: Any = partition_of(to.request)
            asked.append((partition.replica_epoch, partition.pre_vote))
            response = VoteResponse(
                topics=[
                    VoteResponse.TopicData(
                        topic_name=METADATA_TOPIC,
                        partitions=[
                            VoteResponse.PartitionData(
                                leader_id=-1, leader_epoch=partition.replica_epoch, vote_granted=True
                            )
                        ],
                    )
                ]
            )
            answers.append(lambda: answered(response))

    node = Running(disk, voters=VOTERS, send=send).settle()
    for _ in range(10):
        node.timers.advance(1000)
        node.settle()
        while answers:
            answers.pop(0)()
            node.settle()
        if node.driver.node.is_leader:
            break
    return node
