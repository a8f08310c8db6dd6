"""Administration: topics, records, settings, log directories, groups, transactions, the cluster. For any Kafka."""

from __future__ import annotations

from typing import Any

from headrace.client.admin.cluster import (
    ClusterCalls,
    ClusterInfo,
    FeaturesInfo,
    QuorumInfo,
    QuorumReplica,
    Reassignment,
    UpgradeType,
)
from headrace.client.admin.configs import (
    ConfigCalls,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ResourceType,
)
from headrace.client.admin.groups import GroupCalls, GroupDetail, GroupListing, MemberDetail
from headrace.client.admin.log_dirs import LogDirCalls, LogDirInfo, ReplicaInfo
from headrace.client.admin.records import HIGH_WATERMARK, ProducerInfo, RecordCalls
from headrace.client.admin.security import Acl, ClientQuota, ScramCredential, SecurityCalls
from headrace.client.admin.topics import NewPartitions, NewTopic, PartitionDetail, TopicCalls, TopicDetail
from headrace.client.admin.transactions import TransactionCalls, TransactionDetail, TransactionListing
from headrace.client.arguments import instance, seconds, whole
from headrace.protocol.message import Message

__all__ = [
    "HIGH_WATERMARK",
    "Acl",
    "Admin",
    "ClientQuota",
    "ClusterInfo",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "FeaturesInfo",
    "GroupDetail",
    "GroupListing",
    "LogDirInfo",
    "MemberDetail",
    "NewPartitions",
    "NewTopic",
    "PartitionDetail",
    "ProducerInfo",
    "QuorumInfo",
    "QuorumReplica",
    "Reassignment",
    "ReplicaInfo",
    "ResourceType",
    "ScramCredential",
    "TopicDetail",
    "TransactionDetail",
    "TransactionListing",
    "UpgradeType",
]


class Admin(
    TopicCalls, RecordCalls, ConfigCalls, LogDirCalls, ClusterCalls, SecurityCalls, GroupCalls, TransactionCalls
):
    """Made by `Client.admin`. Each call tries again while the answer may change, up to the operation time-out."""

    __slots__ = ()

    async def request(self, message: Message, broker: int | None = None, timeout_s: float | None = None) -> Any:
        """Send any request, to a broker by its id or to whichever answers; the response as it came, errors and all."""
        instance("message", message, Message, "a request of headrace.protocol.messages")
        if broker is not None:
            whole("broker", broker)
        if timeout_s is not None:
            seconds("timeout_s", timeout_s)
        return await self._cluster.call(message, broker, timeout_s)
