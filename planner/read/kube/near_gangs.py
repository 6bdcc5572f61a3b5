"""Gangs that should be near each other: preferred podAffinity of pods with GPUs to pods of other gangs.

A gang gets the wish of most weight whose topologyKey is a level and that selects pods of other gangs of its
namespace. Wishes about pods of no gang, about its own or of other namespaces are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from models.documents.gang import MAX_NEAR
from planner.read.findings import Remarks
from planner.read.kube.gang_documents import model_pod
from planner.read.kube.levels.levels import Levels
from planner.read.kube.lookup import bits, mapping, objects
from planner.read.kube.pods.pod_kinds import PodKinds
from planner.read.kube.pods.wishes import Wish
from planner.read.kube.records import KubeGang, LevelAsk, Objects

TOO_MANY = f"prefers to be near more than {MAX_NEAR} gangs; the preference is ignored"


def set_near(gangs: Sequence[KubeGang], levels: Levels, found: Objects, remarks: Remarks) -> None:
    """Set ``near`` of the gangs whose pods wish so."""
    wishes = {n: own for n, gang in enumerate(gangs) if (own := list(_wishes(gang)))}
    if not wishes:
        return
    members = {pod.key: n for n, gang in enumerate(gangs) for pod in gang.pods()}
    pods = (pod for gang in gangs for pod in gang.pods() if pod.finished is None)
    kinds = PodKinds(pods, found, _keys(wish for own in wishes.values() for wish in own))
    gangs_of: dict[int, dict[int, None]] = {}
    for pod, kind in kinds.of:
        gangs_of.setdefault(kind, {})[members[pod.key]] = None
    selected: dict[tuple[str, Wish], list[int]] = {}
    for n, own in wishes.items():
        gang = gangs[n]
        for wish in own:
            level = levels.resolve(LevelAsk(label=wish.key))
            if level is None:
                continue
            same = (gang.namespace, wish)
            if same not in selected:
                mask = _selected(kinds, wish) & kinds.inside.get(gang.namespace, 0)
                selected[same] = sorted({g for kind in bits(mask) for g in gangs_of[kind]})
            others = [g for g in selected[same] if g != n]
            if len(others) > MAX_NEAR:
                remarks.add(gang.subject, TOO_MANY)
            elif others:
                gang.near = (level, tuple(gangs[g] for g in others))
                break


def _wishes(gang: KubeGang) -> Iterator[Wish]:
    """The wishes of its pods with GPUs, each once, those of most weight first."""
    models = (model_pod(role) for role in gang.roles)
    found = dict.fromkeys(w for pod in models if pod is not None and pod.gpus for w in pod.wishes)
    yield from sorted(found, key=lambda wish: -wish.weight)


def _selected(kinds: PodKinds, wish: Wish) -> int:
    """The kinds that a wish selects; of namespaces that are not known, none."""
    term = wish.term
    selector = {} if term.selector is None else term.selector.tree
    spaces = None if term.of_namespaces is None else term.of_namespaces.tree
    return kinds.selected(selector, term.namespaces, spaces, unknown=False)


def _keys(wishes: Iterable[Wish]) -> set[str]:
    """Labels of pods that some wish names."""
    found: set[str] = set()
    for selector in (wish.term.selector for wish in wishes):
        tree = {} if selector is None else selector.tree
        found.update(mapping(tree, "matchLabels"))
        found.update(one["key"] for one in objects(tree, "matchExpressions"))
    return found
