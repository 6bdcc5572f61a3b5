"""ElasticQuotas of Koordinator and of scheduler-plugins as queues.

They live in namespaces. A tenant may be allowed to write those of its own, and must not take from others:
such a quota only limits the pods of its namespace, unless the Policy trusts it. Those of Koordinator in a
namespace of the system are the administrator's.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from planner.read.kube.dialects.base import json_value
from planner.read.kube.dialects.quotas import Quota, QuotaReader, QuotaSources, Share, exact
from planner.read.kube.lookup import mapping
from planner.read.kube.records import KubeObject, Objects

PLUGINS = "scheduling.x-k8s.io"
KOORDINATOR = "scheduling.sigs.k8s.io"
"""Its quotas are a tree, and pods name them; scheduler-plugins had this group once, too."""

NAME = "quota.scheduling.koordinator.sh/name"
PARENT = "quota.scheduling.koordinator.sh/parent"
WEIGHT = "quota.scheduling.koordinator.sh/shared-weight"
SYSTEM_NAMESPACES = ("kube-system", "koordinator-system")
ROOTS = ("", "root", "koordinator-root-quota")

LIMITS_ONLY = "counts by its max alone: a tenant may have written it"
TRUST_HINT = "kubernetes: {trustElasticQuotas: true} in a Policy, if only administrators write them"


def read_koordinator(sources: QuotaSources) -> Iterable[Quota]:
    for made in sources.api.once(_Index).all(KOORDINATOR):
        if _of_name(sources, made.name) is not made:
            yield _limit_only(made, sources)
            continue
        above = _of_name(sources, made.labels.get(PARENT, ""))
        quota = _whole(made, made.name, sources)
        if above is not None and above.name not in ROOTS:
            quota.parent = _key(above)
        quota.weight = _weight(made, sources)
        yield quota


def read_plugins(sources: QuotaSources) -> Iterable[Quota]:
    for made in sources.api.once(_Index).all(PLUGINS):
        if sources.trusted:
            yield _whole(made, f"{made.name}.{made.namespace}", sources)
        else:
            yield _limit_only(made, sources)


def _of_name(sources: QuotaSources, name: str) -> KubeObject | None:
    """The quota of Koordinator that pods of every namespace may name; of two of one name the first."""
    index = sources.api.once(_Index)
    return (index.named if sources.trusted else index.of_system).get(name)


def _whole(made: KubeObject, name: str, sources: QuotaSources) -> Quota:
    return Quota(
        _key(made),
        name,
        f"{made.name}.{made.namespace}.elasticquota",
        made.subject,
        guarantee=Share(sources.gpus(mapping(made.tree, "spec", "min"), made.subject)),
        limit=Share(sources.gpus(mapping(made.tree, "spec", "max"), made.subject)),
    )


def _limit_only(made: KubeObject, sources: QuotaSources) -> Quota:
    """Guarantee, parent and weight would be at the cost of others."""
    sources.remarks.add(made.subject, LIMITS_ONLY, TRUST_HINT)
    found = _whole(made, f"{made.name}.{made.namespace}", sources)
    found.guarantee, found.reclaim, found.replaceable = Share(), False, False
    return found


def _weight(made: KubeObject, sources: QuotaSources) -> Fraction:
    """Its weight for GPUs, which is its max where none is stated."""
    shared = json_value(made.annotations.get(WEIGHT))
    for amounts in (shared, mapping(made.tree, "spec", "max")):
        for name in sources.gpu_resources:
            weight = exact(amounts.get(name)) if isinstance(amounts, dict) else None
            if weight is not None:
                return weight
    return Fraction(1)


def _key(made: KubeObject) -> str:
    return f"{made.namespace}/{made.name}"


class _Index:
    """The quotas, by group and namespace; in a namespace one named as it comes first.

    ``named``: Koordinator's, by name; ``of_system``: those in namespaces of the system.
    """

    def __init__(self, api: Objects) -> None:
        self.spaces: dict[str, dict[str, list[KubeObject]]] = {KOORDINATOR: {}, PLUGINS: {}}
        self.named: dict[str, KubeObject] = {}
        self.of_system: dict[str, KubeObject] = {}
        found = api.of("ElasticQuota", KOORDINATOR, PLUGINS)
        for one in sorted(
            found, key=lambda one: (one.namespace, one.name != one.namespace, one.name)
        ):
            self.spaces[one.group].setdefault(one.namespace, []).append(one)
            if one.group == KOORDINATOR:
                self.named.setdefault(one.name, one)
                if one.namespace in SYSTEM_NAMESPACES:
                    self.of_system.setdefault(one.name, one)

    def all(self, group: str) -> list[KubeObject]:
        """Those of a group, by namespace."""
        return [one for found in self.spaces[group].values() for one in found]


def find_koordinator(sources: QuotaSources, namespace: str, stated: str | None) -> str | None:
    """The quota that the pods name, of their namespace or for all; else the first of their namespace."""
    if stated is None:
        return _first(sources, KOORDINATOR, namespace)
    made = sources.api.named(KOORDINATOR, "ElasticQuota", namespace, stated)
    made = _of_name(sources, stated) if made is None else made
    return None if made is None else _key(made)


def find_plugins(sources: QuotaSources, namespace: str, stated: str | None) -> str | None:
    """The quota of the namespace, which counts all its pods."""
    del stated
    return _first(sources, PLUGINS, namespace)


def _first(sources: QuotaSources, group: str, namespace: str) -> str | None:
    found = sources.api.once(_Index).spaces[group].get(namespace)
    return None if found is None else _key(found[0])


KOORDINATOR_QUOTAS = QuotaReader(
    read_koordinator, find_koordinator, {"koord-scheduler": "koordinator-default-quota"}
)
PLUGINS_QUOTAS = QuotaReader(read_plugins, find_plugins)
