"""The cluster: its identity, its quorum, its features, what it serves, and who may."""

from __future__ import annotations

import re

from tests.compat.tools.run import Run


def run(run: Run) -> None:
    run.begin("The cluster")
    run.tool("kafka-cluster cluster-id", re.compile(r"Cluster ID: [\w-]{22}"))
    run.tool("kafka-cluster list-endpoints", re.compile(r"^1 127\.0\.0\.1 \d+ null unfenced broker", re.MULTILINE))
    run.tool("kafka-cluster unregister --id 77", "BrokerIdNotRegisteredException", ends=1)
    run.tool("kafka-broker-api-versions", "Produce(0): 0 to 13 [usable: 13]", "Fetch(1): 4 to 18 [usable: 18]")
    run.tool("kafka-metadata-quorum describe --status", "LeaderId: 1", "MaxFollowerLag: 0", 'CurrentVoters: [{"id": 1')
    run.tool("kafka-metadata-quorum describe --replication", re.compile(r"^1 [\w-]{22} \d+ 0 .* Leader", re.MULTILINE))
    run.tool(
        "kafka-features describe",
        re.compile(r"Feature: group\.version .* FinalizedVersionLevel: 1"),
        re.compile(r"Feature: transaction\.version .* FinalizedVersionLevel: 2"),
        re.compile(r"Feature: metadata\.version .* FinalizedVersionLevel: 4\.2"),
    )
    run.tool("kafka-features upgrade --feature group.version=1", "group.version was upgraded to 1.")
    run.tool("kafka-features upgrade --feature nonsense.version=7", "Could not upgrade nonsense.version to 7.", ends=1)
    run.tool("kafka-features downgrade --feature transaction.version=1", "transaction.version was downgraded to 1.")
    run.tool("kafka-features upgrade --feature transaction.version=2", "transaction.version was upgraded to 2.")
    run.tool("kafka-acls --list", "SecurityDisabledException", ends=1)
    run.tool(
        "kafka-acls --add --allow-principal User:ann --operation Read --topic orders",
        "SecurityDisabledException",
        ends=1,
    )
