"""Typed documents to the frozen Instance, and the Policy with every default written out.

Clashes between documents are reported at their places; with a fault anywhere nothing is built.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from models.documents.base import made, suggestion
from models.documents.canonical import reference_time
from models.documents.cluster import NODE_LEVEL
from models.documents.gang import Hold
from models.documents.policy import PolicyDocument, Reservations
from models.documents.queue import QueueDocument
from models.hardware import FindModel
from models.instance.cluster import Cluster, Node
from models.instance.gang import Gang, turn
from models.instance.gpu_units import in_gpu_units
from models.instance.instance import Instance
from models.instance.policy import (
    EVERY_SCHEDULER,
    KubernetesPolicy,
    Moves,
    Policy,
    default_max_gangs,
    kubernetes_policy,
)
from models.instance.reshaping import with_reshapable
from models.instance.run_times import granted_run_times, starts_again
from models.instance.solution import BACKOFF, QUEUE_LIMIT
from models.queues.bands import banded
from models.starts.empty_starts import EmptyStarts
from models.units import shown, time_text
from planner.errors import Fault
from planner.read.cluster_merge import NODES_HINT, collect_clusters
from planner.read.compact_cluster import (
    ClusterInput,
    MergedCluster,
    ServerModels,
    merge_clusters,
    with_all_instances,
)
from planner.read.compact_gangs import GangEntry, GangReader
from planner.read.compact_queues import read_queues
from planner.read.document_kinds import Documents
from planner.read.findings import Remarks
from planner.read.group_slices import with_group_slices
from planner.read.sources import KUBECTL
from planner.read.unkeepable_promises import check_rates, remark_promises, remark_speeds
from planner.read.validation import Entry


def default_mix(gangs: Iterable[Gang], nodes: Iterable[Node]) -> tuple[tuple[int, int], ...]:
    """(GPUs, permille) ascending by GPUs; sizes that round to nothing are left out."""
    sizes = Counter(sum(role.max * role.gpus for role in gang.roles) for gang in gangs)
    return mix_of(sizes + largest_nodes(nodes))


def largest_nodes(nodes: Iterable[Node]) -> Counter[int]:
    """GPUs of the largest node of each GPU model, and of how many models."""
    largest: dict[str, int] = {}
    for node in nodes:
        if node.model is not None:
            largest[node.model.gpu] = max(largest.get(node.model.gpu, 0), node.gpus)
    return Counter(largest.values())


def mix_of(sizes: Counter[int]) -> tuple[tuple[int, int], ...]:
    """The mix of so many gangs and nodes of each size: 1000 split in proportion, in integers that add up."""
    del sizes[0]
    total = sizes.total()
    shares = {size: 1000 * count // total for size, count in sizes.items()}
    by_remainder = sorted(sizes, key=lambda size: (-(1000 * sizes[size] % total), size))
    for size in by_remainder[: 1000 - sum(shares.values())]:
        shares[size] += 1
    return tuple((size, share) for size, share in sorted(shares.items()) if share)


def limit_queues(gangs: Iterable[Gang], limit: int | None, remarks: Remarks) -> tuple[Gang, ...]:
    """The gangs; of each namespace, waiting ones beyond the limit are held as QUEUE_LIMIT.

    The oldest of the highest priorities come first; a gang without submittedAt is the youngest. One
    namespace can so never make the search, or the plan of the others, as slow as it likes.
    """
    found = [_released(gang, QUEUE_LIMIT) for gang in gangs]
    waiting: dict[str, list[int]] = {}
    for i, gang in enumerate(found):
        if not gang.running and gang.hold is None:
            waiting.setdefault(gang.namespace, []).append(i)
    for namespace, queue in waiting.items():
        if limit is None or len(queue) <= limit:
            continue
        queue.sort(key=lambda i: turn(found[i].priority, found[i].queued_at, found[i].name))
        message = (
            f"{limit:,} waiting gangs of its namespace are older or of higher priority, and the policy "
            "plans no more of one namespace"
        )
        for i in queue[limit:]:
            found[i] = replace(found[i], hold=Hold(QUEUE_LIMIT, message))
        what = f"{len(queue) - limit:,} of its {len(queue):,} waiting gangs are not planned yet"
        remarks.add(f"namespace {namespace}", what, "queueLimit in the Policy")
    return tuple(found)


def _released(gang: Gang, code: str) -> Gang:
    """The gang without such a hold of an earlier reading: limit and time may be others now."""
    if gang.hold is None or gang.hold.code != code:
        return gang
    return replace(gang, hold=None)


def paused(instance: Instance) -> tuple[Gang, ...]:
    """The gangs; those that plans stopped are held as BACKOFF until their pause is over."""
    policy, now = instance.policy, instance.now

    def with_pause(gang: Gang) -> Gang:
        gang, again = _released(gang, BACKOFF), starts_again(policy, gang, now)
        if again is None or (gang.hold is not None and gang.hold.code != QUEUE_LIMIT):
            return gang
        done = "it once" if gang.evictions < 2 else f"or moved it {gang.evictions:,} times"
        message = f"plans stopped {done}; it may start again at {time_text(again)}"
        return replace(gang, hold=Hold(BACKOFF, message))

    return tuple(map(with_pause, instance.gangs))


def with_granted_run_times(instance: Instance, tenants: Collection[tuple[str, str]]) -> Instance:
    """The instance; these gangs, which tenants wrote, state no run time above that of queue or policy.

    When they ran first is left out where no time counts from it.
    """
    granted, policy = granted_run_times(instance), instance.policy
    by_length = policy.order == "shortest"

    def with_granted(gang: Gang) -> Gang:
        if gang.key not in tenants:
            return gang
        most, own = granted.get(gang.queue, policy.min_run_time_s), gang.min_run_time_s
        if own is not None and not policy.kubernetes.trust_min_run_time:
            own = min(most, own)
        since = gang.runs_since if most or own or by_length else None
        return replace(gang, min_run_time_s=own, runs_since=since)

    return replace(instance, gangs=tuple(map(with_granted, instance.gangs)))


@dataclass(frozen=True, slots=True)
class LoadedInput:
    """The Instance, with remarks on how it was read.

    ``levels_source``: a sentence; ``levels_policy``: makes a Policy document (YAML)
    with these levels; both None where the input states its levels itself.
    ``states_policy``: whether there is a Policy in the input. ``states_max_gangs``: whether it says how
    many gangs may move. ``left_out``: waiting pods of other
    schedulers that are not planned, by scheduler, most first.
    """

    instance: Instance
    remarks: tuple[str, ...] = ()
    levels_source: str | None = None
    levels_policy: Callable[[], str] | None = None
    states_policy: bool = False
    states_max_gangs: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict)


def build(
    documents: Documents,
    find: FindModel,
    *,
    lenient: bool = False,
    now: int | None = None,
    schedulers: tuple[str, ...] | None = None,
) -> LoadedInput:
    """The Instance of all documents. Raises InputError with everything that is wrong.

    ``lenient``: existing pods may hold more than their nodes have, as they may in a real cluster;
    so may those of a plan's instance that is read as input again. ``now``, ``schedulers``: in place of
    the Policy's ``now`` and ``schedulerNames``.
    """
    findings = documents.findings
    documents.report_unrecognised()
    if findings:  # what documents say to each other follows once each can be read
        findings.raise_all()
    policy = _only_policy(documents.policies)
    document = policy.document if policy is not None else None
    schedulers, cluster = _collected(documents, document, find, now, schedulers)
    if not cluster.clusters and cluster.base is None:
        objects = documents.objects
        if objects is None or not objects.of("Pod"):
            findings.fault(_no_cluster(documents))
        for gang in documents.gangs:
            # Those that do not depend on a cluster.
            gang.report_errors(gang.document.field_errors())
        findings.raise_all()
    merged = merge_clusters(cluster.clusters, ServerModels(cluster.find), cluster.base)
    if cluster.topology is not None:
        from planner.read.slurm.levels import with_slurm_levels  # only where there is such a file

        merged.cluster = with_slurm_levels(merged.cluster, cluster.topology, documents.remarks)
    reader = GangReader(merged)
    live = merged.cluster.uid is not None
    kinds: dict[bool, list[GangEntry]] = {True: [*cluster.gangs], False: []}
    for entry in documents.gangs:
        pods = entry.document.status.pods
        real = live and bool(pods) and all(pod.uid is not None for pod in pods)
        kinds[lenient or real].append(entry)
    seen = reader.read(kinds[True], cluster.made, lenient=True)
    gangs = tuple(sorted((*seen, *reader.read(kinds[False])), key=lambda gang: gang.key))
    if findings:
        findings.raise_all()
    merged.cluster = with_all_instances(merged.cluster, gangs)
    queues = read_queues(
        [*documents.queues, *cluster.queues, *_hived(documents, merged.cluster)],
        merged,
        documents.remarks,
        observed=live or documents.objects is not None or documents.slurm is not None,
    )
    if policy is not None:
        _check_spares(policy, merged)
    recorded = cluster.now if document is None or document.spec.now is None else None
    policy_used = policy_of(
        document,
        default_mix(gangs, merged.cluster.nodes),
        recorded if now is None else now,
        schedulers,
        default_max_gangs(sum(gang.running for gang in gangs)),
    )
    instance = with_granted_run_times(
        in_gpu_units(
            Instance(
                merged.cluster,
                gangs,
                _as_slurm(documents, policy_used, document),
                queues=queues,
                starts=EmptyStarts,
            )
        ),
        {*(entry.document.key for entry in cluster.gangs), *(gang.key for gang in cluster.made)},
    )
    gangs = limit_queues(paused(instance), instance.policy.queue_limit, documents.remarks)
    instance = replace(instance, gangs=with_group_slices(gangs, merged.cluster, documents.remarks))
    instance = with_reshapable(_with_fractions(instance, (*cluster.gangs, *documents.gangs)))
    instance = replace(instance, policy=replace(instance.policy, now=reference_time(instance)))
    instance = banded(instance)
    check_rates(instance, merged)
    if findings:
        findings.raise_all()
    remark_promises(instance, documents.remarks)
    about_speeds = Remarks()
    remark_speeds(instance, about_speeds)
    return LoadedInput(
        instance,
        # First, because `plan` shows only the first ones, and these change where gangs go.
        (*about_speeds.lines(), *documents.remarks.lines()),
        cluster.found,
        cluster.levels_policy,
        states_policy=document is not None,
        states_max_gangs=document is not None and document.spec.states_max_gangs,
        left_out=cluster.left_out,
    )


def _hived(documents: Documents, cluster: Cluster) -> list[Entry[QueueDocument]]:
    """The virtual clusters of HiveD; a Queue document counts instead of one with its name."""
    if not documents.hived:
        return []
    from planner.read.hived import read_hived  # only where there is one

    taken = [entry.document.metadata.name for entry in documents.queues]
    return read_hived(documents.hived, cluster, taken, documents.findings, documents.remarks)


def _collected(
    documents: Documents,
    policy: PolicyDocument | None,
    find: FindModel,
    now: int | None,
    schedulers: tuple[str, ...] | None,
) -> tuple[tuple[str, ...] | None, ClusterInput]:
    """The schedulers in place of the Policy's, and the Clusters as these make them.

    All schedulers where nobody names any and nothing knows gangplan. A name that nothing has is a fault.
    """
    stated = policy_of(policy, (), now, schedulers)
    if schedulers is None and not stated.kubernetes.plans_others and documents.objects is not None:
        from planner.read.kube.dialect_registry import placement_requests
        from planner.read.kube.pods.placement import knows_gangplan

        asked = placement_requests(documents.objects)
        if not (asked or knows_gangplan(documents.objects, stated.kubernetes)):
            schedulers = (EVERY_SCHEDULER,)
    cluster = collect_clusters(documents, policy_of(policy, (), now, schedulers), find)
    gangs = (entry.document.status.scheduler for entry in (*cluster.gangs, *documents.gangs))
    known = {*cluster.schedulers, *cluster.left_out, *filter(None, gangs)}
    for name in sorted({*(schedulers or ())} - {EVERY_SCHEDULER} - known):
        what = f"--scheduler: nothing in the input has the scheduler {shown(name)}"
        hint = suggestion(name, known, "schedulers")
        every = () if documents.objects is None else documents.objects.of("LocalQueue")
        if any(one.name == name for one in every):
            what, hint = (
                f"--scheduler: {shown(name)} is a LocalQueue",
                "--scheduler kueue plans what Kueue suspends",
            )
        documents.findings.fault(Fault(what, hint))
    return schedulers, cluster


def _with_fractions(instance: Instance, entries: Iterable[GangEntry]) -> Instance:
    stated = {one.document.key: one for one in entries if one.document.spec.communication.model}
    if not stated:
        return instance
    from planner.read.step_fractions import with_fractions  # it loads the bandwidth tables

    return with_fractions(instance, stated)


def _no_cluster(documents: Documents) -> Fault:
    if documents.objects:
        return Fault("no Node among the Kubernetes objects", NODES_HINT)
    if documents.slurm is not None:
        what = "jobs of Slurm, but none of its nodes"
        return Fault(what, "add the nodes: scontrol show nodes --json > nodes.json")
    hint = f"add Kubernetes objects: {KUBECTL}; or a document of kind Cluster"
    return Fault("no Cluster in the input, and no Kubernetes Node", hint)


def policy_alone(documents: Documents) -> Policy:
    """The Policy among the documents, with its defaults; other documents are ignored.

    Raises InputError.
    """
    entry = _only_policy(documents.policies)
    if documents.findings:
        documents.findings.raise_all()
    return policy_of(None if entry is None else entry.document, (), None)


def _check_spares(entry: Entry[PolicyDocument], merged: MergedCluster) -> None:
    levels = [level.name for level in merged.cluster.levels]
    for name in entry.document.spec.spares:
        if name not in levels:
            what = f"{'no spares at' if name == NODE_LEVEL else 'unknown level'} {shown(name)}"
            hint = suggestion(name, levels, "levels")
            entry.fault(("spec", "spares", name), what, hint, at_key=True)


def _only_policy(entries: list[Entry[PolicyDocument]]) -> Entry[PolicyDocument] | None:
    for entry in entries:
        entry.report_errors(entry.document.field_errors())
    for entry in entries[1:]:
        what = f"a second Policy; the first is in {shown(entries[0].source.name)}"
        entry.fault((), what, "keep one, or choose it with --policy")
    return entries[0] if entries else None


def _as_slurm(documents: Documents, policy: Policy, stated: PolicyDocument | None) -> Policy:
    """The policy for the queue of Slurm, whose backfill reserves nodes: reservations are the default."""
    says = stated is not None and "reservations" in stated.spec.model_fields_set
    reserves = documents.slurm is not None and bool(documents.slurm.jobs.all) and not says
    return replace(policy, reservations=Reservations()) if reserves else policy


def policy_of(
    document: PolicyDocument | None,
    mix: tuple[tuple[int, int], ...],
    now: int | None,
    schedulers: tuple[str, ...] | None = None,
    max_gangs: int | None = None,
) -> Policy:
    """The policy with every default written out.

    ``mix``, ``max_gangs``: the defaults. ``now``, ``schedulers``: replace its ``now`` and ``schedulerNames``.
    """
    if document is None:
        settings = _planning(KubernetesPolicy(), schedulers)
        return Policy(mix=mix, now=now, kubernetes=settings, moves=Moves(max_gangs).or_none)
    spec = document.spec
    moves = spec.moves
    most = moves.max_gangs if spec.states_max_gangs else max_gangs
    if spec.mix is not None:
        mix = tuple(sorted(spec.mix.items()))
    return made(
        Policy,
        document.metadata,
        spec,
        objectives=spec.to_objectives(),
        mix=mix,
        kubernetes=_planning(kubernetes_policy(spec.kubernetes), schedulers),
        moves=Moves(most, moves.max_gpus, moves.min_gain).or_none,
        starvation_after_s=None if spec.starvation is None else spec.starvation.after,
        now=spec.now if now is None else now,
    )


def _planning(settings: KubernetesPolicy, schedulers: tuple[str, ...] | None) -> KubernetesPolicy:
    return settings if schedulers is None else replace(settings, scheduler_names=schedulers)
