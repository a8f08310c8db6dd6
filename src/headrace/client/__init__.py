"""Our own asyncio client: idempotent and transactional producers, consumers, groups, admin. For any Kafka.

async with Client("127.0.0.1:9092") as client:
    print(await client.producer().send("greetings", b"hello"))
"""

from headrace.client.admin import (
    HIGH_WATERMARK,
    Admin,
    ClusterInfo,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ConfigType,
    NewPartitions,
    NewTopic,
    ResourceType,
    UpgradeType,
)
from headrace.client.client import Client
from headrace.client.consumer import Consumer
from headrace.client.errors import (
    BufferFull,
    Closed,
    Fenced,
    LogTruncated,
    MustAbort,
    NoOffset,
    NotSent,
    Uncertain,
    Unreachable,
    WrongArgument,
)
from headrace.client.fetched import ConsumedRecord
from headrace.client.group_consumer import GroupConsumer
from headrace.client.lane import Produced
from headrace.client.metadata import Node, PartitionInfo, TopicInfo
from headrace.client.offsets import OffsetAt
from headrace.client.producer import Producer
from headrace.client.transaction import GroupMember, OffsetToCommit, Prepared
from headrace.client.transactional_producer import TransactionalProducer
from headrace.errors import Refused

__all__ = [
    "HIGH_WATERMARK",
    "Admin",
    "BufferFull",
    "Client",
    "Closed",
    "ClusterInfo",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "ConfigType",
    "ConsumedRecord",
    "Consumer",
    "Fenced",
    "GroupConsumer",
    "GroupMember",
    "LogTruncated",
    "MustAbort",
    "NewPartitions",
    "NewTopic",
    "NoOffset",
    "Node",
    "NotSent",
    "OffsetAt",
    "OffsetToCommit",
    "PartitionInfo",
    "Prepared",
    "Produced",
    "Producer",
    "Refused",
    "ResourceType",
    "TopicInfo",
    "TransactionalProducer",
    "Uncertain",
    "Unreachable",
    "UpgradeType",
    "WrongArgument",
]
