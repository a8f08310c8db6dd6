"""What the cluster is: the APIs that a client asks before anything else."""

from __future__ import annotations

import re
from typing import Final

from headrace.broker.operations import CLUSTER_OPERATIONS
from headrace.broker.router import Router
from headrace.errors import Error
from headrace.metadata.features import QUORUM_VERSION, QUORUM_VERSIONS
from headrace.metadata.image import Image
from headrace.metadata.loader import Loader
from headrace.named_tuple import NamedTuple
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_FEATURES_FROM_ZERO: Final = 4
"""From this version of ApiVersions on, clients understand that a feature may be at level 0."""


class ClientSoftware(NamedTuple):
    """What a client said of itself in ApiVersions; kept as the state of its connection."""

    name: str
    version: str


class Cluster:
    """Answers from the image, on whichever listener is asked."""

    __slots__ = ("_cluster_id", "_features", "_loader", "router")

    def __init__(self, loader: Loader, cluster_id: str, features: dict[str, tuple[int, int]]) -> None:
        """`features` are the levels that this node supports, from the lowest to the highest."""
        self._loader = loader
        self._cluster_id = cluster_id
        self._features = {**features, QUORUM_VERSION: QUORUM_VERSIONS}
        self.router: Router | None = None
        """Whose table ApiVersions tells; set when the table is made."""

    def api_versions(self, connection: Connection, request: Request) -> m.ApiVersionsResponse:
        body: m.ApiVersionsRequest = request.body
        if request.version >= 3 and not (
            _SOFTWARE.fullmatch(body.client_software_name) and _SOFTWARE.fullmatch(body.client_software_version)
        ):
            return m.ApiVersionsResponse(error_code=Error.INVALID_REQUEST)
        if request.version >= 3 and connection.state is None:
            connection.state = ClientSoftware(body.client_software_name, body.client_software_version)
        assert self.router is not None
        image = self._loader.image
        return m.ApiVersionsResponse(
            api_keys=self.router.api_keys(),
            supported_features=[
                m.ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=least, max_version=most)
                for name, (least, most) in self._features.items()
                if least > 0 or request.version >= _FEATURES_FROM_ZERO
            ],
            finalized_features_epoch=image.offset,
            finalized_features=[
                m.ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in (*image.features.items(), (QUORUM_VERSION, QUORUM_VERSIONS[1]))
            ],
        )

    def describe(self, connection: Connection, request: Request) -> m.DescribeClusterResponse:
        body: m.DescribeClusterRequest = request.body
        endpoint_type = body.endpoint_type if request.version >= 1 else _BROKERS
        if endpoint_type != _BROKERS:
            error = Error.MISMATCHED_ENDPOINT_TYPE if endpoint_type == _CONTROLLERS else Error.UNSUPPORTED_ENDPOINT_TYPE
            return m.DescribeClusterResponse(error_code=error, error_message=error.text)
        image, listener = self._loader.image, connection.listener.name
        response = m.DescribeClusterResponse(
            cluster_id=self._cluster_id, controller_id=any_active_broker(image, request.correlation_id)
        )
        if body.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        for broker in image.brokers.values():
            endpoint = broker.endpoint(listener)
            if endpoint is not None and (not broker.is_fenced or body.include_fenced_brokers):
                response.brokers.append(
                    m.DescribeClusterResponse.DescribeClusterBroker(
                        broker_id=broker.id,
                        host=endpoint.host,
                        port=endpoint.port,
                        rack=broker.rack,
                        is_fenced=broker.is_fenced,
                    )
                )
        if not response.brokers:
            close_as_nobody_serves(connection)
        return response


def any_active_broker(image: Image, chance: int) -> int:
    """For "the controller": any broker forwards to it, so that load is spread, as Kafka does."""
    active = [broker.id for broker in image.brokers.values() if not broker.is_fenced]
    return active[chance % len(active)] if active else -1


def close_as_nobody_serves(connection: Connection) -> None:
    """Instead of telling a client that there are no brokers: this one is about to stop.

    librdkafka drops every broker that it knew when it is told so, and may not find back for minutes after the restart;
    a connection that closes it opens again.
    """
    connection.close()
