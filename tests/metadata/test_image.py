"""Records make images: what each of them means, and that an image never changes."""

import copy
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata.delta import Delta, MetadataDamaged
from headrace.metadata.image import UNASSIGNED_DIRECTORY, Endpoint, Image, Partition, ResourceType
from headrace.metadata.loader import Loader, difference, everything_in
from headrace.metadata.snapshot import records_of
from headrace.protocol import messages as m
from headrace.protocol.message import Message
from headrace.protocol.state import decode_metadata_record, encode_metadata_record

A, B = b"a" * 16, b"b" * 16
DIRECTORY = b"d" * 16


def image_of(*records: Message) -> Image:
    delta = Delta(Image())
    for record in records:
        delta.replay(record)
    return delta.image(len(records) - 1, 1)


def broker(broker_id: int, epoch: int = 1, **options: object) -> m.RegisterBrokerRecord:
    endpoints = [m.RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)]
    return m.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, end_points=endpoints, **options)  # type: ignore[arg-type]


def partition(topic_id: bytes, index: int, replicas: list[int]) -> m.PartitionRecord:
    return m.PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY] * len(replicas),
    )


TOPIC_A = m.TopicRecord(name="a", topic_id=A)


# --- what records mean ------------------------------------------------------------------------------------------------


def test_a_broker_registers_is_unfenced_and_shuts_down() -> None:
    change = m.BrokerRegistrationChangeRecord
    image = image_of(broker(1), change(broker_id=1, broker_epoch=1, fenced=-1))
    assert image.brokers[1].is_active
    assert image.brokers[1].endpoint("PLAINTEXT") == Endpoint("PLAINTEXT", "h", 9092, 0)
    assert image.brokers[1].endpoint("SSL") is None
    image = image_of(broker(1, fenced=False), change(broker_id=1, broker_epoch=1, in_controlled_shutdown=1))
    assert not image.brokers[1].is_fenced
    assert not image.brokers[1].is_active
    image = image_of(broker(1, fenced=False), change(broker_id=1, broker_epoch=1, fenced=1, log_dirs=[DIRECTORY]))
    assert (image.brokers[1].is_fenced, image.brokers[1].directories) == (True, (DIRECTORY,))
    assert image_of(broker(1), m.UnregisterBrokerRecord(broker_id=1, broker_epoch=1)).brokers == {}


def test_a_change_for_another_incarnation_of_a_broker_can_not_be() -> None:
    with pytest.raises(MetadataDamaged, match="changes broker 1 in epoch 7, which is in epoch 8"):
        image_of(broker(1, 8), m.UnfenceBrokerRecord(id=1, epoch=7))


def test_a_topic_has_its_partitions_and_goes_with_its_settings() -> None:
    setting = m.ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="a", name="retention.ms", value="5")
    image = image_of(TOPIC_A, partition(A, 0, [1, 2]), partition(A, 1, [2]), setting)
    topic = image.topic("a")
    assert topic is not None
    assert list(topic.partitions) == [0, 1]
    assert image.partition(A, 0) == Partition((1, 2), (1, 2), 1, 0, 0, (DIRECTORY, DIRECTORY))
    assert image.settings(ResourceType.TOPIC, "a") == {"retention.ms": "5"}
    image = image_of(TOPIC_A, partition(A, 0, [1]), setting, m.RemoveTopicRecord(topic_id=A))
    assert (image.topics, image.topic_ids, image.configs) == ({}, {}, {})


def test_hazard_9_a_topic_created_again_under_its_name_is_another_topic() -> None:
    again = m.TopicRecord(name="a", topic_id=B)
    image = image_of(TOPIC_A, partition(A, 0, [1]), m.RemoveTopicRecord(topic_id=A), again)
    assert image.topic_ids == {"a": B}
    assert image.partition(A, 0) is None
    with pytest.raises(MetadataDamaged, match="creates topic a, which exists"):
        image_of(TOPIC_A, again)


def test_a_new_leader_begins_a_leader_epoch_and_any_change_a_partition_epoch() -> None:
    change = m.PartitionChangeRecord(topic_id=A, partition_id=0, isr=[1])
    after = image_of(TOPIC_A, partition(A, 0, [1, 2]), change).partition(A, 0)
    assert after is not None
    assert (after.isr, after.leader, after.leader_epoch, after.partition_epoch) == ((1,), 1, 0, 1)
    for leader in (2, 1, -1):
        change = m.PartitionChangeRecord(topic_id=A, partition_id=0, leader=leader)
        after = image_of(TOPIC_A, partition(A, 0, [1, 2]), change).partition(A, 0)
        assert after is not None
        assert (after.leader, after.leader_epoch, after.partition_epoch) == (leader, 1, 1)
        assert after.has_leader == (leader != -1)


def test_replicas_that_stay_keep_their_directories() -> None:
    change = m.PartitionChangeRecord(topic_id=A, partition_id=0, replicas=[3, 1], adding_replicas=[3])
    after = image_of(TOPIC_A, partition(A, 0, [1, 2]), change).partition(A, 0)
    assert after is not None
    assert after.directories == (UNASSIGNED_DIRECTORY, DIRECTORY)
    assert after.directory(1) == DIRECTORY
    assert after.adding_replicas == (3,)


def test_eligible_leaders_are_kept_and_cleared() -> None:
    change = m.PartitionChangeRecord(
        topic_id=A, partition_id=0, isr=[1], eligible_leader_replicas=[2], last_known_elr=[3], leader_recovery_state=1
    )
    records = (TOPIC_A, partition(A, 0, [1, 2]), change)
    after = image_of(*records).partition(A, 0)
    assert after is not None
    assert (after.eligible_leader_replicas, after.last_known_leaders, after.is_recovering) == ((2,), (3,), True)
    for name in ("a", ""):
        after = image_of(*records, m.ClearElrRecord(topic_name=name)).partition(A, 0)
        assert after is not None
        assert (after.eligible_leader_replicas, after.last_known_leaders) == ((), ())


def test_settings_features_and_quotas_come_and_go() -> None:
    def setting(value: str | None) -> m.ConfigRecord:
        return m.ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name="n", value=value)

    assert image_of(setting("1"), setting("2")).settings(ResourceType.BROKER, "") == {"n": "2"}
    assert image_of(setting("1"), setting(None)).configs == {}
    feature = m.FeatureLevelRecord
    assert image_of(feature(name="f", feature_level=2)).features == {"f": 2}
    assert image_of(feature(name="f", feature_level=2), feature(name="f", feature_level=0)).features == {}
    parts = [
        m.ClientQuotaRecord.EntityData(entity_type="user", entity_name=None),
        m.ClientQuotaRecord.EntityData(entity_type="client-id", entity_name="c"),
    ]
    quota = m.ClientQuotaRecord(entity=parts, key="producer_byte_rate", value=5.0)
    assert image_of(quota).quotas == {(("client-id", "c"), ("user", None)): {"producer_byte_rate": 5.0}}
    gone = m.ClientQuotaRecord(entity=parts, key="producer_byte_rate", remove=True)
    assert image_of(quota, gone).quotas == {}


def test_hazard_7_producer_ids_are_never_handed_out_twice() -> None:
    assert image_of(m.ProducerIdsRecord(next_producer_id=1000)).next_producer_id == 1000
    with pytest.raises(MetadataDamaged, match="hands out producer ids up to 1000 again"):
        image_of(m.ProducerIdsRecord(next_producer_id=1000), m.ProducerIdsRecord(next_producer_id=1000))


@pytest.mark.parametrize(
    "record",
    [
        m.PartitionRecord(topic_id=A, partition_id=0),
        m.RemoveTopicRecord(topic_id=A),
        m.PartitionChangeRecord(topic_id=A, partition_id=0),
        m.FenceBrokerRecord(id=1, epoch=1),
        m.RemoveAccessControlEntryRecord(id=A),
        m.RemoveDelegationTokenRecord(token_id="t"),
        m.FetchRequest(),
    ],
    ids=lambda record: record.shape.name,
)
def test_a_record_about_what_is_not_there_is_damage(record: Message) -> None:
    with pytest.raises(MetadataDamaged):
        image_of(record)


# --- images and their changes -----------------------------------------------------------------------------------------


class Author:
    """Writes a random history that a controller could have written."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.loader = Loader()
        self.next_id = 0

    def record(self) -> Message:
        random, image = self.random, self.loader.image
        topics = list(image.topics.values())
        way = random.randrange(10)
        if way == 0 or not topics:
            self.next_id += 1
            return m.TopicRecord(name=f"t{self.next_id}", topic_id=self.next_id.to_bytes(16))
        topic = random.choice(topics)
        if way == 1 and random.random() < 0.3:
            return m.RemoveTopicRecord(topic_id=topic.id)
        if way in (2, 3, 4) or not topic.partitions:
            return partition(topic.id, len(topic.partitions), random.sample(range(5), random.randint(1, 3)))
        if way in (5, 6):
            index = random.choice(list(topic.partitions))
            isr = list(topic.partitions[index].replicas[: random.randint(1, 3)])
            elr = [1] if random.random() < 0.2 else None
            leader = random.choice((isr[0], -2))
            return m.PartitionChangeRecord(
                topic_id=topic.id, partition_id=index, isr=isr, leader=leader, eligible_leader_replicas=elr
            )
        if way == 7:
            value = random.choice((None, "1", "2"))
            return m.ConfigRecord(resource_type=2, resource_name=topic.name, name=random.choice("xyz"), value=value)
        if way == 8:
            self.next_id += 1
            return m.ProducerIdsRecord(next_producer_id=image.next_producer_id + 1000)
        return broker(random.randrange(4), random.randrange(100), fenced=random.random() < 0.5)


@given(seed=st.integers(0, 2**32))
def test_an_image_comes_back_from_its_snapshot_and_never_changes(seed: int) -> None:
    author = Author(Random(seed))
    for offset in range(60):
        before, kept = author.loader.image, copy.deepcopy(author.loader.image)
        author.loader.apply([author.record()], offset, 1)
        assert before == kept
    image = author.loader.image
    written = [encode_metadata_record(record, version) for record, version in records_of(image)]
    other = Loader()
    other.load([decode_metadata_record(value)[0] for value in written], image.offset, image.epoch)
    assert other.image == image


@given(seed=st.integers(0, 2**32))
def test_a_delta_names_what_is_different_and_nothing_else(seed: int) -> None:
    author = Author(Random(seed))
    loader = author.loader
    seen: list[Delta] = []
    loader.subscribe(lambda delta, image: seen.append(delta))
    for offset in range(40):
        before = loader.image
        loader.apply([author.record()], offset, 1)
        told, real = seen[-1], difference(before, loader.image)
        assert set(told.changed_brokers) >= set(real.changed_brokers)
        assert set(told.changed_topics) >= set(real.changed_topics)
        for topic_id, indexes in real.changed_topics.items():
            assert set(told.changed_topics[topic_id]) >= set(indexes)
        assert told.removed_topics == real.removed_topics
        assert set(told.changed_configs) >= set(real.changed_configs)
        assert len(told.changed_topics) <= 1


def test_records_of_a_transaction_apply_as_one_or_not_at_all() -> None:
    loader = Loader()
    loader.apply([m.BeginTransactionRecord(name="n"), TOPIC_A], 1, 1)
    assert loader.image.topics == {}
    loader.apply([partition(A, 0, [1]), m.EndTransactionRecord()], 3, 1)
    assert loader.image.partition(A, 0) is not None
    again = m.TopicRecord(name="b", topic_id=B)
    loader.apply([m.BeginTransactionRecord(), again, m.AbortTransactionRecord(reason="r")], 6, 1)
    assert loader.image.topic("b") is None
    assert loader.image.offset == 6
    with pytest.raises(MetadataDamaged, match="ends a transaction that it did not begin"):
        loader.apply([m.EndTransactionRecord()], 7, 1)


def test_who_subscribes_late_is_told_of_everything() -> None:
    loader = Loader()
    loader.apply([broker(1), TOPIC_A, partition(A, 0, [1])], 2, 1)
    seen: list[tuple[Delta, Image]] = []
    loader.subscribe(lambda delta, image: seen.append((delta, image)))
    ((delta, image),) = seen
    assert image is loader.image
    assert (list(delta.changed_brokers), delta.changed_topics) == ([1], {A: {0: None}})
    assert everything_in(Image()).changed_topics == {}


def test_a_snapshot_tells_subscribers_what_is_different() -> None:
    loader = Loader()
    loader.apply([broker(1), TOPIC_A, partition(A, 0, [1])], 2, 1)
    seen: list[Delta] = []
    loader.subscribe(lambda delta, image: seen.append(delta))
    loader.load([broker(1), m.TopicRecord(name="b", topic_id=B)], 9, 2)
    assert list(seen[-1].removed_topics) == [A]
    assert seen[-1].changed_topics == {B: {}}
    assert seen[-1].changed_brokers == {}
    assert (loader.image.offset, loader.image.epoch) == (9, 2)
