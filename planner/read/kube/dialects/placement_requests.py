"""Requests for a placement: workloads whose quota Kueue has reserved, and which gangplan lets start.

Kueue makes a ProvisioningRequest of our class for such a workload, and a PodTemplate for each of its pod
sets; pods come once the request is ``Provisioned``. Until all of them are bound, the room that was given is
held for those that are missing: where, the status says, which tenants cannot write.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from models.apply.placement_requests import (
    CLASS,
    PLAN_DETAIL,
    detailed_nodes,
    uid_of_pod,
)
from planner.read.kube.dialects import base
from planner.read.kube.lookup import (
    Tree,
    at,
    holds_condition,
    mapping,
    objects,
    text,
    texts,
    whole,
)
from planner.read.kube.records import KubeObject, KubePod, Objects

GROUP, KIND = "autoscaling.x-k8s.io", "ProvisioningRequest"
CONSUMES = f"{GROUP}/consume-provisioning-request"
"""Annotation of a pod with the name of its request."""

_KUEUE = "kueue.x-k8s.io"
_PODSET = f"{_KUEUE}/podset"
_INDEX = f"{_KUEUE}/pod-group-pod-index"
_OVER = ("Failed", "CapacityRevoked", "BookingExpired")
_LONGEST_NAME = 200

GATED = "its pod templates have scheduling gates; a workload that asks for its placement needs none"
MERGED = "its pod sets were joined (podSetMergePolicy), and those that were joined to another get no nodes"
BEYOND = "with others of its workload it asks for more pods than that has: it gets no nodes"


def requests(api: Objects) -> Iterator[base.PlacementRequest]:
    """Every request of our class: first those that have their nodes, then the oldest.

    Quota is reserved for the pods of a workload once, and anybody may name a workload as owner.
    """
    of_class = ("spec", "provisioningClassName")
    found = [one for one in api.of(KIND, GROUP) if text(one.tree, *of_class) == CLASS]
    pods = _consumers(api) if found else {}
    read = [_read(one, api, pods.get((one.namespace, one.name), [])) for one in found]
    asked, of = Counter[object](), base.RequestState
    for one in sorted(read, key=lambda it: (not it.nodes, it.object.created or 0, it.object.key)):
        workload, has = api.owner_of(one.object), one.state in (of.waits, of.placed)
        asked[workload] += sum(made.role.size or 0 for made in one.sets) * has
        beyond = has and workload is not None and asked[workload] > sum(_counts(workload))
        lost = of.evicted if one.nodes else of.idle
        yield replace(one, state=lost, problem=BEYOND) if beyond else one


def _consumers(api: Objects) -> dict[base.PodKey, list[KubeObject]]:
    found: dict[base.PodKey, list[KubeObject]] = defaultdict(list)
    for pod in api.of("Pod", ""):
        if (name := pod.annotations.get(CONSUMES)) is not None:
            found[pod.namespace, name].append(pod)
    return found


def _read(
    request: KubeObject, api: Objects, consumers: Sequence[KubeObject]
) -> base.PlacementRequest:
    sets = list(_sets(request, api))
    details = texts(request.tree, "status", "provisioningClassDetails")
    sizes = [one.role.size or 0 for one in sets]
    nodes = detailed_nodes(details, sizes) if holds_condition(request.tree, "Provisioned") else None
    state = _state(request, api, placed=nodes is not None)
    missing = [*map(range, sizes)] if nodes is None else _missing(sets, nodes, consumers)
    owners, workload = api.owners(request), api.owner_of(request)
    return base.PlacementRequest(
        request,
        state,
        (request.key, *owners),
        tuple(sets),
        tuple(missing),
        tuple(map(tuple, nodes or ())),
        frozenset((pod.namespace, pod.name) for pod in consumers),
        details.get(PLAN_DETAIL),
        workload is not None and holds_condition(workload.tree, "Admitted"),
    )


def _state(request: KubeObject, api: Objects, *, placed: bool) -> base.RequestState:
    of = base.RequestState
    over = any(holds_condition(request.tree, one) for one in _OVER)
    if over or at(request.tree, "metadata", "deletionTimestamp") is not None:
        return of.over
    workload = api.owner_of(request)
    tree = None if workload is None else workload.tree
    known = tree is not None or api.has_all("Workload")
    deleted = at(tree, "metadata", "deletionTimestamp") is not None
    if known and (tree is None or deleted or holds_condition(tree, "Finished")):
        return of.dead
    reserved = holds_condition(tree, "QuotaReserved") and not holds_condition(tree, "Evicted")
    if tree is not None and not (reserved and at(tree, "spec", "active") is not False):
        return of.evicted if placed else of.idle
    # Provisioned by somebody else, or in words that are not ours: its pods come as they like.
    provisioned = holds_condition(request.tree, "Provisioned")
    return of.placed if placed else of.over if provisioned else of.waits


def _sets(request: KubeObject, api: Objects) -> Iterator[base.PodSet]:
    """The pods of each pod set, with the template that has what Kueue's flavors add."""
    owner = base.owned_by(request)
    for number, podset in enumerate(objects(request.tree, "spec", "podSets")):
        named = text(podset, "podTemplateRef", "name") or ""
        template = api.named("", "PodTemplate", request.namespace, named)
        prefix = f"ppt-{request.name}-"
        role = named.removeprefix(prefix) if named.startswith(prefix) else f"set-{number}"
        size = base.count(podset, "count", absent=None) if whole(podset, "count") else None
        yield base.PodSet(
            base.RoleSpec(role, size),
            {} if template is None else _plain(mapping(template.tree, "template")),
            partial(_pod, request, number, role, owner),
        )


def _plain(template: Tree) -> Tree:
    """The template without the labels by which its pods would belong to another gang."""
    metadata = mapping(template, "metadata")
    labels = {k: v for k, v in texts(metadata, "labels").items() if not k.startswith(_KUEUE)}
    return {**template, "metadata": {**metadata, "labels": labels}}


def _pod(request: KubeObject, number: int, role: str, owner: Tree, index: int) -> base.MadePod:
    name = f"{request.name[:_LONGEST_NAME]}-{role}-{index}"
    labels = {_PODSET: role, _INDEX: str(index)}
    return base.MadePod(name, labels, owner, uid_of_pod(request.uid or request.name, number, index))


def _missing(
    sets: Sequence[base.PodSet], nodes: Sequence[Sequence[str]], consumers: Sequence[KubeObject]
) -> Sequence[Sequence[int]]:
    """By set the numbers of the pods that are not bound yet: of each node as many as were planned there."""
    # Bound, or done with it: a pod that failed is made anew.
    placed = (pod for pod in consumers if text(pod.tree, "spec", "nodeName") is not None)
    there = [pod for pod in placed if text(pod.tree, "status", "phase") != "Failed"]
    if len(there) >= sum(map(len, nodes)):
        return [[] for _ in sets]
    found = []
    for one, planned in zip(sets, nodes, strict=True):
        own = [pod for pod in there if len(sets) == 1 or pod.labels.get(_PODSET) == one.role.name]
        bound = Counter(text(pod.tree, "spec", "nodeName") for pod in own)
        left = []
        for number, node in enumerate(planned):
            if bound[node]:
                bound[node] -= 1
            else:
                left.append(number)
        found.append(left[: len(planned) - len(own)] if len(own) < len(planned) else [])
    return found


def describe(of: base.Controlled) -> base.Controller:
    """Once it has its nodes it is what of it is missing, besides the gang of the pods that are there."""
    key, request, pods, api = of
    if request is None:
        return base.Controller(key, KIND, key.name)
    sets = list(_sets(request, api))
    workload = api.owner_of(request)
    problems = [GATED] if any(at(one.template, "spec", "schedulingGates") for one in sets) else []
    problems += [MERGED] if workload is not None and _are_merged(sets, workload) else []
    made = (workload and workload.owner) or workload or request
    roles = base.roles_of(sets)
    if any(pod.holds_room for pod in pods):
        left = Counter(pod.labels.get(_PODSET) for pod in pods)
        if sum(left.values()) < sum(one.size or 0 for one in roles.values()):
            made = request
        roles = {role: base.RoleSpec(role, left[role]) for role in roles if left[role]}
    return base.Controller(key, made.kind, made.name, request, roles, problems=tuple(problems))


def _counts(workload: KubeObject) -> list[int]:
    podsets = objects(workload.tree, "spec", "podSets")
    return [base.count(one, "count", absent=1) or 0 for one in podsets]


def _are_merged(sets: Sequence[base.PodSet], workload: KubeObject) -> bool:
    """Whether fewer sets have all pods of the workload."""
    counts, asked = _counts(workload), sum(one.role.size or 0 for one in sets)
    return len(sets) < sum(map(bool, counts)) and asked >= sum(counts)


def _role_index(pod: KubePod, controller: base.Controller) -> base.RoleIndex:
    found = base.marked_role(_PODSET, _INDEX, "main")(pod, controller)
    return base.RoleIndex(found.role, None) if pod.holds_room else found


_KINDS = f"""
provisioningrequests.{GROUP} {KIND} v1 v1beta1
  spec {{ provisioningClassName podSets[] {{ count podTemplateRef {{ name }} }} }}
  status {{ conditions[]=TimedCondition provisioningClassDetails[*]=Nodes }}
podtemplates PodTemplate v1 beside={GROUP}
  template=PodTemplate
"""

DIALECT = base.Dialect(
    "requests for a placement",
    precedence=5,
    controller=base.ControllerReader(KIND, describe, _role_index, owners=((GROUP, KIND),)),
    requests=requests,
    kinds=_KINDS,
    annotations=CONSUMES,
    without={
        f"provisioningrequests.{GROUP}": "what Kueue asks gangplan to place is not planned",
        "podtemplates": "what Kueue asks gangplan to place is not planned",
    },
)
