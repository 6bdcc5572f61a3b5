"""Gangs that others should be near: preferred podAffinity of pods with GPUs to gangs of their namespace.

A wish that cannot be read, is about pods elsewhere by its form, or is one of too many, is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from models.documents.gang import MAX_NEAR
from planner.read.findings import Remarks
from planner.read.kube.gang_documents import model_pod
from planner.read.kube.levels.levels import Levels
from planner.read.kube.lookup import bits, items, mapping, objects, text, whole
from planner.read.kube.pod_sets import named_keys
from planner.read.kube.pods.anti_affinity import PodKinds
from planner.read.kube.pods.constraints import PREFERRED
from planner.read.kube.pods.pod_rules import AFFINITY, PodRules, Selector, is_elsewhere
from planner.read.kube.records import KubeGang, LevelAsk

MAX_WISHES = 20
"""Most terms of a preferred podAffinity; of more none is read."""
TOO_MANY = f"prefers to be near more than {MAX_NEAR} gangs; the preference is ignored"

Wish = tuple[str, Selector]
"""A label that names domains, and the pods beside which its gang should be in one."""


def set_near(
    gangs: Sequence[KubeGang], levels: Levels, ignore: Collection[str], remarks: Remarks
) -> None:
    """Set ``near`` of the gangs whose pods wish so."""
    if AFFINITY in ignore:
        return
    reader = PodRules(())
    wishes = {n: own for n, gang in enumerate(gangs) if (own := _wishes(gang, reader))}
    if not wishes:
        return
    members = {pod.key: n for n, gang in enumerate(gangs) for pod in gang.pods()}
    pods = (pod for gang in gangs for pod in gang.pods() if pod.finished is None)
    kinds = PodKinds(pods, named_keys(wish for own in wishes.values() for _, wish in own))
    gangs_of: dict[int, dict[int, None]] = {}
    for pod, kind in kinds.of:
        gangs_of.setdefault(kind, {})[members[pod.key]] = None
    selected: dict[Selector, list[int]] = {}
    for n, own in wishes.items():
        gang = gangs[n]
        for key, wish in own:
            level = levels.resolve(LevelAsk(label=key))
            if level is None:
                continue
            if wish not in selected:
                found = bits(kinds.selected(wish.tree, [wish.namespace]))
                selected[wish] = sorted({g for kind in found for g in gangs_of[kind]})
            others = [g for g in selected[wish] if g != n]
            if len(others) > MAX_NEAR:
                remarks.add(gang.subject, TOO_MANY)
            elif others:
                gang.near = (level, tuple(gangs[g] for g in others))
                break


def _wishes(gang: KubeGang, reader: PodRules) -> list[Wish]:
    """The wishes of its pods with GPUs, each once, those of most weight first."""
    models = (model_pod(role) for role in gang.roles)
    found: dict[tuple[int, Wish], None] = {}
    for pod in (pod for pod in models if pod is not None and pod.gpus):
        stated = _stated(pod.object.tree, gang.namespace, reader)
        found |= dict.fromkeys(sorted(stated, key=lambda wish: -wish[0]))
    return [wish for _, wish in sorted(found, key=lambda wish: -wish[0])]


def _stated(pod: object, namespace: str, reader: PodRules) -> Iterator[tuple[int, Wish]]:
    affinity = mapping(pod, "spec", "affinity", AFFINITY)
    for tree in (
        objects(affinity, PREFERRED) if len(items(affinity, PREFERRED)) <= MAX_WISHES else ()
    ):
        term = mapping(tree, "podAffinityTerm")
        key, selector = text(term, "topologyKey"), reader.selector(term, namespace)
        if key and selector and "labelSelector" in term and not is_elsewhere(term, namespace):
            yield whole(tree, "weight") or 1, (key, selector)
