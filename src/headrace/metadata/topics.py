"""What the controller decides about topics: requests in, records and replies out, nothing else changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.config import LogConfig
from headrace.errors import Error, Refused
from headrace.metadata.assignment import check_new_assignment
from headrace.metadata.collisions import Collisions, may_collide
from headrace.metadata.image import NO_LEADER, UNASSIGNED_DIRECTORY, Broker, Image, Partition, ResourceType, Topic
from headrace.metadata.names import METADATA, check_name, folded
from headrace.metadata.placement import Candidate, place
from headrace.metadata.snapshot import Versioned, partition_record
from headrace.plain import plain_frozen
from headrace.protocol import messages as m

if TYPE_CHECKING:
    DescribedConfig = m.CreateTopicsResponse.CreatableTopicConfigs

PARTITIONS_A_REQUEST_MAX: Final = 10_000
"""Kafka's limit too: all of a request is decided at once, and is one batch of the metadata log."""
DYNAMIC_TOPIC_CONFIG: Final = 1
DEFAULT_CONFIG: Final = 5
NO_ID: Final = bytes(16)
_MORE_THAN_ONCE: Final = "The topic is in the request more than once."

Named = TypeVar("Named", bound=Hashable)


@plain_frozen
class TopicDefaults:
    """What a topic gets when its request leaves it open."""

    partitions: int
    replication_factor: int
    log: LogConfig


class Topics:
    """Decides on an image. Randomness is handed in: `new_id` for topics, `choose(n)` for a number below n."""

    __slots__ = ("_choose", "_collisions", "_defaults", "_described_configs", "_image", "_new_id")

    def __init__(
        self,
        image: Image,
        defaults: TopicDefaults,
        new_id: Callable[[], bytes],
        choose: Callable[[int], int],
        collisions: Collisions,
    ) -> None:
        """`collisions` has the names of the image."""
        self._image = image
        self._collisions = collisions
        self._defaults = defaults
        self._new_id = new_id
        self._choose = choose
        self._described_configs: dict[tuple[tuple[str, str], ...], list[DescribedConfig]] = {}

    # --- create -------------------------------------------------------------------------------------------------------

    def create(self, request: m.CreateTopicsRequest) -> tuple[list[Versioned], m.CreateTopicsResponse]:
        """Each topic is created or refused by itself. With `validate_only`, there are no records."""
        if len(request.topics) > PARTITIONS_A_REQUEST_MAX:  # not even with one partition each
            raise _too_many()
        records: list[Versioned] = []
        response = m.CreateTopicsResponse()
        twice = _twice(topic.name for topic in request.topics)
        taken: dict[str, str] = {}
        partitions_left = PARTITIONS_A_REQUEST_MAX
        answered: dict[str, None] = {}
        for wanted in request.topics:
            if wanted.name in answered:
                continue
            answered[wanted.name] = None
            try:
                if wanted.name in twice:
                    raise Refused(Error.INVALID_REQUEST, f"Topic {wanted.name} is in the request more than once.")
                topic, settings, made = self._create(wanted, taken, partitions_left)
            except Refused as refused:
                response.topics.append(_refused(wanted.name, refused))
                continue
            if may_collide(topic.name):
                taken[folded(topic.name)] = topic.name
            partitions_left -= len(topic.partitions)
            if not request.validate_only:
                records += made
            response.topics.append(self._described(topic, settings, request.validate_only))
        return records, response

    def _create(
        self, wanted: m.CreateTopicsRequest.CreatableTopic, taken: Mapping[str, str], partitions_left: int
    ) -> tuple[Topic, Mapping[str, str], list[Versioned]]:
        if wanted.name == METADATA:
            raise Refused(Error.INVALID_REQUEST, f"{METADATA} is the metadata log, and is not created.")
        check_name(wanted.name)
        if wanted.name in self._image.topic_ids:
            raise Refused(Error.TOPIC_ALREADY_EXISTS, f"Topic '{wanted.name}' already exists.")
        other = self._collisions.find(wanted.name) or taken.get(folded(wanted.name))
        if other is not None:
            raise Refused(
                Error.INVALID_TOPIC_EXCEPTION,
                f"Topic '{wanted.name}' collides with '{other}': their names differ in '.' and '_' alone.",
            )
        settings = self._settings(wanted)
        choose = self._manual if wanted.assignments else self._automatic
        assignment = choose(wanted, partitions_left)
        topic = Topic(wanted.name, self._new_id(), {i: self._partition(r) for i, r in enumerate(assignment)})
        records: list[Versioned] = [(m.TopicRecord(name=topic.name, topic_id=topic.id), 0)]
        records += [partition_record(topic.id, index, partition) for index, partition in topic.partitions.items()]
        records += [
            (m.ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value), 0)
            for name, value in settings.items()
        ]
        return topic, settings, records

    def _settings(self, wanted: m.CreateTopicsRequest.CreatableTopic) -> dict[str, str]:
        settings: dict[str, str] = {}
        for config in wanted.configs:
            if config.value is None:
                raise Refused(Error.INVALID_CONFIG, f"Setting {config.name} of topic {wanted.name} has no value.")
            settings[config.name] = config.value
        self._configs(settings)
        return settings

    def _automatic(self, wanted: m.CreateTopicsRequest.CreatableTopic, partitions_left: int) -> list[list[int]]:
        factor = self._defaults.replication_factor if wanted.replication_factor == -1 else wanted.replication_factor
        if factor <= 0:
            raise Refused(Error.INVALID_REPLICATION_FACTOR, f"A partition has at least one replica, not {factor}.")
        partitions = self._defaults.partitions if wanted.num_partitions == -1 else wanted.num_partitions
        if partitions <= 0:
            raise Refused(Error.INVALID_PARTITIONS, f"A topic has at least one partition, not {partitions}.")
        if partitions > partitions_left:
            raise _too_many()
        return place(self._candidates(), partitions, factor, self._choose)

    def _manual(self, wanted: m.CreateTopicsRequest.CreatableTopic, partitions_left: int) -> list[list[int]]:
        if wanted.num_partitions != -1:
            raise Refused(
                Error.INVALID_REQUEST, "A request gives the number of partitions or their replicas, not both."
            )
        if wanted.replication_factor != -1:
            raise Refused(Error.INVALID_REQUEST, "A request gives the replication factor or the replicas, not both.")
        if len(wanted.assignments) > partitions_left:
            raise _too_many()
        by_index = {assignment.partition_index: assignment.broker_ids for assignment in wanted.assignments}
        if len(by_index) < len(wanted.assignments) or sorted(by_index) != list(range(len(by_index))):
            raise Refused(
                Error.INVALID_REPLICA_ASSIGNMENT, "Replicas must be given for each partition once, counted from 0."
            )
        assignment = [list(by_index[index]) for index in range(len(by_index))]
        for replicas in assignment:
            check_new_assignment(self._image, replicas, len(assignment[0]))
        return assignment

    def _candidates(self) -> list[Candidate]:
        return [
            Candidate(broker.id, broker.rack, broker.is_active)
            for broker in self._image.brokers.values()
            if not broker.is_shutting_down
        ]

    def _partition(self, replicas: Sequence[int]) -> Partition:
        """A new partition: those of its replicas are in sync whose brokers are active, and the first of them leads."""
        isr = tuple(broker_id for broker_id in replicas if self._image.brokers[broker_id].is_active)
        return Partition(
            replicas=tuple(replicas),
            isr=isr,
            leader=isr[0] if isr else NO_LEADER,
            leader_epoch=0,
            partition_epoch=0,
            directories=tuple(_only_directory(self._image.brokers[broker_id]) for broker_id in replicas),
        )

    def _described(
        self, topic: Topic, settings: Mapping[str, str], validate_only: bool
    ) -> m.CreateTopicsResponse.CreatableTopicResult:
        return m.CreateTopicsResponse.CreatableTopicResult(
            name=topic.name,
            topic_id=NO_ID if validate_only else topic.id,
            error_message=None,
            num_partitions=len(topic.partitions),
            replication_factor=len(topic.partitions[0].replicas),
            configs=self._configs(settings),
        )

    def _configs(self, settings: Mapping[str, str]) -> list[DescribedConfig]:
        """What the reply says of settings. Nearly all topics of a request have the same: those are read once."""
        key = tuple(settings.items())
        described = self._described_configs.get(key)
        if described is None:
            config = LogConfig.parse(settings, base=self._defaults.log)
            described = self._described_configs[key] = [
                m.CreateTopicsResponse.CreatableTopicConfigs(
                    name=setting.name,
                    value=setting.format(getattr(config, field)),
                    config_source=DYNAMIC_TOPIC_CONFIG if setting.name in settings else DEFAULT_CONFIG,
                )
                for field, setting in sorted(LogConfig.fields.items(), key=lambda item: item[1].name)
            ]
        return described

    # --- delete -------------------------------------------------------------------------------------------------------

    def delete(self, request: m.DeleteTopicsRequest) -> tuple[list[Versioned], m.DeleteTopicsResponse]:
        """By name or by id. One that is in the request more than once is refused, once; both ways, also."""
        response = m.DeleteTopicsResponse()
        names: Counter[str] = Counter(request.topic_names)
        ids: Counter[bytes] = Counter()
        for wanted in request.topics:
            if (wanted.name is None) == (wanted.topic_id == NO_ID):
                text = "A topic is deleted by its name or by its id, one of them."
                response.responses.append(_kept(wanted.name, wanted.topic_id, Error.INVALID_REQUEST, text))
            elif wanted.name is not None:
                names[wanted.name] += 1
            else:
                ids[wanted.topic_id] += 1
        doomed: dict[bytes, Topic] = {}
        for topic_id, count in ids.items():
            topic = self._image.topics.get(topic_id)
            if count > 1:
                response.responses.append(_kept(None, topic_id, Error.INVALID_REQUEST, _MORE_THAN_ONCE))
            elif topic is None:
                text = "There is no topic with this id."
                response.responses.append(_kept(None, topic_id, Error.UNKNOWN_TOPIC_ID, text))
            else:
                doomed[topic_id] = topic
        for name, count in names.items():
            topic = self._image.topic(name)
            if count > 1:
                response.responses.append(_kept(name, NO_ID, Error.INVALID_REQUEST, _MORE_THAN_ONCE))
            elif topic is None:
                text = f"There is no topic {name}."
                response.responses.append(_kept(name, NO_ID, Error.UNKNOWN_TOPIC_OR_PARTITION, text))
            elif doomed.pop(topic.id, None) is not None:
                response.responses.append(_kept(name, topic.id, Error.INVALID_REQUEST, _MORE_THAN_ONCE))
            else:
                doomed[topic.id] = topic
        result = m.DeleteTopicsResponse.DeletableTopicResult
        response.responses += [result(name=topic.name, topic_id=topic.id) for topic in doomed.values()]
        return [(m.RemoveTopicRecord(topic_id=topic_id), 0) for topic_id in doomed], response

    # --- more partitions ----------------------------------------------------------------------------------------------

    def grow(self, request: m.CreatePartitionsRequest) -> tuple[list[Versioned], m.CreatePartitionsResponse]:
        """More partitions for topics that exist: keys will be found in others than before."""
        records: list[Versioned] = []
        response = m.CreatePartitionsResponse()
        result = m.CreatePartitionsResponse.CreatePartitionsTopicResult
        twice = _twice(topic.name for topic in request.topics)
        partitions_left = PARTITIONS_A_REQUEST_MAX
        for wanted in {topic.name: topic for topic in request.topics}.values():
            try:
                if wanted.name in twice:
                    raise Refused(Error.INVALID_REQUEST, f"Topic {wanted.name} is in the request more than once.")
                made = self._grow(wanted, partitions_left)
            except Refused as refused:
                response.results.append(result(name=wanted.name, error_code=refused.error, error_message=refused.text))
                continue
            partitions_left -= len(made)
            if not request.validate_only:
                records += made
            response.results.append(result(name=wanted.name))
        return records, response

    def _grow(self, wanted: m.CreatePartitionsRequest.CreatePartitionsTopic, partitions_left: int) -> list[Versioned]:
        topic = self._image.topic(wanted.name)
        if topic is None:
            raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {wanted.name}.")
        count = len(topic.partitions)
        more = wanted.count - count
        if more == 0:
            raise Refused(Error.INVALID_PARTITIONS, f"Topic {wanted.name} already has {count} partitions.")
        if more < 0:
            raise Refused(
                Error.INVALID_PARTITIONS,
                f"Topic {wanted.name} has {count} partitions, and partitions can't be taken away.",
            )
        if more > partitions_left:
            raise _too_many()
        factor = len(topic.partitions[0].replicas)
        if wanted.assignments is None:
            assignment = place(self._candidates(), more, factor, self._choose, first_partition=count)
        else:
            assignment = [list(given.broker_ids) for given in wanted.assignments]
            if len(assignment) != more:
                raise Refused(
                    Error.INVALID_REPLICA_ASSIGNMENT,
                    f"{more} partitions are added, and replicas are given for {len(assignment)}.",
                )
            for replicas in assignment:
                check_new_assignment(self._image, replicas, factor)
        return [
            partition_record(topic.id, count + index, self._partition(replicas))
            for index, replicas in enumerate(assignment)
        ]


def _only_directory(broker: Broker) -> bytes:
    """A broker with one directory has no choice; with several, it chooses and tells (KIP-858)."""
    return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED_DIRECTORY


def _twice(named: Iterable[Named]) -> frozenset[Named]:
    """Those that are in a request more than once, in one pass: a request may name a million."""
    return frozenset(name for name, count in Counter(named).items() if count > 1)


def _kept(name: str | None, topic_id: bytes, error: Error, text: str) -> m.DeleteTopicsResponse.DeletableTopicResult:
    return m.DeleteTopicsResponse.DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error, error_message=text
    )


def _too_many() -> Refused:
    return Refused(
        Error.POLICY_VIOLATION, f"A request creates at most {PARTITIONS_A_REQUEST_MAX} partitions; send several."
    )


def _refused(name: str, refused: Refused) -> m.CreateTopicsResponse.CreatableTopicResult:
    return m.CreateTopicsResponse.CreatableTopicResult(name=name, error_code=refused.error, error_message=refused.text)
