"""The tables of a plan: what was read, the gangs, their pods, the tiers, and the outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from models.apply.part_orders import needing_an_administrator
from models.documents.cluster import NodeDocument
from models.documents.gang import GangDocument, PodDocument
from models.documents.plan import PlanDocument, PlanGang, PlanPod
from models.gpu_shares import part_of
from models.mig import RESOURCE
from models.results.plan_gpus import gpu_count, most_possible, relative_speeds
from models.units import plural
from planner.show.plan.gang_groups import (
    Requests,
    Sharing,
    below,
    fold,
    folded_note,
    groups,
    kept_note,
    priorities,
    schedulers,
    slowed_by,
)
from planner.show.plan.proofs import bought, outcome, still_possible
from planner.show.plan.selection import EVERY_GANG, Selection
from planner.show.table import Cell, Style, Table, columns_of, pairs, row_of
from planner.show.text import (
    NO_BOUND,
    compress,
    domain_text,
    gigabytes,
    left_out,
    nodes_and_gpus,
    number,
    percent,
    permille,
    ranges,
    request_text,
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


MAX_OPEN = 10
"""Open tiers that are listed, unless every tier is."""


def tiers(plan: PlanDocument, *, wide: bool) -> Table:
    """The tiers that are open, and what a better plan can have more of; every tier in order if ``wide``.

    ``best`` is shown where later tiers used a tolerance.
    """
    every = plan.status.objectives
    listed = every if wide else [tier for tier in every if not tier.proven]
    shown = listed if wide else listed[:MAX_OPEN]
    rows = tuple(
        row_of(
            tier.name,
            Cell(tier.sense, "dim"),
            number(tier.value),
            number(tier.best) if wide or any(one.best != one.value for one in every) else "",
            Cell(number(tier.bound)) if tier.bounded else Cell(NO_BOUND, "warn"),
            Cell(percent(tier.gap), "good" if tier.gap == 0 else "warn") if tier.bounded else "-",
            (tier.proof or "-") if wide else "",
            still_possible(tier),
        )
        for tier in shown
    )
    more = len(listed) - len(shown)
    notes = (f"and {plural(more, 'more open tier')} (-o wide lists all)",) if more else ()
    columns = columns_of("TIER~|SENSE?|>VALUE|>BEST|>BOUND?|>GAP?|PROOF?|STILL POSSIBLE~")
    return Table(columns, rows, notes).without_empty_columns()


DECISIONS: Mapping[str, tuple[str, Style, str, str]] = {
    "place": ("+", "good", "starts", "start"),
    "complete": ("+", "good", "is completed", "are completed"),
    "move": (">", "busy", "moves", "move"),
    "resize": ("~", "busy", "is resized", "are resized"),
    "preempt": ("-", "bad", "is stopped", "are stopped"),
    "wait": ("", "warn", "waits", "wait"),
    "keep": ("", "dim", "stays as it is", "stay as they are"),
}
"""Mark, as of ``terraform plan``, style, and what is said of one gang, and of several."""

STYLE: Mapping[str, Style] = {decision: style for decision, (_, style, *_) in DECISIONS.items()}


def facts(plan: PlanDocument) -> Table:
    """What was read: cluster, nodes, levels, gangs."""
    cluster = plan.instance.cluster
    nodes = cluster.spec.nodes
    gpus_of = {model.name: model.gpus for model in cluster.spec.server_models}
    gpus = sum(gpus_of.get(node.model or "", 0) for node in nodes)
    models = Counter(node.model for node in nodes if node.model is not None)
    made = ", ".join(f"{count} x {name}" for name, count in sorted(models.items()))
    out = sum(node.unschedulable or not node.ready for node in nodes)
    sick = sum(len(node.unhealthy_gpus) + node.unknown_unhealthy for node in nodes)
    guessed = any(node.unknown_unhealthy for node in nodes)  # given in parts, perhaps
    unused = [f"{plural(out, 'node')} cordoned or not ready"] * bool(out)
    unused += [f"{plural(sick, 'GPU')} unhealthy{' or shared' * guessed}"] * bool(sick)
    partitioned = sum(len(node.partitioned) + node.unknown_partitioned for node in nodes)
    gangs = plan.instance.gangs
    running = sum(bool(gang.running_pods) for gang in gangs)
    counted = f"{plural(len(nodes), 'node')}, {plural(gpus, 'GPU')}"
    rows = {
        "cluster": cluster.metadata.name,
        "nodes": f"{counted}: {made}" if made else counted,
        "partitioned": f"{plural(partitioned, 'GPU')}{_instances(nodes)}" * bool(partitioned),
        "not in use": ", ".join(unused),
        "levels": " > ".join([*(level.name for level in cluster.spec.levels), "node"]),
        "gangs": f"{plural(len(gangs), 'gang')}: {running:,} running, {len(gangs) - running:,} waiting",
    }
    return pairs((what, said) for what, said in rows.items() if said)


def _instances(nodes: Iterable[NodeDocument]) -> str:
    """``: 7 x 1g.10gb, 2 x 3g.40gb``, whether held or not; empty where none is known by its profile."""
    found: Counter[str] = Counter()
    for node in nodes:
        for amounts in (node.allocatable, node.held):
            found.update({r: n for r, n in amounts.items() if r.startswith(RESOURCE) and n})
    parts = ", ".join(f"{n} x {r.removeprefix(RESOURCE)}" for r, n in sorted(found.items()))
    return f": {parts}" * bool(parts)


def gangs(
    plan: PlanDocument,
    *,
    wide: bool,
    sharing: Sharing = Sharing.none,
    only: Selection = EVERY_GANG,
    most: int | None = None,
) -> Table:
    """The gangs by decision, priority and name, one or several to a row; below it why they wait.

    Gangs that stay as they are become a note, unless no row is shared. ``only``: those to show;
    ``most``: rows of gangs that wait, of which the others are counted by the code of their reason.
    """
    requests = plan.instance.gangs_by_key()
    listed = [gang for gang in plan.spec.gangs if only.takes(gang)]
    kept = [gang for gang in listed if gang.decision == "keep" and not gang.incomplete]
    notes = []
    if sharing and kept:
        listed = [gang for gang in listed if gang.decision != "keep" or gang.incomplete]
        notes.append(f"{kept_note(kept, gpu_sum(kept, requests))}; --all shows every gang")
    shared, hidden = fold(groups(listed, requests, sharing), most)
    if hidden:
        more = folded_note(hidden, gpu_sum(hidden, requests))
        notes.append(f"{more}; --all or --gang NAME shows why")
    if not notes and any(len(group) > 1 for group in shared):
        notes.append("--all shows every gang")
    levels = [*(level.name for level in plan.instance.cluster.spec.levels), "node"]
    columns = columns_of(
        "|GANG~|>PRIO?|SCHEDULER?|DECISION|>PODS?|>GPUS|>GB/S?|>OF BEST?|>SPEED?|>COUNTS?|SLOWED BY~?|"
        + "".join(f">{level.upper()}?|" for level in levels)
        + "DOMAINS~?|NODES~"
    )
    row = _GangRow(plan, levels, wide=wide)
    rows = tuple(map(row.of, shared))
    said = {r: below(group) for r, group in enumerate(shared)}
    under = {r: Cell(text) for r, text in said.items() if text}
    table = Table(columns, rows, tuple(notes), below=under)
    if sharing == Sharing.decision:  # rows of names, not of figures
        table = table.of_columns([0, 1, 2, 3, 4, 6, len(columns) - 1])
    return table.without_empty_columns()


class _GangRow:
    """The cells of a row of gangs of one plan. ``wide``: with pods, domains and what slows a gang down."""

    def __init__(self, plan: PlanDocument, levels: Sequence[str], *, wide: bool) -> None:
        self._requests = plan.instance.gangs_by_key()
        self._levels = levels
        self._gpus_of = plan.instance.installed_gpus()
        self._domains_of = {node.name: node.domains for node in plan.instance.cluster.spec.nodes}
        self._speeds = relative_speeds(plan)
        self._wide = wide

    def of(self, group: Sequence[PlanGang]) -> tuple[Cell, ...]:
        """Who, what is decided, and pods, GPUs, speed and place of one gang; of several their GPUs."""
        gang, wide = group[0], self._wide
        mark, style, *_ = DECISIONS[gang.decision]
        who = row_of(
            Cell(mark, style),
            "/".join(gang.key) if len(group) == 1 else plural(len(group), "gang"),
            priorities(group, self._requests),
            schedulers(group, self._requests),
            Cell(f"{gang.decision}{', aged' * all(one.aged for one in group)}", style),
        )
        if len(group) > 1:
            gpus = number(gpu_sum(group, self._requests))
            return (*who, *row_of("", gpus, *[""] * (len(self._levels) + 7)))
        request = self._requests.get(gang.key)
        counts = gang.speed_after  # where the speed that counts is not the one that it will have
        where = places(gang.pods, self._gpus_of)
        if gang.reserved is not None and gang.decision == "wait":
            where = f"reserved: {places(gang.reserved.pods, self._gpus_of)}"
        pods = gang.pods if wide else ()
        paths = {"/".join(self._domains_of.get(pod.node, {}).values()) for pod in pods}
        figures = row_of(
            number(len(gang.pods)) if wide else "",
            number(gpu_count(gang, request)),
            gigabytes(gang.bandwidth),
            Cell(permille(gang.share), below_full(gang.share)),
            Cell(whole_percent(gang.speed_to_come), below_full(gang.speed_to_come)),
            "" if counts is None or not wide else whole_percent(gang.speed),
            slowed_by(gang, request, self._speeds) if wide else "",
            *(number((gang.domains or {}).get(level)) for level in self._levels),
            compress({domain_text(path) for path in paths if path}),
            where,
        )
        return (*who, *figures)


def gpu_sum(group: Iterable[PlanGang], requests: Requests) -> float:
    """GPUs of the gangs, as far as they are known."""
    return sum(gpu_count(gang, requests.get(gang.key)) or 0 for gang in group)


def pods(plan: PlanDocument, only: Selection) -> Table:
    """One row for each pod of the selected gangs after the plan, in the plan's order."""
    requests = plan.instance.gangs_by_key()
    rows = []
    for gang in filter(only.takes, plan.spec.gangs):
        parts = _parts_a_pod(requests.get(gang.key))
        for pod in gang.pods:
            whole = "any" if pod.gpus is None else ranges(pod.gpus)
            gpus = ", ".join([*([whole] if whole else []), *parts.get(pod.role, ())])
            name = f"{gang.namespace}/{pod.name}"
            rows.append(row_of(name, pod.node, gpus or "-"))
    return Table(columns_of("POD~|NODE|GPUS"), tuple(rows))


def _parts_a_pod(request: GangDocument | None) -> dict[str, list[str]]:
    """By role, the parts of GPUs that each pod has: ``1g.10gb``, ``2 x 1g.10gb`` or ``0.25 of a GPU``."""
    found: dict[str, list[str]] = {}
    for role in () if request is None else request.spec.roles:
        for resource, count in role.requests.items():
            many = f"{count} x " * (count > 1)
            if resource.startswith(RESOURCE):
                found.setdefault(role.name, []).append(many + resource.removeprefix(RESOURCE))
            elif part_of(resource) is not None:
                found.setdefault(role.name, []).append(request_text(str(count), resource))
    return found


def results(plan: PlanDocument) -> list[str]:
    """The summary: what is decided, the work done, and how good that is."""
    counts: Counter[str] = Counter(gang.decision for gang in plan.spec.gangs if not gang.never)
    never = sum(gang.never for gang in plan.spec.gangs)
    parts = [
        f"{counts[decision]:,} {one if counts[decision] == 1 else several}"
        for decision, (_, _, one, several) in DECISIONS.items()
        if counts[decision]
    ]
    parts += [f"{never:,} can never start"] if never else []
    supposed = plan.instance.what_if
    what_if = [] if supposed is None else [f"a what-if {supposed}: it cannot be applied"]
    return [", ".join(parts) or "no gangs", *what_if, *effective_gpus(plan), outcome(plan)]


MAX_NODES = 10
"""Nodes of which it is said which GPUs are to be partitioned, or shared."""


def besides(plan: PlanDocument) -> list[str]:
    """Which waiting pods the plan leaves out, and which GPUs it gives in parts, a line for each node.

    ``partition on h100-2: GPU 5 as 7 x 1g.10gb, GPU 6-7 as 3g.40gb + 4 x 1g.10gb``,
    ``partition further on h100-3: GPU 4 by 2 x 1g.10gb``, beside instances in use,
    ``make whole again on h100-4: GPU 7``, once its instances are gone (all ``by claims`` where the claims of
    the pods do it), and
    ``share on h100-1: GPU 6 by 0.5 + 2 x 0.25, 2 GPUs by 2 x 0.4``.
    """
    shared = [
        (one.node, one.gpu if one.gpu_group is None else one.gpu_group, one.parts)
        for one in plan.spec.shares
    ]
    rest = left_out(plan.status.left_out)
    return [*([rest] if rest else []), *to_partition(plan), *_by_node("share", "by", shared)]


def to_partition(plan: PlanDocument) -> list[str]:
    """Which GPUs an administrator has to partition, or claims or HAMi do, a line for each node."""
    in_use = {
        (pod.node, gpu)
        for gang in plan.instance.gangs if plan.spec.partitions
        for pod in gang.running_pods if pod.start is not None
        for gpu in pod.gpus or ()
    }  # fmt: skip
    in_use -= {(one.node, one.gpu) for one in plan.spec.partitions if one.anew}
    made = [(one.node, one.gpu, one.profiles) for one in plan.spec.partitions]
    new = (one for one in made if one[2] and one[:2] not in in_use)
    more = (one for one in made if one[:2] in in_use)
    gone = ((one.node, one.gpu, ()) for one in plan.spec.partitions if not one.profiles)
    verb, further, whole = "partition", "partition further", "make whole again"
    if not needing_an_administrator(plan):
        backend = plan.instance.policy.spec.kubernetes.gpu_backend
        verb = "by claims" if backend == "dra" else "by HAMi"
        further, whole = f"further {verb}", f"whole again {verb}"
    said = ((verb, "as", new), (further, "by", more), (whole, "", gone))
    return [line for one in said for line in _by_node(*one)]


def _by_node(
    verb: str, how: str, stated: Iterable[tuple[str, int | str | None, Sequence[str]]]
) -> list[str]:
    """``stated``: node, index or name of a GPU if it has one, and its parts."""
    lines = list[str]()
    nodes = [(node, list(own)) for node, own in groupby(stated, key=lambda one: one[0])]
    for node, own in nodes[:MAX_NODES]:
        alike: dict[str, list[int | str | None]] = {}
        for _, gpu, parts in own:
            sizes = Counter(parts).items()
            geometry = " + ".join(name if n == 1 else f"{n} x {name}" for name, n in sizes)
            alike.setdefault(geometry, []).append(gpu)
        pairs = ((_gpus(gpus), geometry) for geometry, gpus in alike.items())
        said = (f"{names} {how} {geometry}".rstrip() for names, geometry in pairs)
        lines.append(f"{verb} on {node}: {', '.join(said)}")
    more = len(nodes) - MAX_NODES
    return [*lines, f"{verb} GPUs on {plural(more, 'more node')}"] if more > 0 else lines


def _gpus(gpus: Sequence[int | str | None]) -> str:
    known = ranges(gpu for gpu in gpus if isinstance(gpu, int))
    names = [known] * bool(known) + [gpu for gpu in gpus if isinstance(gpu, str)]
    unknown = sum(gpu is None for gpu in gpus)
    said = [f"GPU {','.join(names)}"] * bool(names) + [plural(unknown, "GPU")] * bool(unknown)
    return " and ".join(said)


def effective_gpus(plan: PlanDocument) -> list[str]:
    """What the plan makes of the GPUs, and what it has for fewer; nothing where it does not say."""
    effective = plan.status.effective_gpus
    if effective is None:
        return []
    most = number(most_possible(plan))
    line = f"{number(effective.after)} of at most {most} effective GPUs"
    line += f" ({number(effective.before)} before the plan)"
    if effective.one_at_a_time is not None:
        line += f"; taking one gang after another: {number(effective.one_at_a_time)}"
    fewer = bought(plan)
    return [line] if fewer is None else [line, fewer]


def below_full(permille: int | None) -> Style | None:
    return None if permille is None or permille == 1000 else "warn"
