"""Parts of GPUs, shared or partitioned: what a plan says of them, and what the judge refuses (2.2, 4).

Plans of random instances are those of trying every way to share and to partition.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tiny_geometries
import tiny_shares
import yaml
from bundles import read_all
from comparing import misstated, wrong
from conftest import RunCli
from effort import examples
from outcomes import document_of
from plan_documents import sealed
from tiny_geometries import differences, dynamic
from tiny_shares import PARTS, SEVERAL, sharing, ways

from models.documents.canonical import canonical_instance
from models.documents.cluster import GpuSharing
from models.gpu_shares import amount_of, packed, part_of, size_on, whole
from models.instance.instance import Instance
from models.verify.adaptor import read_case
from models.verify.check import check
from models.verify.shares import fewest_shared
from planner.read.inputs import instance_from_document
from planner.search.solve import WHOLE_BELOW, solve

Json = dict[str, Any]
Change = Callable[[Json], object]

INPUTS = Path("tests/inputs")
HEAD = {"apiVersion": "gangplan.dev/v1alpha1"}
SERVER = {"name": "n1", "model": "DGX H100", "dynamicMig": "H100-80"}


def text_of(name: str) -> str:
    return "\n---\n".join(path.read_text() for path in sorted((INPUTS / name).iterdir()))


PAIRS = text_of("shares").replace(
    "[{name: replica, replicas: 7, gpu: {fraction: 0.4}}]",
    "[{name: pair, replicas: 2, gpu: {fraction: 0.4, count: 2}},"
    " {name: three, replicas: 1, gpu: {fraction: 0.7, count: 3}}]",
)
"""Two replicas with 0.4 of each of two GPUs, and one with 0.7 of each of three."""


def of(kind: str, name: str, more: Json | None = None, **spec: object) -> Json:
    return {**HEAD, "kind": kind, "metadata": {"name": name}, "spec": spec, **(more or {})}


NOTEBOOKS = [
    of(
        "Gang",
        f"notebook-{i}",
        {"status": {"pods": [{"role": "w", "index": 0, "node": "n1", "gpus": [7], "start": at}]}},
        roles=[{"name": "w", "replicas": 1, "gpu": {"profile": "1g.10gb"}}],
        preemptible=True,
    )
    for i, at in enumerate((0, 6))
]
"""Two of 1g.10gb on GPU 7 of a server."""
TRAIN = of("Gang", "train", priority=100, roles=[{"name": "w", "replicas": 1, "gpus": 8}])
CLUSTER = of("Cluster", "c", nodes=[SERVER])
FIRM = of(
    "Gang", "notebook-0", {"status": NOTEBOOKS[0]["status"]}, roles=NOTEBOOKS[0]["spec"]["roles"]
)

DOCUMENTS = {
    **{
        name: list(yaml.safe_load_all(text_of(name)))
        for name in ("shares", "mig-dynamic", "mig-in-use")
    },
    "pairs": list(yaml.safe_load_all(PAIRS)),
    "leaving": [CLUSTER, *NOTEBOOKS, TRAIN],
    "one is firm": [CLUSTER, FIRM, NOTEBOOKS[1], TRAIN],
}


@cache
def _plan(name: str) -> Json:
    found = document_of(
        read_all(json.loads(json.dumps(DOCUMENTS[name], default=lambda t: f"{t:%FT%TZ}")))
    )
    assert check(found) == []
    assert found["status"]["outcome"] == "optimal"
    return found


def plan(name: str) -> Json:
    return copy.deepcopy(_plan(name))


def decisions(found: Json) -> dict[str, str]:
    return {one["name"]: one["decision"] for one in found["spec"]["gangs"]}


# What a plan says

SAID = {
    # Two testers fit on a GPU, for each needs half of the cores; GPU 3 is shared already, by 0.6.
    # On the third server one of the replicas joins the demo's GPU, and two each share three others.
    "shares": [
        "share h100-1:7 with 2 x 20480Mi-50",
        "share h100-1:6 with 20480Mi-50",
        "share h100-3:a7c3 with 0.4",
        "share h100-3:any,any,any with 2 x 0.4",
    ],
    "mig-in-use": ["partition h100-1:7 with 2g.20gb + 1g.10gb"],
    "mig-dynamic": [
        f"partition h100-{{}}:{gpu} with {parts}"
        for gpu, parts in ((5, "7 x 1g.10gb"), (6, "3g.40gb + 4 x 1g.10gb"), (7, "2 x 3g.40gb"))
    ],
}
DRAWN = {
    "shares": [".../.... > aaa/a.//", "......./ > ....////", "/ partitioned (MIG) or shared"],
    "mig-in-use": ["......./ > aaaaaaa/"],
    "mig-dynamic": [".///", "/ partitioned (MIG)"],
}


@pytest.mark.parametrize("name", SAID)
def test_a_plan_shows_which_gpus_have_parts_and_which(
    name: str, cli: RunCli, tmp_path: Path
) -> None:
    out, page = str(tmp_path / "plan.json"), tmp_path / "page.html"
    assert cli("plan", str(INPUTS / name), "--out", out).code == 0
    assert cli("verify", out).code == 0
    shown = cli("show", out).out.splitlines()
    said = [line for line in shown if line.startswith(("share h", "partition h"))]
    node = said[0][len("partition h100-")]
    geometries = sorted(line.partition(" with ")[2] for line in said)
    if name == "mig-dynamic":  # which of the three GPUs gets which is open
        wanted = [line.format(node) for line in SAID[name]]
        assert geometries == sorted(line.partition(" with ")[2] for line in wanted)
        assert [line.partition(" with ")[0] for line in said] == [
            w.partition(" with ")[0] for w in wanted
        ]
    else:
        assert said == SAID[name]
    assert cli("report", out, "--out", str(page)).code == 0
    assert all(f"{line[0].upper()}{line[1:]}." in page.read_text() for line in said)
    drawn = cli("show", out, "--map").out
    assert [one for one in DRAWN[name] if one not in drawn] == []


def test_a_plan_states_parts_that_are_shared() -> None:
    found = plan("shares")
    assert list(decisions(found).values()).count("place") == 3
    assert found["spec"]["shares"] == [
        {"node": "h100-1", "gpu": 7, "parts": ["20480Mi-50"] * 2},
        {"node": "h100-1", "gpu": 6, "parts": ["20480Mi-50"]},
        {"node": "h100-3", "gpu": None, "gpuGroup": "a7c3", "parts": ["0.4"]},
        *[{"node": "h100-3", "gpu": None, "parts": ["0.4"] * 2}] * 3,
    ]


def test_a_pod_may_have_parts_of_several_gpus_of_one_server(cli: RunCli, tmp_path: Path) -> None:
    found = plan("pairs")
    shares = found["spec"]["shares"]
    parts = Counter(part for one in shares for part in one["parts"])
    assert parts == {"20480Mi-50": 3, "0.4x2": 4, "0.7x3": 3}
    assert all(one["parts"].count("0.4x2") <= 2 for one in shares)
    assert canonical_instance(instance_from_document(found["instance"])) == found["instance"]
    (tmp_path / "in.yaml").write_text(PAIRS)
    said = json.loads(cli("capacity", str(tmp_path), "-o", "json").out)["status"]["parts"]
    anywhere = {one["part"]: one["before"] for one in said if one["level"] is None}
    # Of 15, 16 and 15 parts of 0.4, two on a GPU but for one; of 7, 8 and 7 of 0.7 each on its own.
    assert (anywhere["0.4x2"], anywhere["0.7x3"]) == (7 + 8 + 7, 2 + 2 + 2)


def test_a_plan_states_the_instances_of_partitioned_gpus() -> None:
    found = plan("mig-dynamic")
    assert list(decisions(found).values()) == ["place"] * 3
    # Three of 3g.40gb and nine of 1g.10gb do not fit on two GPUs: 2 x 3g, 3g with 4 x 1g, 7 x 1g.
    parts = found["spec"]["partitions"]
    assert [one["gpu"] for one in parts] == [5, 6, 7]
    assert len({one["node"] for one in parts}) == 1
    assert sorted(sorted(one["profiles"]) for one in parts) == [
        ["1g.10gb"] * 7,
        ["1g.10gb"] * 4 + ["3g.40gb"],
        ["3g.40gb"] * 2,
    ]
    # 8 GPUs of train, 4 of tune, 3 partitioned: one is left, of no use to the mix of 8 and 4.
    (stranded,) = (t for t in found["status"]["objectives"] if t["name"] == "stranded")
    assert stranded["value"] == 4000


def test_instances_go_to_one_server_so_that_the_other_stays_whole() -> None:
    documents = copy.deepcopy(DOCUMENTS["mig-dynamic"])
    train, tune = (one for one in documents if one["metadata"]["name"] in ("train", "tune"))
    train["spec"]["roles"][0]["gpus"] = 1
    del tune["spec"]["roles"][0]
    found = document_of(
        read_all(json.loads(json.dumps(documents, default=lambda t: f"{t:%FT%TZ}")))
    )
    nodes = {one["node"] for one in found["spec"]["partitions"]}
    assert (len(nodes), len(found["spec"]["partitions"])) == (1, 3)
    assert {pod["node"] for gang in found["spec"]["gangs"] for pod in gang["pods"]} == nodes


def test_instances_come_beside_those_in_use() -> None:
    found = plan("mig-in-use")
    assert decisions(found) == {
        "notebook": "keep",
        "train": "place",
        "chat": "place",
        "batch": "wait",
    }
    parts = [{"node": "h100-1", "gpu": 7, "profiles": ["2g.20gb", "1g.10gb"]}]
    assert found["spec"]["partitions"] == parts
    again = instance_from_document(found["instance"])
    assert canonical_instance(again) == found["instance"]
    assert again.cluster.nodes[0].partitioned == 1 << 7


# What the judge refuses


def part(number: int = 0, **fields: object) -> Change:
    """Fields of a share or partition."""

    def change(found: Json) -> None:
        spec = found["spec"]
        (spec.get("shares") or spec["partitions"])[number].update(fields)

    return change


def again(number: int, times: int = 1, at: int | None = None, **fields: object) -> Change:
    def change(found: Json) -> None:
        listed = found["spec"].get("shares") or found["spec"]["partitions"]
        for _ in range(times):
            listed.insert(number if at is None else at, {**listed[number], **fields})

    return change


def node(**fields: object) -> Change:
    return lambda found: found["instance"]["cluster"]["spec"]["nodes"][0].update(fields)


def fewer(kind: str) -> Change:
    return lambda found: found["spec"][kind].pop(0)


def reversed_(kind: str) -> Change:
    return lambda found: found["spec"][kind].reverse()


def stands(**fields: object) -> Change:
    """Fields of the notebook's pod."""

    def change(found: Json) -> None:
        (gang,) = (g for g in found["instance"]["gangs"] if g["metadata"]["name"] == "notebook")
        gang["status"]["pods"][0].update(fields)

    return change


def given_whole(found: Json) -> None:
    (gang,) = (gang for gang in found["spec"]["gangs"] if gang["name"] == "train")
    gang["pods"][0]["gpus"] = [1, 2, 3, 4, 5, 6, 7]


REFUSED: list[tuple[str, Change, str]] = [
    ("shares", fewer("shares"), "resources"),
    ("shares", part(gpu=0), "gpu-part"),  # held
    ("shares", again(0), "gpu-part"),
    ("shares", part(parts=["20480Mi-50"] * 3), "gpu-part"),  # 150 of its cores
    ("shares", part(1, gpu=3, parts=["20480Mi-50"]), "gpu-part"),  # beside those that run
    ("shares", part(1, parts=[]), "gpu-part"),
    ("shares", part(1, parts=["a quarter"]), "gpu-part"),
    ("shares", part(1, parts=["1.0"]), "gpu-part"),
    ("shares", part(1, gpu=None), "unknown-gpus"),
    ("shares", part(3, gpu=0), "gpu-part"),  # which is not known
    ("shares", part(2, gpuGroup="b"), "gpu-part"),
    ("shares", again(3, times=5), "gpu-part"),  # more GPUs than there are
    ("shares", node(sharing=None), "gpu-part"),
    ("shares", node(sharing={"memory": None, "pods": 10}), "gpu-part"),
    ("shares", node(sharing={"memory": "81920Mi", "pods": 1}), "gpu-part"),
    ("shares", part(node="h100-9"), "reference"),
    ("shares", reversed_("shares"), "order"),
    ("shares", part(1, gpu=8), "gpu-part"),
    ("mig-dynamic", fewer("partitions"), "resources"),
    ("mig-dynamic", part(gpu=0), "partition"),
    ("mig-dynamic", again(0), "partition"),
    ("mig-dynamic", part(profiles=["3g.40gb", "3g.40gb", "1g.10gb"]), "partition"),
    ("mig-dynamic", part(profiles=[]), "partition"),
    ("mig-dynamic", part(profiles=["1g.5gb"]), "partition"),  # of another board
    (
        "mig-dynamic",
        lambda p: [n.pop("dynamicMig") for n in p["instance"]["cluster"]["spec"]["nodes"]],
        "partition",
    ),
    ("mig-dynamic", part(node="h100-9"), "reference"),
    ("mig-dynamic", reversed_("partitions"), "order"),
    ("mig-dynamic", again(0, at=3, gpu=8, profiles=["1g.10gb"]), "partition"),
    ("mig-in-use", fewer("partitions"), "resources"),
    ("mig-in-use", part(profiles=["2g.20gb", "2g.20gb", "1g.10gb"]), "partition"),
    ("mig-in-use", part(profiles=["3g.40gb", "1g.10gb"]), "partition"),
    ("mig-in-use", again(0), "partition"),
    ("mig-in-use", given_whole, "gpu-unhealthy"),
    ("mig-in-use", stands(start=2), "form"),
    ("mig-in-use", stands(gpus=[]), "reference"),
    # from slice 4 on the notebook leaves the first four: three slices of those suffice
    ("mig-in-use", stands(start=4), ""),
    ("leaving", lambda p: p["spec"]["partitions"].clear(), "partition"),
    ("leaving", part(anew=False), "partition"),
    ("leaving", part(profiles=["1g.10gb"]), "partition"),
    ("leaving", part(gpu=6), "partition"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_the_judge_refuses_parts_that_cannot_be(number: int) -> None:
    name, change, rule = REFUSED[number]
    found = plan(name)
    change(found)
    rules = {one.rule for one in check(found)} - {"digest"}
    assert rule in rules if rule else rules == set()


def test_the_judge_refuses_a_gpu_given_whole_over_an_instance() -> None:
    kept, found = plan("one is firm"), plan("leaving")
    assert decisions(kept) == {"notebook-0": "keep", "notebook-1": "keep", "train": "wait"}
    assert decisions(found) == {"notebook-0": "preempt", "notebook-1": "preempt", "train": "place"}
    found["spec"]["gangs"][1] = kept["spec"]["gangs"][1]
    assert {"gpu-unhealthy", "partition"} & {one.rule for one in check(found)}
    found["spec"]["partitions"].clear()
    assert "gpu-unhealthy" in {one.rule for one in check(found)}


def test_the_judge_refuses_parts_of_one_pod_on_one_gpu() -> None:
    found = plan("pairs")
    shares = found["spec"]["shares"]
    pair = [one for one in shares if "0.4x2" in one["parts"]]
    others = [one for one in shares if one not in pair]
    one = {**pair[-1], "parts": ["0.4x2"]}
    two = {**pair[0], "parts": ["0.4x2"] * 2}

    def ordered(*listed: Json) -> list[Json]:
        return sorted([*others, *listed], key=lambda share: str(share["node"]))

    found["spec"]["shares"] = ordered(two, one, one)
    assert check(sealed(found)) == []
    found["spec"]["shares"] = ordered(two)
    said = {one.message for one in check(sealed(found)) if one.rule == "gpu-part"}
    where = f"spec.shares[{found['spec']['shares'].index(two)}].parts"
    assert said == {f"{where}: 2 of 2 parts 0.4x2 are on one GPU of {one['node']}"}


def test_a_reserved_start_is_judged_by_what_gpus_may_become_by_then() -> None:
    """One server: eight GPUs are held for an hour; then four are given whole and two are partitioned."""
    long: Json = {"expectedDuration": "1h", "submittedAt": "2026-11-21T09:00:00Z"}
    run = [{"role": "w", "index": 0, "node": "n1", "gpus": [*range(8)]}]
    status = {"status": {"pods": run, "startedAt": "2026-11-21T10:00:00Z"}}
    asks = [
        {"name": "p", "replicas": 4, "gpu": {"profile": "3g.40gb"}},
        {"name": "w", "replicas": 1, "gpus": 4},
    ]
    found = document_of(
        read_all(
            [
                CLUSTER,
                of("Policy", "p", now="2026-11-21T10:00:00Z", reservations={}),
                of("Gang", "runs", status, **long, roles=[{"name": "w", "replicas": 1, "gpus": 8}]),
                of("Gang", "waits", **long, roles=asks),
            ]
        )
    )
    (waits,) = (one for one in found["spec"]["gangs"] if one["name"] == "waits")
    assert (waits["reserved"]["start"], check(found)) == ("2026-11-21T11:00:00Z", [])
    found["instance"]["gangs"][1]["spec"]["roles"][1]["gpus"] = 7  # one is left, and two are needed
    waits["reserved"]["pods"][-1]["gpus"] = [*range(7)]
    said = [one.message for one in check(found) if one.rule == "reserved"]
    assert any("no room for so many instances" in one for one in said)


@pytest.mark.parametrize("gpus", [7, 8])
@pytest.mark.parametrize(
    ("server", "asks"),
    [({"sharing": {}}, {"fraction": 0.5}), ({"dynamicMig": "H100-80"}, {"profile": "3g.40gb"})],
    ids=["shared", "partitioned"],
)
def test_who_finds_no_gpus_for_whole_and_parts_can_never_start(
    gpus: int, server: Json, asks: Json
) -> None:
    """Beside eight whole GPUs there is never a part of one, however many there could be else."""
    part_, shared = {"name": "p", "replicas": 2, "gpu": asks}, "sharing" in server
    at: Json = {"submittedAt": "2026-11-21T09:00:00Z", "queue": "q"}
    pods = [{"role": "p", "index": 0, "node": "n1", "gpus": [0]}]
    runs = {"status": {"startedAt": "2026-11-21T08:00:00Z", "pods": pods}}
    whole_ = {"name": "w", "replicas": 1, "gpus": gpus}
    documents = [
        of("Cluster", "c", nodes=[{"name": "n1", "model": "DGX H100", **server}]),
        of("Queue", "q", order="strict"),
        of("Policy", "p", now="2026-11-21T12:00:00Z"),
        of("Gang", "high", priority=9, roles=[whole_, part_], **at),
        of("Gang", "low", roles=[{**whole_, "gpus": 8}], **at),
        *([of("Gang", "runs", runs, roles=[{**part_, "replicas": 1}])] if shared else []),
    ]
    found = document_of(read_all(documents))
    assert check(found) == []
    said = {
        g["name"]: (g["decision"], (g["reason"] or {}).get("code")) for g in found["spec"]["gangs"]
    }
    if gpus == 8:
        assert said["high"] == ("wait", "Never")
        assert said["low"] == (("wait", "NoRoom") if shared else ("place", None))
    elif shared:  # 7 GPUs are idle, and half of one is left: one part too many
        assert said["high"][0] == "wait"
        assert said["high"][1] != "Never"
    else:
        assert said["high"] == ("place", None)


def test_the_judge_packs_pods_with_parts_of_several_gpus_on_its_own() -> None:
    case = read_case(plan("shares")).case
    assert case is not None
    r, apart = Random("several"), 0
    for _ in range(examples(1000, 200)):
        names = [*r.sample(sorted(SEVERAL), 2), *r.sample(sorted(PARTS), 1)]
        each = tuple(amount_of(f"share.gangplan.dev/{name}") for name in names)
        pods = [r.randint(0, 2) for _ in names]
        counts = tuple(a * b for a, b in zip(pods, each, strict=True))
        wanted = {f"share.gangplan.dev/{n}": c for n, c in zip(names, counts, strict=True)}
        host = replace(case.facts.nodes[0], sharing=GpuSharing(81920, 3), sharers=())
        sizes = tuple(size_on(one, 81920) for one in map(part_of, wanted) if one)
        on = packed((), whole(81920, 3), sizes, counts, each=each)
        assert [sum(own) for own in zip(*on, strict=True)] == list(counts) or not on
        for own in on:
            assert all(here <= most for here, most, a in zip(own, pods, each, strict=True) if a > 1)
        assert fewest_shared(host, wanted) == len(on)
        apart += len(on) > len(packed((), whole(81920, 3), sizes, counts))
    assert apart > 20


# Every way to share and to partition

Drawn = Callable[[int], Instance | None]


def with_some(kind: str, drawn: Callable[[int], Instance]) -> Drawn:
    """Those of the instances that have such GPUs."""

    def some(seed: int) -> Instance | None:
        instance = drawn(seed)
        return (
            instance
            if any(getattr(n, kind) and n.reshapable for n in instance.cluster.nodes)
            else None
        )

    return some


SWEEPS: dict[str, tuple[Drawn, bool, int]] = {
    "shared": (sharing, False, 300),
    "several": (lambda seed: sharing(seed, several=True), False, 300),
    "several, running": (lambda seed: sharing(seed, runs=True, several=True), True, 300),
    "shared, running": (lambda seed: sharing(seed, runs=True), True, 100),
    "partitioned": (dynamic, False, 300),
    "partitioned, running": (lambda seed: dynamic(seed, runs=True), True, 100),
    "beside": (
        with_some("shared", lambda seed: dynamic(seed, runs=True, beside=True)),
        True,
        1200,
    ),
    "MIG mode": (with_some("empty_mig", lambda seed: dynamic(seed, mode=True)), False, 600),
    "MIG mode, running": (
        with_some("empty_mig", lambda seed: dynamic(seed, runs=True, beside=True, mode=True)),
        True,
        600,
    ),
}
"""How instances are drawn; whether pods run, which then stay in the plans that are tried; how many."""


@pytest.mark.parametrize("name", SWEEPS)
def test_the_search_equals_trying_every_way_to_give_parts(name: str) -> None:
    drawn, runs, many = SWEEPS[name]
    of_ways = ways if name.startswith(("shared", "several")) else tiny_geometries.geometries
    seeds = range(examples(many, 7 if "beside" in name else 4))
    assert wrong(seeds, lambda seed: differences(drawn(seed), of_ways, runs=runs)) == {}


def sized(instance: Instance) -> list[object]:
    limits = replace(instance.policy.solve, budget=1)
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    return [*misstated("search", instance, solve(instance, size=WHOLE_BELOW))]


def test_ways_of_planning_large_instances_keep_every_rule() -> None:
    def shared(seed: int) -> list[object]:
        instance = sharing(seed, runs=seed % 2 == 0, several=seed % 4 > 1)
        return [] if instance is None else sized(instance)

    def partitioned(seed: int) -> list[object]:
        return sized(dynamic(seed, runs=seed % 2 == 0, beside=seed % 4 == 0))

    assert wrong(range(examples(100, 3)), shared) == {}
    assert wrong([5, *range(examples(100, 5))], partitioned) == {}


# GPUs that all leave who have parts of them

KINDS = {
    "shared": (tiny_shares.crowded, tiny_shares.leavable, ways),
    "partitioned": (tiny_geometries.crowded, tiny_geometries.leavable, tiny_geometries.geometries),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_search_is_no_worse_than_every_way_to_free_gpus(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_geometries, "MOST_PLANS", 400)
    (crowded, leavable, of_ways), released = KINDS[kind], 0
    for seed in range(examples(300, 3 if kind == "shared" else 6)):
        instance = crowded(seed)
        assert differences(instance, of_ways, runs=True) == [], seed
        decided = solve(instance).decisions
        after = {(g, p.role, p.node) for g, one in enumerate(decided) for p in one.pods}
        released += any(after.isdisjoint(own) for own in leavable(instance).values())
    assert released  # stopping who has parts costs what these count


@pytest.mark.parametrize("kind", KINDS)
def test_ways_of_planning_large_instances_free_gpus_by_every_rule(kind: str) -> None:
    """No plan is refused, and no bound is beaten by the best plan."""
    for seed in range(examples(130, 2)):
        instance = KINDS[kind][0](seed)
        limits = replace(instance.policy.solve, budget=1)
        instance = replace(instance, policy=replace(instance.policy, solve=limits))
        found = solve(instance, size=WHOLE_BELOW)
        assert [*misstated("search", instance, found)] == [], seed
        for rough, exact in zip(found.tiers, solve(instance).tiers, strict=True):
            worse = rough.bound < exact.value if rough.sense == "max" else rough.bound > exact.value
            assert not worse, (seed, rough, exact)
            if rough.value != exact.value:
                break
