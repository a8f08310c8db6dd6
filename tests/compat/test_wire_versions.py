"""What versions are served, and what is answered to those that are not."""

from __future__ import annotations

from struct import pack
from time import sleep

import pytest

from headrace.errors import Error
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from headrace.protocol.codec import decode
from tests.compat.conftest import is_ours
from tests.compat.requests import BASE_MS, fetch_partition, fetch_request, fetched, metadata, produce_request, produced
from tests.compat.wire import Wire, values_of

API_VERSIONS, PRODUCE, FIND_COORDINATOR = 18, 0, 10
SERVED = {0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 10: (0, 6), 18: (0, 4), 19: (2, 7), 20: (1, 6)}
SERVED |= {22: (0, 5), 23: (2, 4), 60: (0, 2)}
SERVED |= {8: (2, 10), 9: (1, 10), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 42: (0, 2)}
SERVED |= {47: (0, 0), 68: (0, 1), 69: (0, 1), 24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5)}


def asked(version: int) -> m.ApiVersionsRequest:
    return m.ApiVersionsRequest(client_software_name="compat", client_software_version="1.0")


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_api_versions_says_the_same(wire: Wire, version: int) -> None:
    answer = wire.ask(asked(version), version)
    assert answer.error_code == Error.NONE
    ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    if is_ours():
        assert ranges.items() >= SERVED.items()
    for key, (first, last) in SERVED.items():
        least, most = ranges[key]
        assert least == first
        assert most >= last
    if version >= 3:
        assert any(feature.name == "metadata.version" for feature in answer.finalized_features)
        assert answer.finalized_features_epoch >= 0


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(wire: Wire) -> None:
    """A client of the future reads which versions there are and asks again (KIP-511)."""
    header = pack(">hhih", API_VERSIONS, 99, 7, 2) + b"me" + b"\x00"
    wire.send_bytes(pack(">i", len(header)) + header)
    frame = wire.receive_frame()
    assert frame[:4] == pack(">i", 7)
    answer = decode(m.ApiVersionsResponse, 0, frame[4:])
    assert answer.error_code == Error.UNSUPPORTED_VERSION
    assert [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys] == [(API_VERSIONS, 0, 4)]
    assert wire.ask(asked(3), 3).error_code == Error.NONE


def test_a_client_must_name_itself_properly(wire: Wire) -> None:
    bad = m.ApiVersionsRequest(client_software_name="bad name!", client_software_version="1.0")
    assert wire.ask(bad, 3).error_code == Error.INVALID_REQUEST


@pytest.mark.parametrize("key", [-1, 9999, 4711])
def test_an_unknown_api_closes_the_connection(wire: Wire, key: int) -> None:
    header = pack(">hhih", key, 0, 7, 2) + b"me"
    wire.send_bytes(pack(">i", len(header)) + header)
    assert wire.is_closed()


@pytest.mark.parametrize(("key", "version"), [(PRODUCE, 2), (PRODUCE, 99), (1, 3), (3, 99), (FIND_COORDINATOR, 77)])
def test_an_unknown_version_closes_the_connection(wire: Wire, key: int, version: int) -> None:
    header = pack(">hhih", key, version, 7, 2) + b"me" + b"\x00" * 20
    wire.send_bytes(pack(">i", len(header)) + header)
    assert wire.is_closed()


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02"]
)
def test_what_is_no_frame_closes_the_connection(wire: Wire, data: bytes) -> None:
    wire.send_bytes(data)
    assert wire.is_closed()


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_of_produce(wire: Wire, topic: str, version: int) -> None:
    topic_id = metadata(wire, topic).topic_id
    for acks in (1, -1):
        records = build([(b"key", b"value", (), BASE_MS)])
        answer = produced(wire.ask(produce_request(topic, topic_id, records, acks=acks), version))
        assert answer.error_code == Error.NONE
    assert answer.base_offset == 1


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_of_fetch(wire: Wire, topic: str, version: int) -> None:
    topic_id = metadata(wire, topic).topic_id
    records = build([(None, b"%d" % number, (), BASE_MS) for number in range(5)])
    assert produced(wire.ask(produce_request(topic, topic_id, records), 9)).error_code == Error.NONE
    answer = fetched(wire.ask(fetch_request(topic, topic_id, [fetch_partition(0)], max_wait_ms=60_000), version))
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (Error.NONE, 5, 5)
    assert values_of(answer.records) == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_metadata(wire: Wire, topic: str, version: int) -> None:
    found = metadata(wire, topic, version)
    assert (found.error_code, found.name, len(found.partitions)) == (Error.NONE, topic, 1)


def test_acks_0_has_no_answer_and_an_error_of_it_closes(wire: Wire, topic: str) -> None:
    found = metadata(wire, topic)
    records = build([(None, b"value", (), BASE_MS)])
    sent = wire.send(produce_request(topic, found.topic_id, records, acks=0), 9)
    wire._asked.pop(sent)
    assert metadata(wire, topic).name == topic
    wire.send(produce_request(topic, found.topic_id, records, partition=99, acks=0), 9)
    assert wire.is_closed()


def test_acks_must_be_a_level(wire: Wire, topic: str) -> None:
    found = metadata(wire, topic)
    records = build([(None, b"value", (), BASE_MS)])
    answer = produced(wire.ask(produce_request(topic, found.topic_id, records, acks=2), 9))
    assert answer.error_code == Error.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("damage", [17, 30, 70])
def test_a_damaged_batch_is_refused(wire: Wire, topic: str, damage: int) -> None:
    found = metadata(wire, topic)
    records = build([(None, b"value", (), BASE_MS)])
    records[damage] ^= 0xFF
    answer = produced(wire.ask(produce_request(topic, found.topic_id, records), 9))
    assert answer.error_code == Error.CORRUPT_MESSAGE


def test_requests_are_answered_in_their_order(wire: Wire, topic: str) -> None:
    """A fetch that waits holds back what was asked after it."""
    topic_id = metadata(wire, topic).topic_id
    wire.send(fetch_request(topic, topic_id, [fetch_partition(0)], max_wait_ms=1500), 12)
    wire.send(asked(3), 3)
    assert fetched(wire.receive()).error_code == Error.NONE
    assert wire.receive().error_code == Error.NONE


@pytest.mark.parametrize("version", range(7))
def test_every_version_finds_a_coordinator(wire: Wire, cluster: str, version: int) -> None:
    asked = (
        m.FindCoordinatorRequest(coordinator_keys=["group"]) if version >= 4 else m.FindCoordinatorRequest(key="group")
    )
    for _ in range(300):  # the first one to ask makes the topic
        answer = wire.ask(asked, version)
        found = answer.coordinators[0] if version >= 4 else answer
        if found.error_code != Error.COORDINATOR_NOT_AVAILABLE:
            break
        sleep(0.1)
    assert found.error_code == Error.NONE
    assert f"{found.host}:{found.port}" == cluster
