"""DescribeTopicPartitions: all that is known of partitions, page by page (KIP-966)."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from headrace.broker.operations import TOPIC_OPERATIONS
from headrace.broker.steps import in_steps
from headrace.broker.topic_metadata import name_error, partition_view
from headrace.errors import Error
from headrace.metadata.image import Image, Partition
from headrace.metadata.loader import Loader
from headrace.metadata.names import INTERNAL
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request

Response = m.DescribeTopicPartitionsResponse
TopicAnswer = Response.DescribeTopicPartitionsResponseTopic
PartitionAnswer = Response.DescribeTopicPartitionsResponsePartition


class TopicPartitions:
    __slots__ = ("_loader", "_page_max")

    def __init__(self, loader: Loader, page_max: int) -> None:
        """A page has at most so many partitions."""
        self._loader = loader
        self._page_max = page_max

    def describe(
        self, connection: Connection, request: Request
    ) -> m.DescribeTopicPartitionsResponse | Coroutine[Any, Any, m.DescribeTopicPartitionsResponse]:
        """Topics by name, in order; a page begins at the cursor, and says where the next one does."""
        body: m.DescribeTopicPartitionsRequest = request.body
        image, cursor = self._loader.image, body.cursor
        after = "" if cursor is None else cursor.topic_name
        names: Iterable[str] = (topic.name for topic in body.topics) if body.topics else image.topic_ids
        wanted = sorted({name for name in names if name >= after})
        if cursor is not None and (cursor.partition_index < 0 or (body.topics and after not in wanted)):
            return _refused(body)
        response = Response()
        page = self._page(response, image, wanted, body, connection.listener.name)
        return in_steps(page, len(body.topics), lambda _: response)

    def _page(
        self,
        response: m.DescribeTopicPartitionsResponse,
        image: Image,
        wanted: Sequence[str],
        body: m.DescribeTopicPartitionsRequest,
        listener: str,
    ) -> Iterator[None]:
        """A topic in each step, until the page is full."""
        cursor = body.cursor
        room = max(1, min(body.response_partition_limit, self._page_max))
        for name in wanted:
            yield
            if room == 0:
                response.next_cursor = Response.Cursor(topic_name=name, partition_index=0)
                break
            topic = image.topic(name)
            if topic is None:
                error = name_error(name) or Error.UNKNOWN_TOPIC_OR_PARTITION
                response.topics.append(
                    TopicAnswer(
                        error_code=error,
                        name=name,
                        is_internal=name in INTERNAL,
                        topic_authorized_operations=TOPIC_OPERATIONS,
                    )
                )
                continue
            first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
            left = ((index, part) for index, part in topic.partitions.items() if index >= first)
            found = [_partition(image, index, part, listener) for index, part in islice(left, room)]
            response.topics.append(
                TopicAnswer(
                    name=name,
                    topic_id=topic.id,
                    is_internal=name in INTERNAL,
                    partitions=found,
                    topic_authorized_operations=TOPIC_OPERATIONS,
                )
            )
            room -= len(found)
            following = next(left, None)
            if following is not None:
                response.next_cursor = Response.Cursor(topic_name=name, partition_index=following[0])
                break


def _partition(image: Image, index: int, partition: Partition, listener: str) -> PartitionAnswer:
    seen = partition_view(image.brokers, index, partition, listener)
    return PartitionAnswer(
        error_code=seen.error_code,
        partition_index=index,
        leader_id=seen.leader_id,
        leader_epoch=seen.leader_epoch,
        replica_nodes=seen.replica_nodes,
        isr_nodes=seen.isr_nodes,
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_leaders),
        offline_replicas=seen.offline_replicas,
    )


def _refused(body: m.DescribeTopicPartitionsRequest) -> m.DescribeTopicPartitionsResponse:
    """A cursor that points nowhere."""
    return Response(topics=[TopicAnswer(error_code=Error.INVALID_REQUEST, name=topic.name) for topic in body.topics])
