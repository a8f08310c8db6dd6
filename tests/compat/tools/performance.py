"""The programs that measure, and those that verify. They are run for what they say, not for how fast."""

from __future__ import annotations

import re

from tests.compat.tools.run import Run


def run(run: Run) -> None:
    run.begin("Measuring and verifying", "Short runs on a busy machine: that they work, and no figures.")
    run.tool("kafka-topics --create --topic speed --partitions 2", "Created topic speed.")
    send = "kafka-producer-perf-test --topic speed --num-records 50000 --record-size 100 --throughput -1"
    for more in ("", " --command-property acks=1 compression.type=lz4", " --command-property acks=0"):
        run.tool(send + more, "50000 records sent", "99.9th")
    run.tool("kafka-get-offsets --topic speed", re.compile(r"speed:0:\d+\nspeed:1:\d+"))
    for protocol in ("classic", "consumer"):
        run.tool(
            f"kafka-consumer-perf-test --topic speed --num-records 100000 --timeout 60000 --group speed-{protocol} "
            f"--command-property group.protocol={protocol}",
            "nMsg.sec",
            re.compile(r", 1\d{5}, "),
        )
    run.tool("kafka-e2e-latency speed 100 all 100", "Avg latency:", "Percentiles: 50th")
    run.tool("kafka-verifiable-producer --topic verified --max-messages 1000", '"sent":1000', '"acked":1000')
    for protocol in ("classic", "consumer"):
        run.tool(
            f"kafka-verifiable-consumer --topic verified --group-id verify-{protocol} --group-protocol {protocol} "
            "--max-messages 1000",
            '"name":"partitions_assigned"',
            '"name":"offsets_committed"',
            '"name":"shutdown_complete"',
        )
