"""A tier and a rule that the project does not have, added by nothing but the rows their recipes name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import pytest
from building import build, gang, mask, node
from building_servers import switched
from exhaustive import plan
from exhaustive_spreads import Spreading
from exhaustive_values import Pods
from outcomes import NOW

from models import tiers
from models.documents.gang import GangDocument
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement, Reason, Solution
from models.program import rows
from models.program import tier_expressions as program_tiers
from models.program.base_state import base_decisions
from models.program.linear_program import Linear
from models.program.queue_usage import QUEUE_TIERS
from models.program.rows import Rule
from models.program.rules.topology import Topology
from models.program.tier_expressions import TierExpressions
from models.program.variables import GangVariables, Model
from models.results.plan import compose
from models.rules import registry
from models.rules.declaration import Asked, Declaration, Requirement, dropping
from models.rules.demands import Demand
from models.tiers import TierFamily
from models.values import tier_values
from models.verify import judged_rules as table
from models.verify import tier_values as judged_values
from models.verify.check import check, derive
from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation
from planner.search.solve import AGGREGATED_FROM, WHOLE_BELOW, solve
from planner.search.start.greedy import greedy

SIZES = (None, AGGREGATED_FROM, WHOLE_BELOW)

pytestmark = pytest.mark.usefixtures("brief_improvement")
"""Sizes that choose the exact search, the aggregated model, and the aggregated model with neighbourhoods."""


def judged(instance: Instance, solution: Solution) -> list[Violation]:
    return check(compose(instance, solution, name="p", created_at=NOW, generator="gangplan test"))


# A tier: the nodes that admitted gangs use.


def nodes_used(expressions: TierExpressions) -> Linear:
    total = Linear()
    for topology in expressions.topologies:
        total.add_linear(topology.nodes())
    for stay in expressions.model.variables.stays:
        total.add(stay.admit, len({pod.node for pod in stay.demand.stays}))
    for group in expressions.model.variables.groups:
        total.add_all(group.admits)
    return total


@pytest.fixture
def nodes_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    row = TierFamily("nodes", "min", "nodes", "placement", default=False)
    monkeypatch.setattr(tiers, "TIERS", (*tiers.TIERS, row))
    monkeypatch.setitem(program_tiers.EXPRESSIONS, "nodes", nodes_used)
    monkeypatch.setitem(
        tier_values.PLACEMENT_VALUES,
        "nodes",
        lambda _instance, _gang, _pods, value: value.domains[-1],
    )
    monkeypatch.setitem(
        judged_values.VALUES,
        "nodes",
        lambda values, _priority: sum(
            len({pod.node for pod in change.pods.values()})
            for change in values.changes
            if change.admitted
        ),
    )


@pytest.mark.usefixtures("nodes_tier")
@pytest.mark.parametrize("size", SIZES)
def test_a_tier_is_one_row_an_expression_a_value_and_the_value_of_the_judge(
    size: int | None,
) -> None:
    nodes = [node(f"n{i}", switched(8)) for i in range(4)]
    runs = gang("r", 1, 4, stands=[(0, 0, 0, mask(0, 1, 2, 3))])
    waits = [gang("a", 4, 2), gang("b", 2, 8), gang("c", 2, 2)]
    instance = build(nodes=nodes, gangs=[runs, *waits], objectives=("admission", "nodes"))
    solution = solve(instance, size=size)
    found = {tier.name: (tier.value, tier.sense) for tier in solution.tiers}
    # r and c share a node, a has one, b two.
    assert found["nodes"] == (5, "min")
    if size is None:
        assert all(tier.bound == tier.value for tier in solution.tiers)
    assert judged(instance, solution) == []
    document = compose(instance, solution, name="p", created_at=NOW, generator="gangplan test")
    assert derive(document)["nodes"] == 5


# A rule: the pods of a gang whose name starts with "one-side" are all on even or all on odd nodes.


def one_sided(gang: Gang) -> bool:
    """Unless plans have stopped it, which stands for a field of the rule here."""
    return gang.name.startswith("one-side") and not gang.evictions


def asked(_instance: Instance, gang: Gang) -> Iterator[Asked[Gang]]:
    if one_sided(gang):
        yield Asked("parity", dropping(evictions=1))


ONE_SIDE = Requirement(
    "oneSide",
    "all its pods must be on nodes of one {}",
    of_gang=asked,
    word="one-side",
    relaxes="that its pods are on one side",
)


def sides(instance: Instance) -> list[frozenset[int]]:
    every = range(len(instance.cluster.nodes))
    return [frozenset(n for n in every if n % 2 == side) for side in (0, 1)]


def allowed(_instance: Instance, gang: Gang, pods: Sequence[PodPlacement]) -> bool:
    return not one_sided(gang) or len({pod.node % 2 for pod in pods}) < 2


def too_few(instance: Instance, demand: Demand, free: Sequence[int]) -> Reason | None:
    if not one_sided(instance.gangs[demand.gang]):
        return None
    best = max(sum(free[n] for n in side) for side in sides(instance))
    if best >= demand.gpus:
        return None
    return Reason.of(
        "NoRoom", text=f"needs {demand.gpus} GPUs on one side; the best side has {best}"
    )


def side_rows(model: Model, gang: GangVariables, _topology: Topology) -> None:
    if not one_sided(gang.gang):
        return
    even = [r.number for r in model.region_set.regions if r.nodes[0] % 2 == 0]
    chosen = model.program.boolean()
    model.program.at_most(Linear().add(chosen).add(gang.admit, -1))
    for position, role in enumerate(gang.demand.gpu_roles):
        model.program.equal(gang.gpu_pods(position, even).add(chosen, -role.count))


def side_binds(document: GangDocument, _: object) -> bool:
    return document.metadata.name.startswith("one-side") and not document.status.evictions


def side_check(outcome: Outcome) -> Iterator[Violation]:
    for change in outcome.changes:
        used = {pod.node % 2 for pod in change.pods.values()}
        if side_binds(change.gang.document, outcome) and len(used) > 1:
            yield Violation("one-side", change.label, "is on even and on odd nodes")


@pytest.fixture
def side_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = Declaration(
        "one-side",
        (ONE_SIDE,),
        node_key=lambda _instance, n: n % 2,
        gang_key=lambda _instance, gang: one_sided(gang),
        own_variables=lambda _instance, gang: one_sided(gang),
        node_sets=lambda instance, gang: sides(instance) if one_sided(gang) else None,
        allows=allowed,
        shortage=too_few,
    )
    monkeypatch.setattr(registry, "DECLARED", (*registry.DECLARED, declared))
    monkeypatch.setattr(rows, "RULES", (*rows.RULES, Rule("one-side", gang_rows=side_rows)))
    guards = {"one-side": "the pods are all on even or all on odd nodes"}
    judged = Judged(side_check, guards, binds={"one-side": side_binds})
    monkeypatch.setattr(table, "RULES", (*table.RULES, judged))
    usual = Spreading._allowed

    def line(self: Spreading, gang: Gang, stays: Pods, new: Pods) -> bool:
        even = {n % 2 for _, _, n in (*stays, *new)}
        return usual(self, gang, stays, new) and not (one_sided(gang) and len(even) > 1)

    monkeypatch.setattr(Spreading, "_allowed", line)


def two_racks(*gangs: Gang) -> Instance:
    """Two racks of two nodes; bandwidth and span want a gang in one rack, the rule in both."""
    nodes = [node(f"n{i}", switched(8), rack=f"r{i // 2}") for i in range(4)]
    return build(nodes=nodes, gangs=gangs)


def nodes_of(instance: Instance, decisions: Sequence[GangDecision], name: str) -> list[int]:
    (index,) = (i for i, one in enumerate(instance.gangs) if one.name == name)
    return [pod.node for pod in decisions[index].pods]


@pytest.mark.usefixtures("side_rule")
@pytest.mark.parametrize("size", SIZES)
def test_a_rule_is_its_rows_its_check_its_line_of_the_oracle_and_what_it_declares(
    size: int | None,
) -> None:
    instance = two_racks(gang("one-side", 2, 8), gang("other", 2, 4), gang("small", 1, 8))
    start = nodes_of(instance, greedy(instance, base_decisions(instance)), "one-side")
    assert start in ([0, 2], [1, 3])
    solution = solve(instance, size=size)
    assert nodes_of(instance, solution.decisions, "one-side") in ([0, 2], [1, 3])
    assert judged(instance, solution) == []
    if size is None:
        assert tuple((t.name, t.value) for t in solution.tiers) == plan(instance).tiers
        assert all(tier.bound == tier.value for tier in solution.tiers)


@pytest.mark.usefixtures("side_rule")
@pytest.mark.parametrize("size", SIZES)
def test_a_gang_that_waits_because_of_a_rule_says_so(size: int | None) -> None:
    stands = [gang(f"r{n}", 1, 8, stands=[(0, 0, n, 255)]) for n in (1, 2)]
    instance = two_racks(*stands, gang("one-side", 2, 8))
    solution = solve(instance, size=size)
    decision = solution.decisions[0]
    assert (decision.decision, decision.pods) == ("wait", ())
    assert decision.reason is not None
    assert decision.reason.code == "NoRoom"
    assert decision.reason.fields.text == "needs 16 GPUs on one side; the best side has 8"
    assert judged(instance, solution) == []


def test_every_tier_has_a_value_an_expression_and_a_bound() -> None:
    names = {row.name for row in tiers.TIERS}
    valued = {
        *tier_values.GANG_VALUES,
        *tier_values.PLAN_VALUES,
        *tier_values.PLACEMENT_VALUES,
        "fair",
    }
    expressed = {
        *program_tiers.OPTION_VALUES,
        *program_tiers.SPEED_FACTORS,
        *program_tiers.FREE_SPACE,
        *program_tiers.EXPRESSIONS,
        *QUEUE_TIERS,
    }
    assert names == valued == expressed == set(judged_values.VALUES)
    assert {row.objective for row in tiers.TIERS} - {None} == set(tiers.objective_names())


def test_the_tiers_of_a_policy_are_stated_in_the_order_of_the_table() -> None:
    listed = [
        *(("span", Fraction(0)), ("waiting", Fraction(1, 8)), ("fair", Fraction(0))),
        ("admission", Fraction(1, 4)),
    ]
    met = {0: {"elastic", "guaranteed"}, 7: {"may_lose_gpus", "aged", "guaranteed"}}
    found = [(tier.name, tier.tolerance) for tier in tiers.stated_tiers(listed, met, queues=2)]
    assert found == [
        ("guarantee/7", Fraction(1, 4)),
        ("guarantee/0", Fraction(1, 4)),
        ("span", Fraction(0)),
        ("fair/1", Fraction(0)),
        ("fair/2", Fraction(0)),
        ("kept/7", Fraction(1, 4)),
        ("aged/7", Fraction(1, 4)),
        ("aged-waiting/7", Fraction(1, 8)),
        ("admission/7", Fraction(1, 4)),
        ("waiting/7", Fraction(1, 8)),
        ("admission/0", Fraction(1, 4)),
        ("waiting/0", Fraction(1, 8)),
    ]
