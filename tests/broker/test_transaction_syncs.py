"""How often a transaction waits for the disk: not more often with more partitions."""

from __future__ import annotations

from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from tests.broker.nodes import ask, connected, create, run, running
from tests.broker.transactional import end, identity, settled

PARTITIONS = 20
GROUPS = 5
"""The partitions added, their batches, the decision, the markers, the completion."""
TRANSACTIONAL_ID = "x"


async def produce_to_all(peer: Peer, who: tuple[int, int]) -> list[int]:
    """One request with a batch for each partition; the errors."""
    kind = m.ProduceRequest
    records = bytes(
        build(
            [(None, b"a", (), 1_700_000_000_000)],
            producer_id=who[0],
            producer_epoch=who[1],
            base_sequence=0,
            transactional=True,
        )
    )
    data = [kind.PartitionProduceData(index=index, records=records) for index in range(PARTITIONS)]
    request = kind(
        transactional_id=TRANSACTIONAL_ID,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[kind.TopicProduceData(name="t", partition_data=data)],
    )
    response = await ask(peer, request, 12)
    return [answer.error_code for answer in response.responses[0].partition_responses]


def test_a_transaction_of_many_partitions_takes_five_group_commits() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t", PARTITIONS)
            who = await identity(peer)
            (flusher,) = node._flushers.values()
            spent = []
            for _ in range(4):
                before = flusher.groups
                assert await produce_to_all(peer, who) == [Error.NONE] * PARTITIONS
                response = await end(peer, who, commits=True)
                assert not response.error_code
                who = (response.producer_id, response.producer_epoch)
                assert await settled(peer) == "CompleteCommit"
                spent.append(flusher.groups - before)
            # The first one syncs the names of new files, too, and the metadata log has groups of its own now and then.
            assert min(spent) == GROUPS

    run(check())
