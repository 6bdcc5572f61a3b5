"""Kueue: ClusterQueues and Cohorts as queues, through ResourceFlavors and LocalQueues.

A cohort has the quotas of its members and its own, and without a parent no more. Its members borrow from
each other up to that. Cohorts are named in ``cohort`` and ``parent``, since v1beta2 in ``cohortName`` and
``parentName``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from models.instance.queue import Amount
from planner.read.kube.dialects.quotas import Quota, QuotaReader, QuotaSources, weight
from planner.read.kube.lookup import (
    at,
    is_label_selector,
    mapping,
    matches,
    objects,
    text,
    texts,
)
from planner.read.kube.pods.placement import EXPECTED
from planner.read.kube.records import KubeGang, KubeObject

GROUP = "kueue.x-k8s.io"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""Label of every Namespace."""

GATE = f"{GROUP}/admission"
"""On pods that Kueue has not admitted."""

HOLD, DRAIN = "Hold", "HoldAndDrain"
"""The values of ``stopPolicy`` that stop a queue."""

NO_SELECTOR = (
    "has no namespaceSelector that can be read, so it takes no workloads, as in Kueue: {} takes all"
)
UNKNOWN_LABELS = (
    "leads to a ClusterQueue whose namespaceSelector asks for labels of its namespace, which is not in the "
    "input: it takes none of its gangs"
)
LABELS_HINT = (
    "record it with the right to list namespaces, or add the file of kubectl get namespaces -o json"
)

CIRCLE = "is below itself; its parent is ignored"

_COHORT = "cohort/"
"""Starts the keys of cohorts: a ClusterQueue may have the same name."""

_SHOWN_COHORT = "cohort-"
"""Starts their names in plans, where all are queues."""


class _Amounts(Struct):
    """GPUs by flavor. ``nominal``: promised; ``extra``: borrowed at most, None without a limit.

    ``lent``: at most; a flavor without such a limit is absent.
    """

    nominal: Counter[str] = msgspec.field(default_factory=Counter)
    extra: dict[str, int | None] = {}
    lent: Counter[str] = msgspec.field(default_factory=Counter)


def read(sources: QuotaSources) -> Iterable[Quota]:
    found: dict[str, Quota] = {}
    amounts: dict[str, _Amounts] = {}
    made = (*sources.api.of("ClusterQueue", GROUP), *sources.api.of("Cohort", GROUP))
    for quota, own in (_quota(one, sources) for one in made):
        found[quota.key], amounts[quota.key] = quota, own
    for parent in [one.parent for one in found.values()]:
        if parent is not None and parent not in found:  # a cohort may be a name alone
            name = parent.removeprefix(_COHORT)
            shown, other = _SHOWN_COHORT + name, f"{name}.cohort"
            found[parent] = Quota(parent, shown, other, f"Cohort {name}", reclaim=False)
            amounts[parent] = _Amounts()
    _cut_circles(found, sources)
    _add_up(found, amounts, _Flavors(sources))
    return found.values()


def _quota(made: KubeObject, sources: QuotaSources) -> tuple[Quota, _Amounts]:
    """A ClusterQueue or a Cohort, without what it is promised, and its own amounts."""
    spec, queue = mapping(made.tree, "spec"), made.kind == "ClusterQueue"
    fields = ("cohortName", "cohort") if queue else ("parentName", "parent")
    above = next(filter(None, (text(spec, field) for field in fields)), None)
    quota = Quota(
        made.name if queue else _COHORT + made.name,
        made.name if queue else _SHOWN_COHORT + made.name,
        f"{made.name}.{made.kind.lower()}",
        made.where,
        parent=None if above is None else _COHORT + above,
        # Of a cohort: its members may or may not. LowerPriority is what every gang may do.
        reclaim=queue and text(spec, "preemption", "reclaimWithinCohort") == "Any",
        strict=queue and text(spec, "queueingStrategy") == "StrictFIFO",
        weight=weight(at(spec, "fairSharing", "weight")),
    )
    return quota, _amounts(made, sources, borrows=above is not None)


def _amounts(made: KubeObject, sources: QuotaSources, *, borrows: bool) -> _Amounts:
    """``borrows``: there is a cohort above it to borrow from, and to lend to.

    None of a ClusterQueue whose workloads ask gangplan where to run, by the check of ``deploy/kueue``: they
    have their quota, and Kueue guards it.
    """
    found = _Amounts()
    checks = objects(made.tree, "spec", "admissionChecksStrategy", "admissionChecks")
    if any(text(one, "name") == "gangplan" for one in checks):
        return found
    groups = objects(made.tree, "spec", "resourceGroups")
    flavors = (flavor for group in groups for flavor in objects(group, "flavors"))
    quotas = (
        (text(one, "name") or "", own) for one in flavors for own in objects(one, "resources")
    )
    for name, own in quotas:
        if text(own, "name") not in sources.gpu_resources:
            continue
        found.nominal[name] += sources.whole(own.get("nominalQuota"), made.where) or 0
        extra, lent = (
            sources.whole(own[limit], made.where) if own.get(limit) is not None else None
            for limit in ("borrowingLimit", "lendingLimit")
        )
        before = found.extra.get(name, 0)
        more = extra if borrows else 0
        found.extra[name] = None if more is None or before is None else before + more
        if lent is not None and borrows:
            found.lent[name] += lent
    return found


def _cut_circles(found: Mapping[str, Quota], sources: QuotaSources) -> None:
    """No cohort is below itself; Kueue admits nothing in a circle."""
    done: set[str] = set()
    for key in found:
        path: set[str] = set()
        at: str | None = key
        while at is not None and at not in done:
            done.add(at)
            path.add(at)
            at = found[at].parent
        if at is not None and at in path:
            sources.remarks.add(found[at].subject, CIRCLE)
            found[at].parent = None


def _add_up(found: Mapping[str, Quota], amounts: Mapping[str, _Amounts], flavors: _Flavors) -> None:
    """State what each queue has; a cohort has its own and what its members have, without a parent no more."""
    members: dict[str | None, list[str]] = {}
    for key, quota in found.items():
        members.setdefault(quota.parent, []).append(key)
    ready = members.get(None, [])
    for key in ready:  # those above first
        ready += members.get(key, ())
    for key in reversed(ready):
        queue, own, cohort = found[key], amounts[key], key.startswith(_COHORT)
        if cohort:
            rest: int | None = 0 if queue.parent is None else None
            own.extra = {name: own.extra.get(name, rest) for name in own.nominal}
        queue.guarantee = flavors.share(own.nominal)
        if own.lent:
            lent = {name: min(gpus, own.lent.get(name, gpus)) for name, gpus in own.nominal.items()}
            queue.lending_limit = flavors.share(lent)
        queue.limit = flavors.limit(own, only=not cohort)
        if queue.parent is not None:
            amounts[queue.parent].nominal.update(own.nominal)


class _Flavors(Struct):
    """Which GPU model a flavor is about: that of its nodes, if they have one."""

    sources: QuotaSources
    known: dict[str, str | None] = {}

    def model(self, name: str) -> str | None:
        if name not in self.known:
            made = self.sources.api.named(GROUP, "ResourceFlavor", "", name)
            models = self.sources.models_of(texts(made.tree, "spec", "nodeLabels")) if made else ()
            self.known[name] = models[0] if len(models) == 1 else None
        return self.known[name]

    def share(self, gpus: Mapping[str, int]) -> Amount:
        """GPUs by flavor: in all, and of the models that flavors are about."""
        models: dict[str, int] = {}
        for name, amount in gpus.items():
            if (model := self.model(name)) is not None:
                models[model] = models.get(model, 0) + amount
        return Amount(sum(gpus.values()) if gpus else None, tuple(models.items()))

    def limit(self, amounts: _Amounts, *, only: bool) -> Amount:
        """``only``: GPUs of a model that none of its flavors is about are not given."""
        most = {
            name: nominal + extra
            for name, nominal in amounts.nominal.items()
            if (extra := amounts.extra[name]) is not None
        }
        unlimited = {self.model(name) for name in amounts.nominal.keys() - most.keys()}
        share = self.share(most)
        models = {model: gpus for model, gpus in share.models if model not in unlimited}
        about = {self.model(name) for name in amounts.nominal}
        if only and about and None not in about:
            models |= {other: 0 for other in self.sources.models_of({}) if other not in about}
        return Amount(None if unlimited else share.gpus, tuple(models.items()))


def find(sources: QuotaSources, namespace: str, stated: str | None) -> str | None:
    """The ClusterQueue of a LocalQueue, if it takes workloads of the namespace."""
    local = sources.api.named(GROUP, "LocalQueue", namespace, stated or "")
    name = None if local is None else text(local.tree, "spec", "clusterQueue")
    queue = sources.api.named(GROUP, "ClusterQueue", "", name or "")
    if local is None or queue is None:
        return name
    return name if _takes(queue, local, sources) else None


def _takes(queue: KubeObject, local: KubeObject, sources: QuotaSources) -> bool:
    """Whether a ClusterQueue takes the namespace of a LocalQueue; without a selector it takes none.

    Of a namespace that is not in the input only the name is known: a selector that asks about another label
    does not select it.
    """
    selector = at(queue.tree, "spec", "namespaceSelector")
    if not isinstance(selector, dict) or not is_label_selector(selector):
        sources.remarks.add(queue.where, NO_SELECTOR)
        return False
    space = sources.api.named("", "Namespace", "", local.namespace)
    keys = {*mapping(selector, "matchLabels")}
    keys |= {text(one, "key") or "" for one in objects(selector, "matchExpressions")}
    if space is None and not keys <= {NAMESPACE_NAME}:
        sources.remarks.add(local.where, UNKNOWN_LABELS, LABELS_HINT)
        return False
    labels = {} if space is None else space.labels
    return matches(selector, {**labels, NAMESPACE_NAME: local.namespace})


def stopped(sources: QuotaSources, gang: KubeGang, stated: str) -> str | None:
    """Why Kueue starts nothing of a gang now: its LocalQueue or ClusterQueue is stopped, in words.

    ``Hold`` lets run what is admitted: pods that exist without Kueue's gate are.
    """
    waiting = [pod for pod in gang.pods() if pod.to_place]
    local = sources.api.named(GROUP, "LocalQueue", gang.namespace, stated)
    if local is None or not waiting:
        return None
    name = text(local.tree, "spec", "clusterQueue") or ""
    admitted = not any(EXPECTED in pod.object.tree or GATE in pod.gates for pod in waiting)
    for one in (local, sources.api.named(GROUP, "ClusterQueue", "", name)):
        policy = None if one is None else text(one.tree, "spec", "stopPolicy")
        if one is not None and (policy == DRAIN or (policy == HOLD and not admitted)):
            return f"its {one.where} has the stopPolicy {policy}"
    return None


QUOTAS = QuotaReader(read, find, {"kueue": "default"}, stopped)
