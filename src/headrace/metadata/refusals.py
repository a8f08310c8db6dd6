"""How each API of the controller says no to all that was asked. PURE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace.errors import Refused
from headrace.protocol import messages as m
from headrace.protocol.message import Message


def refusal(request: Message, refused: Refused) -> Message:
    """The response of the request's API with the error wherever it has a place for one."""
    return _REFUSALS[type(request)](request, refused)


def _with_code(response: Callable[..., Message]) -> Callable[[Any, Refused], Message]:
    return lambda request, refused: response(error_code=refused.error)


def _with_text(response: Callable[..., Message]) -> Callable[[Any, Refused], Message]:
    return lambda request, refused: response(error_code=refused.error, error_message=refused.text)


def _create(request: m.CreateTopicsRequest, refused: Refused) -> Message:
    result = m.CreateTopicsResponse.CreatableTopicResult
    names = dict.fromkeys(topic.name for topic in request.topics)
    return m.CreateTopicsResponse(
        topics=[result(name=name, error_code=refused.error, error_message=refused.text, configs=None) for name in names]
    )


def _delete(request: m.DeleteTopicsRequest, refused: Refused) -> Message:
    result = m.DeleteTopicsResponse.DeletableTopicResult
    wanted: list[tuple[str | None, bytes]] = [(name, bytes(16)) for name in request.topic_names]
    wanted += [(topic.name, topic.topic_id) for topic in request.topics]
    return m.DeleteTopicsResponse(
        responses=[
            result(name=name, topic_id=topic_id, error_code=refused.error, error_message=refused.text)
            for name, topic_id in wanted
        ]
    )


def _grow(request: m.CreatePartitionsRequest, refused: Refused) -> Message:
    result = m.CreatePartitionsResponse.CreatePartitionsTopicResult
    return m.CreatePartitionsResponse(
        results=[
            result(name=name, error_code=refused.error, error_message=refused.text)
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )


def _elect(request: m.ElectLeadersRequest, refused: Refused) -> Message:
    kind = m.ElectLeadersResponse
    return kind(
        error_code=refused.error,
        replica_election_results=[
            kind.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    kind.PartitionResult(partition_id=index, error_code=refused.error, error_message=refused.text)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or []
        ],
    )


def _alter(response: Any, result: Any) -> Callable[[Any, Refused], Message]:
    def refuse(request: Any, refused: Refused) -> Message:
        made: Message = response(
            responses=[
                result(
                    error_code=refused.error,
                    error_message=refused.text,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource in request.resources
            ]
        )
        return made

    return refuse


_REFUSALS: Final[dict[type[Message], Callable[[Any, Refused], Message]]] = {
    m.BrokerRegistrationRequest: _with_code(m.BrokerRegistrationResponse),
    m.BrokerHeartbeatRequest: _with_code(m.BrokerHeartbeatResponse),
    m.UnregisterBrokerRequest: _with_text(m.UnregisterBrokerResponse),
    m.ControllerRegistrationRequest: _with_text(m.ControllerRegistrationResponse),
    m.AllocateProducerIdsRequest: _with_code(m.AllocateProducerIdsResponse),
    m.CreateTopicsRequest: _create,
    m.DeleteTopicsRequest: _delete,
    m.CreatePartitionsRequest: _grow,
    m.DescribeQuorumRequest: _with_text(m.DescribeQuorumResponse),
    m.AlterConfigsRequest: _alter(m.AlterConfigsResponse, m.AlterConfigsResponse.AlterConfigsResourceResponse),
    m.IncrementalAlterConfigsRequest: _alter(
        m.IncrementalAlterConfigsResponse, m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    ),
    m.ElectLeadersRequest: _elect,
    m.AlterPartitionReassignmentsRequest: _with_text(m.AlterPartitionReassignmentsResponse),
    m.UpdateFeaturesRequest: _with_text(m.UpdateFeaturesResponse),
    m.AssignReplicasToDirsRequest: _with_code(m.AssignReplicasToDirsResponse),
}
