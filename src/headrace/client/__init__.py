"""Our own asyncio client: routing, an idempotent producer, a consumer by assignment, admin. For any Kafka.

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
from headrace.client.errors import BufferFull, Closed, LogTruncated, NoOffset, NotSent, Uncertain, Unreachable
from headrace.client.fetched import ConsumedRecord
from headrace.client.lane import Produced
from headrace.client.metadata import Node, PartitionInfo, TopicInfo
from headrace.client.offsets import OffsetAt
from headrace.client.producer import Producer

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
    "LogTruncated",
    "NewPartitions",
    "NewTopic",
    "NoOffset",
    "Node",
    "NotSent",
    "OffsetAt",
    "PartitionInfo",
    "Produced",
    "Producer",
    "ResourceType",
    "TopicInfo",
    "Uncertain",
    "Unreachable",
    "UpgradeType",
]
