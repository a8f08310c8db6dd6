"""Transactions: made by Kafka's producer, looked at, and ended by an administrator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from tests.compat.tools.run import Run

TIMEOUT_S = 60
PRODUCERS = "kafka-transactions describe-producers --topic ledger --partition 0"
OPEN = re.compile(r"^\d+ \d+ .* (\d+) ?$", re.MULTILINE)  # a producer, and where its transaction begins


def run(run: Run) -> None:
    run.begin("Transactions")
    run.tool("kafka-topics --create --topic ledger", "Created topic ledger.")
    run.tool(
        "kafka-producer-perf-test --topic ledger --num-records 500 --record-size 100 --throughput -1 "
        "--transactional-id teller --transaction-duration-ms 100",
        "500 records sent",
    )
    run.tool("kafka-transactions list", re.compile(r"^teller 1 \d+ CompleteCommit", re.MULTILINE))
    run.tool("kafka-transactions describe --transactional-id teller", "CompleteCommit")
    run.tool(
        "kafka-transactions describe --transactional-id nobody", "failed because the ID could not be found", ends=1
    )
    with open_transaction(run, "slow", "ledger"):
        run.tool("kafka-transactions list --transactional-id-pattern sl.*", "Ongoing", hides="teller")
        run.tool("kafka-transactions list --duration-filter 3600000", "TransactionalId", hides="slow")
        run.tool(
            "kafka-console-consumer --topic ledger --isolation-level read_committed --from-beginning --timeout-ms 5000",
            "Processed a total of 500 messages",
        )
        run.tool("kafka-transactions find-hanging --broker-id 1", "Topic Partition ProducerId", hides="ledger")
        run.tool("kafka-transactions forceTerminateTransaction --transactionalId slow")
    run.tool("kafka-transactions describe --transactional-id slow", "slow", "Empty")
    with open_transaction(run, "stuck", "ledger"):
        said = run.tool(PRODUCERS, OPEN)
        found = OPEN.search(said)
        start = found[1] if found else "unknown"
        run.tool(f"kafka-transactions abort --topic ledger --partition 0 --start-offset {start}")
        run.tool(PRODUCERS, "CurrentTransactionStartOffset", hides=OPEN)
    run.tool(
        "kafka-console-consumer --topic ledger --isolation-level read_committed --from-beginning --timeout-ms 5000",
        "Processed a total of 500 messages",
    )


@contextmanager
def open_transaction(run: Run, name: str, topic: str) -> Iterator[None]:
    """A transaction of librdkafka's with one record, that nobody ends."""
    producer = Producer({"bootstrap.servers": run.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"never to be seen")
    producer.flush(TIMEOUT_S)
    yield
    producer.purge()
