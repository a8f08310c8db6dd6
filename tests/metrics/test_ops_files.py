"""The dashboard, the alerts and the page of metrics tell of metrics that exist, in queries that can be read."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from headrace.metrics.page import page
from headrace.metrics.table import SERIES

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops"
DASHBOARD = json.loads((OPS / "grafana" / "headrace.json").read_text())
ALERTS = yaml.safe_load((OPS / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
SCRAPED = {"instance", "job", "le"}
"""Labels that Prometheus adds, and that of a bucket."""


def queries() -> Iterator[tuple[str, str]]:
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for number, target in enumerate(panel.get("targets", [])):
            yield f"{panel['title']} {number}", target["expr"]


QUERIES = dict(queries())


def plain(query: str) -> str:
    """Without Grafana's variables."""
    return query.replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$topic", ".*")


def selectors(found: Any) -> Iterator[Any]:
    """All that a query selects, wherever in it."""
    if isinstance(found, promql_parser.VectorSelector):
        yield found
    for name in ("expr", "lhs", "rhs", "vector_selector", "vs", "param"):
        inner = getattr(found, name, None)
        if inner is not None and not isinstance(inner, str):
            yield from selectors(inner)
    for argument in getattr(found, "args", None) or []:
        yield from selectors(argument)


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_can_be_read_and_asks_for_metrics_that_exist(name: str) -> None:
    found = list(selectors(promql_parser.parse(plain(QUERIES[name]))))
    assert found
    for selector in found:
        metric = SERIES[selector.name]
        for matcher in selector.matchers.matchers:
            assert matcher.name in {*metric.labels, *SCRAPED}, f"{metric.name} has no label {matcher.name}"


def test_labels_in_legends_are_those_that_the_query_leaves() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            for label in [part.split("}}")[0].strip() for part in target["legendFormat"].split("{{")[1:]]:
                labels = {label for found in SERIES.values() for label in found.labels} | SCRAPED
                assert label in labels, (panel["title"], label)


def test_panels_have_their_own_numbers_and_places() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_every_alert_says_what_is_wrong_and_how_bad_it_is() -> None:
    guide = (ROOT / "docs" / "operations.md").read_text()
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"].endswith((".", "grow."))
        assert f"`{rule['alert']}`" in guide, "the guide says what to do"


def test_the_page_of_metrics_is_current() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == page(), "metrics have changed: run make docs"


def test_prometheus_itself_takes_the_rules_and_they_fire() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; Debian's package prometheus has it")
    for arguments in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run([promtool, *arguments], cwd=OPS / "prometheus", capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
