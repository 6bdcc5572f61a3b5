"""The pin of a started pod: what gangplan added to its spec is no wish of its gang.

Without it a gang that gangplan started could never move. What the pod itself asked for stays. Marks that
nobody proved, in files, free only the gang that carries them, and only while it runs: a plan may then move
it where its new pods cannot start.
"""

from __future__ import annotations

from models.apply.intents import PLAN, read_intent
from models.documents.cluster import HOSTNAME_LABEL
from planner.read.kube.lookup import Tree, items, mapping
from planner.read.kube.pods.pod_rules import REQUIRED
from planner.read.kube.records import KubeNode, KubePod


def unpinned_spec(pod: KubePod, node: KubeNode, *, binds: bool) -> Tree:
    """The spec of a pod with an intent for its node, without the pin that a run added.

    ``binds``: its scheduler is gangplan's, which needs no pin. Earlier versions left no record of the pin:
    there a host name in the node selector counts as one.
    """
    spec = mapping(pod.object.tree, "spec")
    if pod.mode is not None or PLAN not in pod.labels:
        return spec
    intent = read_intent(pod.labels, pod.annotations)
    if intent is None or intent.node != node.name:
        return spec
    pin = intent.pin or ("none" if binds else "hostname")
    if pin == "hostname":
        return _without_host(spec, node)
    added = pin.split()[1:]
    return _without_name(spec, node, {int(place) for place in added}) if added else spec


def _without_host(spec: Tree, node: KubeNode) -> Tree:
    selector = mapping(spec, "nodeSelector")
    if HOSTNAME_LABEL not in selector or selector[HOSTNAME_LABEL] != node.labels.get(
        HOSTNAME_LABEL
    ):
        return spec
    return {**spec, "nodeSelector": {k: v for k, v in selector.items() if k != HOSTNAME_LABEL}}


def _without_name(spec: Tree, node: KubeNode, places: set[int]) -> Tree:
    """``places``: the terms of its required node affinity that got the name of the node."""
    affinity = mapping(spec, "affinity")
    terms = items(affinity, "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    kept = [
        _own_term(term, node) if i in places and isinstance(term, dict) else term
        for i, term in enumerate(terms)
    ]
    # A term of nothing but the name is ours alone: the pod had no required affinity.
    required = {} if kept == [{}] else {REQUIRED: {"nodeSelectorTerms": kept}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": required}}


def _own_term(term: Tree, node: KubeNode) -> Tree:
    field = {"key": "metadata.name", "operator": "In", "values": [node.name]}
    fields = [one for one in items(term, "matchFields") if one != field]
    bare = {name: value for name, value in term.items() if name != "matchFields"}
    return {**bare, "matchFields": fields} if fields else bare
