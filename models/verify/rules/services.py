"""Services: the gangs of one namespace and service run on one GPU model.

It binds pods with GPUs that are placed or moved, of roles without mixModels: they go where such a gang
runs before the plan, on any of its GPU models, and all to one model if none runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from models.verify.changes import Change
from models.verify.facts import Facts, Pod
from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation, printable, quoted


def check(outcome: Outcome) -> Iterator[Violation]:
    services: dict[tuple[str, str], list[Change]] = {}
    for change in outcome.changes:
        if change.gang.service is not None:
            services.setdefault((change.gang.namespace, change.gang.service), []).append(change)
    for (_, name), members in services.items():
        yield from _service(outcome.facts, name, members)


def _service(facts: Facts, name: str, members: Sequence[Change]) -> Iterator[Violation]:
    running: set[str] = set()
    for change in members:
        running |= _models(facts, change, change.gang.running_pods.values())
    bound = [(change, _models(facts, change, _bound(change))) for change in members]
    used = set[str]().union(*(models for _, models in bound))
    if not running and len(used) <= 1:
        return
    for change, models in bound:
        if not models <= running:
            where = f"runs on {_listed(running)}" if running else f"is placed on {_listed(used)}"
            what = f"is placed on {_listed(models)}, but its service {quoted(name)} {where}"
            yield change.violation("service", what)


def _bound(change: Change) -> Iterator[Pod]:
    roles = change.gang.roles
    return (pod for pod in change.binding if not roles[pod.role].mix_models)


def _models(facts: Facts, change: Change, pods: Iterable[Pod]) -> set[str]:
    """GPU models of the nodes of those that request GPUs."""
    nodes = {pod.node for pod in pods if change.gang.roles[pod.role].gpus}
    return {model.gpu for n in nodes if (model := facts.nodes[n].model) is not None}


def _listed(models: set[str]) -> str:
    return printable(", ".join(sorted(models)))


RULE = Judged(
    check,
    {"service": "GPU pods of one service run on one GPU model, that of those that run already"},
    on_empty=True,
)
