"""Spares: of the nodes with GPUs in a domain as many stay idle as the policy keeps free for failures.

Nodes that have failed are taken off that number, and no domain owes more idle nodes than it had before.
A node of which a GPU is partitioned or shared has not failed, and is not idle: it replaces no whole one.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.verify.facts import Facts, Node, uses_gpus
from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation, printable


def check(outcome: Outcome) -> Iterator[Violation]:
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
            failed = sum(_failed(facts.nodes[n]) for n in domain)
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


def _failed(node: Node) -> bool:
    sick = node.unhealthy & ~node.partitioned
    return not node.usable or bool(sick) or node.unknown_unhealthy > node.unknown_partitioned


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


RULE = Judged(
    check,
    {
        "spares": "of the nodes of a domain as many stay idle as the policy keeps free for failures",
    },
    on_empty=True,
    codes={"Spares": lambda outcome, _: any(n for _, n in outcome.facts.spares)},
)
