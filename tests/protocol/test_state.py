"""Records of the state topics, byte for byte as worked out by hand from the format: no other codec here has them."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.protocol import messages as m
from headrace.protocol.message import Message
from headrace.protocol.shape import KEYED_KINDS, Kind, blocks
from headrace.protocol.state import (
    decode_key,
    decode_metadata_record,
    decode_value,
    encode_key,
    encode_metadata_record,
    encode_value,
)
from tests.protocol.generate import Generator

ID_1 = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
ID_2 = bytes.fromhex("101112131415161718191a1b1c1d1e1f")

METADATA = [
    (
        m.RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=ID_1,
            broker_epoch=258,
            end_points=[m.RegisterBrokerRecord.BrokerEndpoint(name="P", host="h", port=9092, security_protocol=0)],
            features=[
                m.RegisterBrokerRecord.BrokerFeature(name="f", min_supported_version=1, max_supported_version=29)
            ],
            rack=None,
            fenced=True,
            in_controlled_shutdown=False,
            log_dirs=[ID_2],
        ),
        3,
        # frame 1, type 0, version 3; broker id; is migrating; incarnation
        "01 00 03  00000001  00  000102030405060708090a0b0c0d0e0f"
        # epoch; one endpoint: name, host, port, protocol, no tags
        "0000000000000102  02  0250 0268 2384 0000 00"
        # one feature: name, from, to, no tags; rack null; fenced; not shutting down
        "02  0266 0001 001d 00  00 01 00"
        # one tag: 0, 17 bytes: array of one uuid
        "01  00 11  02 101112131415161718191a1b1c1d1e1f",
    ),
    (m.UnregisterBrokerRecord(broker_id=2, broker_epoch=9), 0, "01 01 00  00000002 0000000000000009 00"),
    (m.TopicRecord(name="ab", topic_id=ID_1), 0, "01 02 00  03 6162  000102030405060708090a0b0c0d0e0f 00"),
    (
        m.PartitionRecord(
            partition_id=5,
            topic_id=ID_1,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=3,
            directories=[ID_2, ID_2],
        ),
        1,
        "01 03 01  00000005 000102030405060708090a0b0c0d0e0f"
        # replicas, in-sync replicas, removing, adding
        "03 00000001 00000002  02 00000001  01  01"
        # leader, leader epoch, partition epoch
        "00000001 00000000 00000003"
        # directories, no tags
        "03 101112131415161718191a1b1c1d1e1f 101112131415161718191a1b1c1d1e1f  00",
    ),
    (
        m.PartitionRecord(
            partition_id=0, topic_id=ID_1, leader_recovery_state=1, eligible_leader_replicas=[7], last_known_elr=[]
        ),
        2,
        "01 03 02  00000000 000102030405060708090a0b0c0d0e0f  01 01 01 01  ffffffff ffffffff ffffffff  01"
        # three tags: recovery state; eligible leader replicas [7]; last known []
        "03  00 01 01  01 05 02 00000007  02 01 01",
    ),
    (
        m.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
        0,
        "01 04 00  02 0274  0d 726574656e74696f6e2e6d73  0235  00",
    ),
    (
        m.ConfigRecord(resource_type=4, resource_name="", name="n", value=None),
        0,
        "01 04 00  04 01  026e  00  00",
    ),
    (
        m.PartitionChangeRecord(partition_id=1, topic_id=ID_1, isr=[1], leader=-1),
        0,
        "01 05 00  00000001 000102030405060708090a0b0c0d0e0f  02  00 05 02 00000001  01 04 ffffffff",
    ),
    (
        m.PartitionChangeRecord(partition_id=1, topic_id=ID_1, directories=[], eligible_leader_replicas=[3]),
        2,
        "01 05 02  00000001 000102030405060708090a0b0c0d0e0f  02  06 05 02 00000003  08 01 01",
    ),
    (m.FenceBrokerRecord(id=3, epoch=4), 0, "01 07 00  00000003 0000000000000004 00"),
    (m.UnfenceBrokerRecord(id=3, epoch=4), 0, "01 08 00  00000003 0000000000000004 00"),
    (m.RemoveTopicRecord(topic_id=ID_2), 0, "01 09 00  101112131415161718191a1b1c1d1e1f 00"),
    (
        m.FeatureLevelRecord(name="metadata.version", feature_level=29),
        0,
        "01 0c 00  11 6d657461646174612e76657273696f6e  001d  00",
    ),
    (
        m.ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=1000),
        0,
        "01 0f 00  00000001 0000000000000002 00000000000003e8 00",
    ),
    (
        m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, fenced=-1, in_controlled_shutdown=1),
        1,
        "01 11 01  00000001 0000000000000002  02  00 01 ff  01 01 01",
    ),
    (m.NoOpRecord(), 0, "01 14 00  00"),
    (m.BeginTransactionRecord(name="x"), 0, "01 17 00  01  00 02 0278"),
    (m.EndTransactionRecord(), 0, "01 18 00  00"),
    (m.AbortTransactionRecord(reason="no"), 0, "01 19 00  01  00 03 036e6f"),
    (
        m.RegisterControllerRecord(
            controller_id=7,
            incarnation_id=ID_1,
            zk_migration_ready=False,
            end_points=[m.RegisterControllerRecord.ControllerEndpoint(name="C", host="h", port=1)],
        ),
        0,
        "01 1b 00  00000007 000102030405060708090a0b0c0d0e0f 00  02 0243 0268 0001 0000 00  01  00",
    ),
    (m.ClearElrRecord(topic_name="t"), 0, "01 1c 00  0274  00"),
]


@pytest.mark.parametrize(("record", "version", "golden"), METADATA, ids=lambda value: getattr(value, "shape", value))
def test_metadata_records_are_these_bytes(record: Message, version: int, golden: str) -> None:
    data = bytes.fromhex(golden)
    assert encode_metadata_record(record, version) == data
    assert decode_metadata_record(data) == (record, version)


GroupMember = m.GroupMetadataValue.MemberMetadata
CurrentTopic = m.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
Classic = m.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata

COORDINATOR = [
    (
        Kind.GROUP,
        m.OffsetCommitKey(group="g", topic="tt", partition=3),
        m.OffsetCommitValue(offset=17, leader_epoch=2, metadata="m", commit_timestamp=1000),
        3,
        "0001  000167 00027474 00000003",
        "0003  0000000000000011 00000002 00016d 00000000000003e8",
    ),
    (
        Kind.GROUP,
        m.OffsetCommitKey(group="g", topic="t", partition=0),
        m.OffsetCommitValue(offset=1, leader_epoch=-1, metadata="", commit_timestamp=2, topic_id=ID_1),
        4,
        "0001  000167 000174 00000000",
        "0004  0000000000000001 ffffffff 01 0000000000000002  01 00 10 000102030405060708090a0b0c0d0e0f",
    ),
    (
        Kind.GROUP,
        m.GroupMetadataKey(group="g"),
        m.GroupMetadataValue(
            protocol_type="consumer",
            generation=4,
            protocol="range",
            leader="a",
            current_state_timestamp=5,
            members=[
                GroupMember(
                    member_id="a",
                    group_instance_id=None,
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout=6,
                    session_timeout=7,
                    subscription=b"s",
                    assignment=b"",
                )
            ],
        ),
        3,
        "0002  000167",
        "0003  0008 636f6e73756d6572 00000004 0005 72616e6765 000161 0000000000000005 00000001"
        "000161 ffff 000163 00022f68 00000006 00000007 00000001 73 00000000",
    ),
    (
        Kind.GROUP,
        m.ConsumerGroupMetadataKey(group_id="g"),
        m.ConsumerGroupMetadataValue(epoch=9, metadata_hash=1),
        0,
        "0003  000167",
        "0000  00000009  01 00 08 0000000000000001",
    ),
    (
        Kind.GROUP,
        m.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        m.ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id="r",
            client_id="c",
            client_host="h",
            subscribed_topic_names=["t"],
            subscribed_topic_regex=None,
            rebalance_timeout_ms=-1,
            server_assignor=None,
            classic_member_metadata=Classic(session_timeout_ms=8),
        ),
        0,
        "0005  000167 00016d",
        # the tag: 0, 7 bytes: present, time-out, no protocols, no tags
        "0000  00 0272 0263 0268 02 0274 00 ffffffff 00  01 00 07 01 00000008 01 00",
    ),
    (
        Kind.GROUP,
        m.ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        m.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3),
        0,
        "0006  000167",
        "0000  00000003 00",
    ),
    (
        Kind.GROUP,
        m.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        m.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                m.ConsumerGroupTargetAssignmentMemberValue.TopicPartition(topic_id=ID_1, partitions=[0, 1])
            ]
        ),
        0,
        "0007  000167 00016d",
        "0000  02 000102030405060708090a0b0c0d0e0f 03 00000000 00000001 00  00",
    ),
    (
        Kind.GROUP,
        m.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        m.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            previous_member_epoch=1,
            state=0,
            assigned_partitions=[CurrentTopic(topic_id=ID_1, partitions=[4])],
        ),
        0,
        "0008  000167 00016d",
        "0000  00000002 00000001 00 02 000102030405060708090a0b0c0d0e0f 02 00000004 00 01 00",
    ),
    (
        Kind.GROUP,
        m.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="a.*"),
        m.ConsumerGroupRegularExpressionValue(topics=["ab"], version=1, timestamp=2),
        0,
        "0010  000167 0003 612e2a",
        "0000  02 03 6162 0000000000000001 0000000000000002 00",
    ),
    (
        Kind.TRANSACTION,
        m.TransactionLogKey(transactional_id="x"),
        m.TransactionLogValue(
            producer_id=1000,
            producer_epoch=2,
            transaction_timeout_ms=60000,
            transaction_status=1,
            transaction_partitions=[m.TransactionLogValue.PartitionsSchema(topic="t", partition_ids=[0, 5])],
            transaction_last_update_timestamp_ms=3,
            transaction_start_timestamp_ms=4,
        ),
        0,
        "0000  000178",
        "0000  00000000000003e8 0002 0000ea60 01 00000001 000174 00000002 00000000 00000005"
        "0000000000000003 0000000000000004",
    ),
    (
        Kind.TRANSACTION,
        m.TransactionLogKey(transactional_id="x"),
        m.TransactionLogValue(
            producer_id=1000,
            previous_producer_id=999,
            producer_epoch=2,
            transaction_timeout_ms=1,
            transaction_status=0,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=3,
            transaction_start_timestamp_ms=-1,
            client_transaction_version=2,
        ),
        1,
        "0000  000178",
        # two tags: 0 previous producer id, 2 client's transaction version
        "0001  00000000000003e8 0002 00000001 00 00 0000000000000003 ffffffffffffffff"
        "02  00 08 00000000000003e7  02 02 0002",
    ),
]


@pytest.mark.parametrize(("kind", "key", "value", "version", "golden_key", "golden_value"), COORDINATOR)
def test_coordinator_records_are_these_bytes(
    kind: Kind, key: Message, value: Message, version: int, golden_key: str, golden_value: str
) -> None:
    assert encode_key(key) == bytes.fromhex(golden_key)
    assert encode_value(value, version) == bytes.fromhex(golden_value)
    assert decode_key(kind, bytes.fromhex(golden_key)) == key
    assert decode_value(kind, key, bytes.fromhex(golden_value)) == value


def test_a_tagged_struct_can_be_null_on_the_wire_which_is_not_the_same_as_absent() -> None:
    null = bytes.fromhex("0000  00 00 01 01 01 00 ffffffff 00  01 00 01 00")
    absent = bytes.fromhex("0000  00 00 01 01 01 00 ffffffff 00  00")
    Value = m.ConsumerGroupMemberMetadataValue
    for data, expected in ((null, None), (absent, Value.ClassicMemberMetadata())):
        decoded = decode_value(Kind.GROUP, m.ConsumerGroupMemberMetadataKey(), data)
        assert isinstance(decoded, Value)
        assert decoded.classic_member_metadata == expected
        assert encode_value(decoded, 0) == data


@given(seed=st.integers(0, 2**32))
def test_every_record_comes_back(seed: int) -> None:
    random = Random(seed)
    generator = Generator(random)
    for _, name in blocks(Kind.METADATA):
        cls = getattr(m, name)
        version = random.randint(cls.shape.versions.first, cls.shape.versions.last)
        record = generator.message(cls, version)
        assert decode_metadata_record(encode_metadata_record(record, version)) == (record, version)
    for kind in KEYED_KINDS:
        for _, name in blocks(kind):
            value_class = getattr(m, name + "Value")
            version = random.randint(value_class.shape.versions.first, value_class.shape.versions.last)
            key = generator.message(getattr(m, name + "Key"), 0)
            value = generator.message(value_class, version)
            assert decode_key(kind, encode_key(key)) == key
            assert decode_value(kind, key, encode_value(value, version)) == value


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("", "a metadata record ends before its type and version"),
        ("01 02", "a metadata record ends before its type and version"),
        ("00 02 00", "a metadata record has frame version 0, and only 1 is known"),
        ("01 63 00", "a metadata record has type 99, which is not known: was it written by a newer version?"),
        ("01 02 09", "TopicRecord has versions 0, not 9"),
        ("01 14 00 00 ff", "NoOpRecord v0 ends at byte 4, but 1 bytes follow it"),
    ],
)
def test_a_metadata_record_that_cannot_be_read(data: str, error: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        decode_metadata_record(bytes.fromhex(data))
    assert str(raised.value) == error


def test_keys_of_a_newer_version_are_none_and_what_is_no_record_is_refused() -> None:
    assert decode_key(Kind.GROUP, b"\x7f\xff whatever") is None
    with pytest.raises(ProtocolError, match="the key of a coordinator's record is 1 bytes long"):
        decode_key(Kind.GROUP, b"\0")
    with pytest.raises(ProtocolError, match="FetchRequest is not a record of the metadata topic"):
        encode_metadata_record(m.FetchRequest(), 4)
