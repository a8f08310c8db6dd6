"""Who a node is, and what topics get when nobody says."""

from __future__ import annotations

from headrace.config.group import Group, boolean, integer, string
from headrace.config.setting import INT32_MAX


class IdentityConfig(Group):
    """Which node of the cluster this is."""

    node_id: int = integer(
        default=1,
        least=0,
        doc="The number of the node, the same for its whole life: its folders are marked with it.",
    )
    broker_rack: str = string(
        default="",
        doc="Where the node stands: replicas of a partition are spread over racks. Unset, it stands alone.",
    )
    metadata_log_dir: str = string(
        default="",
        doc="The folder of the metadata log. Unset, it is the first of log.dirs.",
    )


class TopicsConfig(Group):
    """What a topic gets when the request that creates it leaves it open."""

    auto_create_topics_enable: bool = boolean(
        default=True,
        doc="Whether a topic that a producer or consumer asks for by name is created when there is none.",
    )
    num_partitions: int = integer(
        default=1,
        least=1,
        doc="The partitions of a topic, when its creation does not say how many.",
    )
    default_replication_factor: int = integer(
        default=1,
        least=1,
        most=INT32_MAX >> 16,
        doc="The replicas of each partition, when the creation of the topic does not say how many.",
    )
    delete_topic_enable: bool = boolean(
        default=True,
        doc="Whether topics may be deleted at all.",
    )
