"""The metrics of a node of ours, read from its /metrics: sums, and percentiles of histograms between two looks."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterable
from http.client import HTTPException
from typing import Final

METRICS_BYTES_MAX: Final = 64 << 20
METRICS_TIMEOUT_S: Final = 3.0
_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPES: Final = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}

Labels = dict[str, str]
Samples = dict[str, list[tuple[Labels, float]]]


def read(address: str) -> str:
    """What a node tells at host:port, or at a URL; OSError when nobody answers there."""
    url = address if address.startswith(("http://", "https://")) else f"http://{address}"
    if not re.search(r"^https?://[^/]+/.", url):
        url = url.rstrip("/") + "/metrics"
    try:
        with urllib.request.urlopen(url, timeout=METRICS_TIMEOUT_S) as response:
            content: bytes = response.read(METRICS_BYTES_MAX)
    except (HTTPException, ValueError) as error:
        raise OSError(f"that is no HTTP: {error}") from error
    return content.decode(errors="replace")


def parse(text: str) -> Samples:
    """Samples by the name of their metric; what can't be read is left out."""
    found: Samples = {}
    for line in text.splitlines():
        sample = None if line.startswith("#") else _SAMPLE.match(line)
        if sample is None:
            continue
        try:
            value = float(sample[3])
        except ValueError:
            continue
        labels = {label[1]: _plain(label[2]) for label in _LABEL.finditer(sample[2] or "")}
        found.setdefault(sample[1], []).append((labels, value))
    return found


def _plain(text: str) -> str:
    return re.sub(r"\\.", lambda escape: _ESCAPES.get(escape[0], escape[0]), text)


def cluster_ids(samples: Samples) -> set[str]:
    """Of the clusters that these are of: another one's node may have the usual port. None where nobody says."""
    return {labels["cluster_id"] for labels, _ in samples.get("headrace_build_info", ()) if "cluster_id" in labels}


def by_label(samples: Samples, name: str, label: str) -> dict[str, float]:
    """The values of a metric, summed by one of its labels."""
    sums: dict[str, float] = {}
    for labels, value in samples.get(name, ()):
        sums[labels.get(label, "")] = sums.get(labels.get(label, ""), 0.0) + value
    return sums


def value(samples: Samples, name: str) -> float | None:
    """Of a metric without labels."""
    return next((found for _, found in samples.get(name, ())), None)


Buckets = dict[float, float]
"""Of a histogram: how many were not above a bound."""


def buckets(samples: Samples, name: str, label: str) -> dict[str, Buckets]:
    """A histogram's buckets by one of its labels."""
    found: dict[str, Buckets] = {}
    for labels, count in samples.get(f"{name}_bucket", ()):
        its = found.setdefault(labels.get(label, ""), {})
        bound = float(labels.get("le", "inf"))
        its[bound] = its.get(bound, 0.0) + count
    return found


def between(before: Buckets, after: Buckets) -> Buckets:
    """What came in between; what went back means that the node started again."""
    return {bound: max(count - before.get(bound, 0.0), 0.0) for bound, count in after.items()}


def merged(histograms: Iterable[Buckets]) -> Buckets:
    total: Buckets = {}
    for one in histograms:
        for bound, count in one.items():
            total[bound] = total.get(bound, 0.0) + count
    return total


def percentile_s(histogram: Buckets, percent: float) -> float | None:
    """By a straight line within a bucket, as Prometheus does; None when there is nothing in it."""
    total = histogram.get(float("inf"), 0.0)
    if total <= 0:
        return None
    wanted, below, seen = total * percent / 100, 0.0, 0.0
    for bound in sorted(histogram):
        count = histogram[bound]
        if count >= wanted:
            if bound == float("inf"):
                return below
            share = (wanted - seen) / (count - seen) if count > seen else 1.0
            return below + (bound - below) * share
        below, seen = bound, count
    return below
