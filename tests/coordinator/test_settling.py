"""A shard that was loaded looks at what it has in steps, however much belongs to one group."""

from __future__ import annotations

from headrace.config.coordinators import GroupConfig, OffsetsConfig
from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.shard import GroupShard
from headrace.protocol import messages as m
from tests.coordinator.clusters import ToyCluster
from tests.coordinator.pure import Answer, ManualTimers, PureRuntime, loaded_from

MEMBERS = 20


def make(timers: ManualTimers) -> GroupShard:
    context = GroupContext(timers, group_config=GroupConfig(), offsets_config=OffsetsConfig(), random_bytes=bytes)
    return GroupShard(context)


def test_the_members_of_a_group_are_not_one_step() -> None:
    cluster = ToyCluster()
    runtime = PureRuntime(make, cluster.image)
    for number in range(MEMBERS):
        body = m.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=f"m{number}",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        answer = Answer()
        runtime.ask(lambda shard, now_ms: shard.consumer.heartbeat(body, 1, "c", "/h", answer, now_ms), answer)  # noqa: B023
        assert not answer.message.error_code
    timers = ManualTimers()
    shard = loaded_from(make, timers, runtime.log)
    steps = shard.settle(runtime.image, runtime.now_ms)
    next(steps)
    assert len(timers.keys()) <= 2
    assert sum(1 for _ in steps) >= MEMBERS - 1
    assert len(timers.keys()) >= MEMBERS
