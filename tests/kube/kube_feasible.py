"""What kube-scheduler would say to a plan: a small simulation on raw objects, free of our readers.

Promises: no field_errors where every pod the plan starts could be bound. By test_kube_feasible.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction

from kube_arithmetic import (
    Amounts,
    Name,
    Tree,
    amount,
    annotations_of,
    bound,
    chosen,
    labels_of,
    name_of,
    refusals,
    requests,
    selects,
)
from kube_neighbours import Neighbours

CHANGES = ("preempt", "move", "resize")
GATE = "gangplan.dev/placement"
VISIBLE = "topology.kubernetes.io/gpu-visible"
TAS = "kueue.x-k8s.io/podset-"
LWS = "leaderworkerset.sigs.k8s.io/"
GPUS = ("nvidia.com/gpu", "amd.com/gpu", "aliyun.com/gpu", "habana.ai/gaudi")
# their pods live and die alone: no gang unless a PodGroup says so
SINGLES = ("ReplicaSet", "Deployment", "StatefulSet", "DaemonSet")
REPLICA = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "training.kubeflow.org/replica-type",
    "volcano.sh/task-spec",
    "ray.io/group",
)
RANK = (
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    LWS + "worker-index",
    "apps.kubernetes.io/pod-index",
)


def field_errors(objects: list[Tree], plan: Tree) -> list[str]:
    """Every rule of the scheduler that the plan breaks, one sentence each; none is a good plan."""
    world = World(objects, plan)
    found = [text for start in world.started for text in world.about(*start)]
    found += [*world.amounts(), *world.missing(), *world.topology()]
    return found + list(world.neighbours())


class World:
    """The raw cluster, and what the plan does to it."""

    def __init__(self, objects: list[Tree], plan: Tree) -> None:
        self.kinds: dict[str, dict[Name, Tree]] = defaultdict(dict)
        for tree in objects:
            version = tree.get("apiVersion", "v1")  # PodGroups of many projects share a name
            maker = version.split("/")[0] if tree["kind"] == "PodGroup" else ""
            self.kinds[maker or tree["kind"]][name_of(tree)] = tree
        self.pods = self.kinds["Pod"]
        self.nodes = {name[1]: node for name, node in self.kinds["Node"].items()}
        self.uids = {t["metadata"].get("uid"): t for t in objects if t["metadata"].get("uid")}
        self.gangs = {(g["namespace"], g["name"]): g for g in plan["spec"]["gangs"]}
        self.after: dict[Name, str] = {n: node for n, p in self.pods.items() if (node := bound(p))}
        for gang in plan["instance"]["gangs"]:  # what the plan stops or moves holds no longer
            meta = gang["metadata"]
            if self.gangs[meta["namespace"], meta["name"]]["decision"] in CHANGES:
                for pod in gang.get("status", {}).get("pods", []):
                    self.after.pop((meta["namespace"], pod["name"]), None)
        self.started: list[tuple[Name, str, list[int] | None]] = []
        for (namespace, _), gang in self.gangs.items():
            for pod in gang["pods"]:
                name = (namespace, pod["name"])
                self.after[name] = pod["node"]
                was = bound(self.pods.get(name, {"spec": {}}))
                if gang["decision"] in ("place", "complete") and was is None:
                    self.started.append((name, pod["node"], pod["gpus"]))

    def about(self, name: Name, place: str, gpus: list[int] | None) -> Iterator[str]:
        """One pod on one node: whether it waits for us and the node would take it."""
        what = f"Pod {'/'.join(name)} on {place}"
        pod, node = self.pods.get(name), self.nodes.get(place)
        if pod is None or node is None:
            yield f"{what}: no such {'pod' if pod is None else 'node'}"
            return
        if (pod.get("status") or {}).get("phase", "Pending") != "Pending":
            yield f"{what}: does not wait"
        if pod["metadata"].get("deletionTimestamp"):
            yield f"{what}: is being deleted"
        gates = [gate.get("name") for gate in pod["spec"].get("schedulingGates") or []]
        if GATE not in gates:
            yield f"{what}: is not ours"
        if set(gates) - {GATE}:
            yield f"{what}: is held by another gate"
        yield from (f"{what}: {word}" for word in refusals(pod, node))
        yield from (f"{what}: {word}" for word in self.seen(name, pod, place, gpus))

    def seen(self, name: Name, pod: Tree, place: str, gpus: list[int] | None) -> Iterator[str]:
        """The GPU indices: as many as asked, installed, and nobody else's."""
        if gpus is None:
            return
        own, counts = requests(pod), self.nodes[place]["status"].get("capacity") or {}
        wanted = sum(own.get(key, 0) for key in GPUS)
        shares = any("/gpu" in key for key in own.keys() - set(GPUS))
        otherwise = shares or pod["spec"].get("resourceClaims")
        if len(set(gpus)) != wanted and not otherwise:
            yield f"names {len(set(gpus))} GPUs, asks {wanted}"
        label = labels_of(self.nodes[place]).get("nvidia.com/gpu.count", 0)
        installed = max(int(n) for n in [label, *(counts.get(key, 0) for key in GPUS)])
        if any(not 0 <= gpu < installed for gpu in gpus) and not otherwise:
            yield f"GPU index beyond {installed}"
        taken = {
            g
            for other, where, own in self.started
            if other != name and where == place
            for g in own or []
        }
        for other, where in self.after.items():
            if where == place and other in self.pods and bound(self.pods[other]) == place:
                told = annotations_of(self.pods[other]).get(VISIBLE, "")
                taken |= {int(g) for g in told.split(",") if g.strip().isdigit()}
        if clash := sorted(taken & set(gpus)):
            yield f"GPUs {clash} are held"

    def amounts(self) -> Iterator[str]:
        """Allocatable less everything that is there after the plan, where the plan adds."""
        added: dict[str, set[str]] = defaultdict(set)
        for name, place, _ in self.started:
            own = requests(self.pods[name]) if name in self.pods else {}
            added[place] |= {key for key, value in own.items() if value}
        used: dict[str, Amounts] = defaultdict(lambda: defaultdict(Fraction))
        for name, place in self.after.items():
            if place in added and name in self.pods:
                for key, value in requests(self.pods[name]).items():
                    used[place][key] += value
        classes = self.kinds["DeviceClass"].values()  # served by claims where they name a resource
        extended = {tree["spec"].get("extendedResourceName") for tree in classes}
        for place in sorted(added.keys() & self.nodes.keys()):
            offered = self.nodes[place]["status"].get("allocatable") or {}
            for key in sorted(added[place]):
                claimed = key in extended and key not in offered
                if used[place][key] > amount(offered.get(key, 0)) and not claimed:
                    yield f"Node {place}: {key} {used[place][key]} of {offered.get(key, 0)}"

    def group(self, pod: Tree) -> tuple[object, ...] | None:
        """Whose pod it is: its group of a LeaderWorkerSet, or the last owner above it."""
        labels, owner = labels_of(pod), pod
        if LWS + "name" in labels:
            return name_of(pod)[0], labels[LWS + "name"], labels.get(LWS + "group-index")
        reference: Tree | None = None
        while owner:
            own = owner["metadata"].get("ownerReferences") or []
            up = next((r for r in own if r.get("controller") and r["kind"] != "CronJob"), None)
            reference, owner = up or reference, self.uids.get(up["uid"], {}) if up else {}
        return None if reference is None or reference["kind"] in SINGLES else (reference["uid"],)

    def neighbours(self) -> Iterator[str]:
        """What the filters about other pods say to the pods that get another node, one by one."""
        new = {
            name: place
            for name, place in self.after.items()
            if name in self.pods and bound(self.pods[name]) != place
        }
        standing = {name: place for name, place in self.after.items() if name not in new}
        spaces = self.kinds["Namespace"]
        return Neighbours(self.nodes, self.pods, spaces, standing).start(new)

    def missing(self) -> Iterator[str]:
        """All pods of a gang that starts are started."""
        groups = {self.group(self.pods[n]) for n, _, _ in self.started if n in self.pods} - {None}
        for name, pod in self.pods.items():
            phase = (pod.get("status") or {}).get("phase", "Pending")
            alive = phase == "Pending" and not pod["metadata"].get("deletionTimestamp")
            if alive and name not in self.after and self.group(pod) in groups:
                yield f"Pod {'/'.join(name)}: left behind by its gang"

    def topology(self) -> Iterator[str]:
        """Kueue's annotations and Volcano's hard topologies, over whole sets of pods."""
        sets: dict[tuple[object, ...], list[Name]] = defaultdict(list)
        touched = {name for name, _, _ in self.started if name in self.pods}
        groups = {group for name in touched if (group := self.group(self.pods[name]))}
        for name in self.after:
            pod = self.pods.get(name)
            if pod is not None and (name in touched or self.group(pod) in groups):
                for key in self.demands(name, pod):
                    sets[key].append(name)
        for (kind, *rest), names in sets.items():
            places = sorted({self.after[n] for n in names if self.after[n] in self.nodes})
            if not touched & set(names):
                continue
            if kind == "label":
                own = {p: {**labels_of(self.nodes[p]), "kubernetes.io/hostname": p} for p in places}
                values = {own[place].get(str(rest[0])) for place in places}
                if len(values) != 1 or None in values:
                    yield f"{rest[0]}: {len(values)} domains for {names[0][1]} and its set"
            elif not any(set(places) <= home for home in self.homes(rest[0])):
                yield f"HyperNode tier {rest[0]}: {names[0][1]} and its group are torn"

    def demands(self, name: Name, pod: Tree) -> Iterator[tuple[object, ...]]:
        """Keys of the sets this pod is in, each of which must stay in one domain."""
        notes, labels = annotations_of(pod), labels_of(pod)
        role = next((labels[key] for key in REPLICA if key in labels), "")
        if LWS + "name" in labels:
            role = "leader" if labels.get(LWS + "worker-index") == "0" else "worker"
        podset = (self.group(pod) or name, notes.get(TAS + "group-name", f"role {role}"))
        if level := notes.get(TAS + "required-topology"):
            yield ("label", level, podset)
        layers = json.loads(notes.get(TAS + "slice-required-topology-constraints", "[]"))
        if level := notes.get(TAS + "slice-required-topology"):
            layers = [{"topology": level, "size": notes.get(TAS + "slice-size", "1")}]
        for layer in layers:
            yield ("label", layer["topology"], podset, self.rank(pod) // int(layer["size"]))
        group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
        spec = self.kinds["scheduling.k8s.io"].get((name[0], group), {}).get("spec") or {}
        for layer in (spec.get("schedulingConstraints") or {}).get("topology") or []:
            yield ("label", layer["key"], name[0], group)
        group = notes.get("scheduling.k8s.io/group-name", "")
        spec = self.kinds["scheduling.volcano.sh"].get((name[0], group), {}).get("spec") or {}
        for part in [spec, *(spec.get("subGroupPolicy") or [])]:
            own = part.get("networkTopology") or {}
            if own.get("mode") == "hard" and selects(part.get("labelSelector") or {}, labels):
                same = tuple(labels.get(key) for key in part.get("matchLabelKeys") or [])
                tier = own.get("highestTierAllowed", own.get("highestTierName"))
                yield ("tier", tier, name[0], group, part.get("name"), same)

    def rank(self, pod: Tree) -> int:
        """The place of the pod in its podset, as Kueue counts."""
        labels = labels_of(pod)
        index = int(next((labels[key] for key in RANK if key in labels), "0"))
        index -= int(annotations_of(pod).get("kueue.x-k8s.io/pod-index-offset", "0"))
        job = int(labels.get("jobset.sigs.k8s.io/job-index", "0"))
        owner = (pod["metadata"].get("ownerReferences") or [{}])[0].get("uid")
        spec = self.uids.get(owner, {}).get("spec") or {}
        return job * int(spec.get("completions") or spec.get("parallelism") or 1) + index

    def homes(self, tier: object) -> list[set[str]]:
        """The nodes of every HyperNode that is narrow enough."""
        hypers = {name[1]: tree for name, tree in self.kinds["HyperNode"].items()}
        tiers = Counter(
            {t["spec"].get("tierName"): int(t["spec"]["tier"]) for t in hypers.values()}
        )
        most = tier if isinstance(tier, int) else tiers[str(tier)]
        return [self.inside(n, hypers) for n, t in hypers.items() if int(t["spec"]["tier"]) <= most]

    def inside(self, hyper: str, hypers: dict[str, Tree], depth: int = 0) -> set[str]:
        found: set[str] = set()
        for member in hypers[hyper]["spec"].get("members") or [] if depth < 9 else []:
            pool = self.nodes if member["type"] == "Node" else hypers
            for name, tree in pool.items():
                if chosen(member["selector"], name, labels_of(tree)):
                    nested = member["type"] == "HyperNode"
                    found |= self.inside(name, hypers, depth + 1) if nested else {name}
        return found
