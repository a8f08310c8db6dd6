"""A producer of transactions for tests, request by request, in whatever version and with whatever identity."""

from __future__ import annotations

from typing import Any

from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.batch import scan
from headrace.protocol.records import records_of
from tests.broker.nodes import ask
from tests.storage.batches import batch

Identity = tuple[int, int]


async def ready(peer: Peer, transactional_id: str = "x") -> None:
    """The coordinator is there."""
    while (await ask(peer, m.FindCoordinatorRequest(key=transactional_id, key_type=1), 3)).error_code:
        pass


async def init(peer: Peer, transactional_id: str = "x", version: int = 5, **more: Any) -> Any:
    """Until the coordinator has loaded its state."""
    await ready(peer, transactional_id)
    request = m.InitProducerIdRequest(transactional_id=transactional_id, **{"transaction_timeout_ms": 60_000, **more})
    while (response := await ask(peer, request, version)).error_code == Error.COORDINATOR_LOAD_IN_PROGRESS:
        pass
    return response


async def identity(peer: Peer, transactional_id: str = "x", **more: Any) -> Identity:
    response = await init(peer, transactional_id, **more)
    assert not response.error_code, Error.of(response.error_code)
    return response.producer_id, response.producer_epoch


async def add(
    peer: Peer, who: Identity, *partitions: tuple[str, int], transactional_id: str = "x", version: int = 3
) -> list[Error]:
    kind = m.AddPartitionsToTxnRequest
    response = await ask(
        peer,
        kind(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=[
                kind.AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in partitions
            ],
        ),
        version,
    )
    return [
        Error.of(found.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for found in topic.results_by_partition
    ]


async def produce(
    peer: Peer,
    who: Identity,
    value: bytes,
    sequence: int = 0,
    *,
    topic: str = "t",
    index: int = 0,
    transactional_id: str | None = "x",
    version: int = 11,
    key: bytes = b"k",
) -> Error:
    content = batch(
        value, key=key, producer_id=who[0], producer_epoch=who[1], base_sequence=sequence, transactional=True
    )
    data = m.ProduceRequest.PartitionProduceData(index=index, records=memoryview(content))
    request = m.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )
    response = await ask(peer, request, version)
    return Error.of(response.responses[0].partition_responses[0].error_code)


async def end(peer: Peer, who: Identity, *, commits: bool, transactional_id: str = "x", version: int = 5) -> Any:
    request = m.EndTxnRequest(
        transactional_id=transactional_id, producer_id=who[0], producer_epoch=who[1], committed=commits
    )
    return await ask(peer, request, version)


async def describe(peer: Peer, transactional_id: str = "x") -> Any:
    response = await ask(peer, m.DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
    return response.transaction_states[0]


async def settled(peer: Peer, transactional_id: str = "x") -> str:
    """The state, once it is not about to change by itself."""
    while (state := (await describe(peer, transactional_id)).transaction_state).startswith("Prepare"):
        pass
    return str(state)


async def fetch(peer: Peer, topic: str = "t", index: int = 0, offset: int = 0, **more: Any) -> Any:
    """One partition's answer, of a reader of committed records."""
    kind = m.FetchRequest
    request = kind(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=1,
        topics=[
            kind.FetchTopic(
                topic=topic,
                partitions=[kind.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
        ],
        **more,
    )
    response = await ask(peer, request, 11)
    return response.responses[0].partitions[0]


async def read(peer: Peer, topic: str = "t", index: int = 0) -> list[bytes]:
    """What a reader of committed records sees of a partition: as clients do, it leaves out what was aborted."""
    found = await fetch(peer, topic, index)
    assert not found.error_code
    aborted = sorted((one.first_offset, one.producer_id) for one in found.aborted_transactions or [])
    inside: set[int] = set()
    values = []
    for one in scan(memoryview(bytes(found.records or b""))):
        while aborted and aborted[0][0] <= one.last_offset:
            inside.add(aborted.pop(0)[1])
        if one.is_control:
            inside.discard(one.producer_id)
        elif one.producer_id not in inside:
            values += [record.value or b"" for record in records_of(one, 1 << 20).decode()]
    return values


async def list_ids(peer: Peer, version: int = 2, **filters: Any) -> list[str]:
    response = await ask(peer, m.ListTransactionsRequest(**filters), version)
    assert not response.error_code
    return [found.transactional_id for found in response.transaction_states]
