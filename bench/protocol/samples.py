"""Messages of realistic sizes."""

from headrace.protocol import messages as m
from headrace.protocol.message import Message

TOPIC_ID = bytes(range(16))


def produce_request(partitions: int, records_bytes: int) -> Message:
    records = bytes(records_bytes)
    data = [m.ProduceRequest.PartitionProduceData(index=index, records=records) for index in range(partitions)]
    topic = m.ProduceRequest.TopicProduceData(name="orders.created", partition_data=data)
    return m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response(partitions: int) -> Message:
    answers = [
        m.ProduceResponse.PartitionProduceResponse(index=index, base_offset=1_000_000 + index, log_start_offset=0)
        for index in range(partitions)
    ]
    topic = m.ProduceResponse.TopicProduceResponse(name="orders.created", partition_responses=answers)
    return m.ProduceResponse(responses=[topic])


def fetch_request(partitions: int) -> Message:
    wanted = [
        m.FetchRequest.FetchPartition(
            partition=index, current_leader_epoch=3, fetch_offset=1_000_000, partition_max_bytes=1 << 20
        )
        for index in range(partitions)
    ]
    topic = m.FetchRequest.FetchTopic(topic="orders.created", partitions=wanted)
    return m.FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_id=77, session_epoch=5, topics=[topic]
    )


def fetch_response(partitions: int, records_bytes: int) -> Message:
    records = bytes(records_bytes)
    data = [
        m.FetchResponse.PartitionData(
            partition_index=index,
            high_watermark=1_000_100,
            last_stable_offset=1_000_100,
            log_start_offset=0,
            preferred_read_replica=-1,
            records=records,
        )
        for index in range(partitions)
    ]
    topic = m.FetchResponse.FetchableTopicResponse(topic="orders.created", partitions=data)
    return m.FetchResponse(session_id=77, responses=[topic])


def metadata_response(topics: int, partitions: int = 6) -> Message:
    brokers = [
        m.MetadataResponse.MetadataResponseBroker(node_id=n, host=f"broker-{n}.example.org", port=9092, rack="a")
        for n in range(3)
    ]
    described = [
        m.MetadataResponse.MetadataResponseTopic(
            name=f"topic-number-{number}",
            topic_id=TOPIC_ID,
            partitions=[
                m.MetadataResponse.MetadataResponsePartition(
                    partition_index=index,
                    leader_id=index % 3,
                    leader_epoch=4,
                    replica_nodes=[0, 1, 2],
                    isr_nodes=[0, 1, 2],
                )
                for index in range(partitions)
            ],
        )
        for number in range(topics)
    ]
    return m.MetadataResponse(brokers=brokers, cluster_id="Zk2TbqVMQkqJbxqzAAAAAA", controller_id=1, topics=described)


def offset_commit_request(partitions: int) -> Message:
    offsets = [
        m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=123_456, committed_leader_epoch=3, committed_metadata=""
        )
        for index in range(partitions)
    ]
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="orders.created", partitions=offsets)
    return m.OffsetCommitRequest(
        group_id="billing",
        generation_id_or_member_epoch=12,
        member_id="consumer-billing-1-6bd2a9b4-2f4b-4ea6-9d2c-6c0f8a8f0c1e",
        topics=[topic],
    )


SAMPLES: dict[str, tuple[Message, int]] = {
    "Produce request, 1 partition": (produce_request(1, 1_000), 9),
    "Produce request, 100 partitions": (produce_request(100, 1_000), 9),
    "Produce response, 10 partitions": (produce_response(10), 9),
    "Fetch request, 10 partitions": (fetch_request(10), 12),
    "Fetch response, 1 partition": (fetch_response(1, 1_000), 12),
    "Fetch response, 10 partitions": (fetch_response(10, 1_000), 12),
    "Metadata response, 100 topics": (metadata_response(100), 12),
    "OffsetCommit request, 20 partitions": (offset_commit_request(20), 8),
}
