"""The text that is scraped can be read by the parsers of those who scrape."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from headrace.metrics import table
from headrace.metrics.exposition import Form, family, header_of, histogram, labels, number
from headrace.metrics.histogram import BOUNDS, Histogram

PARSERS = {Form.PROMETHEUS: prometheus, Form.OPEN_METRICS: open_metrics}


def parsed(form: Form, text: str) -> dict[str, Any]:
    return {found.name: found for found in PARSERS[form](text + form.end)}


@pytest.fixture(params=list(Form), ids=lambda form: form.name.lower())
def form(request: pytest.FixtureRequest) -> Form:
    found: Form = request.param
    return found


@given(value=st.text(max_size=20))
def test_any_label_survives(value: str) -> None:
    for form in Form:
        text = family(form, table.TOPIC_SIZE, {labels(("topic",), (value,)): 7})
        (sample,) = parsed(form, text)["headrace_topic_size_bytes"].samples
        assert (sample.labels, sample.value) == ({"topic": value}, 7)


@given(st.floats() | st.integers(-(2**63), 2**63))
def test_any_number_survives(value: float) -> None:
    for form in Form:
        (sample,) = parsed(form, family(form, table.DISK_FREE, {"": value}))["headrace_disk_free_bytes"].samples
        assert sample.value == value or (math.isnan(value) and math.isnan(sample.value))
    assert number(1) == "1"


def test_a_counter_is_read_as_one(form: Form) -> None:
    found = parsed(form, family(form, table.REQUESTS, {'api="Produce"': 3}))["headrace_requests"]
    assert found.type == "counter"
    assert [(sample.name, sample.value) for sample in found.samples] == [("headrace_requests_total", 3)]


def test_a_histogram_is_read_as_one(form: Form) -> None:
    times = Histogram()
    for ns in (0, 1, 40_000, 1_000_000, 10**12):
        times.observe(ns)
    text = header_of(form, table.REQUEST_SECONDS) + histogram(table.REQUEST_SECONDS.name, 'api="Fetch"', times)
    found = parsed(form, text)["headrace_request_seconds"]
    values = {(sample.name, sample.labels.get("le")): sample.value for sample in found.samples}
    assert found.type == "histogram"
    assert values["headrace_request_seconds_count", None] == 5
    assert values["headrace_request_seconds_sum", None] == pytest.approx(1000.00104)
    assert values["headrace_request_seconds_bucket", BOUNDS[0]] == 2
    assert values["headrace_request_seconds_bucket", BOUNDS[1]] == 3
    assert values["headrace_request_seconds_bucket", BOUNDS[-1]] == 4
    assert values["headrace_request_seconds_bucket", "+Inf"] == 5


@given(st.lists(st.integers(0, 2**50)))
def test_a_time_is_within_the_bounds_of_its_bucket(times: list[int]) -> None:
    found = Histogram()
    for ns in times:
        found.observe(ns)
    for bound, count in zip(map(float, BOUNDS), found.cumulative(), strict=False):
        assert count == sum(ns < round(bound * 1e9) for ns in times)
    assert found.cumulative()[-1] == found.count == len(times)


def test_names_follow_the_rules_of_their_kind() -> None:
    for metric in table.METRICS.values():
        assert metric.name.startswith(("headrace_", "process_"))
        assert metric.name.endswith("_total") == (metric.kind is table.Kind.COUNTER)
        assert not metric.name.endswith(("_bucket", "_sum", "_count", "_created"))
        assert metric.text.endswith(".")
    assert len(table.METRICS) == sum(len(metrics) for _, metrics in table.SECTIONS), "each name once"
    declared = {found.name for found in vars(table).values() if isinstance(found, table.Metric)}
    assert declared == table.METRICS.keys(), "each metric is in a section"


def test_a_sum_of_times_has_no_end() -> None:
    """Ten thousand consumers that wait for records pass 2^63 ns in eleven days."""
    found = Histogram()
    for _ in range(3):
        found.observe(2**62)
    found.observe_all(2**62, 2)
    assert found.sum_ns == 2**64
    assert found.count == 5
