"""Topics for a measurement. The bare loop takes any name as it comes."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.node.peers import Peer
from headrace.protocol import messages as m
from tests.compat.requests import settle
from tests.compat.wire import Wire

GONE_TIMEOUT_S: Final = 60


@contextmanager
def topic_of(peer: Peer, partitions: int, **settings: str) -> Iterator[str]:
    """A topic of its own, whose data is gone from the memory and the disk after it."""
    name = make_topic(peer, partitions, **settings)
    try:
        yield name
    finally:
        remove_topic(peer, name)


def make_topic(peer: Peer, partitions: int, **settings: str) -> str:
    name = f"bench-{uuid.uuid4().hex[:12]}"
    if not peer.is_bare:
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
    """Returns when its files are gone and nothing is left to be written: the next round shall not pay for this one."""
    if peer.is_bare:
        for file in peer.folder.glob(f"{name}-*.log"):
            os.truncate(file, 0)  # the loop holds it open
            file.unlink()
    else:
        with Wire(peer.bootstrap) as wire:
            wire.ask(m.DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000), 5)
        deadline = time.monotonic() + GONE_TIMEOUT_S
        while time.monotonic() < deadline and any(peer.folder.rglob(f"{name}-*")):
            time.sleep(0.05)
    os.sync()
