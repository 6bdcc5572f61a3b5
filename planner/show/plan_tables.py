"""The tables of a plan: what was read, the gangs, their pods, the tiers, and the outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from models.documents.gang import GangDocument, PodDocument
from models.documents.plan import PlanDocument, PlanGang, PlanObjective, PlanPod
from models.solution import ADMITTED
from models.units import plural
from planner.show.slowdown import Slowdowns
from planner.show.table import Cell, Column, Table
from planner.show.text import (
    NO_BOUND,
    compress,
    gigabytes,
    gpu_amount,
    left_out,
    nodes_and_gpus,
    number,
    percent,
    permille,
    ranges,
    whole_percent,
)


def places(pods: Iterable[PlanPod | PodDocument], gpus_of: Mapping[str, int]) -> str:
    """Nodes and GPUs of pods: ``gpu-[01-16]`` whole nodes, ``v100-3:0-3`` GPUs, ``:any`` the node decides.

    ``gpus_of``: GPUs of every node.
    """
    taken: dict[str, list[int]] = {}
    unknown: Counter[str] = Counter()
    for pod in pods:
        if pod.node is not None:
            taken.setdefault(pod.node, []).extend(pod.gpus or ())
            unknown[pod.node] += pod.gpus is None
    some = any(taken.values()) or any(unknown.values())
    used = {}
    for node, gpus in taken.items():
        if unknown[node]:
            used[node] = f"{ranges(gpus)}{'+' * bool(gpus)}any"
        elif len(gpus) == gpus_of.get(node) or not some:
            used[node] = ""
        else:
            used[node] = ranges(gpus) or "no-gpu"
    return nodes_and_gpus(used)


def running_gpus(request: GangDocument) -> int:
    """GPUs that the gang's running pods hold."""
    of = {role.name: role.gpus for role in request.spec.roles}
    return sum(of.get(pod.role, 0) for pod in request.running_pods)


MANY = 6
"""A family with more tiers (one for each priority) becomes one row, unless ``wide``."""


def tiers(plan: PlanDocument, *, wide: bool) -> Table:
    """Tiers in order: value, bound, gap, proof; ``best`` where later tiers used a tolerance."""
    objectives = plan.status.objectives
    families: dict[str, list[PlanObjective]] = {}
    for tier in objectives:
        families.setdefault(tier.family, []).append(tier)
    rows: list[tuple[Cell, ...]] = []
    families_shown: set[str] = set()
    for tier in objectives:
        family = families[tier.family]
        if wide or len(family) <= MANY:
            rows.append(_row(tier))
            continue
        if tier.family not in families_shown:
            families_shown.add(tier.family)
            rows.append(_family_row(tier.family, family))
        if not tier.proven:
            rows.append(_row(tier))
    notes = (
        ("tiers of one family in one row, those with a gap apart (-o wide lists all)",)
        if families_shown
        else ()
    )
    differ = wide or any(tier.best != tier.value for tier in objectives)
    columns = (
        Column("TIER"),
        Column("SENSE"),
        Column("VALUE", right=True),
        Column("BEST", right=True),
        Column("BOUND", right=True),
        Column("GAP", right=True),
        Column("PROOF"),
    )
    table = Table(columns, tuple(rows), notes)
    return table if differ else table.of_columns([0, 1, 2, 4, 5, 6])


def _row(tier: PlanObjective) -> tuple[Cell, ...]:
    return (
        Cell(tier.name),
        Cell(tier.sense, "dim"),
        Cell(number(tier.value)),
        Cell(number(tier.best)),
        *_bound_cells(tier),
        Cell(tier.proof or "-"),
    )


def _bound_cells(tier: PlanObjective) -> tuple[Cell, Cell]:
    if not tier.bounded:
        return Cell(NO_BOUND, "warn"), Cell("-")
    return Cell(number(tier.bound)), Cell(percent(tier.gap), "good" if tier.gap == 0 else "warn")


def _family_row(family: str, members: list[PlanObjective]) -> tuple[Cell, ...]:
    """Values add up over priorities; bounds do not: only a wholly proven family has one."""
    proven = sum(tier.proven for tier in members)
    whole = proven == len(members)
    bounded = all(tier.bounded for tier in members)
    worst = max((tier.gap for tier in members), default=None) if bounded else None
    proofs = {tier.proof for tier in members}
    proof = "numerical" if "numerical" in proofs else "exact"
    total = sum(tier.value for tier in members)
    best = sum(tier.best for tier in members)
    return (
        Cell(f"{family} ({plural(len(members), 'tier')})"),
        Cell(members[0].sense, "dim"),
        Cell(number(total)),
        Cell(number(best)),
        Cell(number(best) if whole else "-" if bounded else NO_BOUND),
        Cell(percent(worst), "good" if worst == 0 else "warn"),
        Cell(proof if whole else f"{proven} of {len(members)}"),
    )


MANY_KEPT = 10
"""More running gangs without change become one line, unless ``wide``."""

MANY_ALIKE = 3
"""More gangs of one namespace, priority and size that wait for one reason become one row, unless ``wide``."""

_ORDER = ("place", "complete", "move", "resize", "keep", "preempt", "wait")
STYLE = {
    "place": "good",
    "complete": "good",
    "move": "busy",
    "resize": "busy",
    "keep": "dim",
    "preempt": "bad",
    "wait": "warn",
}
_VERB = {
    "place": "start",
    "complete": "are completed",
    "move": "move",
    "resize": "are resized",
    "keep": "stay as they are",
    "preempt": "are stopped",
    "wait": "wait",
}


def facts(plan: PlanDocument) -> Table:
    """What was read: cluster, nodes, levels, gangs."""
    cluster = plan.instance.cluster
    nodes = cluster.spec.nodes
    gpus_of = {model.name: model.gpus for model in cluster.spec.server_models}
    gpus = sum(gpus_of.get(node.model or "", 0) for node in nodes)
    models = Counter(node.model for node in nodes if node.model is not None)
    made = ", ".join(f"{count} x {name}" for name, count in sorted(models.items()))
    out = [node for node in nodes if node.unschedulable or not node.ready]
    sick = sum(len(node.unhealthy_gpus) + node.unknown_unhealthy for node in nodes)
    guessed = any(node.unknown_unhealthy for node in nodes)  # given in parts, perhaps
    apart = [
        *([f"{plural(len(out), 'node')} cordoned or not ready"] if out else []),
        *([f"{plural(sick, 'GPU')} unhealthy{' or shared' * guessed}"] if sick else []),
    ]
    levels = [level.name for level in cluster.spec.levels]
    rows = [
        ("cluster", cluster.metadata.name),
        (
            "nodes",
            f"{plural(len(nodes), 'node')}, {plural(gpus, 'GPU')}" + (f": {made}" * bool(made)),
        ),
        *([("not in use", ", ".join(apart))] if apart else []),
        ("levels", " > ".join([*levels, "node"])),
        ("gangs", _gangs_read(plan.instance.gangs)),
    ]
    return Table(
        (Column("what"), Column("how many", fold=True)),
        tuple((Cell(name, "dim"), Cell(text)) for name, text in rows),
        headless=True,
    )


def _gangs_read(gangs: Iterable[GangDocument]) -> str:
    read = list(gangs)
    running = sum(bool(gang.running_pods) for gang in read)
    return f"{plural(len(read), 'gang')}: {running:,} running, {len(read) - running:,} waiting"


def gangs(plan: PlanDocument, *, wide: bool) -> Table:
    """One row for each gang: placed, running, waiting; by priority within each."""
    requests = plan.instance.gangs_by_key()
    kept = [gang for gang in plan.spec.gangs if gang.decision == "keep" and not gang.incomplete]
    hidden = not wide and len(kept) > MANY_KEPT
    listed = (
        [gang for gang in plan.spec.gangs if gang.decision != "keep" or gang.incomplete]
        if hidden
        else plan.spec.gangs
    )
    shown = sorted(listed, key=lambda gang: rank(gang, requests.get(gang.key)))
    gpus_of = plan.instance.installed_gpus()
    domains_of = {node.name: node.domains for node in plan.instance.cluster.spec.nodes}
    levels = [*(level.name for level in plan.instance.cluster.spec.levels), "node"]
    columns = [
        Column("GANG"),
        Column("PRIO", right=True),
        Column("DECISION"),
        *([Column("PODS", right=True)] if wide else []),
        Column("GPUS", right=True),
        Column("GB/S", right=True),
        Column("OF BEST", right=True),
        Column("SPEED", right=True),
        *([Column("SLOWED BY", fold=True, optional=True)] if wide else []),
        *(Column(level.upper(), right=True, optional=True) for level in levels),
        *([Column("DOMAINS", fold=True)] if wide else []),
        Column("NODES, OR WHY NOT", fold=True),
    ]
    whose = any(request.status.scheduler for request in plan.instance.gangs)
    if whose:
        columns.insert(2, Column("SCHEDULER"))
    slowdowns = Slowdowns(plan) if wide else None
    rows = []
    for gang, others in _alike(shown, requests, MANY_ALIKE if not wide else len(shown)):
        request = requests.get(gang.key)
        cells = [
            Cell(f"{gang.namespace}/{gang.name}" + f" and {others:,} more" * bool(others)),
            Cell("-" if request is None else str(request.spec.priority)),
            *([Cell((request and request.status.scheduler) or "-")] if whose else []),
            Cell(f"{gang.decision}{', aged' * gang.aged}", STYLE[gang.decision]),
            *([Cell(number(len(gang.pods)))] if wide else []),
            Cell(number(_gpu_count(gang, request))),
            Cell(gigabytes(gang.bandwidth)),
            Cell(permille(gang.share), _below_full(gang.share)),
            Cell(whole_percent(gang.speed), _below_full(gang.speed)),
            *([Cell(slowdowns.of(gang, request))] if slowdowns is not None else []),
            *(Cell(number((gang.domains or {}).get(level))) for level in levels),
            *([Cell(_where(gang, domains_of))] if wide else []),
            Cell(f"{places(gang.pods, gpus_of)} {_why(gang)}".strip()),
        ]
        rows.append(tuple(cells))
    notes = []
    if hidden:
        on = plural(sum(_gpu_count(gang, requests.get(gang.key)) or 0 for gang in kept), "GPU")
        notes.append(
            f"and {len(kept):,} running gangs that stay as they are, on {on} (-o wide lists them)"
        )
    return Table(tuple(columns), tuple(rows), tuple(notes)).without_empty_columns()


def _alike(
    listed: Sequence[PlanGang], requests: Mapping[tuple[str, str], GangDocument], most: int
) -> list[tuple[PlanGang, int]]:
    """The gangs, and how many others each stands for: more than ``most`` alike that wait are one."""
    groups: dict[object, list[PlanGang]] = {}
    for gang in listed:
        request = requests.get(gang.key)
        alike: object = gang.key
        if gang.decision == "wait" and request is not None:
            needs = (gang.namespace, request.spec.priority, _gpu_count(gang, request))
            alike = (needs, gang.aged, _why(gang))
        groups.setdefault(alike, []).append(gang)
    found = []
    for group in groups.values():
        if len(group) > most:
            found.append((group[0], len(group) - 1))
        else:
            found += [(gang, 0) for gang in group]
    return found


def pods(plan: PlanDocument) -> Table:
    """One row for each pod after the plan, in the plan's order."""
    rows = [
        (
            Cell(f"{gang.namespace}/{pod.name}"),
            Cell(pod.node),
            Cell("any" if pod.gpus is None else ranges(pod.gpus) or "-"),
        )
        for gang in plan.spec.gangs
        for pod in gang.pods
    ]
    return Table((Column("POD"), Column("NODE"), Column("GPUS")), tuple(rows))


def ending(plan: PlanDocument) -> list[str]:
    """The outcome, line by line, and what the plan assumes."""
    counts: Counter[str] = Counter(gang.decision for gang in plan.spec.gangs)
    parts = [
        f"{counts[decision]:,} {_verb(decision, counts[decision])}"
        for decision in _ORDER
        if counts[decision]
    ]
    status = plan.status
    return [
        ", ".join(parts) or "no gangs",
        *_queues(plan),
        *effective_gpus(plan),
        f"{_proven(plan)} (stopped by {status.search.stopped_by})",
        *(f"note: {note}" for note in status.notes),
    ]


def _queues(plan: PlanDocument) -> list[str]:
    """Whose pods a what-if plans, and which waiting pods a plan leaves out."""
    whose, rest = plan.instance.what_if, left_out(plan.status.left_out)
    what_if = [] if whose is None else [f"a what-if for {whose}: it cannot be applied"]
    return [*what_if, *([] if rest is None else [rest])]


def effective_gpus(plan: PlanDocument) -> list[str]:
    """What the plan makes of the GPUs, in one line; none for plans of older versions."""
    effective = plan.status.effective_gpus
    if effective is None:
        return []
    installed = sum(plan.instance.installed_gpus().values())
    line = f"{gpu_amount(effective.after)} effective GPUs of {number(installed)}"
    line += f" ({gpu_amount(effective.before)} before the plan)"
    if effective.one_at_a_time is not None:
        line += f"; taking one gang after another: {gpu_amount(effective.one_at_a_time)}"
    return [line]


def _proven(plan: PlanDocument) -> str:
    tiers = plan.status.objectives
    if plan.status.outcome == "optimal":
        numerical = sum(tier.proof != "exact" for tier in tiers)
        tolerance = f", {plural(numerical, 'tier')} within solver tolerance" if numerical else ""
        return f"optimal: every tier is proven best{tolerance}"
    with_gap = [tier for tier in tiers if tier.gap != 0]
    if not with_gap:
        return "feasible: not proven optimal"
    worst = max((one for one in with_gap if one.bounded), key=lambda one: one.gap, default=None)
    largest = "" if worst is None else f", the largest gap {percent(worst.gap)} at {worst.name}"
    return f"feasible: {plural(len(with_gap), 'tier')} not proven best{largest}"


def _verb(decision: str, count: int) -> str:
    if count != 1:
        return _VERB[decision]
    singular = {
        "start": "starts",
        "wait": "waits",
        "move": "moves",
        "stay as they are": "stays as it is",
    }
    verb = _VERB[decision]
    return singular.get(verb, verb.replace("are ", "is "))


def rank(gang: PlanGang, request: GangDocument | None) -> tuple[int, int, str, str]:
    """Sort key of gangs: decision, priority, name."""
    priority = request.spec.priority if request else 0
    return (_ORDER.index(gang.decision), -priority, gang.namespace, gang.name)


def _below_full(permille: int | None) -> str | None:
    return None if permille is None or permille == 1000 else "warn"


def _gpu_count(gang: PlanGang, request: GangDocument | None) -> int | None:
    """GPUs of the gang after the plan, or that it requests or loses; None if unknown."""
    roles = {role.name: role for role in request.spec.roles} if request else {}
    if gang.decision == "preempt":
        return running_gpus(request) if request else None
    if gang.decision not in ADMITTED:
        return sum(role.gpus * role.span[0] for role in roles.values()) if request else None
    count = 0
    for pod in gang.pods:
        if pod.gpus is None and pod.role not in roles:
            return None
        count += roles[pod.role].gpus if pod.gpus is None else len(pod.gpus)
    return count


def _why(gang: PlanGang) -> str:
    if gang.reason is None:
        return ""
    code, message = gang.reason.code, gang.reason.message
    return message if message.startswith(f"{code} ") else f"{code}: {message}"


def _where(gang: PlanGang, domains_of: dict[str, dict[str, str]]) -> str:
    """Domains used, by whole path."""
    paths = {"/".join(domains_of.get(pod.node, {}).values()) for pod in gang.pods}
    return compress(path for path in paths if path)
