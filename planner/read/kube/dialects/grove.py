"""Grove: a PodGang is a gang, its PodCliques are roles.

Promises: sizes from the PodGang object where it is there; a clique goes by its own name, without
that of the gang that Grove puts before it. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.read.kube.dialects.base import Maker, MakerDialect, MakerKey, RolePlan, Seat
from planner.read.kube.lookup import Tree, items, number, objects, text
from planner.read.kube.records import KubePod, LevelAsk, Objects

GROUP = "scheduler.grove.io"
KIND = "PodGang"
NAME = "grove.io/podgang"
CLIQUE = "grove.io/podclique"
INDEX = "grove.io/podclique-pod-index"


def claim(pod: KubePod, found: Objects) -> MakerKey | None:
    del found
    name = pod.labels.get(NAME)
    return MakerKey(KIND, pod.object.namespace, name) if name else None


def describe(key: MakerKey, pods: Sequence[KubePod], found: Objects) -> Maker:
    made = found.named(GROUP, KIND, key.namespace, key.name)
    plans: dict[str, RolePlan] = {}
    if made is not None:
        for part in objects(made.tree, "spec", "podgroups"):
            name = text(part, "name")
            if name is not None:
                role, size = _short(name, key.name), len(items(part, "podReferences"))
                plans.setdefault(role, RolePlan(role, size, required=_packed(part)[0]))
    for role in sorted({_role(pod, key.name) for pod in pods}):
        plans.setdefault(role, RolePlan(role, None))
    required, preferred = _packed(made.tree.get("spec")) if made is not None else (None, None)
    roles = tuple(plans.values())
    return Maker(key, KIND, key.name, made, roles, required=required, preferred=preferred)


def _packed(tree: Tree | object) -> tuple[LevelAsk | None, LevelAsk | None]:
    found = (
        text(tree, "topologyConstraint", "packConstraint", "required"),
        text(tree, "topologyConstraint", "packConstraint", "preferred"),
    )
    required, preferred = (LevelAsk(label=label) if label else None for label in found)
    return required, preferred


def _role(pod: KubePod, gang: str) -> str:
    return _short(pod.labels.get(CLIQUE) or "worker", gang)


def _short(clique: str, gang: str) -> str:
    return clique.removeprefix(f"{gang}-") or clique


def seat(pod: KubePod, maker: Maker) -> Seat:
    return Seat(_role(pod, maker.key.name), number(pod.labels.get(INDEX)))


DIALECT = MakerDialect(KIND, claim, describe, seat)
