"""Clients' metrics are told under guessable names, within limits, and go with their client."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from headrace.metrics import client_series
from headrace.metrics.client_series import ClientSeries, PushingClient, family_name
from headrace.metrics.exposition import Form
from headrace.metrics.otlp import Point, Pushed, PushedMetric, read_metrics
from headrace.metrics.table import Kind
from tests.metrics.pushes import gauge, histogram, metric, number_point, push, sum_of


def told(series: ClientSeries) -> dict[str, Any]:
    text = "".join(series.pages(Form.OPEN_METRICS)) + Form.OPEN_METRICS.end
    list(prometheus("".join(series.pages(Form.PROMETHEUS))))
    return {
        sample.name + "".join(f" {key}={value}" for key, value in sample.labels.items() if "client" not in key): sample
        for family in open_metrics(text)
        for sample in family.samples
    }


def test_names_are_those_of_the_client_with_ours_before_them() -> None:
    assert family_name("org.apache.kafka.producer.connection.creation.total", Kind.COUNTER) == (
        "headrace_client_producer_connection_creation_total"
    )
    assert family_name("org.apache.kafka.consumer.poll.idle-ratio", Kind.GAUGE) == (
        "headrace_client_consumer_poll_idle_ratio"
    )


def test_what_was_pushed_is_told_with_who_pushed_it() -> None:
    series, client = ClientSeries(), PushingClient("an-id", 'a "client"')
    series.take(
        client,
        read_metrics(
            push(
                metric("org.apache.kafka.a.total", sum_of(number_point(5), monotonic=True), "What it is."),
                metric("b", gauge(number_point(0.25, **{"node.id": "1", "le": "x", "": "none"}))),
                metric("c", histogram([1.0, 2.0], [1, 2, 3], 7.5)),
            )
        ),
    )
    found = told(series)
    assert found["headrace_client_a_total"].value == 5
    assert found["headrace_client_a_total"].labels == {"client_instance_id": "an-id", "client_id": 'a "client"'}
    assert found["headrace_client_b label_le=x node_id=1"].value == 0.25
    assert [found[f"headrace_client_c_bucket le={bound}"].value for bound in ("1.0", "2.0", "+Inf")] == [1, 3, 6]
    assert found["headrace_client_c_sum"].value == 7.5
    assert series.count == 3


def test_differences_are_added_up_and_totals_are_taken_as_they_are() -> None:
    series, client = ClientSeries(), PushingClient("i", "c")
    for delta, expected in ((True, (5, 10)), (False, (5, 5))):
        for value in expected:
            series.take(
                client,
                read_metrics(
                    push(
                        metric(f"n{delta}", sum_of(number_point(5), monotonic=True, delta=delta)),
                        metric(f"h{delta}", histogram([1.0], [5, 0], 2.0, delta=delta)),
                    )
                ),
            )
            found = told(series)
            assert found[f"headrace_client_n{delta}_total"].value == value
            assert found[f"headrace_client_h{delta}_count"].value == value


def test_a_client_that_goes_takes_its_series_along() -> None:
    series, one, other = ClientSeries(), PushingClient("1", "c"), PushingClient("2", "c")
    for client in (one, other):
        series.take(client, read_metrics(push(metric("a", gauge(number_point(1))))))
    series.forget(one)
    assert [sample.labels["client_instance_id"] for sample in told(series).values()] == ["2"]
    series.forget(other)
    assert (told(series), series.count) == ({}, 0)
    series.take(one, read_metrics(push(metric("a", histogram([1.0], [1, 1], 1)))))
    assert "headrace_client_a_count" in told(series), "the name is free again, for another kind"


def test_a_name_that_another_kind_has_is_not_taken() -> None:
    series, client = ClientSeries(), PushingClient("1", "c")
    series.take(
        client,
        read_metrics(
            push(
                metric("a", histogram([1.0], [1, 1], 1)),
                metric("a", gauge(number_point(1), number_point(2, k="v"))),
                metric("a.count", gauge(number_point(1))),
                metric("b.total", gauge(number_point(1))),
                metric("b", sum_of(number_point(1), monotonic=True)),
            )
        ),
    )
    assert series.dropped == {"limit": 0, "type": 4, "unsupported": 0}
    told(series)


def test_series_are_limited_over_all_and_for_each_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_series, "SERIES_MAX", 5)
    monkeypatch.setattr(client_series, "SERIES_OF_A_CLIENT_MAX", 3)
    series = ClientSeries()
    for name in "ab":
        points = [number_point(1, n=str(number)) for number in range(4)]
        series.take(PushingClient(name, ""), read_metrics(push(metric("a", gauge(*points)))))
    assert (series.count, series.dropped["limit"]) == (5, 3)
    series.take(PushingClient("c", ""), read_metrics(push(metric("new", gauge(number_point(1))))))
    assert "headrace_client_new" not in told(series)


def test_families_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_series, "FAMILIES_MAX", 2)
    series = ClientSeries()
    series.take(PushingClient("a", ""), read_metrics(push(*(metric(n, gauge(number_point(1))) for n in "abc"))))
    assert (series.count, series.dropped["limit"]) == (2, 1)


texts = st.text(max_size=8)
points = st.builds(
    Point, st.lists(st.tuples(texts, texts), max_size=3, unique_by=lambda pair: pair[0]).map(tuple), st.floats()
)
pushes = st.lists(
    st.builds(
        PushedMetric,
        st.text(min_size=1, max_size=8),
        texts,
        st.sampled_from([Kind.COUNTER, Kind.GAUGE]),
        st.booleans(),
        st.lists(points, max_size=3),
    ),
    max_size=4,
)


@given(st.lists(pushes, max_size=3))
def test_whatever_clients_push_the_text_can_be_read(found: list[list[PushedMetric]]) -> None:
    series, client = ClientSeries(), PushingClient('é\n"\\', "")
    for metrics in found:
        series.take(client, Pushed(metrics=metrics))
        told(series)
    series.forget(client)
    assert series.count == 0
