"""What the controller decides about brokers: who may register, who is fenced, who may shut down. PURE.

Each decision takes the image with all that was decided before, and returns records and a reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.errors import Error, Refused
from headrace.metadata.delta import Delta
from headrace.metadata.image import Broker, Image
from headrace.metadata.leadership import RESERVED_DIRECTORIES, enter, leads_any, leave
from headrace.metadata.sessions import Sessions
from headrace.metadata.snapshot import Versioned, broker_record
from headrace.protocol import messages as m

REGISTRATION_VERSION: Final = 3
REGISTRATION_CHANGE_VERSION: Final = 2
FENCE: Final = 1
UNFENCE: Final = -1
SHUT_DOWN: Final = 1


class Brokers:
    """Decides on an image. Sessions are the controller's own memory, and change as brokers are heard of."""

    __slots__ = ("_cluster_id", "_image", "_now_ms", "_sessions")

    def __init__(self, image: Image, sessions: Sessions, cluster_id: str, now_ms: int) -> None:
        self._image = image
        self._sessions = sessions
        self._cluster_id = cluster_id
        self._now_ms = now_ms

    # --- registration -------------------------------------------------------------------------------------------------

    def register(
        self, request: m.BrokerRegistrationRequest, next_offset: int
    ) -> tuple[list[Versioned], m.BrokerRegistrationResponse]:
        """The epoch of a broker is the offset of the record that it is registered by, which only grows.

        An incarnation that registers again, because it does not know whether it was heard, keeps its epoch. Another
        one begins fenced, and leads nothing that its last self led.
        """
        self._check_registration(request)
        before = self._image.brokers.get(request.broker_id)
        is_same = before is not None and before.incarnation_id == request.incarnation_id
        if before is not None and not is_same and self._sessions.is_live(before.id, before.epoch, self._now_ms):
            raise Refused(
                Error.DUPLICATE_BROKER_REGISTRATION,
                f"Another broker with the id {before.id} is alive; give each its own node.id, or wait until it is "
                "known to be gone.",
            )
        epoch = before.epoch if is_same and before is not None else next_offset
        record = m.RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                m.RegisterBrokerRecord.BrokerEndpoint(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in request.listeners
            ],
            features=[
                m.RegisterBrokerRecord.BrokerFeature(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in request.features
            ],
            rack=request.rack,
            fenced=before.is_fenced if is_same and before is not None else True,
            in_controlled_shutdown=before.is_shutting_down if is_same and before is not None else False,
            log_dirs=list(request.log_dirs),
        )
        self._sessions.heard(request.broker_id, epoch, self._now_ms)
        response = m.BrokerRegistrationResponse(broker_epoch=epoch)
        registered: list[Versioned] = [(record, REGISTRATION_VERSION)]
        if not is_same or before is None:
            return registered + leave(self._after(registered), request.broker_id), response
        if record == broker_record(before):
            return [], response
        after = self._after(registered)
        lost = [directory for directory in before.directories if directory not in request.log_dirs]
        moved = leave(after, before.id, lost) if lost else []
        return registered + moved + (enter(after, before.id) if before.is_active else []), response

    def _check_registration(self, request: m.BrokerRegistrationRequest) -> None:
        if request.cluster_id != self._cluster_id:
            raise Refused(
                Error.INCONSISTENT_CLUSTER_ID,
                f"Broker {request.broker_id} is of cluster {request.cluster_id}, and this is {self._cluster_id}.",
            )
        if request.is_migrating_zk_broker:
            raise Refused(Error.BROKER_ID_NOT_REGISTERED, "A broker that still uses ZooKeeper can't register.")
        if request.broker_id < 0:
            raise Refused(Error.INVALID_REGISTRATION, f"A node id is not negative, as {request.broker_id} is.")
        self._check_directories(request)
        check_features(self._image, f"Broker {request.broker_id}", request.features)

    def _check_directories(self, request: m.BrokerRegistrationRequest) -> None:
        directories = request.log_dirs
        if not directories:
            raise Refused(Error.INVALID_REGISTRATION, "A broker registers with the ids of its log directories.")
        if any(directory in RESERVED_DIRECTORIES for directory in directories):
            raise Refused(Error.INVALID_REGISTRATION, "A log directory has an id that stands for something else.")
        if len(set(directories)) < len(directories):
            raise Refused(Error.INVALID_REGISTRATION, "Two log directories have one id.")
        for other in self._image.brokers.values():
            if other.id != request.broker_id and any(directory in other.directories for directory in directories):
                raise Refused(
                    Error.INVALID_REGISTRATION,
                    f"Broker {other.id} is registered with one of the log directories of broker {request.broker_id}; "
                    "was a folder copied?",
                )

    def unregister(self, request: m.UnregisterBrokerRequest) -> tuple[list[Versioned], m.UnregisterBrokerResponse]:
        broker = self._image.brokers.get(request.broker_id)
        if broker is None:
            raise Refused(Error.BROKER_ID_NOT_REGISTERED, f"There is no broker {request.broker_id}.")
        self._sessions.end(broker.id)
        gone: list[Versioned] = [(m.UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch), 0)]
        return leave(self._after(gone), broker.id) + gone, m.UnregisterBrokerResponse()

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: m.BrokerHeartbeatRequest, next_offset: int
    ) -> tuple[list[Versioned], m.BrokerHeartbeatResponse]:
        broker = self.check_epoch(request.broker_id, request.broker_epoch)
        session = self._sessions.heard(broker.id, broker.epoch, self._now_ms, request.current_metadata_offset)
        is_caught_up = request.current_metadata_offset >= broker.epoch
        records = self._lose_directories(broker, request.offline_log_dirs)
        image = self._after(records) if records else self._image
        is_fenced, may_go = broker.is_fenced, False
        if request.want_shut_down and self._may_go(image, broker, request.want_fence, session.shutdown_offset):
            records += self._fence(image, broker)
            self._sessions.end(broker.id)
            is_fenced = may_go = True
        elif request.want_shut_down:
            if not broker.is_shutting_down:
                records += self._change(image, broker, in_controlled_shutdown=SHUT_DOWN)
                session.shutdown_offset = next_offset + len(records)
        elif request.want_fence:
            records += self._fence(image, broker)
            is_fenced = True
        elif broker.is_fenced and not broker.is_shutting_down and is_caught_up:
            records += self._change(image, broker, fenced=UNFENCE)
            is_fenced = False
        return records, m.BrokerHeartbeatResponse(
            is_caught_up=is_caught_up, is_fenced=is_fenced, should_shut_down=may_go
        )

    def check_epoch(self, broker_id: int, epoch: int) -> Broker:
        broker = self._image.brokers.get(broker_id)
        if broker is None:
            raise Refused(Error.STALE_BROKER_EPOCH, f"Broker {broker_id} is not registered; it must register again.")
        if broker.epoch != epoch:
            raise Refused(
                Error.STALE_BROKER_EPOCH,
                f"Broker {broker_id} says that its epoch is {epoch}, and it is {broker.epoch}: it must register again.",
            )
        return broker

    def _may_go(self, image: Image, broker: Broker, want_fence: bool, shutdown_offset: int) -> bool:
        """It leads nothing, and all active brokers know that, so that nobody sends clients to it; or it has no choice.

        Where no other broker is active there is nobody to hand over to, and nothing to wait for.
        """
        others = [other for other in image.brokers.values() if other.is_active and other.id != broker.id]
        if broker.is_fenced or want_fence or not others:
            return True
        return not leads_any(image, broker.id) and all(
            self._sessions.metadata_offset(other.id) + 1 >= shutdown_offset for other in others
        )

    # --- fencing ------------------------------------------------------------------------------------------------------

    def fence(self, broker_id: int) -> list[Versioned]:
        """It is known to be gone, or was not heard of for too long. It may register again at once.

        Its session ends when it is seen to be fenced: should the log not take the records, this is tried again.
        """
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.is_fenced:
            self._sessions.end(broker_id)
            return []
        self._sessions.lost(broker_id)
        return self._fence(self._image, broker)

    def _fence(self, image: Image, broker: Broker) -> list[Versioned]:
        return [] if broker.is_fenced else self._change(image, broker, fenced=FENCE)

    def _lose_directories(self, broker: Broker, offline: Sequence[bytes]) -> list[Versioned]:
        """Directories failed (KIP-858): what is in them can't lead from here. It registers with them again, or not."""
        lost = [directory for directory in broker.directories if directory in offline]
        left = [directory for directory in broker.directories if directory not in offline]
        if not lost or not left:  # a broker that has none left fences itself
            return []
        records: list[Versioned] = [
            (
                m.BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=left),
                REGISTRATION_CHANGE_VERSION,
            )
        ]
        return records + leave(self._after(records), broker.id, lost)

    def _change(
        self, image: Image, broker: Broker, fenced: int = 0, in_controlled_shutdown: int = 0
    ) -> list[Versioned]:
        """The change of a broker, and what of it follows for who leads."""
        record = m.BrokerRegistrationChangeRecord(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
        )
        changed: list[Versioned] = [(record, REGISTRATION_CHANGE_VERSION)]
        after = applied(image, changed)
        follows = enter(after, broker.id) if after.brokers[broker.id].is_active else leave(after, broker.id)
        return changed + follows

    def _after(self, records: Sequence[Versioned]) -> Image:
        return applied(self._image, records)


def applied(image: Image, records: Sequence[Versioned]) -> Image:
    """The image as it will be, at the same offset: what follows from records is decided on it."""
    delta = Delta(image)
    for record, _ in records:
        delta.replay(record)
    return delta.image(image.offset, image.epoch)


def check_features(
    image: Image,
    who: str,
    features: Sequence[m.BrokerRegistrationRequest.Feature] | Sequence[m.ControllerRegistrationRequest.Feature],
) -> None:
    """A node must know every feature of the cluster at the level that it has been finalized at."""
    supported = {feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in features}
    for name, level in image.features.items():
        least, most = supported.get(name, (0, 0))
        if not least <= level <= most:
            raise Refused(
                Error.UNSUPPORTED_VERSION,
                f"{who} knows {name} from {least} to {most}, and the cluster is at {level}; start a version of the "
                "program that knows it.",
            )
