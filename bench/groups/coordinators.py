"""The coordinators of groups, before anything is measured."""

from __future__ import annotations

import time
from collections.abc import Iterable

from bench.node import peers
from headrace.protocol import messages as m
from tests.compat.wire import Wire


def coordinators_ready(peer: peers.Peer, groups: Iterable[str]) -> None:
    """Those of all these groups are there and loaded."""
    with Wire(peer.bootstrap) as wire:
        for group in groups:
            asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
            while wire.ask(m.FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0].error_code:
                time.sleep(0.1)
            while wire.ask(m.OffsetFetchRequest(groups=[asked]), 8).groups[0].error_code:
                time.sleep(0.1)
