"""Messages as objects."""

import copy
import pickle
from typing import Any

import pytest

from headrace.protocol.message import FILLED_SLOWLY, Message, make_class
from headrace.protocol.messages import FetchResponse, MetadataRequest, ProduceResponse, RequestHeader
from headrace.protocol.shape import message_names, shape
from headrace.protocol.wire import join_tags


def test_a_message_shows_what_is_not_at_its_default() -> None:
    partition = ProduceResponse.PartitionProduceResponse(index=3, error_code=3, base_offset=17)
    response = ProduceResponse(
        responses=[ProduceResponse.TopicProduceResponse(name="t", partition_responses=[partition])]
    )
    assert repr(response) == (
        "ProduceResponse(responses=[TopicProduceResponse(name='t', partition_responses="
        "[PartitionProduceResponse(index=3, error_code=UNKNOWN_TOPIC_OR_PARTITION, base_offset=17)])])"
    )


def test_long_bytes_and_lists_are_cut_short() -> None:
    assert repr(FetchResponse.PartitionData(records=bytes(1000))) == "PartitionData(records=<1000 bytes>)"
    assert repr(FetchResponse.PartitionData(records=b"\1\2")) == "PartitionData(records=0x0102)"
    topics = [MetadataRequest.MetadataRequestTopic(name=str(n)) for n in range(30)]
    assert repr(MetadataRequest(topics=topics)).endswith("… 10 more])")
    request = MetadataRequest()
    request.unknown_tags = join_tags({7: b"x"})
    assert repr(request) == "MetadataRequest(unknown_tags={7: b'x'})"


def test_messages_are_equal_when_their_fields_are() -> None:
    assert MetadataRequest(topics=[]) == MetadataRequest()
    assert MetadataRequest(topics=None) != MetadataRequest()
    assert MetadataRequest() != FetchResponse()
    with pytest.raises(TypeError, match="unhashable"):
        hash(MetadataRequest())


def test_lists_are_not_shared_between_messages() -> None:
    one, other = FetchResponse(), FetchResponse()
    one.responses.append(FetchResponse.FetchableTopicResponse())
    assert other.responses == []


def test_a_field_that_there_is_not_is_an_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'topic'"):
        MetadataRequest(topic="t")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        MetadataRequest().topic = "t"  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", message_names())
def test_the_first_message_of_a_class_is_made_as_all_others_are(name: str) -> None:
    made: Any = make_class(shape(name))
    with pytest.raises(TypeError, match="'nonsense'"):
        made(nonsense=1)
    made = make_class(shape(name))
    first, others = made(), [made() for _ in range(FILLED_SLOWLY + 1)]
    values = {field: getattr(first, field) for field in made.__slots__}
    for other in (*others, make_class(shape(name))(**values)):
        assert repr(other) == repr(first)
        assert {field: getattr(other, field) for field in made.__slots__ if not _is_message(other, field)} == {
            field: value for field, value in values.items() if not _is_message(first, field)
        }
    for field, value in values.items():
        if isinstance(value, list) or _is_message(first, field):
            assert getattr(others[0], field) is not value


def _is_message(message: Message, field: str) -> bool:
    return isinstance(getattr(message, field), Message)


def test_messages_can_be_copied_and_pickled() -> None:
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t")])
    assert pickle.loads(pickle.dumps(response)) == response
    assert copy.deepcopy(response) == response


def test_classes_know_their_key_and_say_what_they_are_for() -> None:
    assert (FetchResponse.api_key, MetadataRequest.api_key) == (1, 3)
    assert RequestHeader.__doc__ == "before every request; v2 when the request is flexible"
