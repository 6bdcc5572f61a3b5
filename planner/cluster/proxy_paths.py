"""URL paths that live verbs ask for, as the regular expressions the proxy lets through.

Promises: each matches whole paths and nothing that is not listed; no commas, which kubectl would split
at. Called by ``planner.pipelines.apply_steps`` and the live verbs.
"""

from __future__ import annotations

import re

from planner.cluster.pages import GROUPS, RESOURCES, checked, core, grouped

_NAME = "[a-z0-9][a-z0-9.-]*"


def exactly(*paths: str) -> tuple[str, ...]:
    """These paths and no others."""
    return tuple(f"^{re.escape(path)}$" for path in paths)


def look_paths() -> tuple[str, ...]:
    """To read nodes, pods, the cluster's identity, and what pods refer to."""
    lists = [path for paths, _, _ in RESOURCES for path in paths]
    kube_system = core("namespaces", name="kube-system")
    return exactly(core("nodes"), core("pods"), kube_system, *GROUPS, *lists)


def pod_paths(*, evictions: bool) -> tuple[str, ...]:
    """To read, patch and bind single pods, and to evict them."""
    subs = "binding|eviction" if evictions else "binding"
    return (rf"^/api/v1/namespaces/{_NAME}/pods/{_NAME}(/({subs}))?$",)


def lease_paths(namespace: str) -> tuple[str, ...]:
    """The lock. Raises ValueError for what is no name of a namespace."""
    leases = grouped("coordination.k8s.io", "v1", "leases", namespace=checked(namespace))
    return exactly(leases, f"{leases}/gangplan")


def scale_paths() -> tuple[str, ...]:
    """Controllers of pods and their scale."""
    kinds = "apps/v1/namespaces/{0}/(statefulsets|replicasets|deployments)/{0}(/scale)?"
    jobs = "kubeflow[.]org/v1/namespaces/{0}/pytorchjobs/{0}(/scale)?"
    return tuple(f"^/apis/{kind.format(_NAME)}$" for kind in (kinds, jobs))
