"""Control batches: golden bytes, and everything that a log may hold in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.errors import ProtocolError
from headrace.protocol.batch import Batch
from headrace.protocol.batch_builder import build
from headrace.protocol.control import ControlType, build_marker, build_quorum_batch, read_control
from headrace.protocol.messages import (
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

if TYPE_CHECKING:
    from headrace.protocol.control import QuorumMessage

DIRECTORY = bytes(range(16))


def payload(data: bytearray) -> str:
    batch = Batch(memoryview(data))
    batch.verify()
    return batch.payload.hex(" ")


@pytest.mark.parametrize(("committed", "code"), [(False, "00 00"), (True, "00 01")])
def test_the_marker_that_ends_a_transaction(committed: bool, code: str) -> None:
    data = build_marker(
        committed=committed,
        producer_id=9,
        producer_epoch=2,
        coordinator_epoch=77,
        timestamp_ms=5,
        base_offset=100,
        partition_leader_epoch=4,
    )
    # length 16; attributes, timestamp, offset; a key of version 0 and type; a value of version 0 and epoch; no headers
    assert payload(data) == f"20 00 00 00 08 00 00 {code} 0c 00 00 00 00 00 4d 00"
    batch = Batch(memoryview(data))
    assert batch.is_control
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, -1)
    assert (batch.base_offset, batch.partition_leader_epoch, batch.record_count) == (100, 4, 1)
    (record,) = read_control(batch)
    assert record.type is (ControlType.COMMIT if committed else ControlType.ABORT)
    assert (record.offset, record.timestamp, record.message) == (100, 5, EndTxnMarker(coordinator_epoch=77))


QUORUM: dict[str, QuorumMessage] = {
    # the value begins with its version, and ends with its tagged fields
    "26 00 00 00 08 00 00 00 02 12 00 00 00 00 00 01 01 01 00 00": LeaderChangeMessage(leader_id=1),
    "2a 00 00 00 08 00 00 00 03 16 00 00 00 00 00 00 00 00 00 07 00 00": SnapshotHeaderRecord(
        last_contained_log_timestamp=7
    ),
    "1a 00 00 00 08 00 00 00 04 06 00 00 00 00": SnapshotFooterRecord(),
    "1e 00 00 00 08 00 00 00 05 0a 00 00 00 01 00 00": KRaftVersionRecord(kraft_version=1),
    (
        "70 00 00 00 08 00 00 00 06 5c 00 00 02 00 00 00 01 "
        + DIRECTORY.hex(" ")
        + " 02 02 4e 0a 31 32 37 2e 30 2e 30 2e 31 23 84 00 00 00 00 01 00 00 00 00"
    ): VotersRecord(
        voters=[
            VotersRecord.Voter(
                voter_id=1,
                voter_directory_id=DIRECTORY,
                endpoints=[VotersRecord.Endpoint(name="N", host="127.0.0.1", port=9092)],
                kraft_version_feature=VotersRecord.KRaftVersionFeature(max_supported_version=1),
            )
        ]
    ),
}


@pytest.mark.parametrize("golden", QUORUM, ids=lambda golden: type(QUORUM[golden]).__name__)
def test_the_quorums_own_records(golden: str) -> None:
    message = QUORUM[golden]
    data = build_quorum_batch([message], timestamp_ms=5, base_offset=8, partition_leader_epoch=3)
    assert payload(data) == golden
    batch = Batch(memoryview(data))
    assert batch.is_control
    assert not batch.is_transactional
    assert not batch.has_producer
    (record,) = read_control(batch)
    assert record.message == message
    assert (record.offset, record.timestamp) == (8, 5)


def test_many_records_in_a_batch() -> None:
    messages = list(QUORUM.values())
    found = read_control(Batch(memoryview(build_quorum_batch(messages, timestamp_ms=1, base_offset=10))))
    assert [record.message for record in found] == messages
    assert [record.offset for record in found] == [10, 11, 12, 13, 14]


def test_a_leader_change_with_the_directories_of_its_voters() -> None:
    message = LeaderChangeMessage(
        version=1, leader_id=2, voters=[LeaderChangeMessage.Voter(voter_id=2, voter_directory_id=DIRECTORY)]
    )
    (record,) = read_control(Batch(memoryview(build_quorum_batch([message], timestamp_ms=1))))
    assert record.message == message


def control(key: bytes | None, value: bytes | None) -> Batch:
    return Batch(memoryview(build([(key, value, (), 1)], control=True)))


def test_types_of_later_versions_are_skipped() -> None:
    for code in (7, 1000, -5, -1):
        (record,) = read_control(control(b"\0\0" + code.to_bytes(2, signed=True), b"anything"))
        assert (record.type, record.message) == (ControlType.UNKNOWN, None)


def test_a_marker_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    (record,) = read_control(control(b"\0\1\0\1more", b"\0\1\0\0\0\x05more"))
    assert (record.type, record.message) == (ControlType.COMMIT, EndTxnMarker(coordinator_epoch=5))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (b"\0\0\0", b"\0\0\0\0\0\1"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\1"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\1"),
        (b"\0\0\0\2", None),
        (b"\0\0\0\2", b"\0"),
        (b"\0\0\0\2", b"\0\x09\0\0\0\1"),
        (b"\0\0\0\2", b"\0\0\0\0\0"),
        (b"\0\0\0\6", b"\0\0\xff\xff\xff\xff\x0f"),
    ],
)
def test_control_records_that_can_not_be_read(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        read_control(control(key, value))


def test_only_control_batches_are_read_so() -> None:
    with pytest.raises(ValueError, match="not a control batch"):
        read_control(Batch(memoryview(build([(b"k", b"v", (), 1)]))))
