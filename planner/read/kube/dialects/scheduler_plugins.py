"""scheduler-plugins (scheduling.x-k8s.io/v1alpha1): the PodGroup that a label names, and ElasticQuotas.

ElasticQuotas live in namespaces. A tenant may be allowed to write those of its own, and must not take from
others: such a quota only limits the pods of its namespace, unless the Policy trusts it.
"""

from __future__ import annotations

from collections.abc import Iterable

from models.instance.queue import Amount
from planner.read.kube.dialects.base import Dialect, Grouped, GroupReader, PodGroup
from planner.read.kube.dialects.quotas import Quota, QuotaReader, QuotaSources
from planner.read.kube.lookup import mapping, whole
from planner.read.kube.records import KubeObject, Objects, once

GROUP = "scheduling.x-k8s.io"
LABEL = "scheduling.x-k8s.io/pod-group"

LIMITS_ONLY = "counts by its max alone: a tenant may have written it"
TRUST_HINT = "kubernetes: {trustElasticQuotas: true} in a Policy, if only administrators write them"


def describe(of: Grouped) -> PodGroup:
    group = of.object
    minimum = whole(group.tree, "spec", "minMember") if group is not None else None
    return PodGroup(of.key, group, minimum=minimum)


def read_quotas(sources: QuotaSources) -> Iterable[Quota]:
    """Guarantee and reclaim of a quota that a tenant may have written would be at the cost of others."""
    for found in _spaces(sources.api).values():
        for made in found:
            quota = Quota(
                _key(made),
                f"{made.name}.{made.namespace}",
                f"{made.name}.{made.namespace}.elasticquota",
                made.subject,
                limit=Amount(sources.gpus(mapping(made.tree, "spec", "max"), made.subject)),
                reclaim=sources.trusted,
                replaceable=sources.trusted,
            )
            least = sources.gpus(mapping(made.tree, "spec", "min"), made.subject)
            if sources.trusted:
                quota.guarantee = Amount(least)
            else:
                sources.remarks.add(made.subject, LIMITS_ONLY, TRUST_HINT)
            yield quota


def find_quota(sources: QuotaSources, namespace: str, stated: str | None) -> str | None:
    """The quota of the namespace, which counts all its pods: the first, one named as it before others."""
    del stated
    found = _spaces(sources.api).get(namespace)
    return None if found is None else _key(found[0])


def _key(made: KubeObject) -> str:
    return f"{made.namespace}/{made.name}"


@once
def _spaces(api: Objects) -> dict[str, list[KubeObject]]:
    """The ElasticQuotas by namespace; in a namespace one named as it comes first."""
    spaces: dict[str, list[KubeObject]] = {}
    found = api.of("ElasticQuota", GROUP)
    for one in sorted(found, key=lambda one: (one.namespace, one.name != one.namespace, one.name)):
        spaces.setdefault(one.namespace, []).append(one)
    return spaces


_KINDS = """
podgroups.scheduling.x-k8s.io PodGroup v1alpha1
  spec { minMember minResources[*]=Quantity } status { phase }
elasticquotas.scheduling.x-k8s.io ElasticQuota v1alpha1
  spec { min[*]=Quantity max[*]=Quantity }
"""

DIALECT = Dialect(
    "scheduler-plugins",
    precedence=70,
    groups=(
        GroupReader("scheduler-plugins", GROUP, describe, labels=(LABEL,), annotations=(LABEL,)),
    ),
    quotas=QuotaReader(read_quotas, find_quota, precedence=30),
    annotations="scheduling.x-k8s.io/",
    kinds=_KINDS,
    without={f"elasticquotas.{GROUP}": "ElasticQuotas are not read: plans ignore their quotas"},
)
