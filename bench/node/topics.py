"""Topics for a measurement. The bare loop takes any name as it comes."""

from __future__ import annotations

import uuid

from bench.node.peers import Peer
from headrace.protocol import messages as m
from tests.compat.requests import settle
from tests.compat.wire import Wire


def make_topic(peer: Peer, partitions: int, **settings: str) -> str:
    name = f"bench-{uuid.uuid4().hex[:12]}"
    if peer.name != "bare":
        given = m.CreateTopicsRequest
        configs = [
            given.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()
        ]
        topic = given.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        with Wire(peer.bootstrap) as wire:
            answer = wire.ask(given(topics=[topic], timeout_ms=60_000), 5).topics[0]
            if answer.error_code:
                raise RuntimeError(f"{peer.name} did not make a topic: {answer}")
            settle(wire, name, partitions)
    return name


def remove_topic(peer: Peer, name: str) -> None:
    """Its data would fill the memory that the next round writes to."""
    if peer.name == "bare":
        for file in peer.folder.glob(f"{name}-*.log"):
            file.unlink()
        return
    with Wire(peer.bootstrap) as wire:
        wire.ask(m.DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000), 5)
