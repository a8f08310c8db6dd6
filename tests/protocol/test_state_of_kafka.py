"""Every record in the state topics of a real Apache Kafka is read, and written again to the same bytes."""

from collections.abc import Iterator
from pathlib import Path

from headrace.errors import ProtocolError
from headrace.protocol.batch import scan
from headrace.protocol.control import read_control
from headrace.protocol.kernel_types import Record
from headrace.protocol.records import records_of
from headrace.protocol.shape import Kind
from headrace.protocol.state import (
    decode_key,
    decode_metadata_record,
    decode_value,
    encode_key,
    encode_metadata_record,
    encode_value,
)

KAFKA = Path(__file__).parents[1] / "fixtures" / "kafka"


def records_in(folder: str) -> Iterator[Record]:
    for batch in scan((KAFKA / folder / "00000000000000000000.log").read_bytes()):
        if not batch.is_control:
            yield from records_of(batch, 1 << 20).decode()


def test_the_metadata_log() -> None:
    kinds, newer = set(), set()
    for record in records_in("__cluster_metadata-0"):
        assert record.value is not None
        try:
            message, version = decode_metadata_record(record.value)
        except ProtocolError as error:
            newer.add(str(error))
            continue
        assert encode_metadata_record(message, version) == record.value
        kinds.add(message.shape.name)
    assert {"TopicRecord", "PartitionRecord", "FeatureLevelRecord", "ConfigRecord", "ProducerIdsRecord"} <= kinds
    # The folders are of Kafka 4.3, which writes two records in a version that 4.2 does not know.
    assert newer == {
        "RegisterBrokerRecord has versions 0-3, not 4",
        "BrokerRegistrationChangeRecord has versions 0-2, not 3",
    }


def test_the_topic_of_the_transaction_coordinator() -> None:
    count = 0
    for record in records_in("__transaction_state-0"):
        assert record.key is not None
        assert record.value is not None
        key = decode_key(Kind.TRANSACTION, record.key)
        assert key is not None
        assert encode_key(key) == record.key
        value = decode_value(Kind.TRANSACTION, key, record.value)
        assert encode_value(value, int.from_bytes(record.value[:2])) == record.value
        count += 1
    assert count > 10


def test_control_records_of_the_quorum() -> None:
    batches = [*scan((KAFKA / "__cluster_metadata-0" / "00000000000000000000.log").read_bytes())]
    found = [type(record.message).__name__ for batch in batches if batch.is_control for record in read_control(batch)]
    assert set(found) >= {"LeaderChangeMessage"}
