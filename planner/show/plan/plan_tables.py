"""The tables of a plan: what was read, the gangs, what changes, pods, queues, tiers, and the outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from models.apply.plan_actions import needing_an_administrator
from models.documents.gang import PodDocument
from models.documents.plan import PlanDocument, PlanGang, PlanPod, PlanQueue
from models.gpu_shares import part_of
from models.instance.policy import SLURM
from models.instance.speed import FULL_SPEED
from models.mig import RESOURCE
from models.results.plan_gpus import gpu_count, most_possible, pod_gpus, relative_speeds
from models.units import first_of, plural
from planner.show.plan.gang_groups import (
    EVERY_GANG,
    FIRST_NAMES,
    MAX_ROWS,
    Requests,
    Selection,
    Sharing,
    below,
    folded_note,
    groups,
    kept_note,
    priorities,
    rank,
    slowed_by,
)
from planner.show.plan.proofs import bought, outcome, still_possible
from planner.show.table import Cell, Style, Table, columns_of, pairs, row_of
from planner.show.text import (
    NO_BOUND,
    change,
    compress,
    domain_text,
    gigabytes,
    lasting,
    left_out,
    nodes_and_gpus,
    number,
    percent,
    permille,
    ranges,
    request_text,
    whole_percent,
)

Pods = Sequence[PlanPod | PodDocument]

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
    installed = sum(plan.instance.installed_gpus().values())
    counted = f"{plural(len(nodes), 'node')}, {plural(installed, 'GPU')}"
    rows = {
        "cluster": cluster.metadata.name,
        "nodes": f"{counted}: {made}" if made else counted,
        "partitioned": plural(partitioned, "GPU") if partitioned else "",
        "not in use": ", ".join(unused),
        "levels": " > ".join([*(level.name for level in cluster.spec.levels), "node"]),
        "gangs": f"{plural(len(gangs), 'gang')}: {running:,} running, {len(gangs) - running:,} waiting",
    }
    return pairs((what, said) for what, said in rows.items() if said)


def gangs(
    plan: PlanDocument,
    *,
    wide: bool,
    sharing: Sharing = Sharing.none,
    only: Selection = EVERY_GANG,
) -> Table:
    """The gangs by decision, priority and name, one or several to a row; below it why they wait.

    Gangs that stay as they are become a note, unless no row is shared. Where many of one decision share a
    row, only the first that wait have rows; the others are counted by code. ``only``: those to show.
    """
    requests = plan.instance.gangs_by_key()
    listed = [gang for gang in plan.spec.gangs if only.takes(gang)]
    kept = [gang for gang in listed if gang.decision == "keep" and not gang.incomplete]
    notes = []
    if sharing and kept:
        listed = [gang for gang in listed if gang.decision != "keep" or gang.incomplete]
        notes.append(f"{kept_note(kept, gpu_sum(kept, requests))}; --all shows every gang")
    shared = groups(listed, requests, sharing)
    if sharing == Sharing.decision:
        folded = [group for group in shared if group[0].decision == "wait"][MAX_ROWS:]
        shared = [group for group in shared if group not in folded]
        if hidden := [gang for group in folded for gang in group]:
            notes.append(folded_note(hidden, gpu_sum(hidden, requests)))
    if not notes and any(len(group) > 1 for group in shared):
        notes.append("--all shows every gang")
    levels = [*(level.name for level in plan.instance.cluster.spec.levels), "node"]
    columns = columns_of(
        "|GANG~|>PRIO?|SCHEDULER?|DECISION|>PODS?|>GPUS|>GB/S?|>OF BEST?|>SPEED?|SLOWED BY~?|"
        + "".join(f">{level.upper()}?|" for level in levels)
        + "DOMAINS~?|NODES~"
    )
    rows = tuple(_gang_rows(plan, shared, levels, wide=wide))
    said = {r: below(group) for r, group in enumerate(shared)}
    under = {r: Cell(text) for r, text in said.items() if text}
    return Table(columns, rows, tuple(notes), below=under).without_empty_columns()


def _gang_rows(
    plan: PlanDocument, shared: Sequence[list[PlanGang]], levels: Sequence[str], *, wide: bool
) -> Iterator[tuple[Cell, ...]]:
    """Who, what is decided, and pods, GPUs, speed and place of one gang; of several their GPUs."""
    requests, gpus_of = plan.instance.gangs_by_key(), plan.instance.installed_gpus()
    domains_of = {node.name: node.domains for node in plan.instance.cluster.spec.nodes}
    speeds = relative_speeds(plan)
    for group in shared:
        gang = group[0]
        mark, style, *_ = DECISIONS[gang.decision]
        request = requests.get(gang.key) if len(group) == 1 else None
        scheduler = None if request is None else request.status.scheduler
        who = row_of(
            Cell(mark, style),
            "/".join(gang.key) if len(group) == 1 else plural(len(group), "gang"),
            priorities(group, requests),
            "" if scheduler in (None, SLURM) else scheduler,
            Cell(f"{gang.decision}{', aged' * all(one.aged for one in group)}", style),
        )
        if len(group) > 1:
            yield *who, *row_of("", number(gpu_sum(group, requests)), *[""] * (len(levels) + 6))
            continue
        where = places(gang.pods, gpus_of)
        if gang.reserved is not None and gang.decision == "wait":
            where = f"reserved: {places(gang.reserved.pods, gpus_of)}"
        paths = {"/".join(domains_of.get(pod.node, {}).values()) for pod in gang.pods if wide}
        figures = row_of(
            number(len(gang.pods)) if wide else "",
            number(gpu_count(gang, request)),
            gigabytes(gang.bandwidth),
            Cell(permille(gang.share), below_full(gang.share)),
            Cell(whole_percent(gang.speed_to_come), below_full(gang.speed_to_come)),
            slowed_by(gang, request, speeds) if wide else "",
            *(number((gang.domains or {}).get(level)) for level in levels),
            compress({domain_text(path) for path in paths if path}),
            where,
        )
        yield *who, *figures


def gpu_sum(group: Iterable[PlanGang], requests: Requests) -> float:
    """GPUs of the gangs, as far as they are known."""
    return sum(gpu_count(gang, requests.get(gang.key)) or 0 for gang in group)


def below_full(permille: int | None) -> Style | None:
    return None if permille is None or permille == 1000 else "warn"


def places(pods: Pods, gpus_of: Mapping[str, int]) -> str:
    """Nodes and GPUs of pods: ``gpu-[01-16]`` whole nodes, ``v100-3:0-3`` GPUs, ``:any`` the node decides.

    ``gpus_of``: GPUs of every node.
    """
    taken: dict[str, list[int | str | None]] = {}
    for pod in pods:
        if pod.node is not None:
            taken.setdefault(pod.node, []).extend((None,) if pod.gpus is None else pod.gpus)
    some = any(taken.values())
    used = {}
    for node, gpus in taken.items():
        whole = len(gpus) == gpus_of.get(node) and None not in gpus
        used[node] = "" if whole or not some else _gpus([*dict.fromkeys(gpus)]) or "no-gpu"
    return nodes_and_gpus(used)


def _gpus(gpus: Sequence[int | str | None]) -> str:
    """``5-7,group-a,any``: indices, names, and those that the node decides."""
    known = ranges(gpu for gpu in gpus if isinstance(gpu, int))
    others = ["any" if gpu is None else gpu for gpu in gpus if not isinstance(gpu, int)]
    return ",".join([*[known] * bool(known), *others])


CHANGED = ("complete", "move", "resize", "preempt")
"""Decisions that change a running gang."""


def changes(plan: PlanDocument, only: Selection = EVERY_GANG) -> Table:
    """One row for each running gang that changes: pods and GPUs before and after, and where.

    LOST: time since the last checkpoint or start of a gang that loses pods; empty if unknown.
    ``only``: the gangs to show.
    """
    requests, gpus_of = plan.instance.gangs_by_key(), plan.instance.installed_gpus()
    decided = [gang for gang in plan.spec.gangs if gang.decision in CHANGED and only.takes(gang)]
    found = [(gang, requests[gang.key]) for gang in decided if gang.key in requests]
    arrivals = _arrivals(plan, requests)
    rows = []
    for gang, request in sorted(found, key=lambda pair: rank(*pair)):
        before, after = request.running_pods, gang.pods
        leaving, since = _moving(before, after), request.safe_since
        lost = "" if since is None else lasting(max(0, plan.instance.now - since))
        amounts = [pod_gpus(pods, request) for pods in (before, after)]
        way = f"{places(leaving, gpus_of)} -> {places(_moving(after, before), gpus_of)}".strip()
        nodes = sorted({pod.node for pod in leaving if pod.node is not None})
        coming = dict.fromkeys(name for node in nodes for name in arrivals.get(node, ()))
        coming.pop("/".join(gang.key), None)
        cells = row_of(
            "/".join(gang.key),
            Cell(gang.decision, STYLE[gang.decision]),
            change(number(len(pods)) for pods in (before, after)),
            change(map(number, amounts)) if gang.gpus is None else number(gang.gpus),
            lost if leaving else "-",
            f"{way} (then {first_of([*coming], FIRST_NAMES)})" if coming else way,
        )
        rows.append(cells)
    columns = columns_of("RUNNING GANG~|DECISION|>PODS?|>GPUS|>LOST?|FROM -> TO~")
    return Table(columns, tuple(rows)).without_empty_columns()


def _arrivals(plan: PlanDocument, requests: Requests) -> dict[str, list[str]]:
    """By node, the gangs with a new pod there, highest priority first."""
    found: dict[str, list[str]] = {}
    known = [(gang, requests[gang.key]) for gang in plan.spec.gangs if gang.key in requests]
    for gang, request in sorted(known, key=lambda one: (-one[1].shown_priority, one[0].key)):
        for node in {pod.node for pod in _moving(gang.pods, request.running_pods)}:
            found.setdefault(node or "", []).append("/".join(gang.key))
    return found


def _moving(pods: Pods, others: Pods) -> list[PlanPod | PodDocument]:
    """The pods that are not in the same place among the others."""
    place = {(pod.role, pod.index): _place(pod) for pod in others}
    return [pod for pod in pods if place.get((pod.role, pod.index)) != _place(pod)]


def _place(pod: PlanPod | PodDocument) -> tuple[str | None, tuple[int, ...] | None]:
    return (pod.node, None if pod.gpus is None else tuple(sorted(pod.gpus)))


def moves(plan: PlanDocument, only: Selection = EVERY_GANG) -> Table:
    """One row for each set of moves with a gang of ``only``, and the gain.

    Below it what the plan has more of, or fewer, than the best plan without these moves.
    """
    named = {"/".join(gang.key) for gang in plan.spec.gangs if only.takes(gang)}
    levels = [level.name for level in plan.instance.cluster.spec.levels if level.counted]
    rows, below = list[tuple[Cell, ...]](), dict[int, Cell]()
    for one in plan.status.moves:
        if named.isdisjoint(one.gangs):
            continue
        bought = one.bought
        amounts = {
            "GPUs in use": bought.gpus,
            "effective GPUs": bought.effective_gpus or 0,
            "GPUs at full bandwidth": bought.bandwidth / FULL_SPEED,
            "free whole nodes": bought.whole_nodes,
            f"free whole {levels[-1] if levels else 'domain'}s": bought.whole_domains,
        }
        said = [f"{what} {amount:+,.10g}" for what, amount in amounts.items() if amount]
        said[:0] = [f"lets {compress(bought.gangs, ', ')} run"] if bought.gangs else []
        below[len(rows)] = Cell(", ".join(said) or "nothing that is counted")
        moved = Cell(compress(one.gangs, ", "), "busy")
        rows.append(row_of(number(one.gpus), f"{one.gain:,.3f}", moved))
    return Table(columns_of(">GPUS|>GAIN|MOVED TOGETHER~"), tuple(rows), below=below)


def pods(plan: PlanDocument, only: Selection) -> Table:
    """One row for each pod of the selected gangs after the plan, in the plan's order."""
    requests = plan.instance.gangs_by_key()
    rows = []
    for gang in filter(only.takes, plan.spec.gangs):
        request = requests.get(gang.key)
        roles = () if request is None else request.spec.roles
        parts = {role.name: _parts(role.requests) for role in roles}
        for pod in gang.pods:
            whole = "any" if pod.gpus is None else ranges(pod.gpus)
            gpus = ", ".join([*[whole] * bool(whole), *parts.get(pod.role, ())])
            rows.append(row_of(f"{gang.namespace}/{pod.name}", pod.node, gpus or "-"))
    return Table(columns_of("POD~|NODE|GPUS"), tuple(rows))


def _parts(requests: Mapping[str, int]) -> list[str]:
    """The parts of GPUs that a pod has: ``1g.10gb``, ``2 x 1g.10gb`` or ``0.25 of a GPU``."""
    found = []
    for resource, count in requests.items():
        if resource.startswith(RESOURCE):
            found.append(f"{count} x " * (count > 1) + resource.removeprefix(RESOURCE))
        elif part_of(resource) is not None:
            found.append(request_text(str(count), resource))
    return found


MAX_QUEUES = 20
"""Rows of queues, unless every queue was asked for."""


def queues(plan: PlanDocument, *, wide: bool, every: bool) -> Table:
    """What each queue is promised, may hold and holds, and if ``wide`` of each GPU model that it names.

    Unless ``every`` one is shown, those that promise, limit, hold and want nothing are left out.
    """
    found = list(plan.status.queues)
    amounts = ("guarantee", "limit", "before", "after", "waiting")
    used = [queue for queue in found if any(getattr(queue, amount) for amount in amounts)]
    shown = found if every else used[:MAX_QUEUES]
    columns = columns_of(
        "QUEUE~|GPU MODEL?|UNDER?|>GUARANTEE|>LIMIT|>BEFORE|>AFTER|>BORROWED?|>WAITING|CELLS~?"
    )
    rows = [row for queue in shown for row in _queue_rows(queue, wide=wide)]
    rest = len(found) - len(shown)
    notes = (f"{plural(rest, 'more queue')}; --all shows every queue",) if rest and rows else ()
    return Table(columns, tuple(rows), notes).without_empty_columns()


def _queue_rows(queue: PlanQueue, *, wide: bool) -> Iterator[tuple[Cell, ...]]:
    found = []
    for cell in queue.cells:
        if cell.nodes or cell.domain is not None:
            found.append(f"{cell.level or 'node'} {compress(cell.nodes) or cell.domain}")
            continue
        size = cell.level if cell.level is not None else f"x {plural(cell.gpus or 0, 'GPU')}"
        found.append(f"{cell.count:,} {size}" + (f" of {cell.model}" if cell.model else ""))
    yield row_of(
        queue.name,
        "",
        queue.parent or "",
        *map(number, (queue.guarantee, queue.limit, queue.before, queue.after)),
        number(queue.borrowed) if queue.borrowed else "",
        Cell(number(queue.waiting), "warn" if queue.waiting else None),
        (", ".join(found)),
    )
    for one in queue.models if wide else ():
        amounts = map(number, (one.guarantee, one.limit, one.before, one.after))
        yield row_of("", one.model, "", *amounts, "", "", "")


MAX_OPEN = 10
"""Open tiers that are listed, unless every tier is."""


def tiers(plan: PlanDocument, *, wide: bool) -> Table:
    """The tiers that are open, and what a better plan can have more of; every tier in order if ``wide``."""
    listed = [tier for tier in plan.status.objectives if wide or not tier.proven]
    shown = listed if wide else listed[:MAX_OPEN]
    rows = tuple(
        row_of(
            tier.name,
            Cell(tier.sense, "dim"),
            number(tier.value),
            number(tier.best) if wide else "",
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


def besides(plan: PlanDocument) -> list[str]:
    """Which waiting pods it leaves out, and which GPUs are shared: ``share h100-1:6 with 0.5 + 2 x 0.25``."""
    shared = [
        (one.node, one.gpu if one.gpu_group is None else one.gpu_group, one.parts)
        for one in plan.spec.shares
    ]
    rest = left_out(plan.status.left_out)
    return [*([rest] if rest else []), *to_partition(plan), *_by_parts("share", shared)]


def to_partition(plan: PlanDocument) -> list[str]:
    """Which instances an administrator has to make beside those in use, or claims or HAMi do.

    ``partition h100-[2-3]:5 with 7 x 1g.10gb``; ``make whole h100-4:7``, once its instances are gone.
    """
    who = ""
    if not needing_an_administrator(plan):
        backend = plan.instance.policy.spec.kubernetes.gpu_backend
        who = f"by {'claims' if backend == 'dra' else 'HAMi'}, "
    whole = [(one.node, one.gpu, ()) for one in plan.spec.partitions if not one.profiles]
    made = [(one.node, one.gpu, one.profiles) for one in plan.spec.partitions if one.profiles]
    return [*_by_parts(f"{who}partition", made), *_by_parts(f"{who}make whole", whole)]


def _by_parts(
    verb: str, stated: Iterable[tuple[str, int | str | None, Sequence[str]]]
) -> Iterator[str]:
    """A line for the GPUs of equal parts. ``stated``: node, index or name of a GPU if known, its parts."""
    alike: dict[str, dict[str, list[int | str | None]]] = {}
    for node, gpu, parts in stated:
        sizes = Counter(parts).items()
        geometry = " + ".join(name if n == 1 else f"{n} x {name}" for name, n in sizes)
        alike.setdefault(geometry, {}).setdefault(node, []).append(gpu)
    for geometry, nodes in alike.items():
        used = {node: _gpus(gpus) for node, gpus in nodes.items()}
        yield f"{verb} {nodes_and_gpus(used)}{f' with {geometry}' * bool(geometry)}"


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
