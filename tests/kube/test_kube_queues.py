"""Queues of Kueue, KAI, Volcano and scheduler-plugins as queues of the instance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kube
import plan_documents as docs
import pytest

from models.instance.queue import Amount, Queue
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput
from planner.read.kube import queues
from planner.read.kube.dialects import kueue_quotas, quotas, scheduler_plugins
from planner.search.solve import solve

Tree = dict[str, Any]
GPU = "nvidia.com/gpu"
H100 = {"pool": "h100", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
A100 = {"pool": "a100", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
NODES = [kube.node("h1", **H100), kube.node("h2", **H100), kube.node("a1", **A100)]


def thing(
    version: str, kind: str, name: str, spec: Tree, namespace: str = "", **about: object
) -> Tree:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **about}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def kueue(kind: str, name: str, spec: Tree, namespace: str = "", version: str = "v1beta2") -> Tree:
    return thing(f"kueue.x-k8s.io/{version}", kind, name, spec, namespace)


def groups(*amounts: tuple[str, Tree]) -> list[Tree]:
    """Resource groups with quotas of GPUs by flavor, beside some of cpu."""
    cpu = {"name": "cpu", "nominalQuota": "100"}
    flavors = [{"name": of, "resources": [cpu, {"name": GPU, **quota}]} for of, quota in amounts]
    return [{"coveredResources": ["cpu", GPU], "flavors": flavors}]


FLAVORS = [
    kueue("ResourceFlavor", "h100", {"nodeLabels": {"pool": "h100"}}),
    kueue("ResourceFlavor", "a100", {"nodeLabels": {"pool": "a100"}}, version="v1beta1"),
    kueue("ResourceFlavor", "any", {}),
]


def wanting(name: str, namespace: str = "research", **labels: str) -> Tree:
    """A waiting pod of one GPU, which is a gang."""
    return kube.pod(name, namespace=namespace, gpus=1, gated=True, labels=labels)


def read(tmp_path: Path, *trees: Tree) -> LoadedInput:
    path = tmp_path / "in.json"
    items = [*NODES, *trees]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return load([str(path)])


def by_name(found: LoadedInput) -> dict[str, Queue]:
    return {queue.name: queue for queue in found.instance.queues}


def queue_of(found: LoadedInput) -> dict[str, str | None]:
    return {gang.name: gang.queue for gang in found.instance.gangs}


def parent(found: LoadedInput, name: str) -> str | None:
    above = by_name(found)[name].parent
    return None if above is None else found.instance.queues[above].name


def said(found: LoadedInput, what: str) -> bool:
    return any(what in line for line in found.remarks)


def test_cluster_queues_borrow_from_their_cohort_up_to_what_all_have(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        *FLAVORS,
        kueue(
            "ClusterQueue",
            "prod",
            {
                "cohort": "all",
                "preemption": {"reclaimWithinCohort": "Any"},
                "fairSharing": {"weight": "1500m"},
                "resourceGroups": groups(("h100", {"nominalQuota": 4, "borrowingLimit": "2"})),
            },
            version="v1beta1",
        ),
        kueue(
            "ClusterQueue",
            "dev",
            {
                "cohortName": "all",
                "preemption": {"reclaimWithinCohort": "Never"},
                "resourceGroups": groups(
                    ("h100", {"nominalQuota": "12"}),
                    ("a100", {"nominalQuota": 5, "borrowingLimit": 0}),
                ),
            },
        ),
        kueue("ClusterQueue", "alone", {"resourceGroups": groups(("any", {"nominalQuota": 3}))}),
        kueue("ClusterQueue", "cpu-only", {"cohortName": "all", "resourceGroups": []}),
        kueue(
            "Cohort",
            "all",
            {
                "parentName": "company",
                "resourceGroups": groups(("a100", {"nominalQuota": 1, "borrowingLimit": 2})),
            },
        ),
        kueue("Cohort", "company", {"fairSharing": {"weight": "2"}}, version="v1alpha1"),
    )
    read_as = by_name(found)
    # the only flavor of prod has H100: no A100 for it
    assert read_as["prod"].guarantee == Amount(4, (("h100", 4),))
    assert read_as["prod"].limit == Amount(6, (("a100", 0), ("h100", 6)))
    assert (read_as["prod"].reclaim, read_as["dev"].reclaim) == (True, False)
    # without a borrowing limit for one flavor there is none in all
    assert read_as["dev"].guarantee == Amount(17, (("a100", 5), ("h100", 12)))
    assert read_as["dev"].limit == Amount(None, (("a100", 5),))
    # nodes of the flavor have several models; without a cohort nothing is borrowed
    assert (read_as["alone"].guarantee, read_as["alone"].limit) == (Amount(3), Amount(3))
    assert (read_as["cpu-only"].guarantee, read_as["cpu-only"].limit) == (Amount(), Amount())
    # 4 + 17 of the members, 1 of its own; of H100 it may borrow without end
    assert read_as["cohort-all"].guarantee == Amount(22, (("a100", 6), ("h100", 16)))
    assert read_as["cohort-all"].limit == Amount(None, (("a100", 8),))
    top, below = read_as["cohort-company"], read_as["cohort-all"]
    assert top.limit == top.guarantee == below.guarantee
    assert [parent(found, name) for name in ("prod", "cohort-all", "cohort-company", "alone")] == [
        "cohort-all",
        "cohort-company",
        None,
        None,
    ]
    weights = {name: queue.weight for name, queue in read_as.items()}
    assert (weights["prod"], weights["cohort-company"], weights["dev"]) == (3, 4, 2)


def test_a_local_queue_leads_to_the_cluster_queue_of_a_gang(tmp_path: Path) -> None:
    selector = {"matchLabels": {kueue_quotas.NAMESPACE_NAME: "research"}}
    quota = {"resourceGroups": groups(("any", {"nominalQuota": 8}))}
    found = read(
        tmp_path,
        *FLAVORS,
        kueue("ClusterQueue", "prod", {**quota, "namespaceSelector": selector}),
        kueue("LocalQueue", "team", {"clusterQueue": "prod"}, "research"),
        kueue("LocalQueue", "thief", {"clusterQueue": "prod"}, "other"),
        wanting("member", **{"kueue.x-k8s.io/queue-name": "team"}),
        wanting("direct", **{"kueue.x-k8s.io/queue-name": "prod"}),
        wanting("stranger", "other", **{"kueue.x-k8s.io/queue-name": "thief"}),
        wanting("foreign", **{"kai.scheduler/queue": "prod"}),
        wanting("none"),
    )
    assert queue_of(found) == {
        "member": "prod",
        "direct": None,
        "stranger": "thief",  # a name that no queue has
        "foreign": None,
        "none": None,
    }
    assert said(found, queues.UNKNOWN)


def space(name: str, **labels: str) -> Tree:
    named = {kueue_quotas.NAMESPACE_NAME: name, **labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": named}}


def asks(key: str, operator: str, *values: str) -> Tree:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


NAME = kueue_quotas.NAMESPACE_NAME


@pytest.mark.parametrize(
    ("selector", "labelled", "bare", "unknown"),
    [
        # takes research with team=a; without it; research that is not in the input
        (None, False, False, False),
        ({}, True, True, True),
        ({"matchLabels": {}}, True, True, True),
        ({"matchLabels": {"team": "a"}}, True, False, False),
        ({"matchLabels": {"team": "b"}}, False, False, False),
        ({"matchLabels": {NAME: "research"}}, True, True, True),
        ({"matchLabels": {NAME: "research", "team": "a"}}, True, False, False),
        ({"matchLabels": {NAME: "other"}}, False, False, False),
        (asks("team", "In", "a", "b"), True, False, False),
        (asks("team", "NotIn", "a"), False, True, False),
        (asks("team", "NotIn", "b"), True, True, False),
        (asks("team", "Exists"), True, False, False),
        (asks("team", "DoesNotExist"), False, True, False),
        (asks(NAME, "In", "research", "x"), True, True, True),
        (asks(NAME, "NotIn", "other"), True, True, True),
        ({**asks("team", "Exists"), "matchLabels": {"team": "b"}}, False, False, False),
        (asks("team", "Near", "a"), False, False, False),
        ({"matchLabels": {"team": 7}}, False, False, False),
        ("all", False, False, False),
    ],
)
def test_a_cluster_queue_takes_the_namespaces_that_it_selects(
    tmp_path: Path, selector: object, labelled: bool, bare: bool, unknown: bool
) -> None:
    spec = {"namespaceSelector": selector} if selector is not None else {}
    quota = {"resourceGroups": groups(("any", {"nominalQuota": 8})), **spec}
    trees = [
        FLAVORS[2],
        kueue("ClusterQueue", "prod", quota),
        kueue("LocalQueue", "main", {"clusterQueue": "prod"}, "research"),
        wanting("g", **{"kueue.x-k8s.io/queue-name": "main"}),
    ]
    known = ([space("research", team="a")], [space("research")], [])
    for named, taken in zip(known, (labelled, bare, unknown), strict=True):
        found = read(tmp_path, *trees, *named)
        assert queue_of(found) == {"g": "prod" if taken else "main"}, named
        assert said(found, queues.UNKNOWN) != taken
    vague = isinstance(selector, dict) and "team" in json.dumps(selector)
    valid = vague and "Near" not in json.dumps(selector) and "7" not in json.dumps(selector)
    assert said(found, kueue_quotas.UNKNOWN_LABELS) == valid
    assert said(found, kueue_quotas.LABELS_HINT) == valid


def test_a_local_queue_of_a_stranger_takes_nothing_of_a_guarantee(tmp_path: Path) -> None:
    """Every GPU is the victim's; the thief's queue leads to the victim's, which selects team=victim."""
    selects = {"namespaceSelector": {"matchLabels": {"team": "victim"}}}
    local = kueue("LocalQueue", "thief", {"clusterQueue": "prod"}, "other")
    thieves = [
        wanting(f"t{i:02}", "other", **{"kueue.x-k8s.io/queue-name": "thief"}) for i in range(24)
    ]
    spaces = [space("research", team="victim"), space("other", team="thief")]
    for known in (spaces, spaces[:1]):
        _, decisions = plan_all(tmp_path, *promised(24, **selects), *known, local, *thieves)
        assert set(decisions.values()) == {("wait", "Quota")}
    own = [wanting("v", **{"kueue.x-k8s.io/queue-name": "main"})]
    _, decisions = plan_all(tmp_path, *promised(24, **selects), *spaces, local, *thieves, *own)
    assert decisions.pop("v") == ("place", None)
    assert set(decisions.values()) == {("wait", "Quota")}


def test_a_queue_document_does_not_open_the_cluster_queue_that_it_replaces(tmp_path: Path) -> None:
    own = {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "prod"},
        "spec": {"guarantee": {"gpus": 24}},
    }
    by_name = {"namespaceSelector": {"matchLabels": {NAME: "research"}}}
    found = read(
        tmp_path,
        *promised(24, **by_name),
        own,
        kueue("LocalQueue", "prod", {"clusterQueue": "prod"}, "other"),
        wanting("member", **{"kueue.x-k8s.io/queue-name": "main"}),
        wanting("thief", "other", **{"kueue.x-k8s.io/queue-name": "prod"}),
        wanting("bare", "third", **{"kueue.x-k8s.io/queue-name": "prod"}),
    )
    assert queue_of(found) == {"member": "prod", "thief": None, "bare": None}


@pytest.mark.parametrize("of", ["ClusterQueue", "LocalQueue"])
@pytest.mark.parametrize("policy", ["None", "Hold", "HoldAndDrain"])
def test_a_stopped_queue_starts_nothing_that_kueue_has_not_admitted(
    tmp_path: Path, of: str, policy: str
) -> None:
    """Hold lets go on what is admitted, such as pods without Kueue's gate; HoldAndDrain does not."""
    trees = promised(24, **({"stopPolicy": policy} if of == "ClusterQueue" else {}))
    if of == "LocalQueue":
        trees[2]["spec"]["stopPolicy"] = policy
    label = {"kueue.x-k8s.io/queue-name": "main"}
    admitted, runs = wanting("admitted", **label), kube.pod("runs", on="h1", gpus=4, labels=label)
    runs["metadata"]["namespace"] = "research"
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {GPU: "4"}}}]}}
    spec = {"suspend": True, "parallelism": 1, "completions": 1, "template": template}
    job = thing("batch/v1", "Job", "suspended", spec, "research", labels=label)
    gated = wanting("gated", **label)
    gated["spec"]["schedulingGates"].append({"name": kueue_quotas.GATE})
    other = wanting("elsewhere", "other")
    found, decisions = plan_all(tmp_path, *trees, admitted, runs, job, gated, other)
    held, start = ("wait", "Gated"), ("place", None)
    assert decisions == {
        "admitted": held if policy == "HoldAndDrain" else start,
        "suspended": start if policy == "None" else held,
        "gated": start if policy == "None" else held,
        "runs": ("keep", None),
        "elsewhere": ("wait", "Quota"),
    }
    holds = {gang.name: gang.hold.message for gang in found.instance.gangs if gang.hold}
    name = "ClusterQueue prod" if of == "ClusterQueue" else "LocalQueue main"
    words = f"its {name} has the stopPolicy {policy}"
    assert set(holds.values()) == (set() if policy == "None" else {words})


def kai(name: str, above: str | None = None, **gpu: float) -> Tree:
    spec: Tree = {"resources": {"gpu": gpu, "cpu": {"quota": -1, "limit": -1}}}
    return thing(
        "scheduling.run.ai/v2", "Queue", name, spec | {"parentQueue": above} if above else spec
    )


def test_queues_of_kai_and_volcano(tmp_path: Path) -> None:
    volcano = "scheduling.volcano.sh/v1beta1"
    found = read(
        tmp_path,
        kai("all", quota=-1, limit=-1, overQuotaWeight=1),
        kai("team", "all", quota=2.5, limit=6, overQuotaWeight=0.5),
        thing(volcano, "Queue", "team", {"weight": 4, "capability": {GPU: "8", "cpu": "1"}}),
        thing(
            volcano,
            "Queue",
            "deep",
            {
                "parent": "team",
                "reclaimable": False,
                "deserved": {GPU: 4},
                "guarantee": {"resource": {GPU: 2}},
            },
        ),
        wanting("one", **{"kai.scheduler/queue": "team"}),
        wanting("two", **{"volcano.sh/queue-name": "team"}),
        wanting("both", **{"volcano.sh/queue-name": "deep", "kai.scheduler/queue": "team"}),
    )
    read_as = by_name(found)
    assert (read_as["all"].guarantee, read_as["all"].limit) == (Amount(24), Amount())
    assert (read_as["team"].guarantee, read_as["team"].limit) == (Amount(2), Amount(6))
    assert (read_as["all"].weight, read_as["team"].weight) == (2, 1)
    assert (read_as["team.volcano"].limit, read_as["team.volcano"].weight) == (Amount(8), 4)
    assert read_as["deep"].guarantee == Amount(4)
    assert [parent(found, name) for name in ("team", "deep", "team.volcano")] == [
        "all",
        "team.volcano",
        None,
    ]
    assert queue_of(found) == {"one": "team", "two": "team.volcano", "both": "deep"}
    for what in (quotas.PART_OF_A_GPU, "named team.volcano", "not reclaimable", "several systems"):
        assert said(found, what), what


def elastic(name: str, namespace: str, spec: Tree) -> Tree:
    return thing(f"{scheduler_plugins.GROUP}/v1alpha1", "ElasticQuota", name, spec, namespace)


MINE = elastic("mine", "research", {"min": {GPU: 20}, "max": {GPU: 4}})


def test_an_elastic_quota_of_a_tenant_limits_its_own_namespace_and_nobody_else(
    tmp_path: Path,
) -> None:
    pods = [wanting("here"), wanting("there", "other")]
    found = read(tmp_path, MINE, *pods)
    assert by_name(found)["mine.research"] == Queue("mine.research", limit=Amount(4), reclaim=False)
    assert queue_of(found) == {"here": "mine.research", "there": None}
    assert said(found, scheduler_plugins.LIMITS_ONLY)

    trusting = {**docs.policy(), "spec": {"kubernetes": {"trustElasticQuotas": True}}}
    found = read(tmp_path, MINE, *pods, trusting)
    assert by_name(found)["mine.research"].guarantee == Amount(20)
    assert not said(found, scheduler_plugins.LIMITS_ONLY)


def test_a_queue_document_replaces_the_queue_of_its_name(tmp_path: Path) -> None:
    own = {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "team"},
        "spec": {"limit": {"gpus": 5}, "parent": "all"},
    }
    found = read(
        tmp_path,
        kai("team", "all", quota=2, limit=6),
        # below the document, which is below it: the circle is cut here
        kai("all", "team", quota=9, limit=9),
        own,
        wanting("one", **{"kai.scheduler/queue": "team"}),
    )
    assert by_name(found)["team"].limit == Amount(5)
    assert (parent(found, "team"), parent(found, "all")) == ("all", None)
    assert queue_of(found) == {"one": "team"}
    assert said(found, queues.REPLACED)


def test_circles_and_towers_of_parents_are_cut(tmp_path: Path) -> None:
    tower = [kai(f"t{i}", f"t{i + 1}", quota=1) for i in range(queues.MAX_DEPTH + 2)]
    found = read(
        tmp_path,
        kai("a", "b", quota=1),
        kai("b", "a", quota=1),
        kai("c", "lost", quota=1),
        kueue("Cohort", "x", {"parentName": "y"}),
        kueue("Cohort", "y", {"parent": "x"}, version="v1alpha1"),
        kueue("ClusterQueue", "in-x", {"cohortName": "x"}),
        *tower,
    )
    assert sorted(filter(None, (parent(found, name) for name in "ab"))) in (["a"], ["b"])
    assert parent(found, "c") is None
    assert sorted(filter(None, (parent(found, f"cohort-{name}") for name in "xy"))) in (
        ["cohort-x"],
        ["cohort-y"],
    )
    heights = []
    for queue in found.instance.queues:
        at, height = queue.parent, 0
        while at is not None:
            at, height = found.instance.queues[at].parent, height + 1
        heights.append(height)
    assert max(heights) == queues.MAX_DEPTH
    for what in (queues.CIRCLE, queues.TOO_DEEP, queues.NO_PARENT, kueue_quotas.CIRCLE):
        assert said(found, what), what


@pytest.mark.parametrize("odd", ["many", -5, True, ["4"], 10**40])
def test_odd_amounts_are_remarks(tmp_path: Path, odd: object) -> None:
    found = read(
        tmp_path,
        *FLAVORS,
        kai("kai", quota=odd, limit=odd, overQuotaWeight=odd),  # type: ignore[arg-type]
        kueue(
            "ClusterQueue",
            "kueue",
            {
                "cohort": ["x"],
                "fairSharing": {"weight": odd},
                "resourceGroups": groups(("h100", {"nominalQuota": odd})),
            },
        ),
        thing("scheduling.volcano.sh/v1beta1", "Queue", "volcano", {"capability": {GPU: odd}}),
        elastic("eq", "research", {"max": {GPU: odd}, "min": odd}),
        elastic("large", "x", {"max": {GPU: "900T"}}),
    )
    assert {"kai", "kueue", "volcano", "eq.research"} <= set(by_name(found))
    assert by_name(found)["kai"].guarantee.gpus is None
    assert by_name(found)["large.x"].limit == Amount(10**9)


def test_queues_beyond_the_bound_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "MAX_QUOTAS", 2)
    found = read(
        tmp_path,
        MINE,
        *(kai(name, quota=1) for name in ("a", "b", "c")),
        wanting("one", **{"kai.scheduler/queue": "c"}),
        wanting("two"),
    )
    assert set(by_name(found)) == {"a", "b"}
    assert queue_of(found) == {"one": "c", "two": None}  # a name that limits nothing
    assert said(found, queues.TOO_MANY)


# ---- whom no promise binds


def promised(gpus: int, **spec: object) -> list[Tree]:
    """A ClusterQueue of all flavors with so many GPUs, and the LocalQueue ``main`` of ``research``."""
    quota = groups(("any", {"nominalQuota": gpus}))
    stated = {"resourceGroups": quota, "namespaceSelector": {}, **spec}
    local = kueue("LocalQueue", "main", {"clusterQueue": "prod"}, namespace="research")
    return [FLAVORS[2], kueue("ClusterQueue", "prod", stated), local]


def theirs(name: str, scheduler: str = "default-scheduler", **labels: str) -> Tree:
    """A waiting pod of 4 GPUs of another scheduler."""
    spec = {"schedulerName": scheduler}
    return kube.pod(name, namespace="research", gpus=4, labels=labels, **spec)  # type: ignore[arg-type]


def plan_all(tmp_path: Path, *trees: Tree) -> tuple[LoadedInput, dict[str, tuple[str, str | None]]]:
    """The input with ``--scheduler all``, and of every gang its decision and the code of its reason."""
    path = tmp_path / "in.json"
    items = [*NODES, *trees]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    found = load([str(path)], schedulers=("*",))
    stated = {"name": "p", "created_at": "2026-11-20T10:00:00Z", "generator": "test"}
    document = compose(found.instance, solve(found.instance), **stated)
    assert check(document) == []
    gangs = document["spec"]["gangs"]
    reasons = {g["name"]: (g["reason"] or {}).get("code") for g in gangs}
    return found, {g["name"]: (g["decision"], reasons[g["name"]]) for g in gangs}


def test_a_pod_that_kueue_does_not_manage_is_planned_as_kube_scheduler_would(
    tmp_path: Path,
) -> None:
    """24 GPUs, all promised to prod, which waits for nothing: a Deployment's pod starts, as it would."""
    server = theirs("server")
    found, decisions = plan_all(tmp_path, *promised(24), server)
    assert decisions == {"server": ("place", None)}
    assert said(
        found,
        "other schedulers may start 1 gang with 4 GPUs, which no promise holds back; queues then lack 4 of",
    )
    # What gangplan starts keeps to the promises, as before.
    _, decisions = plan_all(tmp_path, *promised(24), wanting("ours"))
    assert decisions == {"ours": ("wait", "Quota")}
    # With room beyond the promises nothing is short, and nothing is said.
    found, decisions = plan_all(tmp_path, *promised(20), server)
    assert decisions == {"server": ("place", None)}
    assert not said(found, "no promise holds back")


@pytest.mark.parametrize(
    ("scheduler", "labels"),
    [
        # Kueue gates it: its LocalQueue is not there, so Kueue would not admit it.
        ("default-scheduler", {"kueue.x-k8s.io/queue-name": "gone"}),
        # ... also where a ClusterQueue has the name of that LocalQueue.
        ("default-scheduler", {"kueue.x-k8s.io/queue-name": "prod"}),
        # Volcano puts pods that name no queue into its queue `default`, KAI into `default-queue`.
        ("volcano", {}),
        ("kai-scheduler", {}),
    ],
)
def test_a_pod_that_a_system_of_queues_manages_is_bound_by_promises(
    tmp_path: Path, scheduler: str, labels: dict[str, str]
) -> None:
    found, decisions = plan_all(tmp_path, *promised(24), theirs("p", scheduler, **labels))
    assert decisions == {"p": ("wait", "Quota")}
    assert said(found, queues.UNKNOWN) == bool(labels)
