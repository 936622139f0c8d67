"""docs/metrics.md lists what a node shows: every name with its type, its labels and its meaning."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from esker.fronts.http import metrics
from esker.node.settings import table
from esker.testing import Broker

DOCUMENT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def test_every_metric_is_documented_as_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "TOPICS_MAX", 1)
    with Broker() as broker, httpx.Client(base_url=broker.http_url) as client:
        for name in ("a", "b"):
            assert client.put(f"/v0/topics/{name}", json={"type": "queue"}).status_code == 201
        assert client.post("/v0/consumers/spark", json={"topics": {"a": {"0": 1}}}).status_code == 200
        text = client.get("/metrics").text
    says = dict(re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    labels: dict[str, set[str]] = {name: set() for name in kinds}
    for family in text_string_to_metric_families(text):
        (name,) = {family.name, f"{family.name}_total"} & set(kinds)
        labels[name] = {label for sample in family.samples for label in sample.labels}
    shown = {(name, kinds[name], tuple(sorted(labels[name])), says[name]) for name in kinds}
    rows = re.findall(r"^\| `(\w+)` \| (gauge|counter|histogram) \| (.*?) \| (.*) \|$", DOCUMENT, re.MULTILINE)
    documented = {
        (name, kind, tuple(sorted(re.findall(r"`(\w+)`", named))), meaning) for name, kind, named, meaning in rows
    }
    assert documented == shown
    assert len(rows) == len(documented)


def test_the_settings_and_metrics_that_it_names_exist() -> None:
    known = {name for name, *_ in table()}
    assert set(re.findall(r"`(max_\w+)`", DOCUMENT)) <= known
    rows = set(re.findall(r"^\| `(\w+)` \|", DOCUMENT, re.MULTILINE))
    assert set(re.findall(r"`(topics_\w+)`", DOCUMENT)) <= rows
