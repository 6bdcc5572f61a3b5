"""What a pod asks of GPUs: whole ones, or parts of them that some system or a device plugin gives.

A fraction is never taken for a whole GPU, nor a whole GPU for one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from planner.read.kube.devices.claims import Sort
from planner.read.kube.dialects.gpus import MAX_POD_GPUS, Ask, GpuSystem, share
from planner.read.kube.lookup import at, mapping, objects, text
from planner.read.kube.pods.requests import is_about_gpus
from planner.read.kube.records import KubeObject

PARTITIONS = re.compile(r"nvidia\.com/mig-.+|nvidia\.com/gpu\.(shared|part)|amd\.com/.+_nps[0-9]+")
"""Parts of GPUs with resource names of their own: their GPUs are not among those offered whole.

All parts of one name are alike, so they are planned like any other resource that pods request.
"""

A_FRACTION = "a fraction of a GPU"
TWO_NAMES = "GPUs under two resource names"


def gpu_ask(
    amounts: Mapping[str, int],
    annotations: Mapping[str, str],
    gpu_resources: Collection[str],
    classes: Mapping[str, Sort],
    systems: Sequence[GpuSystem],
) -> Ask:
    """GPUs in these requests (whole units) and annotations; of a share only of how many GPUs.

    ``gpu_resources``: names of whole GPUs, in order; ``classes``: extended resources that stand for
    DRA device classes.
    """
    whole = [(name, amounts[name]) for name in gpu_resources if name in amounts]
    others = [name for name in amounts if name not in gpu_resources and is_about_gpus(name)]
    gpus, named = whole[0][1] if whole else 0, {name: amounts[name] for name in others}
    if any(one.beside(named, gpus) for one in systems):
        return share(gpus or 1)
    for one in systems:
        if one.counter and any(name in others for name in one.parts):
            return share(amounts.get(one.counter, 1))
    for name in others:  # device classes requested as extended resources
        if classes.get(name) is Sort.PART:
            return share(amounts[name])
        if classes.get(name) is Sort.WHOLE and not whole:
            return Ask(min(amounts[name], MAX_POD_GPUS), name)
    if whole:
        problems = (TWO_NAMES,) if len(whole) > 1 else ()
        most = max(amount for _, amount in whole)
        return Ask(
            min(most, MAX_POD_GPUS), whole[0][0] if most == gpus else None, problems=problems
        )
    return next(filter(None, (one.alone(amounts, annotations) for one in systems)), Ask())


def sharers(found: Iterable[KubeObject], systems: Sequence[GpuSystem]) -> frozenset[str]:
    """The systems of which some pod that has not finished asks for a GPU or a part of one."""
    names, seen = set[str](), dict[int, object]()
    by = {part: one.name for one in systems for part in one.parts}
    for pod in found:
        if text(pod.tree, "status", "phase") in ("Succeeded", "Failed"):
            continue
        names.update(one.name for one in systems if one.asks is not None and one.asks(pod))
        containers = at(pod.tree, "spec", "containers")
        for container in () if id(containers) in seen else objects(containers):
            for kind in ("limits", "requests"):
                asked = by.keys() & mapping(container, "resources", kind).keys()
                names.update(by[name] for name in asked)
        seen[id(containers)] = containers  # pods share those that are equal
    return frozenset(names)
