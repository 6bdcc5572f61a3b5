"""Services: the gangs of one namespace and service run on one GPU model.

Where some run before the plan, the others go to one of their models: that restricts single pods to nodes.
A service is *open* if none runs: all its gangs then share a model, which the plan chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from models.instance.gang import Gang, Role
from models.instance.instance import Instance, once, once_each
from models.instance.solution import GangDecision
from models.rules.declaration import Asked, Declaration, Requirement, dropping

Service = tuple[str, str]
"""(namespace, service)."""


def service_of(gang: Gang) -> Service | None:
    return None if gang.service is None else (gang.namespace, gang.service)


def bound(role: Role) -> bool:
    """Whether the rule binds pods of the role."""
    return role.gpus > 0 and not role.mix_models


@once
def running_models(instance: Instance) -> dict[Service, frozenset[str]]:
    """GPU models on which pods of each service run before the plan."""
    return {key: _models(instance, gangs, _standing) for key, gangs in members(instance).items()}


Nodes = Callable[[int, Gang], Iterable[int]]
"""Nodes of the pods that count, of a gang by index."""


def _standing(_index: int, gang: Gang) -> Iterable[int]:
    return (p.node for p in gang.pods if p.node is not None and gang.roles[p.role].gpus)


def _models(instance: Instance, gangs: Iterable[int], nodes: Nodes) -> frozenset[str]:
    found = (n for index in gangs for n in nodes(index, instance.gangs[index]))
    return instance.gpu_names(frozenset(found))


@once
def members(instance: Instance) -> dict[Service, list[int]]:
    """The gangs of each service."""
    found: dict[Service, list[int]] = {}
    for index, gang in enumerate(instance.gangs):
        if (key := service_of(gang)) is not None:
            found.setdefault(key, []).append(index)
    return found


def open_service(instance: Instance, gang: Gang) -> Service | None:
    """The service of the gang if none of its gangs runs."""
    key = service_of(gang)
    return None if key is None or running_models(instance)[key] else key


def nodes_of_service(instance: Instance, gang: Gang, role: Role) -> frozenset[int] | None:
    """Nodes with a model on which the gang's service runs; None if it may use every node."""
    key = service_of(gang)
    names = running_models(instance)[key] if key is not None and bound(role) else None
    if not names:
        return None
    return _nodes_of(instance, names)


@once_each
def _nodes_of(instance: Instance, names: frozenset[str]) -> frozenset[int]:
    nodes = enumerate(instance.cluster.nodes)
    return frozenset(n for n, node in nodes if node.model and node.model.gpu in names)


def chosen_models(
    instance: Instance, decisions: Sequence[GangDecision], gangs: Iterable[int]
) -> frozenset[str]:
    """GPU models of the pods that these gangs, which do not run, have after a plan."""

    def nodes(index: int, gang: Gang) -> Iterable[int]:
        return (pod.node for pod in decisions[index].pods if bound(gang.roles[pod.role]))

    return _models(instance, gangs, nodes)


def mixed(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Gangs of open services that are not on the model on which most GPUs of their service are."""
    found: list[int] = []
    for key, gangs in members(instance).items():
        if running_models(instance)[key] or len(chosen_models(instance, decisions, gangs)) < 2:
            continue
        of = {index: chosen_models(instance, decisions, (index,)) for index in gangs}
        gpus: dict[str, int] = {}
        for index, names in of.items():
            if len(names) == 1:
                (name,) = names
                gpus[name] = gpus.get(name, 0) + instance.gangs[index].weight_gpus
        kept = min(gpus, key=lambda name: (-gpus[name], name), default=None)
        found += [index for index, names in of.items() if names and names != {kept}]
    return found


def _service(_instance: Instance, gang: Gang) -> Iterator[Asked[Gang]]:
    if gang.service is not None:
        yield Asked(gang.service, dropping(service=None))


SERVICE = Requirement(
    "service", "all gangs of the service must be on one GPU model", of_gang=_service, code="NoRoom"
)


DECLARED = Declaration("services", (SERVICE,), eligible=nodes_of_service, gang_key=open_service)
