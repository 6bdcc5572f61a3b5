"""Kueue: ClusterQueues and Cohorts as queues, through ResourceFlavors and LocalQueues.

A cohort has the quotas of its members and its own, and without a parent no more. Its members borrow from
each other up to that. Cohorts are named in ``cohort`` and ``parent``, since v1beta2 in ``cohortName`` and
``parentName``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from planner.read.kube.dialects.quotas import Quota, QuotaReader, QuotaSources, Share, exact
from planner.read.kube.lookup import (
    Tree,
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


@dataclass(slots=True)
class _Amounts:
    """GPUs by flavor. ``nominal``: promised; ``extra``: borrowed at most, None without a limit.

    ``lent``: at most; a flavor without such a limit is absent.
    """

    nominal: dict[str, int] = field(default_factory=dict)
    extra: dict[str, int | None] = field(default_factory=dict)
    lent: dict[str, int] = field(default_factory=dict)


def read(sources: QuotaSources) -> Iterable[Quota]:
    found: dict[str, Quota] = {}
    amounts: dict[str, _Amounts] = {}
    for made in sources.api.of("ClusterQueue", GROUP):
        above = text(made.tree, "spec", "cohortName") or text(made.tree, "spec", "cohort")
        queue = _quota(made, made.name, above, f"{made.name}.clusterqueue")
        # Kueue's LowerPriority is what every gang may do; its default is Never.
        queue.reclaim = text(made.tree, "spec", "preemption", "reclaimWithinCohort") == "Any"
        queue.strict = text(made.tree, "spec", "queueingStrategy") == "StrictFIFO"
        found[queue.key], amounts[queue.key] = queue, _amounts(made, sources, borrows=bool(above))
    for made in sources.api.of("Cohort", GROUP):
        above = text(made.tree, "spec", "parentName") or text(made.tree, "spec", "parent")
        cohort = _quota(made, _COHORT + made.name, above, f"{made.name}.cohort")
        found[cohort.key], amounts[cohort.key] = (
            cohort,
            _amounts(made, sources, borrows=bool(above)),
        )
    for parent in [one.parent for one in found.values()]:
        if parent is not None and parent not in found:  # a cohort may be a name alone
            name = parent.removeprefix(_COHORT)
            subject = f"Cohort {name}"
            found[parent] = Quota(
                parent, _SHOWN_COHORT + name, f"{name}.cohort", subject, reclaim=False
            )
            amounts[parent] = _Amounts()
    _cut_circles(found, sources)
    _add_up(found, amounts, _Flavors(sources))
    return found.values()


def _quota(made: KubeObject, key: str, above: str | None, other_name: str) -> Quota:
    weight = exact(mapping(made.tree, "spec", "fairSharing").get("weight"))
    return Quota(
        key,
        key.replace(_COHORT, _SHOWN_COHORT),
        other_name,
        made.where,
        parent=None if above is None else _COHORT + above,
        reclaim=False,  # of a cohort: its members may or may not
        weight=Fraction(1) if weight is None else weight,
    )


def _amounts(made: KubeObject, sources: QuotaSources, *, borrows: bool) -> _Amounts:
    """``borrows``: there is a cohort above it to borrow from."""
    found = _Amounts()
    for group in objects(made.tree, "spec", "resourceGroups"):
        for flavor in objects(group, "flavors"):
            name = text(flavor, "name") or ""
            for one in objects(flavor, "resources"):
                if text(one, "name") not in sources.gpu_resources:
                    continue
                nominal, extra, lent = _quotas_of(one, made.where, sources, borrows=borrows)
                before = found.extra.get(name, 0)
                found.nominal[name] = found.nominal.get(name, 0) + nominal
                found.extra[name] = None if extra is None or before is None else before + extra
                if lent is not None:
                    found.lent[name] = found.lent.get(name, 0) + lent
    return found


def _quotas_of(
    tree: Tree, subject: str, sources: QuotaSources, *, borrows: bool
) -> tuple[int, int | None, int | None]:
    nominal = sources.whole(tree.get("nominalQuota"), subject) or 0
    if not borrows:
        return nominal, 0, None

    def limit(name: str) -> int | None:
        written = tree.get(name)
        return None if written is None else sources.whole(written, subject)

    return nominal, limit("borrowingLimit"), limit("lendingLimit")


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
    members = Counter(one.parent for one in found.values())
    ready = [key for key in found if not members[key]]
    while ready:
        key = ready.pop()
        queue, own = found[key], amounts[key]
        if key.startswith(_COHORT):
            rest: int | None = 0 if queue.parent is None else None
            own.extra = {name: own.extra.get(name, rest) for name in own.nominal}
        queue.guarantee = flavors.share(own.nominal)
        if own.lent:
            lent = {name: min(gpus, own.lent.get(name, gpus)) for name, gpus in own.nominal.items()}
            queue.lending_limit = flavors.share(lent)
        queue.limit = flavors.limit(own, only=not key.startswith(_COHORT))
        if queue.parent is not None:
            above = amounts[queue.parent].nominal
            for name, gpus in own.nominal.items():
                above[name] = above.get(name, 0) + gpus
            members[queue.parent] -= 1
            if not members[queue.parent]:
                ready.append(queue.parent)


@dataclass(slots=True)
class _Flavors:
    """Which GPU model a flavor is about: that of its nodes, if they have one."""

    sources: QuotaSources
    known: dict[str, str | None] = field(default_factory=dict)

    def model(self, name: str) -> str | None:
        if name not in self.known:
            made = self.sources.api.named(GROUP, "ResourceFlavor", "", name)
            models = (
                ()
                if made is None
                else self.sources.models_of(texts(made.tree, "spec", "nodeLabels"))
            )
            self.known[name] = models[0] if len(models) == 1 else None
        return self.known[name]

    def share(self, gpus: Mapping[str, int]) -> Share:
        """GPUs by flavor: in all, and of the models that flavors are about."""
        models: dict[str, int] = {}
        for name, amount in gpus.items():
            if (model := self.model(name)) is not None:
                models[model] = models.get(model, 0) + amount
        return Share(sum(gpus.values()) if gpus else None, models)

    def limit(self, amounts: _Amounts, *, only: bool) -> Share:
        """``only``: GPUs of a model that none of its flavors is about are not given."""
        most = {
            name: nominal + extra
            for name, nominal in amounts.nominal.items()
            if (extra := amounts.extra[name]) is not None
        }
        unlimited = {self.model(name) for name in amounts.nominal.keys() - most.keys()}
        share = self.share(most)
        models = {model: gpus for model, gpus in share.models.items() if model not in unlimited}
        about = {self.model(name) for name in amounts.nominal}
        if only and about and None not in about:
            models |= {other: 0 for other in self.sources.models_of({}) if other not in about}
        return Share(None if unlimited else share.gpus, models)


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
