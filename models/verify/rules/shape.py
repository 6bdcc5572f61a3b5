"""What a plan keeps to the shape of: balance, domains of one gang alone, and nodes kept free for failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from models.verify.facts import Facts, Gang, Node, uses_gpus
from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation, printable


def _balanced(outcome: Outcome) -> Iterator[Violation]:
    """Balance: a gang's pods with GPUs are shared evenly by the domains of its level that have any.

    It binds as soon as one of these pods is placed or moved; then those that stay count as well.
    """
    facts = outcome.facts
    for change in outcome.changes:
        level, roles = change.gang.balance, change.gang.roles
        if level is None or not any(roles[pod.role].gpus for pod in change.binding):
            continue
        heavy = (pod for pod in change.pods.values() if roles[pod.role].gpus)
        shares = Counter(facts.nodes[pod.node].domain[level] for pod in heavy)
        most, least = max(shares.values()), min(shares.values())
        if most > least + 1:
            name = facts.level_name(level)
            what = f"has {most} pods with GPUs in one {name} and {least} in another"
            yield change.violation("balance", f"{what}: at most one more is allowed")


BALANCE = Judged(
    _balanced,
    {"balance": "a gang's GPU pods are shared evenly by the domains of its level that have any"},
    on_empty=True,
    codes={"Balance": lambda _, gang: gang.balance is not None},
    binds={"balance": lambda gang, _: gang.spec.topology.balance is not None},
)


def _exclusive(outcome: Outcome) -> Iterator[Violation]:
    """Exclusive: no pod with GPUs comes into a domain that an exclusive gang shares with another.

    Both sides are bound. What stood together before the plan may stay together.
    """
    levels = {gang.exclusive for gang in outcome.facts.gangs if gang.exclusive is not None}
    for level in sorted(levels):
        found: dict[int, dict[int, bool]] = {}  # by domain, gangs there, and whether a pod comes
        for node, use in zip(outcome.facts.nodes, outcome.usage.nodes, strict=True):
            for position, pod, placed in use.tenants:
                if outcome.changes[position].gang.roles[pod.role].gpus:
                    there = found.setdefault(node.domain[level], {})
                    there[position] = placed or there.get(position, False)
        for tenants in found.values():
            yield from _shared(outcome, level, tenants)


def _shared(outcome: Outcome, level: int, tenants: dict[int, bool]) -> Iterator[Violation]:
    """Exclusive gangs in one domain that share it with another, of which one comes."""
    coming = [position for position, comes in tenants.items() if comes]
    for position in sorted(tenants):
        change = outcome.changes[position]
        if change.gang.exclusive != level:
            continue
        others = tenants if tenants[position] else coming
        other = min((i for i in others if i != position), default=None)
        if other is not None:
            name = outcome.facts.level_name(level)
            label = outcome.changes[other].label
            yield change.violation(
                "exclusive", f"must have its {name} alone, is there with {label}"
            )


def _concerns(outcome: Outcome, gang: Gang) -> bool:
    return gang.exclusive is not None or any(
        change.gang.exclusive is not None
        and any(change.gang.held(pod) for pod in change.pods.values())
        for change in outcome.changes
    )


EXCLUSIVE = Judged(
    _exclusive,
    {"exclusive": "no GPU pod comes into a domain that an exclusive gang shares with another"},
    on_empty=True,
    codes={"Exclusive": _concerns},
    binds={"exclusive": lambda gang, _: gang.spec.topology.exclusive is not None},
)


def _spares_left(outcome: Outcome) -> Iterator[Violation]:
    """Spares: of the nodes with GPUs in a domain as many stay idle as the policy keeps free for failures.

    Nodes that have failed are taken off that number, and no domain owes more idle nodes than it had before.
    A node of which a GPU is partitioned or shared has not failed, and is not idle: it replaces no whole one.
    """
    facts = outcome.facts
    if not facts.spares:
        return
    busy = {
        n
        for n, use in enumerate(outcome.usage.nodes)
        if (facts.nodes[n].comes or facts.nodes[n].unknown_comes)
        or any(uses_gpus(outcome.changes[i].gang.roles[pod.role]) for i, pod, _ in use.tenants)
    }
    before = _idle_before(outcome)
    for level, spares in facts.spares:
        for domain in _domains(facts, level):
            failed = sum(
                not node.usable
                or bool(node.unhealthy & ~node.partitioned)
                or node.unknown_unhealthy > node.unknown_partitioned
                for node in (facts.nodes[n] for n in domain)
            )
            owed = min(spares - failed, sum(n in before for n in domain))
            idle = sum(_sound(facts.nodes[n]) and n not in busy for n in domain)
            if idle < owed:
                name = f"{facts.level_name(level)} of {printable(facts.nodes[domain[0]].name)}"
                what = f"{name}: {idle} nodes are idle, {owed} must stay so"
                yield Violation("spares", None, what)


def _domains(facts: Facts, level: int) -> list[list[int]]:
    """Selected nodes with GPUs of every named domain of a level."""
    found: dict[int, list[int]] = {}
    for n, node in enumerate(facts.nodes):
        if node.gpus and node.selected and node.has(level):
            found.setdefault(node.domain[level], []).append(n)
    return list(found.values())


def _sound(node: Node) -> bool:
    """Whether the node, as it was before the plan, is in order with all its GPUs whole."""
    was = node.as_it_was
    return was.usable and not was.unhealthy and not was.unknown_unhealthy


def _idle_before(outcome: Outcome) -> set[int]:
    """Sound nodes on which no pod with GPUs, or parts of some, runs."""
    if "idle" not in outcome.counting:
        held = {
            pod.node
            for gang in outcome.facts.gangs
            for pod in gang.running_pods.values()
            if uses_gpus(gang.roles[pod.role])
        }
        nodes = enumerate(outcome.facts.nodes)
        outcome.counting["idle"] = {n for n, node in nodes if _sound(node) and n not in held}
    return outcome.counting["idle"]


SPARES = Judged(
    _spares_left,
    {
        "spares": "of the nodes of a domain as many stay idle as the policy keeps free for failures",
    },
    on_empty=True,
    codes={"Spares": lambda outcome, _: any(n for _, n in outcome.facts.spares)},
)
