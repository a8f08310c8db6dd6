"""The page of metrics in the docs, made from the table: `python -m headrace.metrics.page`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.metrics.histogram import BOUNDS
from headrace.metrics.table import SECTIONS, Metric

_OPENING: Final = f"""\
# Metrics

This page is made from the table of metrics (`make docs`). [Operations](operations.md) says where they are scraped, and
what to look at.

Everything is counted since the start of the process. Histograms are in seconds, with {len(BOUNDS)} bounds from
{float(BOUNDS[0]) * 1e6:.0f} µs to {float(BOUNDS[-1]):.0f} s, each twice the one before. The last column is the MBean
that tells the same, or the nearest to it, of Apache Kafka.
"""

_TELEMETRY: Final = """
What clients push (KIP-714) is told under the client's own name of the metric: `headrace_client_` and the name without
`org.apache.kafka.`, with underscores, so that `org.apache.kafka.producer.connection.creation.total` is
`headrace_client_producer_connection_creation_total`. Labels are `client_instance_id`, `client_id` and those of the
client.
"""

_PARTITIONS: Final = """
At `/metrics/partitions`, and not at `/metrics`: there may be ten thousand of them. Scrape it at an interval of its own
if you want it.
"""

_NOTES: Final = {"Clients' telemetry": _TELEMETRY, "Partitions": _PARTITIONS}


def page() -> str:
    """The whole page, as Markdown."""
    return _OPENING + "".join(
        f"\n## {title}\n{_NOTES.get(title, '')}\n{_section(metrics)}" for title, metrics in SECTIONS
    )


def _section(metrics: Iterable[Metric]) -> str:
    rows = ["| metric | labels | what it is | Kafka |\n| --- | --- | --- | --- |\n"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        kafka = f"`{metric.kafka}`" if metric.kafka else ""
        rows.append(f"| `{metric.name}` ({metric.kind.value}) | {labels} | {metric.text} | {kafka} |\n")
    return "".join(rows)


if __name__ == "__main__":
    print(page(), end="")
