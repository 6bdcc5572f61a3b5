"""What the rules declare to the parts that share nodes, pool pods, place greedily or explain a wait.

A rule that restricts single pods to nodes needs no more than ``eligible``. A rule with rows of its own also
says which nodes and gangs it distinguishes, so that regions, gang classes and pods stay interchangeable.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.solution import PodPlacement, Reason
from models.queues.cells import cells_by_model
from models.queues.pins import beside_pins, pinned_by
from models.queues.queue_order import place_in_line
from models.queues.queue_shares import shares, within_guarantee
from models.queues.reservations import open_nodes
from models.queues.reserved_quotas import barred, claims
from models.rules.demands import Demand, RoleDemand
from models.rules.pod_rules import counted_at, pod_rules, rule_key, suitable_nodes
from models.rules.services import bound, nodes_of_service, open_service
from models.rules.shape import closed_to, exclusive_levels, may_be_uneven, spare_domains
from models.values.leftover import suspects
from models.values.nearness import tied


@dataclass(frozen=True, slots=True)
class Declaration:
    """What one rule declares; a hook that is absent declares nothing.

    ``eligible``: nodes that pods of a role may be placed on, room aside; None for all.
    ``node_key``: nodes with different keys are never in one region.
    ``gang_key``: waiting gangs with different keys are not identical.
    ``poolable``: whether pods of the role may be counted together with those of other gangs.
    ``own_variables``: whether the rule has rows for the gang, which is then neither pooled nor grouped.
    ``node_sets``: the gang must be within one of these sets; the greedy start tries them in turn.
    ``allows``: whether the gang may have these pods; the greedy start drops a placement otherwise.
    ``shortage``: why the gang cannot be placed on so many free GPUs a node, None if it may.
    """

    rule: str
    eligible: Callable[[Instance, Gang, Role], frozenset[int] | None] | None = None
    node_key: Callable[[Instance, int], Hashable] | None = None
    gang_key: Callable[[Instance, Gang], Hashable] | None = None
    poolable: Callable[[Instance, Gang, RoleDemand], bool] | None = None
    own_variables: Callable[[Instance, Gang], bool] | None = None
    node_sets: Callable[[Instance, Gang], Sequence[frozenset[int]] | None] | None = None
    allows: Callable[[Instance, Gang, Sequence[PodPlacement]], bool] | None = None
    shortage: Callable[[Instance, Demand, Sequence[int]], Reason | None] | None = None


def _open_nodes(instance: Instance, gang: Gang, role: Role) -> frozenset[int]:
    return beside_pins(instance, gang, role, open_nodes(instance, gang, role))


def _domains_key(_instance: Instance, gang: Gang) -> Hashable:
    roles = tuple((role.required, role.preferred) for role in gang.roles)
    return gang.required, gang.preferred, roles, tuple((t.roles, t.level) for t in gang.together)


def _beside_key(instance: Instance, gang: Gang) -> Hashable:
    if tied(instance, gang):
        return gang.key
    return None if gang.near is None else gang.near.level


def _slices_key(_instance: Instance, gang: Gang) -> Hashable:
    return tuple(
        (
            role.slice_layers,
            role.first_index % max((size for size, _ in role.slice_layers), default=1),
        )
        for role in gang.roles
    )


def _slices_poolable(instance: Instance, gang: Gang, role: RoleDemand) -> bool:
    """Whether the slices, if any, are alike: then their numbers in each domain are all that matters."""
    if gang.roles[role.role].slice_size is None:
        return True
    return _held_by_level(gang, role) or pooled_slices(instance, gang, role) is not None


def _held_by_level(gang: Gang, role: RoleDemand) -> bool:
    """Whether the gang is whole in a domain at which no slice is cut."""
    levels = [level for _, level in gang.roles[role.role].slice_layers]
    return gang.required is not None and not role.layers and gang.required >= max(levels)


def pooled_slices(instance: Instance, gang: Gang, role: RoleDemand) -> tuple[int, int] | None:
    """(size, level) of the slices of a role of which only the numbers in each domain matter."""
    layers = gang.roles[role.role].slice_layers
    if len(layers) != 1 or role.layers or _held_by_level(gang, role):
        return None
    ((size, level),) = layers
    several = sum(1 for one in gang.roles if one.gpus) > 1
    if several or level == instance.cluster.node_level or role.cut(size).shorts:
        return None
    return size, level


def _one_model(instance: Instance, gang: Gang, role: RoleDemand) -> bool:
    if gang.roles[role.role].mix_models or role.count == 1:
        return True
    # the pods of a single role are counted by GPU model
    single = sum(1 for one in gang.roles if one.gpus) == 1
    return single or len(instance.gpu_names(role.nodes)) <= 1


def _service_poolable(instance: Instance, gang: Gang, role: RoleDemand) -> bool:
    return open_service(instance, gang) is None or bound(gang.roles[role.role])


def _queue_key(instance: Instance, gang: Gang) -> Hashable:
    known = shares(instance)
    if known is None:
        return None
    within = within_guarantee(instance, gang)
    return (
        known.number(gang.queue),
        gang.preemptible,
        gang.firm,
        gang.unmanaged,
        within,
        place_in_line(instance, gang),
    )


def _open_to(instance: Instance, gang: Gang, role: Role) -> frozenset[int] | None:
    """Nodes without those that are closed to pods with GPUs of the gang in any plan."""
    closed = closed_to(instance, gang) if role.gpus else frozenset()
    return instance.once(_every_node) - closed if closed else None


def _every_node(instance: Instance) -> frozenset[int]:
    return frozenset(range(len(instance.cluster.nodes)))


def _without_barred(instance: Instance, gang: Gang, _role: Role) -> frozenset[int] | None:
    """No node where a holder needs what the gang would hold in its queue."""
    return frozenset() if gang.key in barred(instance) else None


def _claimed(instance: Instance, gang: Gang) -> Hashable:
    """Holders that need what the gang would hold in its queue."""
    known = claims(instance)
    return tuple(gang.key in instance.once(_members)[number] for number in range(len(known)))


def _members(instance: Instance) -> list[frozenset[tuple[str, str]]]:
    gangs = instance.gangs
    return [frozenset(gangs[i].key for i in claim.members) for claim in claims(instance)]


def _domains_alone(instance: Instance, node: int) -> Hashable:
    levels = exclusive_levels(instance)
    return tuple(instance.cluster.domain_of[level][node] for level in levels)


def _spared_among(instance: Instance, node: int) -> Hashable:
    return spare_domains(instance).get(node)


def _is_suspect(instance: Instance, node: int) -> Hashable:
    return instance.policy.lists("suspect") and node in suspects(instance)


def _has_pod_rules(instance: Instance, gang: Gang) -> bool:
    return gang.key in pod_rules(instance).gangs


def _places_of_cells(instance: Instance, node: int) -> Hashable:
    return tuple(cells.place(node) for cells in cells_by_model(instance))


def user_of_cells(instance: Instance, gang: Gang) -> Hashable:
    """Gangs for which the cells of queues are alike."""
    by_model = cells_by_model(instance)
    return tuple(cells.row(gang) for cells in by_model) if by_model and gang.firm_on_gpus else ()


DECLARED: tuple[Declaration, ...] = (
    Declaration("nodes, reservations and pins", eligible=_open_nodes, node_key=pinned_by),
    Declaration(
        "topology",
        gang_key=_domains_key,
        poolable=lambda _instance, gang, role: gang.roles[role.role].required is None,
    ),
    Declaration(
        "slices",
        gang_key=_slices_key,
        poolable=_slices_poolable,
    ),
    Declaration(
        "models",
        gang_key=lambda _instance, gang: tuple(role.mix_models for role in gang.roles),
        poolable=_one_model,
    ),
    Declaration(
        "services",
        eligible=nodes_of_service,
        gang_key=open_service,
        poolable=_service_poolable,
    ),
    Declaration(
        "bandwidth",
        gang_key=lambda instance, gang: (
            instance.min_share(gang),
            gang.pattern == "none",
            gang.weight,
            gang.nvlink_across_nodes,
            (gang.fraction, gang.counts_speed) if instance.by_speed else None,
            (gang.pattern, gang.ordered, tuple(role.parallelism for role in gang.roles))
            if gang.in_groups
            else gang.ordered,
        ),
        poolable=lambda instance, gang, _role: not instance.min_share(gang),
    ),
    Declaration(
        "pods of sets",
        eligible=suitable_nodes,
        node_key=counted_at,
        gang_key=rule_key,
        own_variables=_has_pod_rules,
    ),
    Declaration("queues", gang_key=_queue_key),
    Declaration("reservations in queues", eligible=_without_barred, gang_key=_claimed),
    Declaration("cells", node_key=_places_of_cells, gang_key=user_of_cells),
    Declaration(
        "balance",
        gang_key=lambda _instance, gang: gang.balance,
        own_variables=lambda _instance, gang: may_be_uneven(gang),
    ),
    Declaration("closed nodes", eligible=_open_to),
    Declaration(
        "exclusive",
        node_key=_domains_alone,
        gang_key=lambda _instance, gang: gang.exclusive,
        own_variables=lambda _instance, gang: gang.exclusive is not None,
    ),
    Declaration("spares", node_key=_spared_among),
    Declaration("suspect nodes", node_key=_is_suspect),
    Declaration("gangs beside each other", gang_key=_beside_key, own_variables=tied),
)
"""One declaration a rule; rules that concern every gang alike (GPUs, resources) declare nothing."""


def eligible_nodes(instance: Instance, gang: Gang, role: Role) -> frozenset[int]:
    """Nodes that every rule lets pods of the role use, room aside."""
    sets = (d.eligible(instance, gang, role) for d in DECLARED if d.eligible is not None)
    found = [nodes for nodes in sets if nodes is not None]
    # an intersection of one would be a copy, without the hash that the set has computed
    return found[0] if len(found) == 1 else frozenset.intersection(*found)


def node_key(instance: Instance, node: int) -> tuple[Hashable, ...]:
    """What the rules distinguish of a node."""
    return tuple(d.node_key(instance, node) for d in DECLARED if d.node_key is not None)


def gang_key(instance: Instance, gang: Gang) -> tuple[Hashable, ...]:
    """What the rules distinguish of a waiting gang."""
    return tuple(d.gang_key(instance, gang) for d in DECLARED if d.gang_key is not None)


def poolable(instance: Instance, gang: Gang, role: RoleDemand) -> bool:
    """Whether pods of the role may be counted together with those of other gangs."""
    return all(d.poolable(instance, gang, role) for d in DECLARED if d.poolable is not None)


def own_variables(instance: Instance, gang: Gang) -> bool:
    """Whether some rule has rows for the gang, however few pods it has."""
    return any(d.own_variables(instance, gang) for d in DECLARED if d.own_variables is not None)


def node_sets(instance: Instance, gang: Gang, within: frozenset[int]) -> Iterator[frozenset[int]]:
    """The parts of a node set in which the whole gang may be."""
    found = [within]
    for declared in DECLARED:
        sets = declared.node_sets(instance, gang) if declared.node_sets is not None else None
        if sets is not None:
            found = [part & nodes for part in found for nodes in sets if part & nodes]
    yield from found


def allows(instance: Instance, gang: Gang, pods: Sequence[PodPlacement]) -> bool:
    """Whether every rule lets the gang have these pods."""
    return all(d.allows(instance, gang, pods) for d in DECLARED if d.allows is not None)


def declared_shortage(instance: Instance, demand: Demand, free: Sequence[int]) -> Reason | None:
    """The first rule's reason why the gang cannot be placed. ``free``: GPUs a node."""
    found = (d.shortage(instance, demand, free) for d in DECLARED if d.shortage is not None)
    return next((reason for reason in found if reason is not None), None)
