"""What-if plans: each option against the same change made by hand in the input, the judge, and apply."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from bundles import read_all
from conftest import RunCli
from drawing_documents import inputs
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_documents import sealed

from models.documents.canonical import canonical_instance
from models.documents.plan import PlanInstance
from models.rules.registry import relaxable
from models.verify import what_if
from models.verify.check import check
from planner.errors import UsageError
from planner.pipelines.what_if import Changes, with_changes
from planner.read.inputs import instance_from_document

Doc = dict[str, Any]

MIX = {"1": 500, "8": 500}
"""Stated, so that an edited input has the mix of the other one."""

NOW = "2026-11-20T12:00:00Z"


def named(docs: list[Doc], name: str) -> Doc:
    return next(one for one in docs if one["metadata"]["name"] == name)


def documents() -> list[Doc]:
    """Three racks of two servers; ``wide`` runs on two racks, ``calm`` on one, five gangs wait."""
    api = {"apiVersion": "gangplan.dev/v1alpha1"}
    nodes = [
        {
            "name": f"r{r}-[1-2]",
            "model": "DGX H100",
            "domains": {"rack": f"r{r}"},
            "labels": {"r": f"{r}"},
        }
        for r in (1, 2, 3)
    ]

    def gang(
        name: str, pods: int, on: tuple[str, ...] = (), role: Doc | None = None, **spec: object
    ) -> Doc:
        eight = list(range(8))
        stands = [{"role": "w", "index": i, "node": n, "gpus": eight} for i, n in enumerate(on)]
        roles = [{"name": "w", "replicas": pods, "gpus": 8, **(role or {})}]
        stated = {"submittedAt": "2026-11-20T10:00:00Z", "roles": roles, **spec}
        gang = {**api, "kind": "Gang", "metadata": {"name": name}, "spec": stated}
        return {**gang, "status": {"pods": stands}} if stands else gang

    spec = {"levels": [{"name": "rack"}], "nodes": nodes}
    policy = {"mix": MIX, "now": NOW, "solve": {"budget": 5}}
    return [
        {**api, "kind": "Cluster", "metadata": {"name": "c"}, "spec": spec},
        {**api, "kind": "Policy", "metadata": {"name": "p"}, "spec": policy},
        gang("wide", 2, ("r1-1", "r2-1"), preemptible=True),
        gang("calm", 1, ("r1-2",)),
        gang("near", 2, topology={"required": "rack"}),
        gang("also", 2, topology={"required": "rack"}),
        gang("three", 3, topology={"required": "rack"}),
        gang("picky", 1, role={"nodeSelector": {"r": "9"}}),
        gang("fast", 2, priority=5, topology={"minBandwidthShare": 0.9}, role={"model": "A100"}),
    ]


def drained(docs: list[Doc]) -> None:
    """r1-1 is cordoned; ``wide`` waits since now, all of it."""
    servers = named(docs, "c")["spec"]["nodes"]
    first = servers.pop(0)
    servers += [{**first, "name": "r1-1", "unschedulable": True}, {**first, "name": "r1-2"}]
    wide = named(docs, "wide")
    del wide["status"]
    wide["spec"]["submittedAt"] = NOW


def without(docs: list[Doc]) -> None:
    docs.remove(named(docs, "wide"))


def relaxed_rack(docs: list[Doc]) -> None:
    named(docs, "three")["spec"]["topology"] = {"preferred": "rack"}


def relaxed_selector(docs: list[Doc]) -> None:
    del named(docs, "picky")["spec"]["roles"][0]["nodeSelector"]


def relaxed_model(docs: list[Doc]) -> None:
    fast = named(docs, "fast")["spec"]
    del fast["roles"][0]["model"]
    fast["topology"]["minBandwidthShare"] = 0


def added(docs: list[Doc]) -> None:
    docs.append(json.loads(ADDED))


ADDED = json.dumps(
    {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "new-rack"},
        "spec": {
            "levels": [{"name": "rack"}],
            "nodes": [{"name": "r4-[1-3]", "model": "DGX H100", "domains": {"rack": "r4"}}],
        },
    }
)

CASES = {
    "drain": (("--drain", "r1-1"), drained, {"wide"}),
    "without": (("--without", "wide"), without, {"near"}),
    "relax-a-level": (("--relax", "three:rack"), relaxed_rack, {"three"}),
    "relax-the-selector": (("--relax", "picky:nodeSelector"), relaxed_selector, {"picky"}),
    "relax-twice": (
        ("--relax", "fast:model", "--relax", "fast:bandwidth"),
        relaxed_model,
        {"fast"},
    ),
    "add": (("--add", "rack.yaml"), added, {"three"}),
}


def saved(cli: RunCli, folder: Path, docs: list[Doc], *options: str) -> Doc:
    """The plan of the documents, verified."""
    source, out = folder / "input.yaml", folder / "plan.json"
    source.write_text(yaml.safe_dump_all(docs), encoding="utf-8")
    done = cli("plan", str(source), *options, "--out", str(out), "-o", "name")
    assert done.code == 0, done.err
    assert cli("verify", str(out)).code == 0
    plan: Doc = json.loads(out.read_text(encoding="utf-8"))
    return plan


@pytest.mark.parametrize("case", CASES)
def test_a_change_does_what_the_same_change_of_the_input_does(
    cli: RunCli, tmp_path: Path, case: str
) -> None:
    options, edit, concerned = CASES[case]
    (tmp_path / "rack.yaml").write_text(ADDED, encoding="utf-8")
    options = tuple(str(tmp_path / one) if one == "rack.yaml" else one for one in options)
    docs = documents()
    plain = saved(cli, tmp_path, docs)
    changed = saved(cli, tmp_path, docs, *options)
    edit(docs)
    by_hand = saved(cli, tmp_path, docs)
    assert changed["spec"] == by_hand["spec"]
    assert changed["status"]["objectives"] == by_hand["status"]["objectives"]
    stated = changed["instance"].pop("whatIf")
    assert changed["instance"] == by_hand["instance"]
    assert len(stated) == 1
    # The change matters: the gang that it concerns is decided otherwise than without.
    before = {one["name"]: one["decision"] for one in plain["spec"]["gangs"]}
    after = {one["name"]: one["decision"] for one in changed["spec"]["gangs"]}
    assert concerned <= {name for name, decision in after.items() if decision != before.get(name)}


def test_a_what_if_says_so_and_is_never_applied(cli: RunCli, tmp_path: Path) -> None:
    plan = saved(
        cli,
        tmp_path,
        documents(),
        "--drain",
        "r1-[1-2],r3-1",
        "--without",
        "near",
        "--relax",
        "three:rack",
    )
    assert plan["instance"]["whatIf"] == {
        "drained": ["r1-1", "r1-2", "r3-1"],
        "without": ["default/near"],
        "relaxed": [{"gang": "default/three", "what": "rack"}],
    }
    file = str(tmp_path / "plan.json")
    words = "a what-if with r1-[1-2], r3-1 drained, without default/near, with rack of default/three relaxed"
    for verb in ("show", "verify"):
        assert f"{words}: it cannot be applied\n" in cli(verb, file).out
    dry = ("--dry-run=server", "--dry-run=client", "--dry-run=client -oyaml")
    for verb in (("apply", "--yes"), *(("apply", *one.split()) for one in dry)):
        refused = cli(*verb, file)
        assert (refused.code, refused.out) == (65, "")
        assert f"error: the plan is {words}: it is about other nodes or gangs" in refused.err


def test_the_judge_reads_what_a_what_if_says(cli: RunCli, tmp_path: Path) -> None:
    options = ("--drain", "r1-1", "--without", "near", "--relax", "three:rack")
    plan = saved(cli, tmp_path, documents(), *options)
    assert check(plan) == []

    def faults(stated: Doc) -> list[str]:
        lie = copy.deepcopy(plan)
        lie["instance"]["whatIf"] = stated
        return [f"{one.rule}: {one.message}" for one in check(sealed(lie))]

    def says(what: str) -> list[str]:
        return [f"what-if: instance.whatIf: {what}"]

    assert faults({"drained": ["r9-1"]}) == says("drained node r9-1 does not exist")
    assert faults({"drained": ["r3-1"]}) == says("drained node r3-1 is not cordoned")
    assert faults({"drained": ["r1-1", "r1-1"]}) == says(
        "its entries are not sorted, or one is there twice"
    )
    assert faults({"without": ["default/calm"]}) == says("gang default/calm is not left out")
    for gang, what, said in (
        ("near", "rack", "gang default/near, which is relaxed, does not exist"),
        ("fast", "speed", "nothing is called speed that can be relaxed"),
        ("fast", "bandwidth", "bandwidth of gang default/fast is not relaxed"),
        ("picky", "selector", "selector of gang default/picky is not relaxed"),
    ):
        assert faults({"relaxed": [{"gang": f"default/{gang}", "what": what}]}) == says(said)
    assert faults({}) == says("it supposes nothing")


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inputs(), st.data())
def test_whatever_is_changed_the_judge_finds_it_so(
    documents: list[Doc], data: st.DataObject
) -> None:
    instance = read_all(documents)
    names = ["/".join(gang.key) for gang in instance.gangs]
    words = [*(level.name for level in instance.cluster.levels), "node", *relaxable()]
    draw = data.draw
    nodes = draw(st.sets(st.sampled_from([n.name for n in instance.cluster.nodes] or ["none"])))
    without = draw(st.sets(st.sampled_from(names or ["none"]), max_size=1))
    pairs = st.tuples(st.sampled_from(names or ["none"]), st.sampled_from(words))
    relaxed = []
    for name, word in draw(st.sets(pairs, max_size=4)):
        try:  # what a gang does not ask for cannot be relaxed
            with_changes(instance, Changes(relax=(f"{name}:{word}",)))
        except UsageError:
            continue
        relaxed.append((name, word))
    relax = tuple(f"{name}:{word}" for name, word in relaxed if name not in without)
    drain = tuple(nodes - {"none"})
    changes = Changes(drain=drain, without=tuple(without - {"none"}), relax=relax)
    changed, _ = with_changes(instance, changes)
    document = json.loads(json.dumps(canonical_instance(changed)))
    assert instance_from_document(document) == changed
    stated = PlanInstance.model_validate(document)
    assert (stated.changes is None) == (changed == instance)
    if stated.changes is not None:
        assert list(what_if.wrong(stated, stated.changes)) == []
    # and of the input as it was it is not true, but for nodes that took nobody anyway
    plain = PlanInstance.model_validate(json.loads(json.dumps(canonical_instance(instance))))
    if stated.changes is not None and (changes.without or changes.relax):
        assert list(what_if.wrong(plain, stated.changes))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--drain", "r1-3"), "--drain 'r1-3': no node 'r1-3'\nhint: did you mean 'r1-"),
        (("--drain", "r[1-"), "--drain: 'r[1-' has an unmatched bracket"),
        (("--drain", "r[1-999999]-1"), "has 999,999 names; the most is"),
        (("--without", "nea"), "--without nea: no such gang\nhint: did you mean near?"),
        (("--relax", "three"), "--relax 'three' does not say what to relax"),
        (("--relax", "three:rak"), "nothing called 'rak'\nhint: did you mean 'rack'?"),
        (("--relax", "three:model"), "the gang does not ask for that\nhint: it asks for: rack"),
        (("--relax", "three:rack", "--without", "three"), "the gang is left out by --without"),
    ],
)
def test_an_option_about_nothing_is_one_clear_error(
    cli: RunCli, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    source = tmp_path / "input.yaml"
    source.write_text(yaml.safe_dump_all(documents()), encoding="utf-8")
    refused = cli("plan", str(source), *options)
    assert (refused.code, refused.out) == (64, "")
    assert said in refused.err


def test_a_name_that_is_there_already_cannot_be_added(cli: RunCli, tmp_path: Path) -> None:
    docs = documents()
    for name, doc in (("input", docs), ("again", [named(docs, "calm")])):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all(doc), encoding="utf-8")
    refused = cli("plan", str(tmp_path / "input.yaml"), "--add", str(tmp_path / "again.yaml"))
    assert refused.code == 65
    assert "two gangs are named 'default/calm'" in refused.err
    assert "again.yaml:" in refused.err
