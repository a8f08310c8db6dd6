"""Settings of every kind of thing that has some."""

from __future__ import annotations

from tests.compat.tools.run import Run


def run(run: Run) -> None:
    run.begin("Settings")
    run.tool("kafka-topics --create --topic set-up", "Created topic set-up.")
    topic = "--entity-type topics --entity-name set-up"
    run.tool(
        f"kafka-configs --alter {topic} --add-config retention.ms=3600000,cleanup.policy=[compact,delete]",
        "Completed updating config for topic set-up.",
    )
    run.tool(
        f"kafka-configs --describe {topic}",
        "cleanup.policy=compact,delete",
        "retention.ms=3600000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=3600000",
    )
    run.tool(f"kafka-configs --alter {topic} --delete-config retention.ms", "Completed updating config")
    run.tool(f"kafka-configs --describe {topic}", "cleanup.policy=compact,delete", hides="retention.ms=3600000")
    run.tool(f"kafka-configs --describe {topic} --all", "segment.bytes=1073741824", "min.insync.replicas=1")
    run.tool(f"kafka-configs --alter {topic} --add-config nonsense=1", "InvalidConfigurationException", ends=1)
    run.tool(f"kafka-configs --alter {topic} --add-config segment.bytes=soon", "InvalidConfigurationException", ends=1)

    run.tool(
        "kafka-configs --alter --entity-type brokers --entity-default --add-config log.cleaner.threads=2",
        "Completed updating default config for brokers in the cluster.",
    )
    run.tool(
        "kafka-configs --alter --entity-type brokers --entity-name 1 --add-config log.retention.ms=7200000",
        "Completed updating config for broker 1.",
    )
    run.tool(
        "kafka-configs --describe --entity-type brokers --entity-name 1",
        "DYNAMIC_BROKER_CONFIG:log.retention.ms=7200000",
    )
    run.tool(
        "kafka-configs --describe --entity-type brokers --entity-default",
        "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=2",
    )
    run.tool("kafka-configs --describe --entity-type brokers --entity-name 1 --all", "node.id=1 sensitive=false")
    run.tool(
        "kafka-configs --alter --entity-type brokers --entity-name 1 --delete-config log.retention.ms", "Completed"
    )
    run.tool(
        "kafka-configs --alter --entity-type brokers --entity-name 1 --add-config node.id=2",
        "InvalidRequestException",
        ends=1,
    )
    logger = "--entity-type broker-loggers --entity-name 1"
    run.tool(f"kafka-configs --alter {logger} --add-config headrace.raft=WARN", "Completed updating config")
    run.tool(f"kafka-configs --describe {logger}", "headrace.raft=WARN", "headrace.broker=INFO")
    group = "--entity-type groups --entity-name some-group"
    run.tool(f"kafka-configs --alter {group} --add-config consumer.session.timeout.ms=50000", "Completed updating")
    run.tool(f"kafka-configs --describe {group}", "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000")
    run.tool("kafka-configs --describe --entity-type users", hides="Exception")
    run.tool("kafka-configs --describe --entity-type clients", hides="Exception")

    run.tool(
        "kafka-client-metrics --alter --name basic --metrics org.apache.kafka.producer. --interval 5000",
        "Altered client metrics config for basic.",
    )
    run.tool("kafka-client-metrics --list", "basic")
    run.tool("kafka-client-metrics --describe --name basic", "interval.ms=5000", "metrics=org.apache.kafka.producer.")
    run.tool("kafka-client-metrics --delete --name basic", "Deleted client metrics config for basic.")
