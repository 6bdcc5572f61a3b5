"""Everything that may keep a gang from starting beside a plan: gangs, nodes, the policy, its own wishes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from models.cells import without_cells
from models.cluster import Node
from models.eligibility import model_matches, tolerated, without_conditions
from models.gang import Patience, Role, Toleration, matches, shown
from models.instance import Instance
from models.queue import Amount
from models.queue_shares import shares
from models.reservations import closes
from models.room_holding import barred_by
from models.shape import ShapeRule, without_shape
from models.units import first_of, plural, quantity_text, shortened, time_text
from planner.search.causes import Cause, CauseKind, World, node_state, with_role

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
        gpus = sum(gang.roles[pod.role].gpus for pod in one.pods)
        nodes = len({pod.node for pod in one.pods})
        yield Cause(
            CauseKind.GANG,
            "/".join(gang.key),
            f"holds {plural(gpus, 'GPU')} on {plural(nodes, 'node')}",
            "it ends, is stopped or moves away",
            gang=index,
            weight=gpus,
        )


def _nodes(world: World) -> Iterator[Cause]:
    for n, node in enumerate(world.instance.cluster.nodes):
        state = node_state(node)
        if state:
            yield Cause(
                CauseKind.NODE,
                node.name,
                f"is {state}",
                "it is back in order",
                node=n,
                weight=node.gpus,
            )


def _policy(world: World) -> Iterator[Cause]:
    instance, gang = world.instance, world.spec
    if instance.policy.node_selector:
        asked = _labels(instance.policy.node_selector)
        yield Cause(
            CauseKind.SELECTED,
            asked,
            f"the Policy leaves nodes without {asked} to others",
            "the Policy's nodeSelector is dropped",
            relax=lambda world: _policy_with(world, node_selector=()),
        )
    if instance.policy.spares:
        yield Cause(
            CauseKind.SPARES,
            "spares",
            "the Policy keeps nodes free for failures",
            "the Policy's spares are dropped",
            relax=lambda world: replace(
                world, instance=without_shape(world.instance, [ShapeRule.SPARES])
            ),
        )
    first = barred_by(instance, [one.pods for one in world.decisions], world.gang)
    if first is not None:
        yield Cause(
            CauseKind.HELD_ROOM,
            "/".join(instance.gangs[first].key),
            "waits, and the Policy's holdRoom holds room for it",
            "it starts or goes, or the Policy's holdRoom is dropped",
            relax=lambda world: _policy_with(world, hold_room_from=None),
        )
    for one in instance.reserved:
        if closes(instance, one, gang):
            yield Cause(
                CauseKind.RESERVATION,
                "/".join(one.gang),
                f"has {plural(len(one.nodes), 'node')} reserved from {time_text(one.start)}",
                "it starts or goes, or this gang states an expectedDuration that ends before",
                relax=partial(_unreserved, one.gang),
            )
    yield from _queues(world)


def _queues(world: World) -> Iterator[Cause]:
    known = shares(world.instance)
    if known is None:
        return
    name = world.spec.queue or "no queue"
    if any(queue.cells for queue in world.instance.queues):
        yield Cause(
            CauseKind.CELLS,
            name,
            "cells of queues must stay reachable",
            "the cells of queues are dropped, or this gang is preemptible",
            relax=lambda world: replace(
                world,
                instance=replace(world.instance, queues=without_cells(world.instance.queues)),
            ),
        )
    yield Cause(
        CauseKind.QUEUE,
        name,
        "limits and guarantees of queues leave it too few GPUs",
        "its queue may hold more",
        relax=_without_limits,
    )


def _unreserved(holder: tuple[str, str], world: World) -> World:
    reserved = tuple(one for one in world.instance.reserved if one.gang != holder)
    return replace(world, instance=replace(world.instance, reserved=reserved))


def _without_limits(world: World) -> World:
    """Without limits and guarantees; what cells promise stays with the cells."""
    nothing = Amount()
    queues = tuple(
        replace(queue, guarantee=nothing, limit=nothing, borrowing=True)
        for queue in world.instance.queues
    )
    return replace(world, instance=replace(world.instance, queues=queues))


def _policy_with(world: World, **changes: Any) -> World:  # noqa: ANN401  # fields of the policy
    policy = replace(world.instance.policy, **changes)
    return replace(world, instance=replace(world.instance, policy=policy))


def _wish(kind: CauseKind, name: str, what: str, relaxing: str, **changes: Any) -> Cause:  # noqa: ANN401
    """A wish of the whole gang; ``changes``: its fields without it."""
    return Cause(
        kind,
        name,
        what,
        relaxing,
        relax=lambda world: world.with_gang(replace(world.spec, **changes)),
    )


def _gang_wishes(world: World) -> Iterator[Cause]:
    instance, gang = world.instance, world.spec
    if gang.hold is not None:
        yield _wish(
            CauseKind.HOLD,
            gang.hold.code,
            gang.hold.message,
            "whoever holds it lets it go",
            hold=None,
        )
    if gang.required is not None:
        level = instance.cluster.level_name(gang.required)
        yield _wish(
            CauseKind.REQUIRED,
            level,
            f"all its pods must be in one {level}",
            f"it requires a wider level than {level}, or none",
            required=None,
        )
    if gang.balance is not None:
        level = instance.cluster.level_name(gang.balance)
        yield _wish(
            CauseKind.BALANCE,
            level,
            f"each {level} must get equally many pods, or one more",
            "balance is dropped",
            balance=None,
        )
    if gang.exclusive is not None:
        level = instance.cluster.level_name(gang.exclusive)
        yield _wish(
            CauseKind.EXCLUSIVE,
            level,
            f"it must be alone in each {level}",
            "exclusive is dropped",
            exclusive=None,
        )
    if gang.service is not None:
        yield _wish(
            CauseKind.SERVICE,
            gang.service,
            "all gangs of the service must be on one GPU model",
            "it leaves the service",
            service=None,
        )
    yield from _bandwidth(world)
    names = sorted({name for role in gang.roles for name, amount in role.requests if amount})
    for name in names:
        asked = max(dict(role.requests).get(name, 0) for role in gang.roles)
        yield Cause(
            CauseKind.REQUEST,
            name,
            f"a pod requests {quantity_text(name, asked)} {name}",
            f"its pods request less {name}",
            relax=partial(_without_request, name),
        )


def _bandwidth(world: World) -> Iterator[Cause]:
    instance, gang = world.instance, world.spec
    until, nothing = instance.patient_until(gang), Fraction(0)
    if until is not None:
        share = float(instance.min_share(gang))
        yield _wish(
            CauseKind.PATIENCE,
            f"{share:g}",
            f"it waits until {time_text(until)} for {share:.0%} of its best bandwidth".replace(
                "%", " %"
            ),
            "its patience ends",
            patience=Patience(nothing, 0),
        )
    least = instance.least_share(gang)
    if least:
        yield Cause(
            CauseKind.SHARE,
            f"{float(least):g}",
            f"it must get {float(least):.0%} of its best bandwidth".replace("%", " %"),
            "minBandwidthShare is lower or dropped",
            relax=lambda world: world.with_gang(replace(world.spec, min_bandwidth_share=nothing)),
        )


def _without_request(name: str, world: World) -> World:
    roles = (
        replace(role, requests=tuple(one for one in role.requests if one[0] != name))
        for role in world.spec.roles
    )
    return world.with_gang(replace(world.spec, roles=tuple(roles)))


def _role_wishes(world: World, number: int, role: Role) -> Iterator[Cause]:
    cluster = world.instance.cluster
    whose = f"role {role.name}: " if len(world.spec.roles) > 1 else ""

    def wish(kind: CauseKind, name: str, what: str, relaxing: str, **changes: Any) -> Cause:  # noqa: ANN401
        return Cause(
            kind,
            name,
            whose + what,
            whose + relaxing,
            role=number,
            relax=lambda world: with_role(world, number, **changes),
        )

    if role.required is not None:
        level = cluster.level_name(role.required)
        yield wish(
            CauseKind.REQUIRED,
            level,
            f"all its pods must be in one {level}",
            f"it requires a wider level than {level}, or none",
            required=None,
        )
    if role.slice_layers:
        layers = [
            f"each {plural(n, 'pod')} in one {cluster.level_name(at)}"
            for n, at in role.slice_layers
        ]
        yield wish(
            CauseKind.SLICE,
            cluster.level_name(role.slice_layers[0][1]),
            " and ".join(layers),
            "slices are dropped or wider",
            slice_size=None,
            slice_level=None,
            outer_slices=(),
        )
    if role.node_selector:
        asked = _labels(role.node_selector)
        yield wish(
            CauseKind.SELECTOR,
            asked,
            f"only nodes with {asked}",
            "the nodeSelector is dropped",
            node_selector=(),
        )
    if role.node_affinity:
        asked = shortened(shown(role.node_affinity), MAX_TEXT)
        yield wish(
            CauseKind.AFFINITY,
            asked,
            f"only nodes with {asked}",
            "the node affinity is dropped",
            node_affinity=(),
        )
    if role.model is not None:
        yield wish(
            CauseKind.MODEL,
            role.model,
            f"only nodes of model {role.model}",
            "another model will do",
            model=None,
        )
    yield from _taints(world, role, wish)
    if role.gpus and not role.mix_models and role.max > 1:
        yield wish(
            CauseKind.MODELS,
            "mixModels",
            "all its pods must be on one GPU model",
            "mixModels is allowed",
            mix_models=True,
        )
    yield from _about_pods(world, role, wish)


MakeWish = Callable[..., Cause]


def _taints(world: World, role: Role, wish: MakeWish) -> Iterator[Cause]:
    """The taints that keep it off nodes, those of a condition aside."""
    kept = {
        taint
        for node in world.instance.cluster.nodes
        for taint in without_conditions(node).taints
        if not tolerated(role.tolerations, (taint,))
    }
    if kept:
        keys = first_of(sorted({taint.key for taint in kept}), 3, "other")
        yield wish(
            CauseKind.TAINT,
            keys,
            f"does not tolerate the taints {keys}",
            "it tolerates them",
            tolerations=(
                *role.tolerations,
                *(_tolerating(key) for key in sorted({t.key for t in kept})),
            ),
        )


def _tolerating(key: str) -> Toleration:
    return Toleration(key, "Exists")


def _about_pods(world: World, role: Role, wish: MakeWish) -> Iterator[Cause]:
    level_name = world.instance.cluster.level_name
    apart, together, spread = "keep apart from", "must be next to", "must be spread evenly over"
    for kind, field, what, dropped in (
        (CauseKind.APART, "anti_affinity", f"{apart} pods in one", "the anti-affinity is dropped"),
        (
            CauseKind.TOGETHER,
            "affinity",
            f"{together} pods in one",
            "the affinity to pods is dropped",
        ),
        (CauseKind.SPREAD, "spread", f"{spread} each", "the spread is dropped"),
    ):
        if terms := getattr(role, field):
            levels = first_of(sorted({level_name(one.level) for one in terms}), 3, "level")
            yield wish(kind, levels, f"its pods {what} {levels}", dropped, **{field: ()})


def _labels(pairs: Sequence[tuple[str, str]]) -> str:
    return shortened(", ".join(f"{key}={value}" for key, value in pairs), MAX_TEXT)


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
