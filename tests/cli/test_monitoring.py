"""deploy/monitoring: its expressions parse and are about metrics that exist; its page names them all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from deploying import DEPLOY
from handmade import report
from pages import ROOT, text

from models.apply.requests import Outcome
from models.tiers import TIERS
from planner.show.run import metrics_text

FOLDER = DEPLOY / "monitoring"
DASHBOARD = json.loads(text(FOLDER / "dashboard.json"))
RULES = yaml.load(text(FOLDER / "rules.yaml"), Loader=yaml.CSafeLoader)
PAGE = text(ROOT / "docs" / "monitoring.md")
WRITTEN = metrics_text(report(), 1.0)
LABELS = {
    name: set(re.findall(r'(\w+)="', labels))
    for name, labels in re.findall(r"^(gangplan_\w+)(\{.*?\})? ", WRITTEN, re.MULTILINE)
}
"""Labels of each metric that a run writes."""

OTHERS = {"kube_cronjob_status_last_successful_time": {"namespace", "cronjob"}}
"""Of kube-state-metrics."""


def panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def alerts() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [*shown, *(alert["expr"] for alert in alerts())]


def selectors(expression: str) -> list[tuple[str, str]]:
    """(metric, labels in braces) of an expression."""
    return re.findall(r"\b((?:gangplan|kube)_\w+)(\{[^}]*\})?", expression)


def balanced(expression: str) -> bool:
    """Whether brackets outside quotes match, and quotes end."""
    bare, closing = re.sub(r'"[^"]*"', "", expression), {"(": ")", "{": "}", "[": "]"}
    opened = []
    for sign in bare:
        if sign in closing:
            opened.append(closing[sign])
        elif sign in closing.values() and (not opened or opened.pop() != sign):
            return False
    return not opened and '"' not in bare


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_an_expression_is_balanced_and_about_metrics_and_labels_that_exist(expression: str) -> None:
    assert balanced(expression)
    found = selectors(expression)
    assert found
    known = LABELS | OTHERS
    for name, braces in found:
        assert name in known, name
        # instance is given by whoever collects the file
        asked = set(re.findall(r"(\w+)(?:=~|!=|!~|=)", braces))
        assert asked <= known[name] | {"instance"}, name


def test_words_that_expressions_select_are_words_of_the_program() -> None:
    picked = " ".join(expressions())
    outcomes = {
        one for words in re.findall(r'outcome=~"([^"]+)"', picked) for one in words.split("|")
    }
    assert outcomes
    assert outcomes <= set(Outcome)
    tiers = {one for words in re.findall(r'tier=~"([^"]+)"', picked) for one in words.split("|")}
    assert tiers
    assert tiers <= {tier.name for tier in TIERS}


def test_the_dashboard_shows_every_metric_of_a_run_and_depends_on_one_data_source() -> None:
    shown = {
        name for panel in panels() for t in panel["targets"] for name, _ in selectors(t["expr"])
    }
    assert set(LABELS) <= shown
    places, names = [], [panel["title"] for panel in panels()]
    for panel in DASHBOARD["panels"]:
        places.append((panel["gridPos"]["y"], panel["gridPos"]["x"]))
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert all(t["datasource"]["uid"] == "${datasource}" for t in panel["targets"])
            assert panel["description"]
    assert len(set(places)) == len(places)
    assert len(set(names)) == len(names)
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == [
        "datasource",
        "instance",
        "queue",
    ]
    assert DASHBOARD["schemaVersion"] == 38  # Grafana 10; newer ones migrate it


def test_the_rules_are_the_same_for_prometheus_and_for_its_operator() -> None:
    operated = yaml.load(text(FOLDER / "prometheusrule.yaml"), Loader=yaml.CSafeLoader)
    assert (operated["apiVersion"], operated["kind"]) == (
        "monitoring.coreos.com/v1",
        "PrometheusRule",
    )
    assert operated["spec"] == RULES
    for alert in alerts():
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(alert["annotations"]) == {"summary", "description"}


def test_the_page_names_every_metric_and_every_alert() -> None:
    told = re.findall(r"`(gangplan_\w+)(?:\{[^`]*)?`", PAGE)
    assert set(told) == set(LABELS)
    rows = re.findall(r"^\| `(Gangplan\w+)` \| (\w+) \|", PAGE, re.MULTILINE)
    assert rows == [(alert["alert"], alert["labels"]["severity"]) for alert in alerts()]
