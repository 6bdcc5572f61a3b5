"""``gangplan capacity``: its counts against every way to pack gangs, plans, and bad input."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement
from pathlib import Path

import pytest
from building import build, gang, node
from building_servers import switched
from conftest import RunCli
from effort import examples, first_fast
from hypothesis import given, settings
from hypothesis import strategies as st

from models.documents.answers import CapacityDocument
from models.instance.instance import Instance
from models.instance.occupancy import PODS
from planner.pipelines.capacity import CLUSTER, Shape, counted, usable_nodes

ROOT = Path(__file__).parents[2]

Space = tuple[tuple[int, int, int], ...]
"""(free GPUs, free cpu, free pod slots) of every node."""


def most_gangs(instance: Instance, space: Space, shape: Shape, inside: tuple[int, ...]) -> int:
    """The most gangs of a shape that fit on the nodes ``inside``, by trying every way to pack them."""
    cluster = instance.cluster
    share = dict(instance.policy.per_gpu).get("cpu", 0)
    of = cluster.domain_of[shape.level] if shape.level != CLUSTER else (0,) * len(cluster.nodes)

    def places() -> Iterator[tuple[int, ...]]:
        """The nodes of the pods of one gang, whatever is free."""
        for nodes in combinations_with_replacement(inside, shape.pods):
            models = {cluster.nodes[n].model.gpu for n in nodes}  # type: ignore[union-attr]
            if len(models) == 1 and len({of[n] for n in nodes}) == 1:
                yield nodes

    ways = [tuple(Counter(nodes).items()) for nodes in places()]

    @cache
    def most(space: Space) -> int:
        best = 0
        for way in ways:
            left = list(space)
            for n, pods in way:
                gpus, cpu, slots = left[n]
                taken = pods * shape.gpus
                left[n] = (gpus - taken, cpu - taken * share, slots - pods)
            if all(min(one) >= 0 for one in left):
                best = max(best, 1 + most(tuple(left)))
        return best

    return most(space)


@st.composite
def occupied(draw: st.DrawFn) -> tuple[Instance, Space]:
    """Up to four nodes of two GPU models in up to three racks of two blocks, and what is free on them."""
    cpu = draw(st.booleans())
    nodes, gangs, space = [], [], []
    for n in range(draw(st.integers(2, 4))):
        gpus = draw(st.integers(1, 4))
        slots, cores = draw(st.integers(1, 5)), draw(st.integers(0, 9)) * 1000
        block, rack = draw(st.sampled_from([("b1", "r1"), ("b1", "r2"), ("b2", "r1")]))
        gpu = draw(st.sampled_from(["H100", "A100"]))
        nodes.append(
            node(
                f"n{n}",
                switched(gpus, gpu=gpu),
                block,
                rack,
                allocatable={"cpu": cores, PODS: slots},
            )
        )
        held = draw(st.integers(0, gpus))
        taken = min(slots, held)
        if taken:
            mask = [draw(st.booleans()) for _ in range(taken)]
            stands = [(0, i, n, 1 << i if mask[i] else None) for i in range(taken)]
            gangs.append(gang(f"g{n}", taken, stands=stands, requests={"cpu": 500}))
        space.append((gpus - taken, cores - 500 * taken, slots - taken))
    instance = build(nodes=nodes, gangs=gangs)
    per_gpu = (("cpu", 2000),) if cpu else ()
    instance = replace(instance, policy=replace(instance.policy, per_gpu=per_gpu))
    free = tuple((gpus, max(0, cores), slots) for gpus, cores, slots in space)
    return instance, free


@settings(max_examples=examples(60), deadline=None)
@given(occupied(), st.integers(1, 3), st.integers(1, 3), st.sampled_from([CLUSTER, 0, 1, 2]))
def test_counts_are_the_most_gangs_that_can_be_packed(
    case: tuple[Instance, Space], pods: int, gpus: int, level: int
) -> None:
    instance, space = case
    cluster, shape = instance.cluster, Shape(pods, gpus, level)
    _, status = counted(instance, [shape], usable_nodes(instance))
    (found,) = status.shapes
    everywhere = tuple(range(len(cluster.nodes)))
    assert found.before == most_gangs(instance, space, shape, everywhere)
    listed = {(row.level, row.domain): row.before for row in found.levels}
    for wide in range(cluster.node_level + 1):
        name = cluster.level_name(wide)
        each = [most_gangs(instance, space, shape, d.nodes) for d in cluster.domains[wide]]
        # a gang stays in one domain of both levels: of the narrower one
        assert listed[name, None] == sum(each)
        if wide < cluster.node_level:
            paths = ["/".join(domain.path) for domain in cluster.domains[wide]]
            assert [listed.get((name, path), 0) for path in paths] == each
    for row in status.largest:
        wide = (
            CLUSTER
            if row.level is None
            else [cluster.level_name(n) for n in range(cluster.node_level + 1)].index(row.level)
        )
        within = [everywhere] if wide == CLUSTER else [d.nodes for d in cluster.domains[wide]]
        # the largest gang: one of n pods fits and one of n + 1 does not, in any domain
        for size in (row.before, row.before + 1) if row.gpus == gpus else ():
            fits = size == 0 or any(
                most_gangs(instance, space, Shape(size, gpus), nodes) for nodes in within
            )
            assert fits == (size == row.before)


def free_after(plan: dict[str, object]) -> int:
    """GPUs that no pod holds after a plan on healthy nodes in order, by arithmetic on the document."""
    instance = plan["instance"]
    spec = instance["cluster"]["spec"]  # type: ignore[index]
    gpus = {model["name"]: model["gpus"] for model in spec["serverModels"]}
    roles = {
        (one["metadata"]["name"], role["name"]): role["gpus"]
        for one in instance["gangs"]  # type: ignore[index]
        for role in one["spec"]["roles"]
    }
    held = sum(
        roles[one["name"], pod["role"]]
        for one in plan["spec"]["gangs"]  # type: ignore[index]
        if one["decision"] not in ("wait", "preempt")
        for pod in one["pods"]
    )
    return sum(gpus[node["model"]] for node in spec["nodes"]) - held


@pytest.mark.parametrize(
    "name", first_fast(["preemption", "moves", "quickstart", "elastic", "snapshots/v100-mpi"], 2)
)
def test_a_plan_is_counted_as_its_input_before_and_as_it_ends_after(
    cli: RunCli, tmp_path: Path, name: str
) -> None:
    folder, saved = str(ROOT / "inputs" / name), str(tmp_path / "plan.json")
    assert cli("plan", folder, "--out", saved, "-o", "name").code == 0
    shapes = ("--shape", "1x1", "--shape", "2x2@node", "-o", "json")
    now = CapacityDocument.model_validate_json(cli("capacity", folder, *shapes).out)
    both = CapacityDocument.model_validate_json(cli("capacity", saved, *shapes).out)
    piped = cli("capacity", "-", *shapes, stdin=Path(saved).read_bytes())
    assert json.loads(piped.out)["status"] == both.to_json()["status"]
    plan = json.loads(Path(saved).read_text(encoding="utf-8"))
    assert now.cluster.after is None
    assert both.cluster.before == now.cluster.before
    assert both.cluster.after == free_after(plan)
    for mine, other in zip(now.status.shapes, both.status.shapes, strict=True):
        assert (mine.after, mine.before) == (None, other.before)
        assert [(row.domain, row.before) for row in mine.levels if row.before] == [
            (row.domain, row.before) for row in other.levels if row.before
        ]


def test_the_shape_of_a_waiting_gang_keeps_to_the_narrowest_level_that_it_requires(
    cli: RunCli, tmp_path: Path
) -> None:
    (tmp_path / "in.yaml").write_text("""
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: c}
spec: {levels: [{name: rack}], nodes: [{name: "n[1-2]", model: DGX H100, domains: {rack: r1}}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: g}
spec:
  topology: {required: rack}
  roles: [{name: w, replicas: 2, gpus: 8, topology: {required: node}}]
""")
    found = json.loads(cli("capacity", str(tmp_path / "in.yaml"), "-o", "json").out)
    shapes = [one["shape"] for one in found["status"]["shapes"]]
    assert shapes == ["1x8", "2x8", "2x8@node"]  # of the mix, then of the gang


def test_domains_of_an_exclusive_gang_and_spares_are_no_room() -> None:
    # three racks of two nodes of four GPUs: one is a gang's own, in the others one node each stays free
    alone = replace(gang("alone", stands=[(0, 0, 0, 1)]), exclusive=1)
    instance = build(racks=3, nodes_per_rack=2, gpus=4, gangs=[alone])
    everywhere = usable_nodes(instance)
    (shape,) = counted(instance, [Shape(1, 4)], everywhere)[1].shapes
    assert shape.before == 4
    spared = replace(instance, policy=replace(instance.policy, spares=(("rack", 1),)))
    (shape,) = counted(spared, [Shape(1, 4)], everywhere)[1].shapes
    assert [row.before for row in shape.levels if row.level == "rack" and row.domain] == [1, 1]
