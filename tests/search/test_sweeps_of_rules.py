"""Random instances in bands, with scarce budgets, or empty: search, judge and trying every plan agree."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from comparing import differences, wrong
from effort import briefly, examples
from exhaustive_queues import could_start, could_start_now
from outcomes import planned
from stated_cases import instance_of
from tiny import busy, tiny

from models.documents.cluster import DisruptionBudget
from models.instance import disruption_budgets
from models.instance.gang import Gang, matches
from models.instance.instance import Instance
from models.queues.bands import banded
from models.starts.empty_starts import Answer, EmptyStarts
from planner.search.solve import solve


def in_bands(seed: int) -> Instance:
    draws, instance = Random(seed), busy(seed)
    gangs = tuple(
        replace(
            one,
            priority=one.priority // 2,
            preemptible=one.preemptible or draws.random() < 0.5,
            expected_left_s=draws.choice([None, 60, 4000, 10**6]),
            expected_duration_s=draws.choice([None, 600, 10**5]),
        )
        for one in instance.gangs
    )
    order = {"order": "shortest", "now": instance.now, "trust_durations": seed % 2 == 1}
    policy = replace(instance.policy, **order)  # type: ignore[arg-type]  # its fields
    return banded(replace(instance, gangs=gangs, policy=policy))


def test_the_search_equals_trying_every_plan_in_bands() -> None:
    for seed in range(examples(120, 4)):
        with briefly():
            planned(in_bands(seed))


def guarded(one: Gang) -> Gang:
    return replace(one, pods=tuple(replace(pod, budgets=("b",)) for pod in one.pods))


def short_by_one(instance: Instance) -> Instance | None:
    """With a budget over what the best plan evicts of two gangs or more, that allows one pod less."""
    pairs = zip(instance.gangs, solve(instance).decisions, strict=True)
    gone = [one for one, decision in pairs if disruption_budgets.evicting(decision)]
    together = [one for one in gone if one.namespace == gone[0].namespace]
    if len(together) < 2:
        return None
    keys, allowed = (
        {one.key for one in together},
        sum(len(one.running_pods) for one in together) - 1,
    )
    budgets = (DisruptionBudget(together[0].namespace, "b", allowed),)
    gangs = tuple(guarded(one) if one.key in keys else one for one in instance.gangs)
    cluster = replace(instance.cluster, budgets=budgets)
    return replace(instance, cluster=cluster, gangs=gangs)


@pytest.mark.slow
def test_the_search_equals_trying_every_plan_where_a_budget_lets_only_some_gangs_go() -> None:
    more, found = ("preemptible", "movable", "priorities", "running"), 0
    for seed in range(6000, 6200):
        instance = short_by_one(busy(seed, without=("budgets",), more=more))
        if instance is not None:
            found += 1
            assert differences(instance) == [], seed
    assert found > 1


STARTING = (
    *("priorities", "selectors", "required", "slices", "roles", "resources", "queues"),
    *("cells", "apart", "together", "even", "balance", "exclusive", "spares"),
    *("min_share", "elastic", "mixed", "mix_models"),
)


def test_who_could_start_on_the_empty_cluster_is_as_trying_every_place_says() -> None:
    never = 0

    def faults(seed: int) -> list[object]:
        nonlocal never
        found: list[object] = []
        instance = (busy if seed % 3 == 0 else tiny)(seed, more=STARTING)
        starts = EmptyStarts(instance)
        for g, one in enumerate(instance.gangs):
            if not one.running and one.hold is None:
                can, now = could_start(instance, g), could_start_now(instance, g)
                if (starts.answer(g) is Answer.CAN, starts.can_now(g)) != (can, now):
                    found.append((one.name, can, now))
                never += not can
        return found

    assert wrong(range(examples(300, 15)), faults) == {}
    assert never > 4


def test_nodes_of_a_role_are_those_that_match_its_affinity_by_themselves() -> None:
    """The same as ``explain`` says of a node."""
    r = Random(7)
    values = ("a", "b", "3", "-4", "+5", "9" * 30, "")

    def expression() -> str:
        operator = r.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        listed = [r.choice(("3", "-4", "0", "5"))] if operator in ("Gt", "Lt") else []
        listed = r.sample(values[:-1], 2) if operator in ("In", "NotIn") else listed
        return " ".join([r.choice("xyz"), operator, *listed])

    def labels() -> dict[str, str]:
        return {key: r.choice(values) for key in r.sample("xyz", r.randint(0, 3))}

    nodes = {f"n{i:02}": {"gpus": 8, "labels": labels()} for i in range(30)}
    sizes = set()
    for _ in range(100):
        terms = [[expression() for _ in range(r.randint(0, 3))] for _ in range(r.randint(1, 3))]
        instance = instance_of({"nodes": nodes, "gangs": {"a": {"affinity": terms}}})
        (role,) = instance.gangs[0].roles
        found = {instance.cluster.nodes[n].name for n in instance.eligible_nodes(role)}
        every = ((own.name, instance.labels_of(own)) for own in instance.cluster.nodes)
        assert found == {n for n, has in every if matches(role.node_affinity, has, n)}
        sizes.add(len(found))
    assert len(sizes) > 10
