"""How each API of the controller says no to all that was asked. PURE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace.errors import Refused
from headrace.protocol import messages as m
from headrace.protocol.apis import find_api
from headrace.protocol.message import Message


def refusal(request: Message, refused: Refused) -> Message:
    """The response of the request's API with the error wherever it has a place for one."""
    return _REFUSALS[type(request).__name__](request, refused)


def _response(request: Message) -> Any:
    key = request.shape.key
    api = find_api(key) if key is not None else None
    assert api is not None
    return api.response


def _with_code(request: Message, refused: Refused) -> Message:
    made: Message = _response(request)(error_code=refused.error)
    return made


def _with_text(request: Message, refused: Refused) -> Message:
    made: Message = _response(request)(error_code=refused.error, error_message=refused.text)
    return made


def _create(request: m.CreateTopicsRequest, refused: Refused) -> Message:
    result = m.CreateTopicsResponse.CreatableTopicResult
    names = dict.fromkeys(topic.name for topic in request.topics)
    return m.CreateTopicsResponse(
        topics=[result(name=name, error_code=refused.error, error_message=refused.text) for name in names]
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


def _alter(request: Any, refused: Refused) -> Message:
    response = _response(request)
    made: Message = response(
        responses=[
            response.AlterConfigsResourceResponse(
                error_code=refused.error,
                error_message=refused.text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )
    return made


_REFUSALS: Final[dict[str, Callable[[Any, Refused], Message]]] = {
    "BrokerRegistrationRequest": _with_code,
    "BrokerHeartbeatRequest": _with_code,
    "UnregisterBrokerRequest": _with_text,
    "ControllerRegistrationRequest": _with_text,
    "AllocateProducerIdsRequest": _with_code,
    "CreateTopicsRequest": _create,
    "DeleteTopicsRequest": _delete,
    "CreatePartitionsRequest": _grow,
    "DescribeQuorumRequest": _with_text,
    "AlterConfigsRequest": _alter,
    "IncrementalAlterConfigsRequest": _alter,
    "ElectLeadersRequest": _elect,
    "AlterPartitionReassignmentsRequest": _with_text,
    "UpdateFeaturesRequest": _with_text,
    "AssignReplicasToDirsRequest": _with_code,
}
"""By name: the classes of messages are made when they are asked for, and most of these never are."""
