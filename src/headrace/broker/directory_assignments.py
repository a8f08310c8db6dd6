"""What the controller is told of where replicas are (AssignReplicasToDirs, KIP-858).

A broker with several directories chooses where a new partition goes, and moves it when it is told to. The controller
must know, so that it knows what a directory takes along when it fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import Final

from headrace.broker.forward import Channel
from headrace.errors import Error, Refused
from headrace.protocol import messages as m
from headrace.replica.manager import Replicas
from headrace.replica.partition import Partition

logger = logging.getLogger(__name__)

A_REQUEST_MAX: Final = 2000
_RETRY_SECONDS: Final = 0.5
_CALL_SECONDS: Final = 5.0


class DirectoryAssignments:
    """Hears of partitions by `placed`, before and after `start`."""

    __slots__ = ("_channel", "_epoch", "_replicas", "_task", "_waiting", "_wakes")

    def __init__(self, channel: Channel, replicas: Replicas, epoch: Callable[[], int]) -> None:
        """`epoch` is that of the broker's registration."""
        self._channel = channel
        self._replicas = replicas
        self._epoch = epoch
        self._waiting: dict[Partition, None] = {}
        self._wakes = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        replicas.on_placed = self.placed

    def placed(self, partition: Partition) -> None:
        if self._news(partition) is not None:
            self._waiting[partition] = None
            self._wakes.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._go_on())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _news(self, partition: Partition) -> bytes | None:
        """The directory that a partition is in, if the image does not say so."""
        replicas = self._replicas
        state = replicas.image.partition(partition.topic_id, partition.index)
        directory = replicas.directories.directory_of(partition.topic, partition.index)
        if state is None or directory is None or replicas.node_id not in state.replicas:
            return None
        return None if state.directory(replicas.node_id) == directory.id else directory.id

    async def _go_on(self) -> None:
        while True:
            await self._wakes.wait()
            self._wakes.clear()
            while self._waiting:
                partitions = list(islice(self._waiting, A_REQUEST_MAX))
                for partition in partitions:
                    del self._waiting[partition]
                if not await self._tell(partitions):
                    self._waiting |= dict.fromkeys(partitions)
                    await asyncio.sleep(_RETRY_SECONDS)

    async def _tell(self, partitions: list[Partition]) -> bool:
        """Whether the controller took it."""
        kind = m.AssignReplicasToDirsRequest
        found: dict[bytes, dict[bytes, list[int]]] = {}
        for partition in partitions:
            directory_id = self._news(partition)
            if directory_id is not None:
                found.setdefault(directory_id, {}).setdefault(partition.topic_id, []).append(partition.index)
        if not found:
            return True
        request = kind(
            broker_id=self._replicas.node_id,
            broker_epoch=self._epoch(),
            directories=[
                kind.DirectoryData(
                    id=directory_id,
                    topics=[
                        kind.TopicData(
                            topic_id=topic_id, partitions=[kind.PartitionData(partition_index=i) for i in indexes]
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory_id, topics in found.items()
            ],
        )
        try:
            response = await self._channel.call(request, _CALL_SECONDS)
            assert isinstance(response, m.AssignReplicasToDirsResponse)
            if response.error_code:
                raise Refused(Error.of(response.error_code))
        except Refused as refused:
            logger.warning("the controller does not hear where %d partitions are: %s", len(partitions), refused)
            return False
        return True
