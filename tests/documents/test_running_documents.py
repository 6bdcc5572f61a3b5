"""Fields about running and waiting gangs: what they mean, when they are written, what is refused."""

from __future__ import annotations

import json
from copy import deepcopy
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from building import instance_document
from bundles import read_all

from models.documents.canonical import digest
from models.documents.policy import Disruption
from models.instance.gang import Gang, PlannedPod
from models.instance.instance import Instance
from models.instance.policy import Moves
from models.units import epoch_seconds
from planner.errors import InputError
from planner.read.inputs import instance_from_document, load

API = "gangplan.dev/v1alpha1"
Json = dict[str, Any]

CLUSTER: Json = {
    "apiVersion": API,
    "kind": "Cluster",
    "metadata": {"name": "c"},
    "spec": {"nodes": [{"name": "n[1-3]", "model": "DGX H100"}]},
}
GANG: Json = {
    "apiVersion": API,
    "kind": "Gang",
    "metadata": {"name": "g"},
    "spec": {
        "submittedAt": "2026-11-20T08:00:00Z",
        "roles": [
            {"name": "worker", "replicas": {"min": 1, "max": 3}, "gpus": 4, "firstIndex": 1},
            {"name": "launcher", "replicas": 1, "gpus": 0},
        ],
    },
    "status": {"pods": [{"role": "worker", "index": 1, "node": "n1", "gpus": [0, 1, 2, 3]}]},
}


def at(text: str) -> int:
    return epoch_seconds(text)


def gang(*, spec: Json | None = None, status: Json | None = None) -> Json:
    made = deepcopy(GANG)
    made["spec"].update(spec or {})
    made["status"].update(status or {})
    return made


def read(gang: Json = GANG, **policy: object) -> Instance:
    return read_all([CLUSTER, gang, {"apiVersion": API, "kind": "Policy", "spec": policy}])


def policy_written(instance: Instance) -> Json:
    written: Json = instance_document(instance)["policy"]["spec"]
    return written


def gang_written(instance: Instance) -> tuple[Json, Json]:
    (written,) = instance_document(instance)["gangs"]
    return written["spec"], written["status"]


def only_gang(instance: Instance) -> Gang:
    (found,) = instance.gangs
    return found


NEW_IN_POLICIES = {"moves", "disruption", "starvation", "now"}


def test_a_policy_that_says_nothing_is_written_with_its_limits_of_waiting_and_moves() -> None:
    nothing: tuple[Json, ...] = (
        {},
        {"moves": {}},
        {"moves": {"minGain": 0}},
        {"disruption": {}},
        {"disruption": {"weight": "gpus", "cap": "1d"}},
    )
    for said in nothing:
        instance = read(**said)
        assert instance == read() == read(starvation={}) == read(starvation={"after": "24h"})
        written = policy_written(instance)
        assert NEW_IN_POLICIES & set(written) == {"moves", "starvation", "now"}
        assert written["moves"] == {"maxGangs": 10, "minGain": 0}
        assert written["starvation"] == {"after": "86400s"}
        assert written["now"] == "2026-11-20T08:00:00Z"
    assert read().policy.moves == Moves(max_gangs=10)
    assert read().policy.disruption == Disruption("gpus", 86_400)
    assert read().policy.starvation_after_s == 86_400


def test_what_a_policy_says_is_read_and_written() -> None:
    instance = read(
        moves={"maxGangs": 4, "maxGPUs": 64, "minGain": 0.5},
        disruption={"weight": "lostRuntime", "cap": "90m"},
        starvation={"after": "1d12h"},
        now="2026-11-21T13:00:00+01:00",
    )
    policy = instance.policy
    assert policy.moves == Moves(4, 64, Fraction(1, 2))
    assert policy.disruption == Disruption("lostRuntime", 5400)
    assert policy.starvation_after_s == 36 * 3600
    assert policy.now == at("2026-11-21T12:00:00Z")
    written = policy_written(instance)
    assert {key: written[key] for key in NEW_IN_POLICIES} == {
        "moves": {"maxGangs": 4, "maxGPUs": 64, "minGain": 0.5},
        "disruption": {"weight": "lostRuntime", "cap": "5400s"},
        "starvation": {"after": "129600s"},
        "now": "2026-11-21T12:00:00Z",
    }
    assert instance_from_document(instance_document(instance)) == instance


NEW_IN_GANGS = {"resizeAfter", "startedAt", "lastCheckpoint", "planned"}


def test_what_a_gang_says_is_read_and_written() -> None:
    instance = read(
        gang(
            spec={"resizeAfter": "2026-11-21T15:00:00.9Z"},
            status={
                "startedAt": "2026-11-20T09:00:00Z",
                "lastCheckpoint": "2026-11-21T11:00:00Z",
                "planned": [
                    {"role": "launcher", "index": 0, "node": "n3"},
                    {"role": "worker", "index": 3, "node": "n1"},
                    {"role": "worker", "index": 2, "node": "n2"},
                ],
            },
        )
    )
    found = only_gang(instance)
    assert found.resize_after == at("2026-11-21T15:00:00Z")
    assert found.started_at == at("2026-11-20T09:00:00Z")
    assert found.last_checkpoint == at("2026-11-21T11:00:00Z")
    assert found.planned == (PlannedPod(0, 2, 1), PlannedPod(0, 3, 0), PlannedPod(1, 0, 2))
    spec, status = gang_written(instance)
    assert spec["resizeAfter"] == "2026-11-21T15:00:00Z"
    assert {key: status[key] for key in NEW_IN_GANGS & set(status)} == {
        "startedAt": "2026-11-20T09:00:00Z",
        "lastCheckpoint": "2026-11-21T11:00:00Z",
        "planned": [
            {"role": "worker", "index": 2, "node": "n2"},
            {"role": "worker", "index": 3, "node": "n1"},
            {"role": "launcher", "index": 0, "node": "n3"},
        ],
    }
    assert instance_from_document(instance_document(instance)) == instance


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ({}, {"starvation": {"after": "24h"}}),
        ({}, {"disruption": {"weight": "lostRuntime"}}),
        ({"resizeAfter": "2026-11-22T00:00:00Z"}, {}),
    ],
)
def test_where_ages_decide_the_time_they_are_reference_time_is_written(
    spec: Json, policy: Json
) -> None:
    # the latest time that the input names as past; resizeAfter is still to come
    made = gang(spec=spec, status={"startedAt": "2026-11-20T09:00:00Z"})
    instance = read(made, **policy)
    assert instance.policy.now == at("2026-11-20T09:00:00Z")
    assert policy_written(instance)["now"] == "2026-11-20T09:00:00Z"
    saved = gang(spec=spec, status={"lastCheckpoint": "2026-11-21T11:00:00Z"})
    assert policy_written(read(saved, **policy))["now"] == "2026-11-21T11:00:00Z"
    assert policy_written(read(gang(spec=spec), **policy))["now"] == "2026-11-20T08:00:00Z"
    stated = read(made, **policy, now="2026-11-21T12:00:00Z")
    assert policy_written(stated)["now"] == "2026-11-21T12:00:00Z"


def test_the_time_of_the_caller_goes_before_the_policys(tmp_path: Path) -> None:
    written = read(starvation={"after": "24h"}, now="2026-11-21T12:00:00Z")
    path = tmp_path / "in.json"
    document = instance_document(written)
    items = [document["cluster"], *document["gangs"], document["policy"]]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert load([str(path)]).instance == written
    assert load([str(path)], now=7).instance.policy.now == 7


def test_what_an_earlier_plan_wanted_changes_the_digest_and_nothing_else() -> None:
    planned = gang(status={"planned": [{"role": "worker", "index": 1, "node": "n2"}]})
    one, two = instance_document(read()), instance_document(read(planned))
    assert digest(one) != digest(two)
    del two["gangs"][0]["status"]["planned"]
    assert digest(one) == digest(two)


@pytest.mark.parametrize(
    ("planned", "what"),
    [
        ({"role": "chief", "index": 1, "node": "n1"}, "unknown role 'chief'"),
        ({"role": "worker", "index": 0, "node": "n1"}, "there is no pod 0 of role 'worker'"),
        ({"role": "worker", "index": 4, "node": "n1"}, "there is no pod 4 of role 'worker'"),
        ({"role": "worker", "index": 1, "node": "n9"}, "worker 1 is planned on unknown node 'n9'"),
        ({"role": "worker", "index": 1}, "missing field 'node'"),
        ({"role": "worker", "index": 1, "node": "n1", "gpus": [0]}, "unknown field 'gpus'"),
        ({"role": "worker", "index": True, "node": "n1"}, "not true"),
    ],
)
def test_places_of_an_earlier_plan_must_make_sense_in_a_document(planned: Json, what: str) -> None:
    with pytest.raises(InputError) as caught:
        read(gang(status={"planned": [planned]}))
    assert len(caught.value.faults) == 1
    assert what in caught.value.faults[0].what
