"""Kubernetes 1.35: pods name a Workload and a pod group inside it in spec.workloadRef.

Promises: every replica key is a group of its own. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.reading.kubernetes.forms import KubeObject, KubePod, Objects
from planner.reading.kubernetes.gangs.forms import Group, GroupDialect, Link
from planner.reading.kubernetes.gangs.groups.native import GROUP, asked_topology, gang_policy
from planner.reading.kubernetes.looking import mapping, objects, text
from planner.reading.remarks import Remarks


def claim(pod: KubePod) -> str | None:
    reference = mapping(pod.object.tree, "spec", "workloadRef")
    name = text(reference, "name")
    if name is None:
        return None
    parts = [name, text(reference, "podGroup"), text(reference, "podGroupReplicaKey")]
    return "/".join(part for part in parts if part)


def find(found: Objects, namespace: str, name: str) -> KubeObject | None:
    return found.named(GROUP, "Workload", namespace, name.partition("/")[0])


def describe(link: Link, pods: Sequence[KubePod], found: Objects, remarks: Remarks) -> Group:
    del pods
    made = find(found, link.namespace, link.name)
    if made is None:
        return Group(link)
    parts = link.name.split("/")
    groups = objects(made.tree, "spec", "podGroups")
    groups += objects(made.tree, "spec", "podGroupTemplates")
    inside = parts[1] if len(parts) > 1 else None
    of = next((entry for entry in groups if text(entry, "name") == inside), None)
    if of is None:
        remarks.add(made.subject, "has no pod group of the name that its pods give")
        return Group(link, made)
    gang, minimum = gang_policy(mapping(of, "policy") or mapping(of, "schedulingPolicy"))
    required, more = asked_topology(mapping(of, "schedulingConstraints"))
    if more:
        remarks.add(made.subject, "asks for several topology keys; the first one counts")
    return Group(link, made, gang=gang, minimum=minimum, required=required)


DIALECT = GroupDialect("Workload", claim, find, describe)
