"""What may be done with one gang of a tiny instance, and where its pods may be, rule by rule.

Promises: the words of the documentation, pod by pod; own code; takes nothing from the formulation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations, permutations, product

from exhaustive_rates import domain, labels_of, ours, usable

from models.documents.cluster import Taint
from models.documents.gang import NodeExpression, Toleration
from models.hardware import slug
from models.instance.cluster import Cluster, Node
from models.instance.gang import Gang, NextTo, Role, Spread
from models.instance.instance import Instance
from models.instance.queue import Pin
from models.instance.solution import PodPlacement

Pods = Sequence[tuple[int, int, int]]
"""(role, index, node) of every pod that a gang has after a plan."""

Place = tuple[int, int | None]
"""Node and GPUs of one pod."""


def running(gang: Gang) -> bool:
    return any(pod.node is not None for pod in gang.pods)


def standing(gang: Gang) -> tuple[PodPlacement, ...]:
    """The pods that run, as they are; a pod without GPUs holds the empty mask."""
    return tuple(
        sorted(
            PodPlacement(p.role, p.index, p.node, p.gpus if gang.roles[p.role].gpus else 0)
            for p in gang.pods
            if p.node is not None
        )
    )


def places(pods: Iterable[PodPlacement]) -> dict[tuple[int, int], Place]:
    """Where each pod is, by (role, index)."""
    return {(p.role, p.index): (p.node, p.gpus) for p in pods}


def whole(gang: Gang, keys: Collection[tuple[int, int]]) -> bool:
    """Whether pods (role, index) are those of a gang without holes, of an allowed size."""
    for number, role in enumerate(gang.roles):
        indices = sorted(index for r, index in keys if r == number)
        if len(indices) not in role.allowed_counts():
            return False
        if indices != list(role.indices(len(indices))):
            return False
    return True


# What pods of tiny instances count where GPUs are counted: 1 a GPU, or thousandths where pods have parts.


PARTS = {
    "0.4": Fraction(4, 10),
    "0.5": Fraction(5, 10),
    "0.7": Fraction(7, 10),
    "0.25": Fraction(1, 4),
    "0.3-60": Fraction(6, 10),  # of the memory three tenths, of the cores six
    "20480Mi-60": Fraction(6, 10),
    "49152Mi": Fraction(6, 10),  # of 80 GiB
    "8192Mi-30": Fraction(3, 10),
    "1g.10gb": Fraction(1, 7),  # one of seven compute slices; of the memory an eighth
    "2g.20gb": Fraction(2, 7),
    "3g.40gb": Fraction(4, 8),  # of the memory half; of the compute slices three sevenths
}
"""The larger share of a GPU that each part takes."""


def pod_counts(role: Role) -> int:
    """What a pod of the role counts."""
    if role.thousandths is None:
        return role.gpus
    total = 1000 * role.gpus
    for name, amount in role.requests:
        if name.startswith(("nvidia.com/mig-", "share.gangplan.dev/")):
            part = name.removeprefix("nvidia.com/mig-").removeprefix("share.gangplan.dev/")
            total += amount * int(1000 * PARTS[part.partition("x")[0]])
    return total


def least_counts(gang: Gang) -> int:
    """What a gang counts at ``min``."""
    return sum(role.min * pod_counts(role) for role in gang.roles)


def counted(gang: Gang, roles: Iterable[int]) -> int:
    """What one pod of each of these roles counts."""
    return sum(pod_counts(gang.roles[r]) for r in roles)


def whole_gpu(instance: Instance) -> int:
    """What a whole GPU counts."""
    thousandths = any(r.thousandths is not None for g in instance.gangs for r in g.roles)
    return 1000 if thousandths else 1


def sick(instance: Instance, node: Node) -> int:
    """Mask of its GPUs on which no promise counts: where parts count, those that have some are none."""
    return node.unhealthy & ~(node.partitioned if whole_gpu(instance) > 1 else 0)


def sound_gpus(instance: Instance, node: Node) -> int:
    """What the GPUs of a node count that are in order."""
    unit = whole_gpu(instance)
    unknown = node.unknown_unhealthy - (node.unknown_partitioned if unit > 1 else 0)
    return unit * max(0, node.gpus - sick(instance, node).bit_count() - unknown)


# What time makes of the gangs of a tiny instance: who is aged, whose size is held, what a stop costs.


def now(instance: Instance) -> int:
    """The policy's, or the latest time at which the input says that anything happened."""
    if instance.policy.now is not None:
        return instance.policy.now
    happened = [0]
    for gang in instance.gangs:
        happened += [queued_since(gang) or 0, gang.started_at or 0, gang.last_checkpoint or 0]
    return max(happened)


def queued_since(gang: Gang) -> int | None:
    """When it joined the queue: at its submission, or when it was last thrown out of its place."""
    if gang.submitted_at is None:
        return None
    return sorted((gang.submitted_at, gang.evicted_at or 0))[1]


def run_time(instance: Instance, gang: Gang) -> int:
    """How long nobody stops it: said by itself, else by the queues up its branch, else by the policy.

    Thrown out or moved n times, 2^n times that, or the pause after the first time if that is longer, but
    no longer than others wait before they are aged.
    """
    said = [gang.min_run_time_s]
    queues = {queue.name: queue for queue in instance.queues}
    at = queues.get(gang.queue or "")
    while at is not None:
        said.append(at.min_run_time_s)
        at = None if at.parent is None else instance.queues[at.parent]
    time = next((s for s in (*said, instance.policy.min_run_time_s) if s is not None), 0)
    backoff, patience = instance.policy.eviction_backoff, instance.policy.starvation_after_s
    if gang.evicted_at is None or backoff is None:
        return time
    often = 2 ** max(1, gang.evictions) * max(time, backoff.base_s)
    return max(time, min(often, 86_400 if patience is None else patience))


def left_alone(instance: Instance, gang: Gang) -> bool:
    """Its time has begun, and has not passed."""
    begun = gang.started_at if gang.runs_since is None else gang.runs_since
    if gang.evicted_at is not None:
        begun = max(begun or 0, gang.evicted_at)
    lasts = run_time(instance, gang)
    return begun is not None and lasts > 0 and now(instance) < begun + lasts


def paused_until(instance: Instance, gang: Gang) -> int | None:
    """Thrown out, it waits for 1, 2, 4, ... times the base since, up to the longest pause; None: no more."""
    backoff = instance.policy.eviction_backoff
    if backoff is None or gang.evicted_at is None or any(p.node is not None for p in gang.pods):
        return None
    pause = min(backoff.max_s, backoff.base_s * 2 ** (max(1, gang.evictions) - 1))
    until = gang.evicted_at + pause
    return until if now(instance) < until else None


def aged(instance: Instance, gang: Gang) -> bool:
    """It waits, and has for longer than the limit."""
    after = instance.policy.starvation_after_s
    runs = any(pod.node is not None for pod in gang.pods)
    since = gang.submitted_at
    if after is None or runs or since is None:
        return False
    return since + after < now(instance)


def size_held(instance: Instance, gang: Gang) -> bool:
    """Its next checkpoint is yet to come, and until then its number of pods stays."""
    return gang.resize_after is not None and gang.resize_after > now(instance)


def harm(instance: Instance, gang: Gang) -> int:
    """What each of its GPUs counts in disruption: 1, nothing, or the seconds of work lost with it."""
    disruption = instance.policy.disruption
    if disruption.weight in ("gpus", "none"):
        return int(disruption.weight == "gpus")
    begun = max(gang.started_at or 0, gang.last_checkpoint or 0)
    known = gang.started_at is not None or gang.last_checkpoint is not None
    lost = now(instance) - begun if known else disruption.cap_s
    return sorted((1, lost, disruption.cap_s))[1] if disruption.cap_s > 1 else 1


# Nodes where new pods of a role may stand in a tiny instance, in the words of Kubernetes.


def tolerated(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Kubernetes' matching of one taint; PreferNoSchedule never keeps a pod away."""
    if taint.effect not in ("NoSchedule", "NoExecute"):
        return True
    return any(
        t.effect in ("", taint.effect)
        and (
            (t.operator == "Exists" and t.key in ("", taint.key))
            or (t.operator != "Exists" and (t.key, t.value) == (taint.key, taint.value))
        )
        for t in tolerations
    )


NAME = "(metadata.name)"
"""Stands among the labels for the field; no label is called so."""


def attracted(role: Role, labels: Mapping[str, str]) -> bool:
    """Whether the role's node affinity holds: some term has expressions, and all of them hold."""
    fulfilled = [
        [met(one, labels.get(NAME if one.field else one.key)) for one in term]
        for term in role.node_affinity
    ]
    return not fulfilled or any(term != [] and False not in term for term in fulfilled)


def met(one: NodeExpression, value: str | None) -> bool:
    """One expression against the label's value."""
    if one.operator in ("Gt", "Lt"):
        if value is None or not value.isdigit() or int(value) >= 1 << 63:
            return False
        difference = int(value) - int(one.values[0])
        return difference > 0 if one.operator == "Gt" else difference < 0
    return {
        "In": value in one.values,
        "NotIn": value not in one.values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[one.operator]


def may_stand(instance: Instance, role: Role, node: Node) -> bool:
    """Whether a new pod of the role may go to the node, whatever room there is."""
    labels = labels_of(instance.cluster, node)
    wanted = None if role.model is None else slug(role.model)
    names = (slug(node.model.gpu), *node.model.slugs) if node.model else ()
    return (
        usable(instance, node)
        and all(labels.get(key) == value for key, value in role.node_selector)
        and attracted(role, {**labels, NAME: node.name})
        and all(tolerated(role.tolerations, taint) for taint in node.taints)
        and (wanted is None or wanted in names)
        and (role.gpus == 0 or node.model is not None)
    )


# Rules about the pods of a gang in tiny instances: which may be together, which must, and how evenly spread.


Pod = tuple[int, int, bool]
"""(role, node, whether it is new)."""


def keeps_pod_rules(
    instance: Instance,
    g: int,
    stays: Collection[PodPlacement],
    new: Collection[tuple[int, int, int]],
) -> bool:
    """Whether the rules of a gang hold with the pods that stay, and new ones (role, index, node)."""
    gang, cluster = instance.gangs[g], instance.cluster
    pods = [*((pod.role, pod.node, False) for pod in stays), *((r, n, True) for r, _, n in new)]
    for r, role in enumerate(gang.roles):
        for apart in role.anti_affinity:
            if not _apart(cluster, apart.level, pods, r, _members(gang, apart, r)):
                return False
        for spread in role.spread:
            if not _even(cluster, role, spread, pods, r, _members(gang, spread, r)):
                return False
    joins = {
        (one.level, one.pod_set or r): _members(gang, one, r)
        for r, role in enumerate(gang.roles)
        for one in role.affinity
    }
    for (level, about), members in joins.items():
        ruled = {
            r
            for r, role in enumerate(gang.roles)
            if any((one.level, one.pod_set or r) == (level, about) for one in role.affinity)
        }
        if not _joined(cluster, level, pods, ruled, members):
            return False
    return True


def _members(gang: Gang, rule: NextTo | Spread, r: int) -> set[int]:
    """Roles that a rule of a role is about."""
    if rule.pod_set is None:
        return {r}
    return {other for other, role in enumerate(gang.roles) if rule.pod_set in role.pod_sets}


def _apart(
    cluster: Cluster, level: int, pods: Sequence[Pod], ruled: int, members: set[int]
) -> bool:
    return not any(
        mine[0] == ruled
        and other[0] in members
        and (mine[2] or other[2])
        and domain(cluster, level, mine[1]) == domain(cluster, level, other[1])
        for mine, other in permutations(pods, 2)
    )


def _joined(
    cluster: Cluster, level: int, pods: Sequence[Pod], ruled: set[int], members: set[int]
) -> bool:
    starting = [n for r, n, new in pods if new and r in ruled]
    if not all(_has(cluster, level, n) for n in starting):
        return False
    places = {domain(cluster, level, n) for n in starting}
    base = {
        domain(cluster, level, n) for r, n, new in pods if r in members and not (new and r in ruled)
    }
    if base:
        return places <= base
    return len(places) <= 1 and (not places or any(r in members for r, _, _ in pods))


def _even(
    cluster: Cluster, role: Role, spread: Spread, pods: Sequence[Pod], ruled: int, members: set[int]
) -> bool:
    starting = [n for r, n, new in pods if new and r == ruled]
    if not all(_has(cluster, spread.level, n) for n in starting):
        return False
    nodes = [n for n in range(len(cluster.nodes)) if _counts(cluster, role, n)]
    places = {domain(cluster, spread.level, n) for n in nodes}
    there = [domain(cluster, spread.level, n) for r, n, _ in pods if r in members and n in nodes]
    least = min((there.count(place) for place in places), default=0)
    if len(places) < spread.min_domains:
        least = 0
    return all(
        there.count(domain(cluster, spread.level, n)) - least <= spread.max_skew for n in starting
    )


def _has(cluster: Cluster, level: int, n: int) -> bool:
    """Whether the node has a value at the level, and at all around it."""
    return level == cluster.node_level or None not in cluster.nodes[n].domains[: level + 1]


def _counts(cluster: Cluster, role: Role, n: int) -> bool:
    """Whether pods on the node count for the spreads of the role, and its domains."""
    node = cluster.nodes[n]
    labels = labels_of(cluster, node)
    return (
        all(_has(cluster, spread.level, n) for spread in role.spread)
        and all(labels.get(key) == value for key, value in role.node_selector)
        and attracted(role, {**labels, NAME: node.name})
    )


# On which GPU models the gangs of one service may start or move, in tiny instances.


Service = tuple[str, str]
"""Namespace and name; services of one name in two namespaces have nothing to do with each other."""

Settled = tuple[tuple[Service, str], ...]
"""The GPU model of each service of which nothing ran, as far as gangs of it have been placed."""


def service_of(gang: Gang) -> Service | None:
    return None if gang.service is None else (gang.namespace, gang.service)


def models_before(instance: Instance) -> dict[Service, frozenset[str]]:
    """GPU models on which pods with GPUs of each service run before the plan; may be none."""
    found: dict[Service, set[str]] = {}
    for gang in instance.gangs:
        service = service_of(gang)
        if service is not None:
            of_service = found.setdefault(service, set())
            for pod in gang.pods:
                if pod.node is not None and gang.roles[pod.role].gpus:
                    model = instance.cluster.nodes[pod.node].model
                    of_service |= {model.gpu} if model else set()
    return {service: frozenset(models) for service, models in found.items()}


def settled(before: Settled, service: Service | None, gpu: str | None) -> Settled | None:
    """With one more gang that needs the service on a model; None where it is on another one."""
    if service is None or gpu is None:
        return before
    models = dict(before)
    if models.setdefault(service, gpu) != gpu:
        return None
    return tuple(sorted(models.items()))


# Where whole gangs may be in tiny instances: rules 2.19 to 2.21.


WHOLE = "all GPUs whole before the plan"
"""Labels a node of which a test partitions or shares GPUs beforehand, as a plan would."""

Claims = frozenset[tuple[int, tuple[str, ...], bool]]
"""Domains with pods with GPUs: level, domain, and whether a gang wants it for itself."""


def balanced(instance: Instance, gang: Gang, stays: Pods, new: Pods) -> bool:
    """Rule 2.19 for a gang with these pods."""
    if gang.balance is None or not any(gang.roles[r].gpus for r, _, _ in new):
        return True
    shares = Counter(
        domain(instance.cluster, gang.balance, n)
        for r, _, n in (*stays, *new)
        if gang.roles[r].gpus
    )
    return all(abs(a - b) <= 1 for a in shares.values() for b in shares.values())


class Exclusion:
    """Rule 2.20. Gangs are taken one after another; pods that stay are known before."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.levels = sorted({g.exclusive for g in instance.gangs if g.exclusive is not None})

    def claims(self, g: int, nodes: Iterable[int]) -> Claims:
        """Of a gang with pods with GPUs on these nodes."""
        gang, cluster = self.instance.gangs[g], self.instance.cluster
        return frozenset(
            (level, domain(cluster, level, n), gang.exclusive == level)
            for n in nodes
            for level in self.levels
        )

    @staticmethod
    def clash(one: Claims, other: Claims) -> bool:
        """Whether pods of two gangs meet where one of them wants to be alone."""
        return any(
            level == at and place == there and (alone or wanted)
            for level, place, alone in one
            for at, there, wanted in other
        )


class Spares:
    """Rule 2.21. ``owed``: nodes of a domain that could be idle, and how many of them must be.

    ``idle``: all nodes that are so while nobody comes.
    """

    def __init__(self, instance: Instance) -> None:
        cluster = instance.cluster
        levels = [level.name for level in cluster.levels]
        busy = {
            pod.node
            for gang in instance.gangs
            for pod in standing(gang)
            if gang.roles[pod.role].gpus or _parts(gang.roles[pod.role])
        }
        self.owed: list[tuple[tuple[int, ...], int]] = []
        self.idle = {n for n, node in enumerate(cluster.nodes) if _sound(node) and n not in busy}
        for name, spares in instance.policy.spares:
            number = levels.index(name)
            members: dict[tuple[str, ...], list[int]] = {}
            for n, node in enumerate(cluster.nodes):
                if node.model and None not in node.domains[: number + 1] and ours(instance, node):
                    members.setdefault(domain(cluster, number, n), []).append(n)
            for nodes in members.values():
                sound = [n for n in nodes if _sound(cluster.nodes[n])]
                made = [n for n in nodes if (WHOLE, "true") in cluster.nodes[n].labels]
                were = {*sound, *(n for n in made if not _failed(cluster.nodes[n]))}
                idle = [n for n in were if n not in busy]
                failed = sum(_failed(cluster.nodes[n]) for n in nodes)
                self.owed.append((tuple(sound), min(spares - failed, len(idle))))

    def kept(self, idle: Collection[int]) -> bool:
        """Whether these nodes without pods with GPUs are enough everywhere."""
        return all(sum(n in idle for n in nodes) >= owed for nodes, owed in self.owed)


def _parts(role: Role) -> bool:
    return any(name.startswith(("nvidia.com/mig-", "share.")) for name, _ in role.requests)


def _failed(node: Node) -> bool:
    sick = node.unhealthy & ~node.partitioned or node.unknown_unhealthy > node.unknown_partitioned
    return not node.ready or node.unschedulable or bool(sick)


def _sound(node: Node) -> bool:
    return (
        node.ready
        and not node.unschedulable
        and node.unhealthy == 0
        and node.unknown_unhealthy == 0
    )


# Pinned cells of a tiny instance: whose node it is, who may come, and who is a guest there. Rule 2.26.


def pinned_to(instance: Instance, n: int) -> set[int]:
    """The queues that pin a node."""
    node = instance.cluster.nodes[n]
    if node.model is None or not ours(instance, node):
        return set()
    return {
        q
        for q, one in enumerate(instance.queues)
        if any(_has_pins(pin, instance, n) for pin in one.pins)
    }


def _has_pins(pin: Pin, instance: Instance, n: int) -> bool:
    node = instance.cluster.nodes[n]
    if pin.level is None:
        return node.name in pin.nodes
    path = node.domains[: pin.level + 1]
    return all(path) and "/".join(str(name) for name in path) == pin.domain


def queues_of(instance: Instance, gang: Gang) -> set[int]:
    """The queues that a gang is in."""
    found = set[int]()
    name = gang.queue
    while name is not None:
        at = [q for q, one in enumerate(instance.queues) if one.name == name]
        found.update(at)
        parent = instance.queues[at[0]].parent if at else None
        name = None if parent is None else instance.queues[parent].name
    return found


def shut_out(instance: Instance, gang: Gang, n: int) -> bool:
    """Whether no pod with GPUs of a gang may come to a node, for it is pinned to others."""
    if gang.preemptible or (gang.queue is None and gang.scheduler is not None):
        return False
    return not pinned_to(instance, n) <= queues_of(instance, gang)


def visits(instance: Instance, gang: Gang) -> set[int]:
    """The queues on whose pinned nodes a gang runs with GPUs, without being in them."""
    found = set[int]()
    for pod in gang.pods:
        if pod.node is not None and gang.roles[pod.role].gpus:
            found |= pinned_to(instance, pod.node)
    return found - queues_of(instance, gang)


# Everything that may be done with one gang of a tiny instance, nodes and GPUs not yet chosen.


Key = tuple[int, int]
"""(role, index) of a pod."""


@dataclass(frozen=True)
class Option:
    """``stays``: standing pods left as they are; ``new``: pods to be placed, moved ones among them.

    ``stopped``: whether no standing pod goes on.

    ``excuse``: nodes on one of which a gang of higher priority must arrive; empty: none needed.
    ``moved``: whether a standing pod is placed anew. ``bound``: whether rule 10 binds.
    ``kept``: GPUs of standing pods that are there afterwards; ``disruption``: as in the tier.
    A pod placed anew exactly where it stood would count as staying: such a plan is another option
    with a value no worse and no rule more, so it does no harm here, where it counts as moved.
    """

    stays: tuple[Key, ...]
    new: tuple[Key, ...] = ()
    excuse: frozenset[int] = frozenset()
    moved: bool = False
    stopped: bool = False
    bound: bool = False
    admitted: bool = False
    kept: int = 0
    disruption: int = 0


def options(instance: Instance, gang: Gang, *, immovable: bool = False) -> Iterator[Option]:
    """Every option of a gang; the first one leaves it as it is. ``immovable``: it may not move."""
    stand = {(p.role, p.index): p.node for p in standing(gang)}
    if not running(gang):
        yield Option(())
        if gang.hold is None:
            for counts in product(*(role.allowed_counts() for role in gang.roles)):
                yield Option((), _pods(gang, counts), bound=True, admitted=True)
        return
    gpus, alone = _gpus(gang, stand), left_alone(instance, gang)
    if whole(gang, stand):
        yield Option(tuple(sorted(stand)), admitted=True, kept=gpus)
        movable = gang.movable and not immovable and not alone
        yield from _resized(instance, gang, stand, movable=movable)
    else:
        yield Option(tuple(sorted(stand)), kept=gpus)
        if gang.hold is None:
            yield from _completed(instance, gang, stand)
    if gang.preemptible and not alone:
        lost = gpus * harm(instance, gang)
        yield Option((), excuse=frozenset(stand.values()), stopped=True, disruption=lost)


def _resized(
    instance: Instance, gang: Gang, stand: dict[Key, int], *, movable: bool
) -> Iterator[Option]:
    """A whole running gang with other numbers of pods, in other places, or both."""
    now = tuple(sum(r == number for r, _ in stand) for number in range(len(gang.roles)))
    held = size_held(instance, gang)
    allowed = [
        [n] if held else role.allowed_counts() for n, role in zip(now, gang.roles, strict=True)
    ]
    for counts in product(*allowed):
        pods = _pods(gang, counts)
        common = [key for key in pods if key in stand]
        added = [key for key in pods if key not in stand]
        dropped = [key for key in stand if key not in pods]
        if dropped and (left_alone(instance, gang) or not (gang.movable or gang.preemptible)):
            continue
        excuse = {stand[key] for key in dropped} if not gang.movable else set()
        for moved in _subsets(common) if movable else [()]:
            if not (added or dropped or moved):
                continue
            lost = _gpus(gang, stand if moved else dropped)
            yield Option(
                stays=tuple(key for key in common if key not in moved),
                new=tuple(sorted((*added, *moved))),
                excuse=frozenset(excuse),
                moved=bool(moved),
                bound=bool(moved),
                admitted=True,
                kept=_gpus(gang, common),
                disruption=lost * harm(instance, gang),
            )


def _completed(instance: Instance, gang: Gang, stand: dict[Key, int]) -> Iterator[Option]:
    """A gang with pods missing, made whole around all that stand."""
    allowed: list[Sequence[int]] = []
    for number, role in enumerate(gang.roles):
        reached = max((i + 1 for r, i in stand if r == number), default=role.first_index)
        enough = [n for n in role.allowed_counts() if n >= reached - role.first_index]
        allowed.append(enough[:1] if size_held(instance, gang) else enough)
    for counts in product(*allowed):
        new = tuple(key for key in _pods(gang, counts) if key not in stand)
        stays, gpus = tuple(sorted(stand)), _gpus(gang, stand)
        yield Option(stays, new, bound=True, admitted=True, kept=gpus)


def _pods(gang: Gang, counts: Sequence[int]) -> tuple[Key, ...]:
    """All pods of a gang that has so many a role."""
    sized = enumerate(zip(gang.roles, counts, strict=True))
    return tuple((number, i) for number, (role, n) in sized for i in role.indices(n))


def _gpus(gang: Gang, pods: Collection[Key]) -> int:
    return counted(gang, (r for r, _ in pods))


def _subsets(pods: Sequence[Key]) -> Iterator[tuple[Key, ...]]:
    return chain.from_iterable(combinations(pods, n) for n in range(len(pods) + 1))
