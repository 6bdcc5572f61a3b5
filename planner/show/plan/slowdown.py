"""Why a gang runs below full speed, from what its plan states."""

from __future__ import annotations

from fractions import Fraction

from models.documents.gang import GangDocument
from models.documents.plan import PlanDocument, PlanGang
from models.instance.speed import FULL_SPEED
from planner.show.text import permille


class Slowdowns:
    """The causes, gang by gang, of one plan."""

    def __init__(self, plan: PlanDocument) -> None:
        spec = plan.instance.cluster.spec
        speeds = {m.name: m.relative_speed for m in spec.server_models if m.gpus}
        on = {node.name: speeds[node.model] for node in spec.nodes if node.model in speeds}
        slowest = min((speed for speed in on.values() if speed is not None), default=Fraction(1))
        self._speed_of = {name: speed or slowest for name, speed in on.items()}
        """Relative speed of the nodes with GPUs; where it is not known, as the slowest that is."""

    def of(self, gang: PlanGang, request: GangDocument | None) -> str:
        """``links, GPU model at 31.5 %``: those that apply; empty at full speed."""
        if gang.speed_to_come is None or gang.speed_to_come >= FULL_SPEED or request is None:
            return ""
        communication = request.spec.communication
        share = None if communication.pattern == "none" else gang.share
        relative = self._relative(gang, request)
        causes = []
        if share is not None and share < FULL_SPEED and communication.fraction:
            causes.append("links")
        if relative < FULL_SPEED:
            causes.append(f"GPU model at {permille(relative)}")
        return ", ".join(causes)

    def _relative(self, gang: PlanGang, request: GangDocument) -> int:
        """Permille of the fastest GPU model: the slowest that it has GPUs on."""
        if request.spec.communication.speed == "ignore":
            return FULL_SPEED
        with_gpus = {role.name for role in request.spec.roles if role.gpus}
        nodes = {pod.node for pod in gang.pods if pod.role in with_gpus}
        own = [self._speed_of[node] for node in nodes if node in self._speed_of]
        return int(FULL_SPEED * min(own) / max(self._speed_of.values())) if own else FULL_SPEED
