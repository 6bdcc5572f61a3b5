"""Grove: a PodGang is a gang, its PodCliques are roles.

Role names drop the name of the gang, which Grove puts before them.
"""

from __future__ import annotations

from planner.read.kube.dialects import base
from planner.read.kube.lookup import items, mapping, number, objects, text
from planner.read.kube.records import KubePod, LevelAsk

GROUP = "scheduler.grove.io"
KIND = "PodGang"
NAME = "grove.io/podgang"
CLIQUE = "grove.io/podclique"
INDEX = "grove.io/podclique-pod-index"


def describe(of: base.Controlled) -> base.Controller:
    roles: dict[str, base.RoleSpec] = {}
    spec, gang = mapping(of.tree, "spec"), of.key.name
    for part in objects(spec, "podgroups"):
        name = text(part, "name")
        if name is not None:
            role, size = _without_gang(name, gang), len(items(part, "podReferences"))
            roles.setdefault(role, base.RoleSpec(role, size, required=_packed(part, "required")))
    return base.Controller(
        of.key,
        KIND,
        gang,
        of.object,
        roles,
        required=_packed(spec, "required"),
        preferred=_packed(spec, "preferred"),
    )


def _packed(tree: object, strength: str) -> LevelAsk | None:
    label = text(tree, "topologyConstraint", "packConstraint", strength)
    return LevelAsk(label=label) if label else None


def _without_gang(clique: str, gang: str) -> str:
    return clique.removeprefix(f"{gang}-") or clique


def role_index(pod: KubePod, controller: base.Controller) -> base.RoleIndex:
    role = _without_gang(pod.labels.get(CLIQUE) or "worker", controller.key.name)
    return base.RoleIndex(role, number(pod.labels.get(INDEX)))


_KINDS = """
fragment GrovePacking
  packConstraint { required preferred } topologyName
podgangs.scheduler.grove.io PodGang v1alpha1
  spec {
    priorityClassName topologyConstraint=GrovePacking
    podgroups[] {
      name minReplicas podReferences[+] { namespace name } topologyConstraint=GrovePacking
    }
  }
"""

DIALECT = base.Dialect(
    "Grove",
    precedence=10,
    controller=base.ControllerReader(
        KIND, describe, role_index, replaces=True, labels=(NAME,), owners=((GROUP, KIND),)
    ),
    annotations="grove.io/",
    kinds=_KINDS,
)
