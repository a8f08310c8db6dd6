"""Records in and out: the console tools, offsets, and deleting."""

from __future__ import annotations

import json

from tests.compat.tools.run import Run

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NO_WAIT = "--timeout-ms 60000"


def run(run: Run) -> None:
    run.begin("Records")
    run.tool("kafka-topics --create --topic lines", "Created topic lines.")
    for codec in CODECS:
        lines = "".join(f"{codec} {number}\n" for number in range(10))
        run.tool(f"kafka-console-producer --topic lines --compression-codec {codec}", given=lines, hides="rror")
    run.tool(
        f"kafka-console-consumer --topic lines --from-beginning --max-messages 50 {NO_WAIT}",
        "none 0\n",
        "zstd 9\n",
        "Processed a total of 50 messages",
    )
    run.tool(
        f"kafka-console-consumer --topic lines --partition 0 --offset 48 --max-messages 2 {NO_WAIT}",
        "zstd 8\nzstd 9\n",
    )
    run.tool("kafka-topics --create --topic keyed --config cleanup.policy=compact", "Created topic keyed.")
    run.tool(
        "kafka-console-producer --topic keyed --reader-property parse.key=true --reader-property parse.headers=true",
        given="h1:a\tk1\tv1\nh2:b\tk2\tv2\n",
        hides="rror",
    )
    shows = " ".join(
        f"--formatter-property print.{name}=true" for name in ("key", "headers", "offset", "partition", "timestamp")
    )
    run.tool(
        f"kafka-console-consumer --topic keyed --from-beginning --max-messages 2 {NO_WAIT} {shows}",
        "Partition:0 Offset:1 h2:b k2 v2",
    )
    run.tool("kafka-console-producer --topic keyed --sync", "InvalidRecordException", given="no key\n", ends=1)
    run.tool("kafka-console-producer --topic lines --sync --request-required-acks 1", given="one\n", hides="rror")

    run.tool("kafka-get-offsets --topic lines", "lines:0:51")
    run.tool("kafka-get-offsets --topic lines --time earliest", "lines:0:0")
    run.tool("kafka-get-offsets --topic lines --time max-timestamp", "lines:0:50")
    run.tool("kafka-get-offsets --topic lines --time 1", "lines:0:0")
    run.tool("kafka-get-offsets --topic lines --time earliest-local", "lines:0:0")
    run.tool("kafka-get-offsets --topic-partitions lines:0,keyed:0", "keyed:0:2\nlines:0:51")
    run.write("delete.json", deletion("lines", 0, 20))
    run.tool("kafka-delete-records --offset-json-file delete.json", "partition: lines-0 low_watermark: 20")
    run.tool("kafka-get-offsets --topic lines --time earliest", "lines:0:20")
    run.write("delete-too-many.json", deletion("lines", 0, 2000))
    run.tool("kafka-delete-records --offset-json-file delete-too-many.json", "OffsetOutOfRangeException")


def deletion(topic: str, partition: int, offset: int) -> str:
    return json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": partition, "offset": offset}]})
