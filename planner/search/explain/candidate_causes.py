"""Everything that may keep a gang from starting beside a plan: gangs, nodes, the policy, its own wishes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from models.instance.cluster import Node
from models.instance.eligibility import model_matches, tolerated, without_conditions
from models.instance.gang import OFFERS, Patience, Role, Toleration, label_texts, matches, shown
from models.instance.instance import Instance
from models.instance.queue import Amount
from models.instance.solution import BACKOFF
from models.queues.cells import without_places
from models.queues.queue_order import behind
from models.queues.queue_shares import shares
from models.queues.reservations import closes
from models.queues.room_holding import barred_by
from models.rules.shape import ShapeRule, without_shape
from models.units import first_of, quantity_text, shortened, time_text
from planner.search.explain.causes import NOTHING, Cause, CauseKind, World, node_faults, with_role

MAX_TEXT = 200
"""Characters of what a gang asks for that a cause shows."""


def causes_of(world: World) -> tuple[Cause, ...]:
    """Everything that may keep the gang waiting, whether it does or not."""
    found = [*_holders(world), *_nodes(world), *_policy(world), *_gang_wishes(world)]
    for number, role in enumerate(world.spec.roles):
        found += _role_wishes(world, number, role)
    return tuple(found)


def _holders(world: World) -> Iterator[Cause]:
    for index, (gang, one) in enumerate(zip(world.instance.gangs, world.decisions, strict=True)):
        if index == world.gang or not one.pods:
            continue
        yield Cause(
            CauseKind.GANG,
            "/".join(gang.key),
            gang=index,
            weight=sum(gang.roles[pod.role].gpus for pod in one.pods),
            fields={"nodes": len({pod.node for pod in one.pods}), "decision": one.decision},
        )


def _nodes(world: World) -> Iterator[Cause]:
    for n, node in enumerate(world.instance.cluster.nodes):
        faults = node_faults(node)
        if faults:
            fields = {"faults": faults}
            yield Cause(CauseKind.NODE, node.name, node=n, weight=node.gpus, fields=fields)


def _policy(world: World) -> Iterator[Cause]:
    instance, gang = world.instance, world.spec
    if instance.policy.node_selector:
        yield Cause(
            CauseKind.SELECTED,
            _labels(instance.policy.node_selector),
            relax=lambda world: _policy_with(world, node_selector=()),
        )
    if instance.policy.spares:
        yield Cause(
            CauseKind.SPARES,
            "spares",
            relax=lambda world: replace(
                world, instance=without_shape(world.instance, [ShapeRule.SPARES])
            ),
        )
    first = barred_by(instance, [one.pods for one in world.decisions], world.gang)
    if first is not None:
        yield Cause(
            CauseKind.HELD_ROOM,
            "/".join(instance.gangs[first].key),
            relax=lambda world: _policy_with(world, hold_room_from=None),
        )
    before = behind(instance, [one.pods for one in world.decisions], world.gang)
    if before is not None:
        yield Cause(
            CauseKind.QUEUE_ORDER,
            "/".join(instance.gangs[before].key),
            relax=_out_of_turn,
            fields={"queue": world.spec.queue},
        )
    for one in instance.reserved:
        if closes(instance, one, gang):
            yield Cause(
                CauseKind.RESERVATION,
                "/".join(one.gang),
                relax=partial(_unreserved, one.gang),
                fields={"nodes": len(one.nodes), "from": time_text(one.start)},
            )
    yield from _queues(world)


def _out_of_turn(world: World) -> World:
    queues = tuple(replace(queue, strict=False) for queue in world.instance.queues)
    return replace(world, instance=replace(world.instance, queues=queues))


def _queues(world: World) -> Iterator[Cause]:
    if shares(world.instance) is None:
        return
    name = world.spec.queue or ""
    if any(queue.cells or queue.pins for queue in world.instance.queues):
        yield Cause(
            CauseKind.CELLS,
            name,
            relax=lambda world: replace(
                world,
                instance=replace(world.instance, queues=without_places(world.instance.queues)),
            ),
        )
    yield Cause(CauseKind.QUEUE, name, relax=_without_limits)


def _unreserved(holder: tuple[str, str], world: World) -> World:
    reserved = tuple(one for one in world.instance.reserved if one.gang != holder)
    return replace(world, instance=replace(world.instance, reserved=reserved))


def _without_limits(world: World) -> World:
    """Without limits and guarantees; what cells promise stays with the cells."""
    nothing = Amount()
    queues = tuple(
        replace(
            queue,
            guarantee=nothing,
            limit=nothing,
            lending_limit=nothing,
            non_preemptible_limit=nothing,
            borrowing=True,
        )
        for queue in world.instance.queues
    )
    return replace(world, instance=replace(world.instance, queues=queues))


def _policy_with(world: World, **changes: Any) -> World:  # noqa: ANN401  # fields of the policy
    policy = replace(world.instance.policy, **changes)
    return replace(world, instance=replace(world.instance, policy=policy))


Fields = Mapping[str, object]


def _wish(kind: CauseKind, name: str, fields: Fields = NOTHING, **changes: Any) -> Cause:  # noqa: ANN401
    """A wish of the whole gang; ``changes``: its fields without it."""
    return Cause(
        kind,
        name,
        relax=lambda world: world.with_gang(replace(world.spec, **changes)),
        fields=fields,
    )


def _gang_wishes(world: World) -> Iterator[Cause]:
    gang, level_name = world.spec, world.instance.cluster.level_name
    if gang.hold is not None:
        fields = {"message": gang.hold.message}
        freed = {"evicted_at": None} if gang.hold.code == BACKOFF else {}
        yield _wish(CauseKind.HOLD, gang.hold.code, fields, hold=None, **freed)
    if gang.required is not None:
        yield _wish(CauseKind.REQUIRED, level_name(gang.required), required=None)
    if gang.balance is not None:
        yield _wish(CauseKind.BALANCE, level_name(gang.balance), balance=None)
    if gang.exclusive is not None:
        yield _wish(CauseKind.EXCLUSIVE, level_name(gang.exclusive), exclusive=None)
    if gang.service is not None:
        yield _wish(CauseKind.SERVICE, gang.service, service=None)
    yield from _bandwidth(world)
    names = sorted({name for role in gang.roles for name, amount in role.requests if amount})
    for name in names:
        asked = max(dict(role.requests).get(name, 0) for role in gang.roles)
        yield Cause(
            CauseKind.REQUEST,
            name,
            relax=partial(_without_request, name),
            fields={"asked": quantity_text(name, asked)},
        )


def _bandwidth(world: World) -> Iterator[Cause]:
    instance, gang = world.instance, world.spec
    until, nothing = instance.patient_until(gang), Fraction(0)
    if until is not None:
        share = float(instance.min_share(gang))
        fields = {"share": share, "until": time_text(until)}
        yield _wish(CauseKind.PATIENCE, f"{share:g}", fields, patience=Patience(nothing, 0))
    least = float(instance.least_share(gang))
    if least:
        fields = {"share": least}
        yield _wish(CauseKind.SHARE, f"{least:g}", fields, min_bandwidth_share=nothing)


def _without_request(name: str, world: World) -> World:
    roles = (
        replace(role, requests=tuple(one for one in role.requests if one[0] != name))
        for role in world.spec.roles
    )
    return world.with_gang(replace(world.spec, roles=tuple(roles)))


def _role_wishes(world: World, number: int, role: Role) -> Iterator[Cause]:
    level_name = world.instance.cluster.level_name

    def wish(kind: CauseKind, name: str, fields: Fields = NOTHING, **changes: Any) -> Cause:  # noqa: ANN401
        return Cause(
            kind,
            name,
            role=number,
            relax=lambda world: with_role(world, number, **changes),
            fields=fields,
        )

    if role.required is not None:
        yield wish(CauseKind.REQUIRED, level_name(role.required), required=None)
    if role.slice_layers:
        fields = {"slices": [{"pods": n, "level": level_name(at)} for n, at in role.slice_layers]}
        yield wish(
            CauseKind.SLICE,
            level_name(role.slice_layers[0][1]),
            fields,
            slice_size=None,
            slice_level=None,
            outer_slices=(),
        )
    offers = _offers(role)
    if own := tuple(pair for pair in role.node_selector if pair not in offers):
        yield wish(CauseKind.SELECTOR, _labels(own), node_selector=offers)
    if role.node_affinity:
        asked = shortened(shown(role.node_affinity), MAX_TEXT)
        yield wish(CauseKind.AFFINITY, asked, node_affinity=())
    if role.model is not None:
        yield wish(CauseKind.MODEL, role.model, model=None)
    if kept := _taints(world, role):
        tolerated_too = (Toleration(key, "Exists") for key in kept)
        names = first_of(kept, 3, "other")
        yield wish(CauseKind.TAINT, names, tolerations=(*role.tolerations, *tolerated_too))
    if role.gpus and not role.mix_models and role.max > 1:
        yield wish(CauseKind.MODELS, "mixModels", mix_models=True)
    yield from _about_pods(world, role, wish)


def _about_pods(world: World, role: Role, wish: Callable[..., Cause]) -> Iterator[Cause]:
    level_name = world.instance.cluster.level_name
    for kind, field in (
        (CauseKind.APART, "anti_affinity"),
        (CauseKind.TOGETHER, "affinity"),
        (CauseKind.SPREAD, "spread"),
    ):
        if terms := getattr(role, field):
            levels = first_of(sorted({level_name(one.level) for one in terms}), 3, "level")
            yield wish(kind, levels, **{field: ()})


def _taints(world: World, role: Role) -> list[str]:
    """Keys of the taints that keep it off nodes, those of a condition aside."""
    return sorted(
        {
            taint.key
            for node in world.instance.cluster.nodes
            for taint in without_conditions(node).taints
            if not tolerated(role.tolerations, (taint,))
        }
    )


def _labels(pairs: Sequence[tuple[str, str]]) -> str:
    return shortened(", ".join(label_texts(pairs)), MAX_TEXT)


def _offers(role: Role) -> tuple[tuple[str, str], ...]:
    """The names by which its pods request GPUs, which no change of selectors alters."""
    return tuple(pair for pair in role.node_selector if pair[0].startswith(OFFERS))


def offers_gpus(instance: Instance, role: Role, node: Node) -> bool:
    """Whether the node offers its GPUs by the names by which pods of the role request them."""
    labels = instance.labels_of(node)
    return all(labels.get(key) == value for key, value in _offers(role))


def excluding(instance: Instance, role: Role, node: Node) -> Iterator[CauseKind]:
    """The kinds of causes but for which a pod of the role might be on the node, room aside."""
    labels = instance.labels_of(node)
    lasting = without_conditions(node).taints
    passing = (taint for taint in node.taints if taint not in lasting)
    if not node.ready or node.unschedulable or not tolerated(role.tolerations, passing):
        yield CauseKind.NODE
    if not instance.ours(node):
        yield CauseKind.SELECTED
    if not all(labels.get(key) == value for key, value in role.node_selector):
        yield CauseKind.SELECTOR
    if not matches(role.node_affinity, labels, node.name):
        yield CauseKind.AFFINITY
    if not tolerated(role.tolerations, lasting):
        yield CauseKind.TAINT
    if role.model is not None and not model_matches(role.model, node):
        yield CauseKind.MODEL
