"""What decisions about consumer groups look at, besides the group itself."""

from __future__ import annotations

from headrace.coordinator.groups.consumer.group import ConsumerGroup, GroupTimes
from headrace.coordinator.groups.consumer.member import Member
from headrace.coordinator.groups.consumer.regex import Resolver
from headrace.coordinator.groups.consumer.topics import Topics
from headrace.coordinator.groups.context import GroupContext
from headrace.metadata.image import ResourceType


class Known:
    """Of one shard."""

    __slots__ = ("context", "resolver", "topics")

    def __init__(self, context: GroupContext) -> None:
        self.context = context
        self.topics = Topics()
        self.resolver = Resolver()

    @property
    def default_assignor(self) -> str:
        return self.context.group_config.group_consumer_assignors[0]

    def find(self, group_id: str, member_id: str) -> tuple[ConsumerGroup, Member] | None:
        group = self.context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return None
        member = group.members.get(member_id)
        return None if member is None else (group, member)

    def times(self, group: ConsumerGroup) -> GroupTimes:
        """A group's own settings (a resource of type GROUP), or the node's."""
        configs = self.context.image.configs
        if group.times is None or group.configs is not configs:
            own = configs.get((ResourceType.GROUP, group.group_id), {})
            node = self.context.group_config
            group.configs = configs
            group.times = GroupTimes(
                _between(
                    own.get("consumer.session.timeout.ms"),
                    node.group_consumer_min_session_timeout_ms,
                    node.group_consumer_max_session_timeout_ms,
                    node.group_consumer_session_timeout_ms,
                ),
                _between(
                    own.get("consumer.heartbeat.interval.ms"),
                    node.group_consumer_min_heartbeat_interval_ms,
                    node.group_consumer_max_heartbeat_interval_ms,
                    node.group_consumer_heartbeat_interval_ms,
                ),
            )
        return group.times


def _between(text: str | None, least: int, most: int, default: int) -> int:
    """A value that was set while other bounds held is held to those of now."""
    if text is None:
        return default
    try:
        return min(max(int(text), least), most)
    except ValueError:
        return default
