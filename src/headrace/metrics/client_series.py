"""The metrics that clients push, kept until they are scraped: by family, bounded, and gone with their client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from headrace.metrics.exposition import Form, escape, header, number, sample
from headrace.metrics.otlp import Labels, Point, Pushed, PushedMetric
from headrace.metrics.table import Kind

SERIES_MAX: Final = 20_000
SERIES_OF_A_CLIENT_MAX: Final = 1000
FAMILIES_MAX: Final = 2000
SAMPLES_A_STEP: Final = 500

PREFIX: Final = "headrace_client_"
_THEIR_PREFIX: Final = "org.apache.kafka."
_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9_]+")
_ENDINGS: Final = {
    Kind.COUNTER: ("", "_total", "_created"),
    Kind.GAUGE: ("",),
    Kind.HISTOGRAM: ("", "_bucket", "_sum", "_count", "_created"),
}
_OURS: Final = ("client_instance_id", "client_id", "le")


class Family:
    """One metric over all clients that push it."""

    __slots__ = ("kind", "name", "series", "text")

    def __init__(self, name: str, kind: Kind, text: str) -> None:
        self.name = name
        self.kind = kind
        self.text = text
        self.series: dict[str, Point] = {}
        """By their labels, written out."""


class PushingClient:
    """What is kept of one client."""

    __slots__ = ("labels", "series")

    def __init__(self, instance_id: str, client_id: str) -> None:
        self.labels = f'client_instance_id="{escape(instance_id)}",client_id="{escape(client_id)}"'
        self.series: dict[tuple[str, str], None] = {}
        """Names of families, and labels."""


class ClientSeries:
    """All of them. `dropped` counts data points that were not taken, by the reason."""

    __slots__ = ("_families", "_taken", "count", "dropped")

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._taken: dict[str, str] = {}
        """Which family has a name of a sample: two that share one can't be told apart by a scraper."""
        self.count = 0
        self.dropped = {"limit": 0, "type": 0, "unsupported": 0}

    def take(self, client: PushingClient, pushed: Pushed) -> None:
        self.dropped["unsupported"] += pushed.unsupported
        for metric in pushed.metrics:
            family = self._family(metric)
            if family is None:
                continue
            for point in metric.points:
                self._put(client, family, point, metric.is_delta)

    def forget(self, client: PushingClient) -> None:
        for name, labelled in client.series:
            family = self._families[name]
            del family.series[labelled]
            self.count -= 1
            if not family.series:
                del self._families[name]
                self._taken = {key: owner for key, owner in self._taken.items() if owner != name}
        client.series.clear()

    def pages(self, form: Form) -> Iterator[str]:
        """The text of all, in steps."""
        for family in list(self._families.values()):
            lines = [header(form, family.name, family.kind, family.text)]
            for labelled, point in list(family.series.items()):
                lines.append(_samples(family, labelled, point))
                if len(lines) >= SAMPLES_A_STEP:
                    yield "".join(lines)
                    lines.clear()
            yield "".join(lines)

    def _family(self, metric: PushedMetric) -> Family | None:
        name = family_name(metric.name, metric.kind)
        family = self._families.get(name)
        if family is None:
            base = name.removesuffix("_total") if metric.kind is Kind.COUNTER else name
            samples = [base + ending for ending in _ENDINGS[metric.kind]]
            if len(self._families) >= FAMILIES_MAX:
                self.dropped["limit"] += len(metric.points)
                return None
            if any(taken in self._taken for taken in samples):
                self.dropped["type"] += len(metric.points)
                return None
            text = metric.text or f"{metric.name}, as clients push it."
            family = self._families[name] = Family(name, metric.kind, text)
            self._taken |= dict.fromkeys(samples, name)
        if family.kind is not metric.kind:
            self.dropped["type"] += len(metric.points)
            return None
        return family

    def _put(self, client: PushingClient, family: Family, point: Point, is_delta: bool) -> None:
        labelled = client.labels + _written(point.labels)
        before = family.series.get(labelled)
        if before is None:
            if self.count >= SERIES_MAX or len(client.series) >= SERIES_OF_A_CLIENT_MAX:
                self.dropped["limit"] += 1
                self._drop_if_empty(family)
                return
            self.count += 1
            client.series[family.name, labelled] = None
        elif is_delta and family.kind is not Kind.GAUGE:
            point = _added(before, point)
        family.series[labelled] = point

    def _drop_if_empty(self, family: Family) -> None:
        if not family.series:
            self._families.pop(family.name, None)
            self._taken = {key: owner for key, owner in self._taken.items() if owner != family.name}


def family_name(name: str, kind: Kind) -> str:
    """`org.apache.kafka.producer.connection.creation.total` is headrace_client_producer_connection_creation_total."""
    plain = PREFIX + _NO_NAME.sub("_", name.removeprefix(_THEIR_PREFIX)).strip("_")
    return plain.removesuffix("_total") + "_total" if kind is Kind.COUNTER else plain


def _written(labels: Labels) -> str:
    found: dict[str, str] = {}
    for name, value in labels:
        plain = _NO_NAME.sub("_", name).strip("_")
        if not plain or plain[0].isdigit() or plain in _OURS:
            plain = f"label_{plain}"
        found[plain] = value
    return "".join(f',{name}="{escape(value)}"' for name, value in found.items())


def _added(before: Point, point: Point) -> Point:
    if before.bounds != point.bounds:
        return point
    counts = tuple(a + b for a, b in zip(before.counts, point.counts, strict=True))
    return Point(point.labels, before.value + point.value, before.count + point.count, point.bounds, counts)


def _samples(family: Family, labelled: str, point: Point) -> str:
    if family.kind is not Kind.HISTOGRAM:
        value = max(0, point.value) if family.kind is Kind.COUNTER else point.value
        return sample(family.name, labelled, 0 if value != value and family.kind is Kind.COUNTER else value)
    lines, total = [], 0
    for bound, count in zip((*map(number, map(float, point.bounds)), "+Inf"), point.counts, strict=True):
        total += count
        lines.append(f'{family.name}_bucket{{{labelled},le="{bound}"}} {total}\n')
    lines.append(f"{family.name}_sum{{{labelled}}} {number(point.value)}\n{family.name}_count{{{labelled}}} {total}\n")
    return "".join(lines)
