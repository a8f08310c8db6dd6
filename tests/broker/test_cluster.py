"""What a client asks before anything else: ApiVersions, DescribeCluster, InitProducerId."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest
import uvloop

from headrace.broker.node import Node
from headrace.config import NodeConfig
from headrace.errors import Error, HeadraceError
from headrace.metadata.features import BOOTSTRAP, SUPPORTED
from headrace.net.peer import Disconnected, Peer
from headrace.protocol import messages as m
from headrace.protocol.apis import find_api
from headrace.protocol.frame import read_response
from headrace.protocol.message import Message
from headrace.testing.disk import FaultyDisk
from tests.broker.nodes import ask, connected, memory_ports, run, running

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18


def api_versions(name: str = "a-client", version: str = "1.0") -> m.ApiVersionsRequest:
    return m.ApiVersionsRequest(client_software_name=name, client_software_version=version)


def test_api_versions_tells_the_table() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            for version in range(5):
                response = await ask(peer, api_versions(), version)
                assert not response.error_code
                served = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
                assert served[API_VERSIONS] == (0, 4)
                assert served[PRODUCE] == (0, 13)  # from 0, for the sake of old clients (KAFKA-18659)
                assert served[FETCH] == (4, 18)
                assert 78 not in served  # ShareFetch: what is not served is not there
                if version >= 3:
                    levels = {f.name: (f.min_version_level, f.max_version_level) for f in response.finalized_features}
                    finalized = {**BOOTSTRAP, "kraft.version": 1}
                    assert levels == {name: (level, level) for name, level in finalized.items()}
                    assert response.finalized_features_epoch > 0
                    supported = {f.name: (f.min_version, f.max_version) for f in response.supported_features}
                    # Clients that do not know version 4 take no feature that may be at 0 (KAFKA-17492).
                    known = {**SUPPORTED, "kraft.version": (0, 1)}
                    assert supported == {name: known[name] for name in known if known[name][0] or version >= 4}

    run(check())


def test_an_api_versions_of_the_future_is_answered_in_version_0() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            response = await raw(peer, API_VERSIONS, 9)
            assert response.error_code == Error.UNSUPPORTED_VERSION
            (key,) = response.api_keys
            assert (key.api_key, key.min_version, key.max_version) == (API_VERSIONS, 0, 4)

    run(check())


async def raw(peer: Peer, key: int, version: int) -> m.ApiVersionsResponse:
    """Sends a header alone, and reads an answer of version 0."""
    import asyncio

    reader, writer = await asyncio.open_connection(peer.host, peer.port)
    writer.write(
        bytes.fromhex("0000000a") + key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    )
    size = int.from_bytes(await reader.readexactly(4), "big")
    frame = await reader.readexactly(size)
    writer.close()
    api = find_api(API_VERSIONS)
    assert api is not None
    _, response = read_response(api, 0, frame)
    assert isinstance(response, m.ApiVersionsResponse)
    return response


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("-a", "1"), ("a", "")])
def test_software_is_called_by_letters_and_digits(name: str, version: str) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            assert (await ask(peer, api_versions(name, version), 3)).error_code == Error.INVALID_REQUEST
            assert not (await ask(peer, api_versions(), 3)).error_code

    run(check())


def test_what_is_not_served_ends_the_connection() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            with pytest.raises(Disconnected):
                await ask(peer, m.ShareGroupHeartbeatRequest(), 1)

    run(check())


def test_describe_cluster() -> None:
    async def check() -> None:
        async with running(node_id="7", broker_rack="r1") as node, connected(node) as peer:
            response = await ask(peer, m.DescribeClusterRequest(include_cluster_authorized_operations=True), 2)
            (broker,) = response.brokers
            assert (broker.broker_id, broker.host, broker.rack, broker.is_fenced) == (7, "127.0.0.1", "r1", False)
            assert broker.port == node.endpoints[0].port
            assert response.cluster_id == node.cluster_id
            assert response.controller_id == 7
            assert response.cluster_authorized_operations == 0b1111110100000

    run(check())


@pytest.mark.parametrize("endpoint_type", [-1, 0, 2, 3])
def test_a_cluster_is_not_described_to_who_asks_for_another_kind_of_endpoint(endpoint_type: int) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            response = await ask(peer, m.DescribeClusterRequest(endpoint_type=endpoint_type), 1)
            is_controller = endpoint_type == 2
            error = Error.MISMATCHED_ENDPOINT_TYPE if is_controller else Error.UNSUPPORTED_ENDPOINT_TYPE
            assert (response.error_code, response.error_message) == (error, error.text)
            assert (response.endpoint_type, response.cluster_id, response.brokers) == (1, "", [])

    run(check())


def test_a_producer_without_a_name_or_with_half_an_identity_is_refused() -> None:
    async def check() -> None:
        wanted = m.InitProducerIdRequest
        async with running() as node, connected(node) as peer:
            for request in (
                wanted(transactional_id=""),
                wanted(transactional_id=None, producer_id=5),
                wanted(transactional_id=None, producer_epoch=5),
            ):
                response = await ask(peer, request, 5)
                assert response.error_code == Error.INVALID_REQUEST
                assert (response.producer_id, response.producer_epoch) == (-1, -1)
            response = await ask(peer, wanted(transactional_id="t", transaction_timeout_ms=1000), 5)
            assert response.error_code == Error.COORDINATOR_NOT_AVAILABLE
            response = await ask(peer, wanted(transactional_id=None, producer_id=5, producer_epoch=0), 5)
            assert response.error_code == Error.NONE

    run(check())


def test_hazard_7_no_producer_id_is_handed_out_twice_over_blocks_and_restarts() -> None:
    async def check() -> None:
        disk = FaultyDisk()
        seen: list[int] = []
        for _ in range(3):
            async with running(disk) as node, connected(node) as peer:
                for _ in range(1200):
                    response = await ask(peer, m.InitProducerIdRequest(transactional_id=None), 5)
                    assert not response.error_code
                    assert response.producer_epoch == 0
                    seen.append(response.producer_id)
            disk = disk.restart()
        assert len(set(seen)) == len(seen)

    run(check())


def test_listeners_answer_with_their_own_endpoints() -> None:
    async def check() -> None:
        async with running(
            listeners="INSIDE://127.0.0.1:0,OUTSIDE://0.0.0.0:0",
            listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        ) as node:
            for number, host in enumerate(("127.0.0.1", "a-machine")):
                async with connected(node, number) as peer:
                    response = await ask(peer, m.MetadataRequest(topics=None), 12)
                    (broker,) = response.brokers
                    assert (broker.host, broker.port) == (host, node.endpoints[number].port)
                    response = await ask(peer, m.DescribeClusterRequest(), 1)
                    assert [broker.host for broker in response.brokers] == [host]

    run(check())


def test_of_two_nodes_that_start_on_one_port_one_is_ready_and_the_other_says_why_not() -> None:
    """Both have the port before either listens, and uvloop says nothing when the second can't."""

    async def check() -> None:
        async with running() as node:
            port = node.endpoints[0].port
        config = NodeConfig.parse({"listeners": f"PLAINTEXT://127.0.0.1:{port}", "http.listen": "off"})
        nodes = [Node(config, memory_ports(FaultyDisk(), seed)) for seed in range(2)]
        started = await asyncio.gather(*(node.start() for node in nodes), return_exceptions=True)
        (refused,) = filter(None, started)
        assert isinstance(refused, HeadraceError)
        assert str(refused) == f"127.0.0.1:{port} is in use by another process. Stop it, or choose another port."
        async with connected(nodes[started.index(None)]) as peer:
            assert len((await ask(peer, m.MetadataRequest(topics=None), 12)).brokers) == 1
        for node in nodes:
            await node.stop()

    uvloop.run(check())


def test_the_log_tells_where_it_listens_and_what_clients_are_told(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with running(advertised_listeners="PLAINTEXT://log.example.net:19093"):
            (listens,) = [text for text in caplog.messages if " listens on " in text]
            found = re.fullmatch(
                r"PLAINTEXT listens on 127\.0\.0\.1:(\d+); clients are told log\.example\.net:19093", listens
            )
            assert found
            _, writer = await asyncio.open_connection("127.0.0.1", int(found[1]))
            writer.close()

    with caplog.at_level(logging.INFO):
        run(check())


@pytest.mark.parametrize(
    ("question", "version"), [(m.MetadataRequest(topics=None), 12), (m.DescribeClusterRequest(endpoint_type=1), 1)]
)
def test_a_broker_that_is_leaving_closes_and_does_not_tell_of_a_cluster_without_brokers(
    question: Message, version: int
) -> None:
    """librdkafka drops all that it knew when it is told of no brokers, and may not find back after the restart."""

    async def check() -> None:
        async with (
            running(broker_heartbeat_interval_ms="60000", broker_session_timeout_ms="90000") as node,
            connected(node) as peer,
        ):
            assert len((await ask(peer, question, version)).brokers) == 1
            assert node._metadata is not None
            assert node._lifecycle is not None
            leave = m.BrokerHeartbeatRequest(broker_id=node.id, broker_epoch=node._lifecycle.epoch, want_shut_down=True)
            response = await node._metadata.channel.call(leave, 30)
            assert isinstance(response, m.BrokerHeartbeatResponse)
            assert response.should_shut_down
            with pytest.raises(Disconnected):
                await ask(peer, question, version)

    run(check())
