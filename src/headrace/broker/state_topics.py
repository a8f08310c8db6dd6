"""The state topics of coordinators, created when they are first asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from headrace.broker.forward import Channel
from headrace.config import NodeConfig
from headrace.coordinator.state_topic import CONSUMER_OFFSETS, TRANSACTION_STATE
from headrace.errors import Error, Refused
from headrace.metadata.image import Image
from headrace.plain import plain
from headrace.protocol import messages as m

logger = logging.getLogger(__name__)

CREATE_TIMEOUT_MS: Final = 5000


@plain
class StateTopic:
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]


class StateTopics:
    __slots__ = ("_channel", "_creating", "_image", "_topics")

    def __init__(self, topics: Mapping[str, StateTopic], channel: Channel, image: Callable[[], Image]) -> None:
        self._topics = topics
        self._channel = channel
        self._image = image
        self._creating: dict[str, asyncio.Task[None]] = {}

    def creatable(self, name: str) -> m.CreateTopicsRequest.CreatableTopic:
        """What is asked of the controller. With fewer brokers than replicas wanted, there are as many as brokers."""
        topic, kind = self._topics[name], m.CreateTopicsRequest
        brokers = sum(broker.is_active for broker in self._image().brokers.values())
        return kind.CreatableTopic(
            name=name,
            num_partitions=topic.partitions,
            replication_factor=max(1, min(topic.replication_factor, brokers)),
            configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in topic.settings.items()],
        )

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    async def create(self, name: str) -> None:
        """Once, however many ask. Returns when the topic is in the image, or could not be created."""
        task = self._creating.get(name)
        if task is None:
            task = self._creating[name] = asyncio.get_running_loop().create_task(self._create(name))
            task.add_done_callback(lambda done: self._creating.pop(name))
        await asyncio.shield(task)

    async def _create(self, name: str) -> None:
        request = m.CreateTopicsRequest(topics=[self.creatable(name)], timeout_ms=CREATE_TIMEOUT_MS)
        try:
            response = await self._channel.call(request, CREATE_TIMEOUT_MS / 1000)
        except Refused as refused:
            logger.warning("%s can't be created yet: %s", name, refused)
            return
        assert isinstance(response, m.CreateTopicsResponse)
        for topic in response.topics:
            if topic.error_code not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
                logger.error("%s can't be created: %s", name, topic.error_message or Error.of(topic.error_code).text)


def state_topics_of(config: NodeConfig) -> dict[str, StateTopic]:
    offsets, transactions = config.offsets, config.transactions
    return {
        CONSUMER_OFFSETS: StateTopic(
            offsets.offsets_topic_num_partitions,
            offsets.offsets_topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(offsets.offsets_topic_segment_bytes),
            },
        ),
        TRANSACTION_STATE: StateTopic(
            transactions.transaction_state_log_num_partitions,
            transactions.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(transactions.transaction_state_log_min_isr),
                "segment.bytes": str(transactions.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        ),
    }
