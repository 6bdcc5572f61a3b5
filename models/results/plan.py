"""The plan of a solution: same instance and solution, same bytes of ``instance`` and ``spec``."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from models.documents.base import API_VERSION, digest
from models.documents.canonical import canonical_instance
from models.documents.plan import (
    PlanBought,
    PlanDigests,
    PlanEffectiveGpus,
    PlanMetadata,
    PlanMoves,
    PlanObjective,
    PlanPriorityGpus,
    PlanQueue,
    PlanQueueCell,
    PlanQueueModel,
    PlanSearch,
    PlanStatus,
    PlanUnable,
    PlanUnchecked,
)
from models.documents.stated import unchecked
from models.hardware import bits
from models.instance.gang import Gang, has_parts
from models.instance.instance import Instance
from models.instance.occupancy import pods_after
from models.instance.queue import Gpu, Queue
from models.instance.reshaping import partitions, parts, reshaping
from models.instance.solution import (
    ByPriority,
    GangDecision,
    MoveSet,
    PodPlacement,
    Reason,
    Solution,
    standing_of,
)
from models.instance.speed import FULL_SPEED
from models.queues.queue_shares import cell_model, gpus_held, queue_of, stated_shares
from models.rates.gang_rates import dealt_ranks
from models.starts.empty_starts import Answer, not_claiming
from models.units import epoch_seconds, time_text
from models.values.effective_gpus import effective_after, effective_before, effective_by_priority
from models.values.tier_values import Evaluation, Line, known_masks

Words = Callable[[Reason], str]
"""Makes the sentence of a reason."""


def code_alone(reason: Reason) -> str:
    """For plans that nobody reads: the code in the place of a sentence."""
    return reason.code


class PlanWriter:
    """Writes plans of one instance. What does not depend on the decisions is written once.

    So the plans share their ``instance``, and equal parts in it may be one object. ``words``: of reasons.
    """

    def __init__(self, instance: Instance, words: Words = code_alone) -> None:
        self._instance = instance
        self._words = words
        self._document = canonical_instance(instance)

    def compose(
        self,
        solution: Solution,
        *,
        name: str,
        created_at: str,
        generator: str,
        remarks: Sequence[str] = (),
        left_out: Mapping[str, int] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """The plan of a solution. ``created_at``: RFC 3339. ``remarks``, ``left_out``: of the reading."""
        evaluation = Evaluation(self._instance, solution.decisions)
        gangs = _GangWriter(self._instance, solution, self._words)
        spec: dict[str, Any] = {"gangs": [gangs.write(line) for line in evaluation.lines]}
        spec |= self._parts(solution.decisions)
        metadata = PlanMetadata.model_construct(
            name=name, created_at=epoch_seconds(created_at), generator=generator
        )
        effective = _effective(self._instance, solution, evaluation)
        status = self._status(solution, effective, digest(spec)).model_copy(
            update={"remarks": tuple(remarks), "left_out": dict(left_out)}
        )
        plan = {
            "apiVersion": API_VERSION,
            "kind": "Plan",
            "metadata": metadata.to_json(),
            "instance": self._document,
            "spec": spec,
            "status": status.to_json(),
        }
        marks = tuple(map(PlanUnchecked.of, unchecked(plan)))
        plan["status"] = status.model_copy(update={"unchecked": marks}).to_json()
        return plan

    def _parts(self, decisions: Sequence[GangDecision]) -> dict[str, Any]:
        """GPUs to partition and to share, in the forms of ``PlanPartition`` and ``PlanShare``."""
        instance = self._instance
        if not reshaping(instance):
            return {}
        pods = pods_after(instance, decisions)
        nodes = instance.cluster.nodes
        found = {
            "partitions": [
                {"node": nodes[n].name, "gpu": gpu, "profiles": list(profiles)}
                | ({"anew": True} if anew else {})
                for n, gpu, profiles, anew in partitions(instance, pods)
            ],
            "shares": [
                {"node": nodes[n].name, "gpu": gpu}
                | ({} if group is None else {"gpuGroup": group})
                | {"parts": list(names)}
                for n, gpu, group, names in parts(instance, pods)
            ],
        }
        return {name: made for name, made in found.items() if made}

    @cached_property
    def _digest(self) -> str:
        return digest(self._document)

    @cached_property
    def instance_text(self) -> str:
        """The lines of the instance in the text of every plan, with the comma behind it."""
        return _member("instance", self._document) + ",\n"

    def text(self, plan: dict[str, Any]) -> str:
        """``dumps`` of a plan that it composed."""
        return dumps(plan, instance=self.instance_text.removesuffix(",\n"))

    def _status(self, solution: Solution, effective: PlanEffectiveGpus, spec: str) -> PlanStatus:
        """``spec``: its digest."""
        optimal = all(tier.bound == tier.best for tier in solution.tiers)
        starting = {i for i, one in enumerate(solution.decisions) if one.decision == "place"}
        return PlanStatus.model_construct(
            outcome="optimal" if optimal else "feasible",
            gpu_unit=self._instance.gpu_unit,
            objectives=tuple(PlanObjective.of(tier) for tier in solution.tiers),
            search=PlanSearch.of(
                solution, seed=self._instance.policy.solve.seed, effort=round(solution.effort, 3)
            ),
            effective_gpus=effective,
            queues=queue_status(self._instance, solution.decisions),
            unable=_unable(self._instance, starting),
            unclaiming=tuple(
                "/".join(self._instance.gangs[i].key)
                for i in not_claiming(self._instance)
                if i in starting
            ),
            moves=tuple(_moves(self._instance, moves) for moves in solution.moves),
            notes=solution.notes,
            digests=PlanDigests.model_construct(instance=self._digest, spec=spec),
        )


def compose(
    instance: Instance,
    solution: Solution,
    words: Words = code_alone,
    **stated: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """The one plan of an instance, as ``PlanWriter.compose`` writes it."""
    return PlanWriter(instance, words).compose(solution, **stated)


def dumps(plan: dict[str, Any], **known: str) -> str:
    """Deterministic text of a plan: keys in document order, two spaces, one newline at the end.

    ``known``: the lines of fields that were written before.
    """
    lines = (known.get(name) or _member(name, value) for name, value in plan.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _member(name: str, value: object) -> str:
    """The lines of a field of a plan."""
    # Python's json has no indentation in C: a plan of 24,000 gangs takes it 3 s, pydantic 0.2 s.
    try:
        text = to_json({name: value}, indent=2)
    except PydanticSerializationError:  # text that is no UTF-8
        text = b""
    if text and not any(number.search(text) for number in _WRITTEN_OTHERWISE):
        return text[2:-2].decode()
    return json.dumps({name: value}, ensure_ascii=False, indent=2, allow_nan=False)[2:-2]


_WRITTEN_OTHERWISE = tuple(
    re.compile(number + rb",?\n")
    for number in (rb"e-[0-9]+", rb"0\.0000[0-9]*", rb"NaN", rb"Infinity")
)
"""Ends of lines with a number that Python writes otherwise (below 0.0001) or refuses (not finite)."""


def _unable(instance: Instance, starting: Collection[int]) -> tuple[PlanUnable, ...]:
    return tuple(
        PlanUnable.model_construct(
            gang="/".join(instance.gangs[i].key),
            proven=answer in (Answer.NEVER, Answer.NOT_NOW),
            now=answer in (Answer.NOT_NOW, Answer.UNKNOWN_NOW),
        )
        for i, answer in not_claiming(instance).items()
        if i not in starting
    )


def _effective(instance: Instance, solution: Solution, evaluation: Evaluation) -> PlanEffectiveGpus:
    start, after = solution.one_at_a_time, effective_after(evaluation)
    alone = None if start is None else sum(gpus for _, gpus in start)
    fewer = alone is not None and after < alone
    permille = FULL_SPEED * instance.gpu_unit
    return PlanEffectiveGpus.model_construct(
        before=effective_before(instance) / permille,
        after=after / permille,
        one_at_a_time=None if alone is None else alone / permille,
        by_priority=_priorities(effective_by_priority(evaluation), start or (), permille)
        if fewer
        else (),
    )


def _priorities(
    after: ByPriority, start: ByPriority, permille: int
) -> tuple[PlanPriorityGpus, ...]:
    """The figures of every priority side by side. ``start``: of one gang after another.

    ``permille``: what a GPU at full speed counts.
    """
    plan, alone = dict(after), dict(start)
    return tuple(
        PlanPriorityGpus.model_construct(
            priority=priority,
            after=plan.get(priority, 0) / permille,
            one_at_a_time=alone.get(priority, 0) / permille,
        )
        for priority in sorted({*plan, *alone}, reverse=True)
    )


def _moves(instance: Instance, moves: MoveSet) -> PlanMoves:
    unit = instance.gpu_unit

    def names(gangs: Sequence[int]) -> tuple[str, ...]:
        return tuple("/".join(instance.gangs[gang].key) for gang in gangs)

    return PlanMoves.model_construct(
        gangs=names(moves.gangs),
        gpus=instance.in_gpus(moves.moved_gpus),
        bought=PlanBought.model_construct(
            gangs=names(moves.admitted),
            gpus=instance.in_gpus(moves.gpus),
            effective_gpus=None
            if moves.effective is None
            else moves.effective / (FULL_SPEED * unit),
            bandwidth=instance.in_gpus(moves.bandwidth),
            whole_nodes=moves.whole_nodes,
            whole_domains=moves.whole_domains,
        ),
        gain=moves.gain / 1000,
    )


class _GangWriter:
    """Writes what is decided of gangs, in the form of ``PlanGang``."""

    def __init__(self, instance: Instance, solution: Solution, words: Words) -> None:
        cluster = instance.cluster
        self._words = words
        self._instance = instance
        self._decisions = solution.decisions
        self._levels = [cluster.level_name(level) for level in range(cluster.node_level + 1)]
        self._nodes = [node.name for node in cluster.nodes]

    def write(self, line: Line) -> dict[str, Any]:
        gang, decision, value = line.gang, line.decision, line.value
        bandwidth = None if value is None else value.bandwidth
        domains = None if value is None else dict(zip(self._levels, value.domains, strict=True))
        return {
            "namespace": gang.namespace,
            "name": gang.name,
            "decision": decision.decision,
            **({"aged": True} if self._instance.aged(gang) else {}),
            "pods": self._pods(gang, decision.pods, self._ranks(gang, decision.pods)),
            **self._gpus(gang, decision),
            "bandwidthMBps": None if bandwidth is None else int(bandwidth),
            "share": None if value is None else value.share,
            "speed": line.speed,
            **({"speedAfter": value.speed} if value and value.speed != line.speed else {}),
            "domains": domains,
            "reason": None if decision.reason is None else self._reason(decision.reason),
            **self._later(gang, decision),
        }

    def _gpus(self, gang: Gang, decision: GangDecision) -> dict[str, Any]:
        """What a gang with parts of GPUs counts: others show it by what they ask for."""
        if self._instance.gpu_unit == 1 or not any(has_parts(r.requests) for r in gang.roles):
            return {}
        pods = gang.running_pods if decision.decision == "preempt" else decision.pods
        units = gang.units_of(pods) if pods else gang.least_units
        return {"gpus": self._instance.in_gpus(units)}

    def _reason(self, reason: Reason) -> dict[str, Any]:
        return {
            "code": reason.code,
            "message": self._words(reason),
            **({} if reason.bare else {"fields": reason.fields.to_json()}),
        }

    def _later(self, gang: Gang, decision: GangDecision) -> dict[str, Any]:
        """What is reserved for the gang, and when it is expected to start."""
        found: dict[str, Any] = {}
        held, expected = decision.reserved, decision.expected_start
        if held is not None:
            found["reserved"] = {
                "start": time_text(held.start),
                "domain": self._instance.cluster.narrowest_domain(held.nodes)
                if held.nodes
                else None,
                "nodes": [self._nodes[n] for n in held.nodes],
                "pods": self._pods(gang, held.pods, {}),
                **({"beside": ["/".join(key) for key in held.beside]} if held.beside else {}),
            }
        if expected is not None:
            found["expectedStart"] = time_text(expected)
        if decision.passed_over is not None:
            found["passedOver"] = decision.passed_over
        if decision.delayed is not None:
            late = decision.delayed
            found["delayed"] = {
                "promised": time_text(late.promised),
                "cause": late.cause,
                **({"by": list(late.by)} if late.by else {}),
            }
        return found

    @cached_property
    def _known(self) -> list[int]:
        return known_masks(self._instance, self._decisions)

    def _ranks(self, gang: Gang, pods: Sequence[PodPlacement]) -> Mapping[tuple[int, int], int]:
        if not (gang.by_rank or gang.ordered):
            return {}
        return dealt_ranks(self._instance, gang, pods, self._known)

    def _pods(
        self, gang: Gang, pods: Sequence[PodPlacement], ranks: Mapping[tuple[int, int], int]
    ) -> list[dict[str, Any]]:
        existing = {(pod.role, pod.index): pod for pod in gang.pods}
        written = []
        for pod in sorted(pods, key=lambda pod: (pod.role, pod.index)):
            role, known = gang.roles[pod.role].name, existing.get((pod.role, pod.index))
            document = {
                "name": f"{gang.name}-{role}-{pod.index}" if known is None else known.name,
                "role": role,
                "index": pod.index,
                "node": self._nodes[pod.node],
                "gpus": None if pod.gpus is None else list(bits(pod.gpus)),
            }
            if known is not None and known.uid is not None:
                document["uid"] = known.uid
            if (pod.role, pod.index) in ranks:
                document["rank"] = ranks[pod.role, pod.index]
            written.append(document)
        return written


Held = Counter[tuple[int, Gpu]]
"""GPUs by queue and GPU model."""


def queue_status(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[PlanQueue, ...]:
    """One entry a queue, by name; ``decisions``: one a gang of the instance."""
    if not instance.queues:
        return ()
    known, before, after, waiting = stated_shares(instance), Held(), Held(), Counter[int]()
    rows = zip(instance.gangs, queue_of(instance), decisions, strict=True)
    for gang, queue, decision in rows:
        path = known.path(queue)
        _add(before, instance, path, gang, standing_of(gang))
        _add(after, instance, path, gang, decision.pods)
        if decision.decision in ("wait", "preempt"):
            waiting.update(dict.fromkeys(path, gang.least_units))
    return tuple(
        _stated(instance, q, before, after, waiting[q]) for q in range(len(instance.queues))
    )


def _add(
    held: Held, instance: Instance, path: Sequence[int], gang: Gang, pods: Iterable[PodPlacement]
) -> None:
    for gpu, gpus in gpus_held(instance, gang, pods).items() if path else ():
        for q in path:
            held[q, gpu] += gpus


def _stated(instance: Instance, q: int, before: Held, after: Held, waiting: int) -> PlanQueue:
    queue, gpus = instance.queues[q], instance.in_gpus
    guarantee = stated_shares(instance).guarantee(q)
    limit = _most(queue.limit.gpus, None if queue.borrowing else guarantee)
    return PlanQueue.model_construct(
        name=queue.name,
        parent=None if queue.parent is None else instance.queues[queue.parent].name,
        guarantee=gpus(guarantee),
        limit=None if limit is None else gpus(limit),
        before=gpus(before[q, None]),
        after=gpus(after[q, None]),
        borrowed=gpus(max(0, after[q, None] - guarantee)),
        waiting=gpus(waiting),
        models=tuple(_models(instance, q, before, after)),
        cells=tuple(_cells(instance, queue)),
    )


def _most(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _models(instance: Instance, q: int, before: Held, after: Held) -> Iterable[PlanQueueModel]:
    """Of each GPU model that its guarantee or its limit names; without borrowing one ends the other."""
    queue, gpus = instance.queues[q], instance.in_gpus
    promised, limits = dict(queue.guarantee.models), dict(queue.limit.models)
    for model in sorted(promised.keys() | limits.keys()):
        limit = _most(limits.get(model), None if queue.borrowing else promised.get(model))
        yield PlanQueueModel.model_construct(
            model=model,
            guarantee=gpus(promised.get(model, 0)),
            limit=None if limit is None else gpus(limit),
            before=gpus(before[q, model]),
            after=gpus(after[q, model]),
        )


def _cells(instance: Instance, queue: Queue) -> Iterable[PlanQueueCell]:
    """Equal cells together, in the order in which the queue names them first."""
    counts: Counter[tuple[int | None, int | None, str | None]] = Counter()
    for cell in queue.cells:
        counts[cell.level, cell.gpus, cell_model(instance, cell)] += cell.count
    for (level, gpus, model), count in counts.items():
        name = None if level is None else instance.cluster.level_name(level)
        yield PlanQueueCell.model_construct(count=count, level=name, gpus=gpus, model=model)
    for pin in queue.pins:
        name = None if pin.level is None else instance.cluster.level_name(pin.level)
        yield PlanQueueCell.model_construct(
            count=len(pin.nodes) or 1, level=name, domain=pin.domain, nodes=pin.nodes
        )
