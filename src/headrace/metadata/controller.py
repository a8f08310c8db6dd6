"""The controller: a request and the time go in, records and a reply come out. PURE.

It decides on the committed image with everything on top that it has decided itself and that is not committed yet, so
that two requests in a row are not both told that a name is free. An image never changes, so a controller that is
deposed forgets what was not committed by forgetting an image. Whoever runs it appends the records in the epoch of its
leadership, tells it by `appended`, and answers when they are committed: nothing else changes state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.config import NodeConfig
from headrace.errors import Error, Refused
from headrace.metadata.brokers import Brokers, applied, check_features
from headrace.metadata.collisions import Collisions
from headrace.metadata.delta import Delta
from headrace.metadata.dynamic import Dynamic
from headrace.metadata.features import BOOTSTRAP, METADATA_VERSION
from headrace.metadata.image import Image
from headrace.metadata.refusals import refusal
from headrace.metadata.sessions import Sessions
from headrace.metadata.snapshot import Versioned, controller_record
from headrace.metadata.topics import TopicDefaults, Topics
from headrace.named_tuple import NamedTuple
from headrace.plain import field, plain_frozen, replace
from headrace.protocol import messages as m
from headrace.protocol.message import Message

if TYPE_CHECKING:
    from headrace.metadata.configs import Configs

PRODUCER_IDS_A_BLOCK: Final = 1000
PRODUCER_ID_MAX: Final = 2**63 - 1


class Decision(NamedTuple):
    records: list[Versioned]
    """All or none of them are appended, from the offset that the decision was asked for on."""
    response: Message
    """For when the records, and all that were appended before, are committed."""


@plain_frozen
class ControllerSettings:
    cluster_id: str
    defaults: TopicDefaults
    session_timeout_ms: int = 9000
    node_id: int = 1
    started_with: NodeConfig = field(default_factory=NodeConfig)
    """What the node of this controller was started with."""


class Controller:
    """Active from `activate` to `deactivate`. Randomness is handed in: ids for topics, and where replicas go."""

    __slots__ = ("_choose", "_collisions", "_dynamic", "_new_id", "_sessions", "_settings", "image")

    def __init__(
        self, settings: ControllerSettings, *, new_id: Callable[[], bytes], choose: Callable[[int], int]
    ) -> None:
        self.image: Image | None = None
        """What is committed and what is not yet; None while it is not active."""
        self._settings = settings
        self._new_id = new_id
        self._choose = choose
        self._sessions = Sessions(settings.session_timeout_ms)
        self._collisions = Collisions()
        self._dynamic = Dynamic(settings.started_with, settings.node_id)

    @property
    def is_active(self) -> bool:
        return self.image is not None

    def activate(self, image: Image, now_ms: int) -> list[Versioned]:
        """All before its epoch is committed, and made this image. Returns what a new cluster begins with."""
        self.image = image
        self._collisions = Collisions(image.topic_ids)
        self._sessions.begin(image.brokers.values(), now_ms)
        if METADATA_VERSION in image.features:
            return []
        return [(m.FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in BOOTSTRAP.items()]

    def deactivate(self) -> None:
        self.image = None
        self._sessions.begin((), 0)

    def appended(self, records: Sequence[Versioned], last_offset: int, epoch: int) -> None:
        """They are in the log and not committed yet: the next decision reckons with them."""
        before = self._active_image()
        delta = Delta(before)
        for record, _ in records:
            delta.replay(record)
        self._collisions.appended(before, records)
        self.image = delta.image(last_offset, epoch)

    # --- requests -----------------------------------------------------------------------------------------------------

    def decide(self, request: Message, next_offset: int, now_ms: int) -> Decision:
        """`next_offset` is that of the first record, should there be any. A request that is refused has none."""
        decide = _DECISIONS.get(type(request).__name__)
        if decide is None:
            raise Refused(Error.UNSUPPORTED_VERSION, f"The controller does not serve {request.shape.name}.")
        try:
            records, response = decide(self, request, next_offset, now_ms)
        except Refused as refused:
            return Decision([], refusal(request, refused))
        return Decision(records, response)

    def _register(self, request: m.BrokerRegistrationRequest, next_offset: int, now_ms: int) -> object:
        return self._brokers(now_ms).register(request, next_offset)

    def _heartbeat(self, request: m.BrokerHeartbeatRequest, next_offset: int, now_ms: int) -> object:
        return self._brokers(now_ms).heartbeat(request, next_offset)

    def _unregister(self, request: m.UnregisterBrokerRequest, next_offset: int, now_ms: int) -> object:
        return self._brokers(now_ms).unregister(request)

    def _register_controller(self, request: m.ControllerRegistrationRequest, next_offset: int, now_ms: int) -> object:
        image = self._active_image()
        check_features(image, f"Controller {request.controller_id}", request.features)
        kind = m.RegisterControllerRecord
        record = kind(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            end_points=[
                kind.ControllerEndpoint(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in request.listeners
            ],
            features=[
                kind.ControllerFeature(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in request.features
            ],
        )
        before = image.controllers.get(request.controller_id)
        is_known = before is not None and controller_record(before) == record
        return [] if is_known else [(record, 0)], m.ControllerRegistrationResponse()

    def _allocate_producer_ids(self, request: m.AllocateProducerIdsRequest, next_offset: int, now_ms: int) -> object:
        """A block of ids that nobody else gets, ever (hazard 7): one whose reply is lost is lost with it."""
        self._brokers(now_ms).check_epoch(request.broker_id, request.broker_epoch)
        first = self._active_image().next_producer_id
        if first > PRODUCER_ID_MAX - PRODUCER_IDS_A_BLOCK:
            raise Refused(Error.UNKNOWN_SERVER_ERROR, "All producer ids have been handed out.")
        record = m.ProducerIdsRecord(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            next_producer_id=first + PRODUCER_IDS_A_BLOCK,
        )
        return [(record, 0)], m.AllocateProducerIdsResponse(
            producer_id_start=first, producer_id_len=PRODUCER_IDS_A_BLOCK
        )

    def _create_topics(self, request: m.CreateTopicsRequest, next_offset: int, now_ms: int) -> object:
        return self._topics().create(request)

    def _delete_topics(self, request: m.DeleteTopicsRequest, next_offset: int, now_ms: int) -> object:
        return self._topics().delete(request)

    def _create_partitions(self, request: m.CreatePartitionsRequest, next_offset: int, now_ms: int) -> object:
        return self._topics().grow(request)

    def _elect_leaders(self, request: m.ElectLeadersRequest, next_offset: int, now_ms: int) -> object:
        from headrace.metadata.elections import elect_leaders  # here, as others below: a start needs none of them

        return elect_leaders(self._active_image(), request)

    def _reassign(self, request: m.AlterPartitionReassignmentsRequest, next_offset: int, now_ms: int) -> object:
        from headrace.metadata.reassignments import alter_reassignments

        return alter_reassignments(self._active_image(), request)

    def _update_features(self, request: m.UpdateFeaturesRequest, next_offset: int, now_ms: int) -> object:
        from headrace.metadata.feature_updates import update_features

        return update_features(self._active_image(), request)

    def _assign_replicas(self, request: m.AssignReplicasToDirsRequest, next_offset: int, now_ms: int) -> object:
        from headrace.metadata.directories import assign_replicas

        broker = self._brokers(now_ms).check_epoch(request.broker_id, request.broker_epoch)
        return assign_replicas(self._active_image(), broker, request)

    def _alter_configs(self, request: m.AlterConfigsRequest, next_offset: int, now_ms: int) -> object:
        return self._configs().alter(request)

    def _alter_incrementally(self, request: m.IncrementalAlterConfigsRequest, next_offset: int, now_ms: int) -> object:
        return self._configs().alter_incrementally(request)

    # --- what happens without a request -------------------------------------------------------------------------------

    def deadline_ms(self) -> int:
        """When `tick` is due next."""
        return self._sessions.deadline_ms()

    def tick(self, now_ms: int) -> list[Versioned]:
        """Fences the brokers that were not heard of for too long."""
        records: list[Versioned] = []
        image = self._active_image()
        for broker_id in self._sessions.expired(now_ms):
            fenced = self._brokers(now_ms, image).fence(broker_id)
            records += fenced
            image = applied(image, fenced)
        return records

    def fence_now(self, broker_id: int, epoch: int) -> list[Versioned]:
        """A broker is known to be gone: its link broke, and its listener refuses. It may register again at once.

        The epoch is of the incarnation that is gone: one that has registered since is not fenced for it.
        """
        broker = self._active_image().brokers.get(broker_id)
        return [] if broker is None or broker.epoch != epoch else self._brokers(0).fence(broker_id)

    # --- the parts ----------------------------------------------------------------------------------------------------

    def _active_image(self) -> Image:
        if self.image is None:
            raise Refused(Error.NOT_CONTROLLER, "This node is not the active controller.")
        return self.image

    def _brokers(self, now_ms: int, image: Image | None = None) -> Brokers:
        return Brokers(image or self._active_image(), self._sessions, self._settings.cluster_id, now_ms)

    def _topics(self) -> Topics:
        image, defaults = self._active_image(), self._settings.defaults
        self._dynamic.follow(image)
        if self._dynamic.config is not self._settings.started_with:
            defaults = replace(defaults, log=self._dynamic.config.log)
        return Topics(image, defaults, self._new_id, self._choose, self._collisions)

    def _configs(self) -> Configs:
        from headrace.metadata.configs import Configs

        image = self._active_image()
        self._dynamic.follow(image)
        return Configs(image, self._dynamic)


_DECISIONS: Final[dict[str, Callable[..., Any]]] = {
    "BrokerRegistrationRequest": Controller._register,
    "BrokerHeartbeatRequest": Controller._heartbeat,
    "UnregisterBrokerRequest": Controller._unregister,
    "ControllerRegistrationRequest": Controller._register_controller,
    "AllocateProducerIdsRequest": Controller._allocate_producer_ids,
    "CreateTopicsRequest": Controller._create_topics,
    "DeleteTopicsRequest": Controller._delete_topics,
    "CreatePartitionsRequest": Controller._create_partitions,
    "AlterConfigsRequest": Controller._alter_configs,
    "IncrementalAlterConfigsRequest": Controller._alter_incrementally,
    "ElectLeadersRequest": Controller._elect_leaders,
    "AlterPartitionReassignmentsRequest": Controller._reassign,
    "UpdateFeaturesRequest": Controller._update_features,
    "AssignReplicasToDirsRequest": Controller._assign_replicas,
}
"""By the name of the request: the classes of messages are made when they are asked for."""
