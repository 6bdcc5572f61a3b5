"""On which GPU models the gangs of one service may start or move, in tiny instances.

Promises: the words of rule 2.5 about services, and nothing else of it; own code.
Called by the exhaustive planner alone.
"""

from __future__ import annotations

from models.instance.gang import Gang
from models.instance.instance import Instance

Service = tuple[str, str]
"""Namespace and name; services of one name in two namespaces have nothing to do with each other."""

Settled = tuple[tuple[Service, str], ...]
"""The GPU model of each service of which nothing ran, as far as gangs of it have been placed."""


def service_of(gang: Gang) -> Service | None:
    return None if gang.service is None else (gang.namespace, gang.service)


def models_before(instance: Instance) -> dict[Service, frozenset[str]]:
    """GPU models on which pods with GPUs of each service run before the plan; may be none."""
    found: dict[Service, set[str]] = {}
    for gang in instance.gangs:
        service = service_of(gang)
        if service is not None:
            of_service = found.setdefault(service, set())
            for pod in gang.pods:
                if pod.node is not None and gang.roles[pod.role].gpus:
                    model = instance.cluster.nodes[pod.node].model
                    of_service |= {model.gpu} if model else set()
    return {service: frozenset(models) for service, models in found.items()}


def settled(before: Settled, service: Service | None, gpu: str | None) -> Settled | None:
    """With one more gang that needs the service on a model; None where it is on another one."""
    if service is None or gpu is None:
        return before
    models = dict(before)
    if models.setdefault(service, gpu) != gpu:
        return None
    return tuple(sorted(models.items()))
