"""Errors of replies are counted wherever they stand in them."""

from __future__ import annotations

from headrace.broker.response_errors import count_errors
from headrace.errors import Error
from headrace.protocol import messages as m


def test_errors_inside_of_lists_of_lists_are_counted() -> None:
    kind = m.OffsetCommitResponse
    partitions = [
        kind.OffsetCommitResponsePartition(partition_index=index, error_code=error)
        for index, error in enumerate([Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_OR_PARTITION])
    ]
    other = kind.OffsetCommitResponsePartition(error_code=Error.OFFSET_METADATA_TOO_LARGE)
    message = kind(
        topics=[
            kind.OffsetCommitResponseTopic(name="a", partitions=partitions),
            kind.OffsetCommitResponseTopic(name="b", partitions=[other]),
        ]
    )
    errors = {int(Error.OFFSET_METADATA_TOO_LARGE): 4}
    count_errors(message, errors)
    assert errors == {Error.UNKNOWN_TOPIC_OR_PARTITION: 2, Error.OFFSET_METADATA_TOO_LARGE: 5}


def test_an_error_of_the_whole_reply_counts_beside_those_inside() -> None:
    kind = m.FetchResponse
    message = kind(error_code=Error.FETCH_SESSION_ID_NOT_FOUND)
    message.responses = [
        kind.FetchableTopicResponse(partitions=[kind.PartitionData(error_code=Error.OFFSET_OUT_OF_RANGE)])
    ]
    errors: dict[int, int] = {}
    count_errors(message, errors)
    assert errors == {Error.FETCH_SESSION_ID_NOT_FOUND: 1, Error.OFFSET_OUT_OF_RANGE: 1}


def test_a_list_that_is_null_has_no_errors() -> None:
    message = m.ConsumerGroupHeartbeatResponse(error_code=Error.FENCED_MEMBER_EPOCH)
    assert message.assignment is None
    errors: dict[int, int] = {}
    count_errors(message, errors)
    assert errors == {Error.FENCED_MEMBER_EPOCH: 1}
    count_errors(m.DescribeGroupsResponse(groups=None), errors)  # type: ignore[arg-type]
    assert errors == {Error.FENCED_MEMBER_EPOCH: 1}


def test_a_reply_without_errors_is_nothing_to_count() -> None:
    errors: dict[int, int] = {}
    count_errors(m.ApiVersionsResponse(), errors)
    count_errors(m.OffsetCommitResponse(), errors)
    assert errors == {}
