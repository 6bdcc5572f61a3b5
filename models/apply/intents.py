"""The intent: what a plan means to do with a pod, written on the pod before its gang starts.

Promises: one way to write it as labels and annotations and one way to read it back; whatever is not
exactly what we write is no intent. Called by ``models.apply`` and ``planner.cluster``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

PLAN = "gangplan.dev/plan"
"""Id of the plan: a label, so that ``kubectl get pods -l`` finds them, and an annotation."""

NODE = "gangplan.dev/node"
GPUS = "gangplan.dev/gpus"
GANG = "gangplan.dev/gang"
SIZE = "gangplan.dev/gang-size"
"""How many pods of the gang the plan starts together: each of them carries an intent."""

WHOLE = "gangplan.dev/whole"
"""Written on a few pods once all pods of the gang were started: a gang that loses pods later was whole."""

SEAL = "gangplan.dev/seal"
"""Proof that a run wrote the intent on this very pod: see ``seal_key``."""

KEYS = (PLAN, NODE, GPUS, GANG, SIZE, WHOLE, SEAL)

MANAGER = "gangplan"
"""Field manager of every write of ours: ``metadata.managedFields`` tells by it who wrote an intent."""

_PLAN_ID = re.compile(r"gp-[0-9a-f]{20}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_GPUS = re.compile(r"[0-9]{1,4}(?:,[0-9]{1,4}){0,1023}")
MAX_SIZE = 1_000_000


@dataclass(frozen=True, slots=True)
class Intent:
    """``gang``: name within the pod's namespace. ``size``: pods that start together.

    ``gpus``: indices, ascending; None where the node decides. ``node``: name of a Node.
    ``whole``: all pods of the gang were once started.
    """

    plan: str
    gang: str
    size: int
    node: str
    gpus: tuple[int, ...] | None
    whole: bool = False

    def annotations(self) -> dict[str, str]:
        """What is written on the pod, beside the label ``PLAN``."""
        written = {PLAN: self.plan, GANG: self.gang, SIZE: str(self.size), NODE: self.node}
        if self.gpus:
            written[GPUS] = ",".join(map(str, self.gpus))
        if self.whole:
            written[WHOLE] = "true"
        return written

    def labels(self) -> dict[str, str]:
        return {PLAN: self.plan}


def read_intent(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Intent | None:
    """The intent a pod carries; None if it carries none, or not one that we would write."""
    plan, gang, size, node = (annotations.get(key, "") for key in (PLAN, GANG, SIZE, NODE))
    gpus = annotations.get(GPUS)
    whole = (
        labels.get(PLAN) == plan
        and _PLAN_ID.fullmatch(plan)
        and 0 < len(gang) <= 253
        and re.fullmatch(r"[1-9][0-9]{0,6}", size)
        and int(size) <= MAX_SIZE
        and _NAME.fullmatch(node)
        and (gpus is None or _GPUS.fullmatch(gpus))
        and annotations.get(WHOLE, "true") == "true"
    )
    if not whole:
        return None
    indices = None if gpus is None else tuple(int(part) for part in gpus.split(","))
    return Intent(plan, gang, int(size), node, indices, WHOLE in annotations)
