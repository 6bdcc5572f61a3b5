"""Spares: of the nodes with GPUs in a domain as many stay idle as the policy keeps free for failures.

Nodes that have failed are taken off that number, and no domain owes more idle nodes than it had before.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.verify.facts import Facts, Node
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
        if any(outcome.changes[i].gang.roles[pod.role].gpus for i, pod, _ in use.tenants)
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
    return not node.usable or bool(node.unhealthy) or node.unknown_unhealthy > 0


def _sound(node: Node) -> bool:
    return not _failed(node)


def _idle_before(outcome: Outcome) -> set[int]:
    """Sound nodes on which no pod with GPUs runs."""
    if "idle" not in outcome.counting:
        held = {
            pod.node
            for gang in outcome.facts.gangs
            for pod in gang.running_pods.values()
            if gang.roles[pod.role].gpus
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
