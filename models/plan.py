"""The plan of a solution: same instance and solution, same bytes of ``instance`` and ``spec``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from models.canonical import canonical_instance, digest
from models.documents.base import API_VERSION
from models.documents.plan import (
    PlanBought,
    PlanDigests,
    PlanDocument,
    PlanGang,
    PlanMetadata,
    PlanMoves,
    PlanObjective,
    PlanPod,
    PlanReason,
    PlanSearch,
    PlanSpec,
    PlanStatus,
)
from models.gang import ExistingPod, Gang
from models.hardware import bits
from models.instance import Instance
from models.solution import GangDecision, MoveSet, PodPlacement, Solution
from models.tier_values import Evaluation
from models.units import epoch_seconds


def plan_document(
    instance: Instance,
    solution: Solution,
    *,
    name: str,
    created_at: str,
    generator: str,
    remarks: Sequence[str] = (),
) -> PlanDocument:
    """The plan of a solution. ``created_at``: RFC 3339. ``remarks``: of reading the input."""
    evaluation = Evaluation(instance, solution.decisions)
    planned = canonical_instance(instance)
    spec = PlanSpec.model_construct(
        gangs=tuple(
            _gang(instance, evaluation, index, gang, solution.decisions[index])
            for index, gang in enumerate(instance.gangs)
        )
    )
    optimal = all(tier.bound == tier.best for tier in solution.tiers)
    return PlanDocument.model_construct(
        api_version=API_VERSION,
        kind="Plan",
        metadata=PlanMetadata.model_construct(
            name=name, created_at=epoch_seconds(created_at), generator=generator
        ),
        instance=planned,
        spec=spec,
        status=PlanStatus.model_construct(
            outcome="optimal" if optimal else "feasible",
            objectives=tuple(PlanObjective.of(tier) for tier in solution.tiers),
            search=PlanSearch.model_construct(
                solver=solution.solver,
                seed=instance.policy.solve.seed,
                effort=round(solution.effort, 3),
                stopped_by=solution.stopped_by,
            ),
            moves=tuple(_moves(instance, moves) for moves in solution.moves),
            notes=solution.notes,
            remarks=tuple(remarks),
            digests=PlanDigests.model_construct(
                instance=digest(planned.to_json()), spec=digest(spec.to_json())
            ),
        ),
    )


def compose(instance: Instance, solution: Solution, **stated: Any) -> dict[str, Any]:  # noqa: ANN401
    """The JSON document of ``plan_document``."""
    return plan_document(instance, solution, **stated).to_json()


def dumps(plan: dict[str, Any]) -> str:
    """Deterministic text of a plan: keys in document order, two spaces, one newline at the end."""
    # Python's json has no indentation in C: a plan of 24,000 gangs takes it 3 s, pydantic 0.2 s.
    try:
        text = to_json(plan, indent=2)
    except PydanticSerializationError:  # text that is no UTF-8
        text = b""
    if not text or any(number.search(text) for number in _WRITTEN_OTHERWISE):
        return json.dumps(plan, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    return text.decode() + "\n"


_WRITTEN_OTHERWISE = tuple(
    re.compile(number + rb",?\n")
    for number in (rb"e-[0-9]+", rb"0\.0000[0-9]*", rb"NaN", rb"Infinity")
)
"""Ends of lines with a number that Python writes otherwise (below 0.0001) or refuses (not finite)."""


def _moves(instance: Instance, moves: MoveSet) -> PlanMoves:
    def names(gangs: Sequence[int]) -> tuple[str, ...]:
        return tuple("/".join(instance.gangs[gang].key) for gang in gangs)

    return PlanMoves.model_construct(
        gangs=names(moves.gangs),
        gpus=moves.moved_gpus,
        bought=PlanBought.model_construct(
            gangs=names(moves.admitted),
            gpus=moves.gpus,
            bandwidth=moves.bandwidth,
            whole_nodes=moves.whole_nodes,
            whole_domains=moves.whole_domains,
        ),
        gain=moves.gain / 1000,
    )


def _gang(
    instance: Instance, evaluation: Evaluation, index: int, gang: Gang, decision: GangDecision
) -> PlanGang:
    value = evaluation.values[index]
    cluster = instance.cluster
    levels = [cluster.level_name(level) for level in range(cluster.node_level + 1)]
    pods = sorted(decision.pods, key=lambda pod: (pod.role, pod.index))
    existing = {(pod.role, pod.index): pod for pod in gang.pods}
    return PlanGang.model_construct(
        namespace=gang.namespace,
        name=gang.name,
        decision=decision.decision,
        aged=instance.aged(gang),
        pods=tuple(_pod(instance, gang, pod, existing.get((pod.role, pod.index))) for pod in pods),
        bandwidth=None if value is None or value.bandwidth is None else int(value.bandwidth),
        share=None if value is None else value.share,
        domains=None if value is None else dict(zip(levels, value.domains, strict=True)),
        reason=None if decision.reason is None else PlanReason.of(decision.reason),
    )


def _pod(
    instance: Instance, gang: Gang, pod: PodPlacement, existing: ExistingPod | None
) -> PlanPod:
    role = gang.roles[pod.role].name
    return PlanPod.model_construct(
        name=f"{gang.name}-{role}-{pod.index}" if existing is None else existing.name,
        role=role,
        index=pod.index,
        node=instance.cluster.nodes[pod.node].name,
        gpus=None if pod.gpus is None else tuple(bits(pod.gpus)),
        uid=None if existing is None else existing.uid,
    )
