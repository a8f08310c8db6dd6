"""Topics, their partitions and their leaders."""

from __future__ import annotations

import re

from tests.compat.tools.run import Run


def run(run: Run) -> None:
    run.begin("Topics")
    run.tool(
        "kafka-topics --create --topic orders --partitions 3 --config retention.ms=86400000", "Created topic orders."
    )
    run.tool("kafka-topics --create --topic orders", "Topic 'orders' already exists.", ends=1)
    run.tool("kafka-topics --create --topic orders --if-not-exists")
    run.tool("kafka-topics --create --topic 'no spaces'", "'no spaces' can't be the name of a topic", ends=1)
    run.tool(
        "kafka-topics --create --topic three --replication-factor 3", "needs 3 brokers, and the cluster has 1", ends=1
    )
    run.tool("kafka-topics --create --topic placed --replica-assignment 1,1", "Created topic placed.")
    run.tool("kafka-topics --list", "orders\nplaced\n")
    run.tool(
        "kafka-topics --describe --topic orders",
        "PartitionCount: 3 ReplicationFactor: 1 Configs: retention.ms=86400000",
        "Partition: 2 Leader: 1 Replicas: 1 Isr: 1",
    )
    run.tool("kafka-topics --describe --topics-with-overrides", "Topic: orders", hides="Topic: placed")
    run.tool("kafka-topics --describe --unavailable-partitions", hides="Topic:")
    run.tool("kafka-topics --describe --under-replicated-partitions", hides="Topic:")
    run.tool("kafka-topics --describe --topic gone", "Topic 'gone' does not exist as expected", ends=1)
    run.tool("kafka-topics --alter --topic orders --partitions 4")
    run.tool("kafka-topics --alter --topic orders --partitions 2", "Topic orders has 4 partitions", ends=1)
    run.tool("kafka-topics --describe --topic orders", "PartitionCount: 4")
    run.tool("kafka-topics --delete --topic placed")
    run.tool("kafka-topics --list", "orders", hides="placed")
    run.tool("kafka-topics --delete --topic gone", "Topic 'gone' does not exist as expected", ends=1)
    run.tool("kafka-log-dirs --describe --topic-list orders", re.compile(r'"partition":"orders-3","size":\d+'))
    run.tool("kafka-leader-election --election-type preferred --all-topic-partitions")
    run.tool(
        "kafka-leader-election --election-type unclean --topic orders --partition 0",
        "Valid replica already elected for partitions orders-0",
    )
