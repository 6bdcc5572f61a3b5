"""What was seen of the live cluster: nodes and pods, reduced to what applying depends on.

Promises: frozen facts without judgement; amounts are integers as in an Instance. Built by
``planner.cluster.live``; judged by the rest of this package.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from models.applying.intents import Intent
from models.applying.orders import Key


@dataclass(frozen=True, slots=True)
class PodSeen:
    """One live pod.

    ``version``: metadata.resourceVersion. ``node``: spec.nodeName, where it is bound; None if it is not.
    ``held_at``: where it has room although it is not bound: pinned, nominated, or by our intent.
    ``gates``: scheduling gates in order. ``intent``: what our label and annotations say.
    ``intent_is_ours``: managedFields say that our field manager wrote them.
    ``unschedulable``: message of PodScheduled=False with reason Unschedulable. ``group``: name of its
    native PodGroup. ``requests``: without GPUs. ``indices``: GPUs it holds, None where nobody knows.
    ``selector``, ``affinity``: spec.nodeSelector and spec.affinity.nodeAffinity as they are (JSON).
    ``owner``: uid of its controller. ``tolerations``: (key, operator, value, effect); None: not read.
    """

    namespace: str
    name: str
    uid: str
    version: str
    node: str | None = None
    held_at: str | None = None
    gates: tuple[str, ...] = ()
    scheduler: str = "default-scheduler"
    terminating: bool = False
    finished: bool = False
    intent: Intent | None = None
    intent_is_ours: bool = False
    unschedulable: str | None = None
    group: str | None = None
    gpus: int = 0
    requests: tuple[tuple[str, int], ...] = ()
    indices: tuple[int, ...] | None = None
    selector: tuple[tuple[str, str], ...] = ()
    node_affinity: str = "null"
    owner: str | None = None
    tolerations: tuple[tuple[str, str, str, str], ...] | None = None

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)

    @property
    def place(self) -> str | None:
        """The node whose room it takes; None if it takes none. Terminating pods still do."""
        return None if self.finished else self.node or self.held_at


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """One live node. ``allocatable``: without GPUs; ``gpus``: allocatable whole GPUs.

    ``taints``: (key, value, effect) of effects NoSchedule and NoExecute. ``hostname``: its label
    kubernetes.io/hostname where no other node has the same; None otherwise.
    """

    name: str
    uid: str = ""
    ready: bool = True
    unschedulable: bool = False
    gpus: int = 0
    allocatable: tuple[tuple[str, int], ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    hostname: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """The cluster at one reading. ``groups``: native PodGroups, (namespace, name) to gang minCount."""

    cluster: str
    nodes: dict[str, NodeSeen]
    pods: dict[Key, PodSeen]
    groups: dict[Key, int] = field(default_factory=dict)
