"""What the controller decides about topics, with Kafka's error codes."""

from collections.abc import Callable

import pytest

from headrace.config import LogConfig
from headrace.errors import Error, Refused
from headrace.metadata.collisions import Collisions
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image, ResourceType
from headrace.metadata.names import check_name
from headrace.metadata.topics import TopicDefaults, Topics
from headrace.protocol import messages as m
from headrace.protocol.message import Message

Wanted = m.CreateTopicsRequest.CreatableTopic
Assignment = m.CreateTopicsRequest.CreatableReplicaAssignment
Setting = m.CreateTopicsRequest.CreatableTopicConfig
DIRECTORY = b"d" * 16


class Cluster:
    """Two active brokers and a fenced one; what is decided is replayed."""

    def __init__(self) -> None:
        delta = Delta(Image())
        for broker_id in (1, 2, 3):
            record = m.RegisterBrokerRecord(broker_id=broker_id, fenced=broker_id == 3, log_dirs=[DIRECTORY])
            delta.replay(record)
        self.image = delta.image(0, 1)
        self.ids = 0

    @property
    def topics(self) -> Topics:
        defaults, collisions = TopicDefaults(2, 1, LogConfig()), Collisions(self.image.topic_ids)
        return Topics(self.image, defaults, self.new_id, lambda n: 0, collisions)

    def new_id(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(16)

    def create(self, *wanted: Wanted, validate_only: bool = False) -> list[m.CreateTopicsResponse.CreatableTopicResult]:
        request = m.CreateTopicsRequest(topics=list(wanted), validate_only=validate_only)
        records, response = self.topics.create(request)
        self.replay([record for record, _ in records])
        return response.topics

    def delete(self, request: m.DeleteTopicsRequest) -> list[tuple[str | None, int]]:
        records, response = self.topics.delete(request)
        self.replay([record for record, _ in records])
        return [(item.name, item.error_code) for item in response.responses]

    def grow(self, *wanted: m.CreatePartitionsRequest.CreatePartitionsTopic, validate_only: bool = False) -> list[int]:
        request = m.CreatePartitionsRequest(topics=list(wanted), validate_only=validate_only)
        records, response = self.topics.grow(request)
        self.replay([record for record, _ in records])
        return [item.error_code for item in response.results]

    def replay(self, records: list[Message]) -> None:
        delta = Delta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.image(self.image.offset + len(records), 1)


def automatic(name: str = "t", partitions: int = -1, factor: int = -1, **settings: str) -> Wanted:
    configs = [Setting(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    return Wanted(name=name, num_partitions=partitions, replication_factor=factor, configs=configs)


def manual(*replicas: list[int], name: str = "t") -> Wanted:
    assignments = [Assignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)]
    return Wanted(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)


def test_a_topic_is_created_with_what_the_request_leaves_open() -> None:
    cluster = Cluster()
    (result,) = cluster.create(automatic(retention_ms="5"))
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    topic = cluster.image.topic("t")
    assert topic is not None
    assert result.topic_id == topic.id
    assert [partition.leader for partition in topic.partitions.values()] == [1, 2]
    assert all(partition.directories == (DIRECTORY,) for partition in topic.partitions.values())
    assert cluster.image.settings(ResourceType.TOPIC, "t") == {"retention.ms": "5"}
    configs = {config.name: (config.value, config.config_source) for config in result.configs or []}
    assert configs["retention.ms"] == ("5", 1)
    assert configs["cleanup.policy"] == ("delete", 5)


def test_validate_only_answers_the_same_and_changes_nothing() -> None:
    cluster = Cluster()
    before = cluster.image
    (result,) = cluster.create(automatic(partitions=5), validate_only=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 5, bytes(16))
    assert cluster.image.topics == before.topics


def test_replicas_by_hand_are_in_sync_where_their_broker_is_active() -> None:
    cluster = Cluster()
    (result,) = cluster.create(manual([2, 3], [1, 2]))
    assert result.error_code == 0
    first = cluster.image.partition(result.topic_id, 0)
    assert first is not None
    assert (first.replicas, first.isr, first.leader) == ((2, 3), (2,), 2)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (lambda: automatic("a/b"), Error.INVALID_TOPIC_EXCEPTION),
        (lambda: automatic("exists"), Error.TOPIC_ALREADY_EXISTS),
        (lambda: automatic("a.topic"), Error.INVALID_TOPIC_EXCEPTION),
        (lambda: automatic(partitions=0), Error.INVALID_PARTITIONS),
        (lambda: automatic(partitions=-2), Error.INVALID_PARTITIONS),
        (lambda: automatic(partitions=10_001), Error.POLICY_VIOLATION),
        (lambda: automatic(factor=0), Error.INVALID_REPLICATION_FACTOR),
        (lambda: automatic(factor=4), Error.INVALID_REPLICATION_FACTOR),
        (lambda: automatic(no_such="1"), Error.INVALID_CONFIG),
        (lambda: automatic(retention_ms="soon"), Error.INVALID_CONFIG),
        (lambda: Wanted(name="t", configs=[Setting(name="retention.ms", value=None)]), Error.INVALID_CONFIG),
        (lambda: manual([1, 1]), Error.INVALID_REPLICA_ASSIGNMENT),
        (lambda: manual([1], [1, 2]), Error.INVALID_REPLICA_ASSIGNMENT),
        (lambda: manual([]), Error.INVALID_REPLICA_ASSIGNMENT),
        (lambda: manual([9]), Error.INVALID_REPLICA_ASSIGNMENT),
        (lambda: manual([3]), Error.INVALID_REPLICA_ASSIGNMENT),
        (lambda: manual(*([1] for _ in range(10_001))), Error.POLICY_VIOLATION),
        (
            lambda: Wanted(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[Assignment(partition_index=1, broker_ids=[1])],
            ),
            Error.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            lambda: Wanted(name="t", num_partitions=1, replication_factor=-1, assignments=manual([1]).assignments),
            Error.INVALID_REQUEST,
        ),
        (
            lambda: Wanted(name="t", num_partitions=-1, replication_factor=1, assignments=manual([1]).assignments),
            Error.INVALID_REQUEST,
        ),
    ],
)
def test_what_can_not_be_created(wanted: Callable[[], Wanted], error: Error) -> None:
    cluster = Cluster()
    cluster.create(automatic("exists"), automatic("a_topic"))
    fine, refused = cluster.create(automatic("fine"), wanted())
    assert (fine.error_code, refused.error_code) == (0, error)
    assert refused.error_message
    assert refused.configs == []
    assert list(cluster.image.topic_ids) == ["exists", "a_topic", "fine"]


def test_a_topic_twice_in_a_request_is_refused_once() -> None:
    cluster = Cluster()
    results = cluster.create(automatic("t"), automatic("u"), automatic("t"))
    assert [(result.name, result.error_code) for result in results] == [("t", Error.INVALID_REQUEST), ("u", 0)]


def test_a_request_of_more_topics_than_it_may_create_is_refused_as_a_whole() -> None:
    with pytest.raises(Refused) as refused:
        Cluster().create(*(automatic(f"t{number}") for number in range(10_001)))
    assert refused.value.error is Error.POLICY_VIOLATION


def test_topics_are_deleted_by_name_and_by_id() -> None:
    cluster = Cluster()
    by_name, by_id, twice = (result.topic_id for result in cluster.create(*map(automatic, "abc")))
    state = m.DeleteTopicsRequest.DeleteTopicState
    request = m.DeleteTopicsRequest(
        topics=[
            state(name="a"),
            state(topic_id=by_id),
            state(name="c"),
            state(topic_id=twice),
            state(name="unknown"),
            state(topic_id=b"?" * 16),
        ]
    )
    assert dict(cluster.delete(request)) == {
        "a": 0,
        "b": 0,
        "c": Error.INVALID_REQUEST,
        "unknown": Error.UNKNOWN_TOPIC_OR_PARTITION,
        None: Error.UNKNOWN_TOPIC_ID,
    }
    assert list(cluster.image.topic_ids) == ["c"]
    assert cluster.delete(m.DeleteTopicsRequest(topic_names=["c"])) == [("c", 0)]
    assert by_name not in cluster.image.topics


def test_a_topic_that_is_to_be_deleted_twice_is_refused_once_as_in_kafka() -> None:
    cluster = Cluster()
    (made,) = cluster.create(automatic("a"))
    state = m.DeleteTopicsRequest.DeleteTopicState
    for topics, name in (
        ([state(name="a")] * 2, "a"),
        ([state(topic_id=made.topic_id)] * 2, None),
        ([state(name="a"), state(topic_id=made.topic_id)], "a"),
    ):
        assert cluster.delete(m.DeleteTopicsRequest(topics=topics)) == [(name, Error.INVALID_REQUEST)]
    assert list(cluster.image.topic_ids) == ["a"]


def test_the_metadata_log_is_no_topic_and_replicas_are_looked_at_before_partitions() -> None:
    (metadata,) = Cluster().create(automatic("__cluster_metadata"))
    assert metadata.error_code == Error.INVALID_REQUEST
    (neither,) = Cluster().create(Wanted(name="t", num_partitions=0, replication_factor=0))
    assert neither.error_code == Error.INVALID_REPLICATION_FACTOR


def test_a_topic_is_deleted_by_its_name_or_its_id_and_not_by_both_or_neither() -> None:
    cluster = Cluster()
    (made,) = cluster.create(automatic("a"))
    state = m.DeleteTopicsRequest.DeleteTopicState
    request = m.DeleteTopicsRequest(topics=[state(name="a", topic_id=made.topic_id), state(name=None)])
    assert cluster.delete(request) == [("a", Error.INVALID_REQUEST), (None, Error.INVALID_REQUEST)]
    assert list(cluster.image.topic_ids) == ["a"]


def test_names_that_differ_in_dots_alone_can_not_be_in_one_request_either() -> None:
    results = Cluster().create(automatic("a.b"), automatic("a_b"), automatic("ab"))
    assert [result.error_code for result in results] == [0, Error.INVALID_TOPIC_EXCEPTION, 0]


class CountingName(str):
    """A name that counts how often it is compared with another."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountingName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_hazard_15_names_in_a_request_are_not_compared_each_with_each() -> None:
    names: list[str] = [CountingName(f"topic.{number % 200}") for number in range(400)]
    state = m.DeleteTopicsRequest.DeleteTopicState
    wanted = m.CreatePartitionsRequest.CreatePartitionsTopic
    decisions: list[Callable[[Topics], object]] = [
        lambda topics: topics.create(m.CreateTopicsRequest(topics=[automatic(name) for name in names])),
        lambda topics: topics.delete(m.DeleteTopicsRequest(topic_names=names)),
        lambda topics: topics.delete(m.DeleteTopicsRequest(topics=[state(name=name) for name in names])),
        lambda topics: topics.grow(m.CreatePartitionsRequest(topics=[wanted(name=name, count=2) for name in names])),
    ]
    for decide in decisions:
        CountingName.compared = 0
        decide(Cluster().topics)
        assert CountingName.compared < 10 * len(names)


def test_a_topic_grows_and_never_shrinks() -> None:
    cluster = Cluster()
    cluster.create(automatic("t", 2, 2))
    wanted = m.CreatePartitionsRequest.CreatePartitionsTopic
    given = m.CreatePartitionsRequest.CreatePartitionsAssignment
    assert cluster.grow(wanted(name="t", count=3, assignments=None)) == [0]
    assert cluster.grow(wanted(name="t", count=4, assignments=[given(broker_ids=[2, 1])])) == [0]
    topic = cluster.image.topic("t")
    assert topic is not None
    assert topic.partitions[3].replicas == (2, 1)
    for count, assignments, error in [
        (4, None, Error.INVALID_PARTITIONS),
        (1, None, Error.INVALID_PARTITIONS),
        (20_000, None, Error.POLICY_VIOLATION),
        (6, [given(broker_ids=[1, 2])], Error.INVALID_REPLICA_ASSIGNMENT),
        (5, [given(broker_ids=[1])], Error.INVALID_REPLICA_ASSIGNMENT),
    ]:
        assert cluster.grow(wanted(name="t", count=count, assignments=assignments)) == [error]
    assert cluster.grow(wanted(name="no", count=4, assignments=None)) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert cluster.grow(wanted(name="t", count=9, assignments=None), validate_only=True) == [0]
    assert len(topic.partitions) == 4


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250, "__cluster_metadata", "a\n"])
def test_names_that_no_topic_can_have(name: str) -> None:
    with pytest.raises(Refused) as refused:
        check_name(name)
    assert refused.value.error is Error.INVALID_TOPIC_EXCEPTION


def test_names_that_topics_can_have() -> None:
    for name in ("a", "A-b_c.9", "x" * 249, "...", "__consumer_offsets"):
        check_name(name)
