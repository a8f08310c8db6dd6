"""What the controller decides about settings, without a node."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import NodeConfig
from headrace.errors import Error, Refused
from headrace.metadata.configs import Configs
from headrace.metadata.delta import Delta
from headrace.metadata.dynamic import Dynamic
from headrace.metadata.image import Image, ResourceType, Topic
from tests.broker.config_requests import BROKER, SET, TOPIC, altering, incremental

IMAGE = Image(topics={b"t" * 16: Topic("t", b"t" * 16, {})}, topic_ids={"t": b"t" * 16})

texts = st.dictionaries(
    st.sampled_from(["retention.ms", "segment.ms", "cleanup.policy", "nonsense", "min.compaction.lag.ms"]),
    st.sampled_from(["1", "compact", "x", "", "delete,compact", "-1"]),
    max_size=4,
)


def configs(image: Image = IMAGE, **settings: str) -> Configs:
    dynamic = Dynamic(NodeConfig.parse({name.replace("_", "."): text for name, text in settings.items()}), 1)
    dynamic.follow(image)
    return Configs(image, dynamic)


def applied(image: Image, records: Any) -> Image:
    delta = Delta(image)
    for record, _ in records:
        delta.replay(record)
    return delta.image(image.offset + 1, 0)


@given(before=texts, after=texts, validate_only=st.booleans())
def test_both_ways_come_to_the_same_and_refuse_the_same(
    before: Mapping[str, str], after: Mapping[str, str], validate_only: bool
) -> None:
    image = Image(**{**_fields(IMAGE), "configs": {(TOPIC, "t"): dict(before)} if before else {}})
    old = altering((TOPIC, "t", list(after.items())), validate_only=validate_only)
    deletions = [(name, 1, None) for name in before if name not in after]
    new = incremental(
        (TOPIC, "t", [*deletions, *((name, SET, text) for name, text in after.items())]), validate_only=validate_only
    )
    old_records, old_response = configs(image).alter(old)
    new_records, new_response = configs(image).alter_incrementally(new)
    assert old_response.responses[0].error_code == new_response.responses[0].error_code
    is_fine = not old_response.responses[0].error_code
    if not is_fine or validate_only:
        assert (old_records, new_records) == ([], [])
        return
    for records in (old_records, new_records):
        assert dict(applied(image, records).settings(ResourceType.TOPIC, "t")) == dict(after)
    again, _ = configs(applied(image, new_records)).alter_incrementally(new)
    assert again == [], "what is so already needs no record"


def _fields(image: Image) -> dict[str, Any]:
    return {field.name: getattr(image, field.name) for field in dataclasses.fields(image)}


def test_what_a_node_was_started_with_is_checked_together_with_what_is_set() -> None:
    change = incremental((BROKER, "", [("log.cleaner.threads", SET, "200")]))
    _, response = configs().alter_incrementally(change)
    assert response.responses[0].error_code == Error.INVALID_REQUEST
    _, response = configs(log_cleaner_dedupe_buffer_size=str(1 << 30)).alter_incrementally(change)
    assert response.responses[0].error_code == Error.NONE


def test_settings_that_a_node_does_not_know_are_left_out_and_the_others_count() -> None:
    dynamic = Dynamic(NodeConfig.parse({}), 1)
    of_all = {"from.the.future": "1", "log.cleaner.threads": "3", "message.max.bytes": "big"}
    image = Image(
        configs={(BROKER, ""): of_all, (BROKER, "1"): {"log.cleaner.threads": "4"}, (BROKER, "2"): {"a": "b"}}
    )
    assert dynamic.follow(image)
    assert dynamic.config.cleaner.log_cleaner_threads == 4
    assert list(dynamic.left_out) == ["from.the.future", "message.max.bytes"]
    assert not dynamic.follow(image)
    assert dynamic.follow(Image())
    assert dynamic.config is dynamic.started_with


def test_hazard_15_a_request_with_very_many_resources_is_answered() -> None:
    request = incremental(*((TOPIC, f"topic-{number}", [("retention.hour", SET, "1")]) for number in range(5000)))
    records, response = configs().alter_incrementally(request)
    assert (records, len(response.responses)) == ([], 5000)
    assert {answer.error_code for answer in response.responses} == {Error.INVALID_CONFIG}
    sentences = {answer.error_message for answer in response.responses}
    assert len(sentences) == 2
    assert any("did you mean" in str(sentence) for sentence in sentences)
    request.resources *= 2
    with pytest.raises(Refused, match="send several"):
        configs().alter_incrementally(request)
