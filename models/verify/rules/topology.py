"""Required levels, slices, and one GPU model for a role and for a service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from models.verify.changes import Change
from models.verify.facts import Facts, Pod
from models.verify.outcome import Outcome
from models.verify.rule import Judged, role_binds
from models.verify.violation import Violation, printable, quoted


def _near(outcome: Outcome) -> Iterator[Violation]:
    """Topology: required levels of gang and role, slices, one GPU model a role.

    Every set of pods that belong together (gang, role, slice), of which at least one is placed or moved,
    uses one domain of the required level; likewise a role's GPU pods one GPU model. A set of which every
    pod stays is exempt.
    """
    for change in outcome.changes:
        if change.binding:
            yield from faults(outcome.facts, change)


def domains_used(facts: Facts, pods: Sequence[Pod], level: int) -> int:
    """How many domains of a level the pods use."""
    return len({facts.nodes[pod.node].domain[level] for pod in pods})


def faults(facts: Facts, change: Change) -> Iterator[Violation]:
    """What is wrong with where the pods of one gang are."""
    gang = change.gang
    if gang.required is not None:
        every = tuple(change.pods.values())
        yield from _one(facts, change, every, gang.required, "required", "the gang")
    for number in sorted({pod.role for pod in change.binding}):
        role, pods, name = gang.roles[number], change.by_role[number], gang.roles[number].name
        if role.required is not None:
            yield from _one(facts, change, pods, role.required, "required", f"role {name}")
        for size, level in role.slices:
            yield from _slices(facts, change, pods, size, level)
        if role.gpus and not role.mix_models:
            models = {
                node.model.gpu for pod in pods if (node := facts.nodes[pod.node]).model is not None
            }
            if len(models) > 1:
                what = f"role {name}: runs on {', '.join(sorted(models))}"
                yield change.violation("one-model", what)


def _slices(
    facts: Facts, change: Change, pods: Sequence[Pod], size: int, level: int
) -> Iterator[Violation]:
    role = pods[0].role
    bound = {pod.index // size for pod in change.binding if pod.role == role}
    members: dict[int, list[Pod]] = {}
    for pod in pods:
        members.setdefault(pod.index // size, []).append(pod)
    for which in sorted(bound):
        what = f"slice {which} of role {change.gang.roles[role].name}"
        yield from _one(facts, change, members[which], level, "slice", what)


def _one(
    facts: Facts, change: Change, pods: Sequence[Pod], level: int, rule: str, what: str
) -> Iterator[Violation]:
    used = domains_used(facts, pods, level)
    if used > 1:
        name = facts.level_name(level)
        yield change.violation(rule, f"{what} must stay in one {name}, uses {used}")


TOPOLOGY = Judged(
    _near,
    {
        "required": "required levels of gang and role hold",
        "slice": "every slice shares one domain",
        "one-model": "a role's GPU pods run on one GPU model",
    },
    on_empty=True,
    binds={
        "slice": role_binds(lambda role: role.slice or role.outer_slices),
        "one-model": role_binds(lambda role: role.gpus and not role.mix_models),
    },
)


def _on_one_model(outcome: Outcome) -> Iterator[Violation]:
    """Services: the gangs of one namespace and service run on one GPU model.

    It binds pods with GPUs that are placed or moved, of roles without mixModels: they go where such a gang
    runs before the plan, on any of its GPU models, and all to one model if none runs.
    """
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
    bound = []
    for change in members:
        roles = change.gang.roles
        own = (pod for pod in change.binding if not roles[pod.role].mix_models)
        bound.append((change, _models(facts, change, own)))
    used = set[str]().union(*(models for _, models in bound))
    if not running and len(used) <= 1:
        return
    for change, models in bound:
        if not models <= running:
            where = f"runs on {_listed(running)}" if running else f"is placed on {_listed(used)}"
            what = f"is placed on {_listed(models)}, but its service {quoted(name)} {where}"
            yield change.violation("service", what)


def _models(facts: Facts, change: Change, pods: Iterable[Pod]) -> set[str]:
    """GPU models of the nodes of those that request GPUs."""
    nodes = {pod.node for pod in pods if change.gang.roles[pod.role].gpus}
    return {model.gpu for n in nodes if (model := facts.nodes[n].model) is not None}


def _listed(models: set[str]) -> str:
    return printable(", ".join(sorted(models)))


SERVICES = Judged(
    _on_one_model,
    {"service": "GPU pods of one service run on one GPU model, that of those that run already"},
    on_empty=True,
)
