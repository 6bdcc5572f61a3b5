"""What an instance cannot keep or price: promises to queues, rates of links and NICs, speeds of GPUs.

An instance that passes can be priced wherever its gangs may be placed. A speed is assumed, with a remark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

from models.documents.base import suggestion
from models.documents.gang import Toleration
from models.documents.reason import MAX_NAMED
from models.instance.cluster import Node
from models.instance.eligibility import model_matches
from models.instance.gang import Gang, Role, label_texts
from models.instance.instance import Instance
from models.instance.queue import Cell, Gpu, path_of
from models.mig import RESOURCE
from models.queues.queue_shares import (
    PromiseTree,
    cell_model,
    guarantees,
    model_of_nodes,
    queue_counts,
    stated_shares,
)
from models.units import number, plural, shown
from planner.read.compact_cluster import MergedCluster
from planner.read.findings import Remarks

MORE_HINT = "promise less: until then only what is preemptible starts beyond the guarantees"
OUTSIDE_HINT = "put them in a queue, or promise less"
LIMIT_HINT = "raise the limit, or promise less: the rest is kept for it, and it may never use it"


class _Promise(NamedTuple):
    """``own``: how many each queue is promised; ``there``: how many the cluster has.

    ``unusable``: further ones, on nodes that take no pods or not healthy.
    """

    what: str
    own: Sequence[int]
    there: int
    hint: str
    unusable: int = 0


def remark_promises(instance: Instance, remarks: Remarks) -> None:
    """One remark for each queue with a promise that cannot be kept; equal ones become one line."""
    if not instance.queues:
        return
    said: set[int] = set()
    paths = [path_of(instance.queues, q) for q in range(len(instance.queues))]
    for promise in (*_cells(instance), *_gpus(instance)):
        promised = PromiseTree(paths, promise.own).total
        if promised <= promise.there:
            continue
        there = f"{promise.there:,}" if promise.there else "none"
        if promise.unusable:
            there += f" that are usable and {promise.unusable:,} that are not"
        what = f"{promise.what}: {promised:,} promised to all queues together, and the cluster has {there}"
        for q, own in enumerate(promise.own):
            if own and q not in said:
                said.add(q)
                remarks.add(f"queue {instance.queues[q].name}", what, promise.hint)
    if (outside := _outside(instance)) is not None:
        remarks.add("gangs in no queue", outside, OUTSIDE_HINT)
    for q in _beyond_limits(instance):
        if q not in said:
            said.add(q)
            subject = f"queue {instance.queues[q].name}"
            remarks.add(subject, "its guarantee is above its limit", LIMIT_HINT)


def _outside(instance: Instance) -> str | None:
    """What promises lack if the gangs start that none of them binds; None if they lack nothing for it."""
    gangs = [g for g in instance.gangs if g.unmanaged and not g.preemptible and g.hold is None]
    asked = sum(role.min * role.gpus for gang in gangs for role in gang.roles)
    counts = queue_counts(instance, instance.standing)
    if not asked or counts is None or None not in counts.shares.healthy:
        return None
    there = counts.shares.healthy[None] + counts.beyond()
    lacking = min(asked, counts.promised() + asked - there)
    if lacking <= 0:
        return None
    return (
        f"other schedulers may start {plural(len(gangs), 'gang')} with {plural(asked, 'GPU')},"
        f" which no promise holds back; queues then lack {lacking:,} of the GPUs that they are promised"
    )


def _gpus(instance: Instance) -> Iterator[_Promise]:
    """GPUs in all, and those of each model; models that no node has come first."""
    found = guarantees(instance)
    there = {gpu: sum(node.gpus for _, node in _nodes(instance, gpu)) for gpu in found}
    usable = stated_shares(instance).healthy
    for gpu in sorted(found, key=lambda gpu: (there[gpu] > 0, gpu is None, gpu or "")):
        what = "GPUs" if gpu is None else f"GPUs of model {gpu}"
        hint = MORE_HINT if there[gpu] or gpu is None else _models_hint(instance, gpu)
        yield _Promise(what, found[gpu], usable[gpu], hint, there[gpu] - usable[gpu])


def _cells(instance: Instance) -> Iterator[_Promise]:
    counts: dict[Cell, list[int]] = {}
    for q, queue in enumerate(instance.queues):
        for cell in queue.cells:
            kind = replace(cell, count=1, model=cell_model(instance, cell))
            counts.setdefault(kind, [0] * len(instance.queues))[q] += cell.count
    for kind, own in counts.items():
        yield _cell_promise(instance, kind, own)


def _cell_promise(instance: Instance, kind: Cell, own: Sequence[int]) -> _Promise:
    cluster, level = instance.cluster, kind.level
    nodes = [] if kind.model is None else [*_nodes(instance, kind.model)]
    of = f" of {kind.model}" if kind.model else ""
    if level is None:
        gpus = kind.gpus or 0
        what, there = f"cells of {gpus} GPUs{of}", sum(node.gpus // gpus for _, node in nodes)
        most = max((node.gpus for _, node in nodes), default=0)
        hint = f"such a cell is on one server, which has at most {most} GPUs"
    else:
        inside = level == cluster.node_level
        name = "node" if inside else cluster.levels[level].name
        named = [n for n, node in nodes if inside or None not in node.domains[: level + 1]]
        what, there = (
            f"cells of level {name}{of}",
            len({cluster.domain_of[level][n] for n in named}),
        )
        hint = "a cell is a domain with a name: its nodes need one at this level and all above"
    if kind.model is None or not nodes:
        hint = _models_hint(instance, kind.model or "")
    return _Promise(what, own, there, MORE_HINT if there else hint)


def _nodes(instance: Instance, gpu: Gpu) -> Iterator[tuple[int, Node]]:
    """The selected nodes with GPUs, of one model or of all, with their indices."""
    models = model_of_nodes(instance)
    for n, node in enumerate(instance.cluster.nodes):
        if node.gpus and (gpu is None or models[n] == gpu) and instance.ours(node):
            yield n, node


def _models_hint(instance: Instance, gpu: str) -> str:
    known = {model for model in model_of_nodes(instance) if model is not None}
    return suggestion(gpu, known, "GPU models") if known else "no node has a GPU model"


def _beyond_limits(instance: Instance) -> Iterator[int]:
    """Queues that are promised more than their own limit, in all or of a model."""
    found = guarantees(instance)
    for q, queue in enumerate(instance.queues):
        limits: list[tuple[Gpu, int | None]] = [(None, queue.limit.gpus), *queue.limit.models]
        if any(most is not None and gpu in found and found[gpu][q] > most for gpu, most in limits):
            yield q


def check_rates(instance: Instance, merged: MergedCluster) -> None:
    """Report each kind of hardware once, at the first node that has it."""
    seen: set[tuple[object, object, str]] = set()
    takers: list[tuple[Gang, list[Role]]] | None = None
    for n, node in enumerate(instance.cluster.nodes):
        for what, hint in _unknown(node):
            if (key := (node.model, node.nics, what)) in seen:
                continue
            if takers is None:
                takers = [(gang, roles) for gang in instance.gangs if (roles := _to_place(gang))]
            may = (
                gang
                for gang, roles in takers
                if _needs(instance, gang, node, what)
                and any(r.gpus <= node.gpus and n in instance.eligible_nodes(r) for r in roles)
            )
            if (gang := next(may, None)) is not None and node.model is not None:
                seen.add(key)
                entry, number = merged.places[node.name]  # rates of observed nodes are known
                field = "nics" if what == NIC and node.nics is not None else "model"
                unknown = f"{what} of {shown(node.model.name)} is not known"
                fault = f"{unknown}, and gang {shown('/'.join(gang.key))} may use it"
                entry.fault(("spec", "nodes", number, field), fault, hint)


LINK = "the NVLink rate"
NIC = "a NIC speed"


def _unknown(node: Node) -> list[tuple[str, str]]:
    if node.model is None:
        return []
    found = []
    if node.model.link_MBps is None and node.model.linked:
        found.append((LINK, "write a server model of its own with linkMBps"))
    if any(nic.megabits is None for nic in node.effective_nics):
        found.append((NIC, "give the node its own nics: [{name: eth0, gbps: 100}]"))
    return found


def _to_place(gang: Gang) -> list[Role]:
    missing = {number for number, _ in gang.missing} if gang.hold is None else ()
    return [role for number, role in enumerate(gang.roles) if number in missing and role.gpus]


def _needs(instance: Instance, gang: Gang, node: Node, what: str) -> bool:
    """Links matter to two GPUs in a server, NICs to two pods that may run in several."""
    counts = gang.target_counts
    gpus = sum(count * role.gpus for count, role in zip(counts, gang.roles, strict=True))
    pods = sum(count for count, role in zip(counts, gang.roles, strict=True) if role.gpus)
    if what == LINK:
        return gpus > 1
    return pods > 1 and not _one_fabric(instance, gang, node)


def _one_fabric(instance: Instance, gang: Gang, node: Node) -> bool:
    """Whether the gang must stay in one server, or in one NVLink domain of several."""
    cluster = instance.cluster
    if gang.required is None:
        return False
    if gang.required == cluster.node_level:
        return True
    joined = gang.nvlink_across_nodes
    joined &= node.model is not None and node.model.nvlink_domain_nodes > 1
    return joined and any(level.nvlink for level in cluster.levels[: gang.required + 1])


def remark_speeds(instance: Instance, remarks: Remarks) -> None:
    """One remark for each server model without ``relativeSpeed``, if there is another GPU model.

    The models of most nodes come first; those with the same GPUs become one line.
    """
    speeds = instance.relative_speeds
    if not speeds.unknown or len({model.gpu for model in speeds.models}) < 2:
        return
    known = next((m for m in speeds.models if m.relative_speed == speeds.slowest), None)
    if known is None or speeds.slowest is None:
        assumed = "no server model here states one, so all count as equally fast"
    else:
        alone = len({m.relative_speed for m in speeds.models} - {None}) == 1
        pace = "fastest here: effective GPUs may be fewer" if alone else "slowest with one"
        pace = f"{shown(known.name)} ({number(speeds.slowest)}), the {pace}"
        assumed = f"they count as fast as those of {pace}"
    from models.rates.catalogue import relative_speed  # opened only when something asks for it

    nodes = Counter(id(node.model) for node in instance.cluster.nodes)
    for model in sorted(speeds.unknown, key=lambda m: (-nodes[id(m)], m.name)):
        published = relative_speed(model.gpu)
        hint = (
            "write it under serverModels of a Cluster: dense BF16 tensor peak of one GPU, TFLOP/s"
        )
        if published is not None:
            hint += f": {number(published)}"
        subject = f"ServerModel {shown(model.name)} ({plural(nodes[id(model)], 'node')})"
        remarks.add(subject, f"no relativeSpeed is stated for {model.gpu} GPUs; {assumed}", hint)


def unfit_pods(instance: Instance) -> Iterator[str]:
    """A line for each role of a waiting gang that no node could ever run, and what no node has.

    Nodes that are cordoned or not ready count: they may return.
    """
    unfit = cache(partial(_unfit, instance))
    for gang in instance.gangs:
        for role in () if gang.running else gang.roles:
            if what := unfit(role):
                yield f"gang {'/'.join(gang.key)}, role {role.name}: {what}"


def _unfit(instance: Instance, role: Role) -> str:
    """What no node has of what the role asks for, labels with the nearest one; empty if a node has all."""
    nodes = instance.cluster.nodes
    if role.model is not None and not any(model_matches(role.model, node) for node in nodes):
        known = {node.model.gpu for node in nodes if node.model is not None and node.gpus}
        hint = suggestion(role.model, known, "GPU models")
        return f"no node has GPUs of model {shown(role.model)} (hint: {hint})"
    fit = [nodes[n] for n in instance.matching_nodes(role)]
    if not fit:
        return _unmatched(instance, role)
    if role.gpus > (largest := max(node.whole_gpus for node in fit)):
        most = f"no node that it may use has more than {largest:,}"
        return f"asks for {role.gpus:,} GPUs a pod, and {most}"
    instances = {name for node in nodes for name, most in node.at_most.items() if most}
    asked = {name for name, _ in role.requests if name.startswith(RESOURCE)}
    missing = sorted(asked - instances)
    return f"no node offers {', '.join(missing)}" if missing else ""


def _unmatched(instance: Instance, role: Role) -> str:
    """Which of the labels, models or taints that a role asks for no node has, with the nearest label."""
    nodes = instance.cluster.nodes
    labels = {pair for node in nodes for pair in instance.labels_of(node).items()}
    for key, value in sorted(set(role.node_selector) - labels):
        known = any(key == other for other, _ in labels)
        family = key if known else key[: max(key.rfind("/"), key.rfind(".")) + 1] or key
        near = label_texts(pair for pair in labels if pair[0].startswith(family))
        (text,) = label_texts([(key, value)])
        return f"no node has {text} (hint: {suggestion(text, near, 'nodes have')})"
    tainted = instance.matching_nodes(replace(role, tolerations=(Toleration("", "Exists"),)))
    keys = sorted({one.key for n in tainted for one in nodes[n].taints})
    if keys:
        return f"it tolerates the taints of no node that it may use: {', '.join(keys[:MAX_NAMED])}"
    return "no node has all labels that it asks for, or the model with them"
