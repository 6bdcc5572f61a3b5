"""The GPUs of a plan document: of its gangs, at full speed, and those that no better plan exceeds."""

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

from models.documents.gang import GangDocument, PodDocument
from models.documents.plan import PlanDocument, PlanGang, PlanPod
from models.instance.solution import ADMITTED
from models.instance.speed import FULL_SPEED


def pod_gpus(pods: Iterable[PlanPod | PodDocument], request: GangDocument | None) -> int | None:
    """GPUs of pods of a gang; None if unknown."""
    of = {role.name: role.gpus for role in request.spec.roles} if request else {}
    found = [of.get(pod.role, None if pod.gpus is None else len(pod.gpus)) for pod in pods]
    return None if None in found else sum(gpus or 0 for gpus in found)


def gpu_count(gang: PlanGang, request: GangDocument | None) -> float | None:
    """GPUs of the gang after the plan, or that it requests or loses; None if unknown."""
    if gang.gpus is not None:
        return gang.gpus
    if gang.decision in ADMITTED:
        return pod_gpus(gang.pods, request)
    if request is None:
        return None
    return (
        pod_gpus(request.running_pods, request) if gang.decision == "preempt" else request.min_gpus
    )


def relative_speeds(plan: PlanDocument) -> dict[str, Fraction]:
    """By node with GPUs, the speed of its GPUs next to the fastest: one that is not known as the slowest."""
    spec = plan.instance.cluster.spec
    stated = {model.name: model.relative_speed for model in spec.server_models if model.gpus}
    known = [speed for speed in stated.values() if speed is not None] or [Fraction(1)]
    of = {m: Fraction(speed or min(known)) / Fraction(max(known)) for m, speed in stated.items()}
    return {node.name: of[node.model] for node in spec.nodes if node.model in of}


def most_possible(plan: PlanDocument) -> float:
    """Effective GPUs that can be had of all GPUs, as far as the plan knows."""
    gained = plan.status.effective_gpus
    stated: list[float] = []
    if gained is not None:
        stated = [gained.after, gained.before, gained.one_at_a_time or 0.0]
    return max(full_speed_gpus(plan), *stated)  # instances of one GPU may count more than it


def full_speed_gpus(plan: PlanDocument) -> float:
    """What all installed GPUs count at full speed; each counts one if a gang ignores speeds."""
    gpus = plan.instance.installed_gpus()
    if any(one.spec.communication.speed == "ignore" for one in plan.instance.gangs):
        return sum(gpus.values())
    found = Counter((gpus[node], speed) for node, speed in relative_speeds(plan).items())
    return float(sum(nodes * own * speed for (own, speed), nodes in found.items()))


def most_effective_gpus(plan: PlanDocument) -> float | None:
    """Effective GPUs that no better plan exceeds; None if unknown.

    Better: in the order of the tiers. The bound of a tier holds for plans that are as good in all tiers
    before it. A better plan is as good up to the first tier with a gap and may be worse in those after it,
    so bounds count up to the tier after the first gap. Of other priorities all that gangs ask for counts,
    and never more than the healthy GPUs. The tiers count a gang without GPUs as one GPU: those that no plan
    stops are subtracted.
    """
    effective = plan.status.effective_gpus
    if effective is None:
        return None
    kept = {gang.key for gang in plan.spec.gangs if gang.decision == "keep" and not gang.incomplete}
    most, without_gpus = Counter[int](), Counter[int]()
    for gang in plan.instance.gangs:
        most[gang.spec.priority] += FULL_SPEED * gang.min_gpus
        if not gang.min_gpus and gang.key in kept and not gang.spec.preemptible:
            without_gpus[gang.spec.priority] += FULL_SPEED
    tiers = plan.status.objectives
    if all(tier.proven for tier in tiers):
        return effective.after
    if plan.status.gpu_unit > 1:
        return None  # what parts count is not in the documents of gangs
    gap = next(at for at, tier in enumerate(tiers) if not tier.proven)
    bounds = {tier.name: tier.bound for tier in tiers[: gap + 2]}
    for priority, asked in most.items():
        for name, unit in (("goodput", 1), ("admission", FULL_SPEED)):
            if (bound := bounds.get(f"{name}/{priority}")) is not None:
                most[priority] = min(asked, unit * bound - without_gpus[priority])
    installed = plan.instance.installed_gpus()
    sick = sum(node.unusable_gpus for node in plan.instance.cluster.spec.nodes)
    total = min(sum(most.values()), FULL_SPEED * (sum(installed.values()) - sick))
    return max(effective.after, total / FULL_SPEED)


def gained(plan: PlanDocument) -> dict[str, float]:
    """By priority, the highest first: effective GPUs beyond those of one gang after another, if not as many.

    Empty for plans that have as many in all.
    """
    effective = plan.status.effective_gpus
    rows = () if effective is None else effective.by_priority
    differ = {str(one.priority): round(one.after - one.one_at_a_time, 3) for one in rows}
    return {priority: gpus for priority, gpus in differ.items() if gpus}
