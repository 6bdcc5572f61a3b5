"""What a tenant writes of its own speed: the victim's decision is as without the attacker's word."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bundles import packed
from conftest import RunCli
from kube import node, pod
from kube_gangs import owned, thing

Json = dict[str, Any]

WORDS = {
    "says nothing": {},
    "pattern": {"gangplan.dev/communication-pattern": "none"},
    "speed and fraction": {
        "gangplan.dev/communication-speed": "ignore",
        "gangplan.dev/communication-fraction": "0",
    },
    "fraction": {"gangplan.dev/communication-fraction": "0.01"},
    "degrees": {"gangplan.dev/parallelism": "tensor=4,pipeline=2"},
}


def h100(name: str) -> Json:
    made = node(name)
    made["metadata"]["annotations"] = {"gangplan.dev/server-model": "DGX H100"}
    return made


def waiting(name: str, hour: str, notes: dict[str, str]) -> list[Json]:
    """A Job of two pods of four GPUs, which fits over two half servers only: slower than in one."""
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    found = [thing("Job", "batch/v1", name, spec, annotations=notes)]
    found[0]["metadata"]["creationTimestamp"] = f"2026-11-20T{hour}:00:00Z"
    for index in range(2):
        labels = {"batch.kubernetes.io/job-completion-index": str(index)}
        one = pod(f"{name}-{index}", gpus=4, gated=True, labels=labels)
        one["metadata"]["creationTimestamp"] = f"2026-11-20T{hour}:00:00Z"
        found.append(owned(one, "Job", "batch/v1", name))
    return found


def starts(cli: RunCli, notes: dict[str, str], *, trusted: bool) -> list[str]:
    """Who starts: ``victim``, which has waited for eleven hours, or ``attacker``, for one."""
    kubernetes = {"trustCommunication": trusted}
    items = [
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Policy",
            "spec": {"kubernetes": kubernetes},
        },
        *(h100(name) for name in ("n1", "n2")),
        *(pod(f"other-{name}", gpus=4, on=name) for name in ("n1", "n2")),
        *waiting("victim", "01", {}),
        *waiting("attacker", "11", notes),
    ]
    bundle = packed(items)
    result = cli("plan", "-", "-o", "json", stdin=bundle)
    assert result.code == 0, result.err
    plan = json.loads(result.out)
    return [gang["name"] for gang in plan["spec"]["gangs"] if gang["decision"] == "place"]


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_no_word_about_itself_lets_a_younger_gang_overtake_an_equal_one(
    cli: RunCli, words: dict[str, str]
) -> None:
    assert starts(cli, words, trusted=False) == ["victim"]


@pytest.mark.parametrize("words", ["pattern", "speed and fraction", "fraction"])
def test_where_the_policy_trusts_them_they_count(cli: RunCli, words: str) -> None:
    assert starts(cli, WORDS[words], trusted=True) == ["attacker"]
