"""Which nodes pods may be on at all: selectors, taints, models, requests, reservations, pins; and holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from models.documents.gang import Toleration
from models.instance.eligibility import tolerated, without_conditions
from models.instance.gang import OFFERS, Gang, Role, label_texts, shown
from models.instance.instance import Instance
from models.instance.solution import BACKOFF, QUEUE_LIMIT
from models.queues.pins import beside_pins
from models.queues.reservations import open_nodes
from models.rules.declaration import Asked, Declaration, Pods, Requirement, dropping
from models.rules.shape import closed_to
from models.units import first_of, shortened

MAX_TEXT = 200
"""Characters of what a gang asks for that a cause shows."""


def _labels(pairs: Sequence[tuple[str, str]]) -> str:
    return shortened(", ".join(label_texts(pairs)), MAX_TEXT)


def _held(_instance: Instance, gang: Gang) -> Iterator[Asked[Gang]]:
    if gang.hold is not None:
        freed = {"evicted_at": None} if gang.hold.code == BACKOFF else {}
        yield Asked(gang.hold.code, dropping(hold=None, **freed))


def _released(instance: Instance, gang: Gang) -> Gang:
    """The gang without its hold, but for one of the policy's ``queueLimit``, which counts others."""
    if gang.hold is None or gang.hold.code == QUEUE_LIMIT:
        return gang
    (held,) = _held(instance, gang)
    return held.change(gang)


HOLD = Requirement(
    "hold",
    "it is held",
    of_gang=_held,
    word="hold",
    relaxes="why it must not start even if there is room",
    relax_gang=_released,
)


def _selected(instance: Instance, _pods: Sequence[Pods], _gang: int) -> Iterator[Asked[Instance]]:
    if instance.policy.node_selector:
        without = replace(instance.policy, node_selector=())
        yield Asked(_labels(instance.policy.node_selector), dropping(policy=without))


SELECTED = Requirement(
    "policyNodeSelector",
    "the Policy leaves nodes without {} to others",
    of_all=_selected,
    operator=True,
)


def _offers(role: Role) -> tuple[tuple[str, str], ...]:
    """The names by which its pods request GPUs, which no change of selectors alters."""
    return tuple(pair for pair in role.node_selector if pair[0].startswith(OFFERS))


def _selector(_instance: Instance, role: Role) -> Iterator[Asked[Role]]:
    offers = _offers(role)
    if own := tuple(pair for pair in role.node_selector if pair not in offers):
        yield Asked(_labels(own), dropping(node_selector=offers))


SELECTOR = Requirement(
    "nodeSelector",
    "only nodes with {}",
    of_role=_selector,
    code="Selector",
    word="selector",
    relaxes="node selector and node affinity",
    relax_role=dropping(node_selector=()),
)


def _affinity(_instance: Instance, role: Role) -> Iterator[Asked[Role]]:
    if role.node_affinity:
        yield Asked(shortened(shown(role.node_affinity), MAX_TEXT), dropping(node_affinity=()))


AFFINITY = Requirement(
    "nodeAffinity", "only nodes with {}", of_role=_affinity, code="Selector", word="selector"
)


def _model(_instance: Instance, role: Role) -> Iterator[Asked[Role]]:
    if role.model is not None:
        yield Asked(role.model, dropping(model=None))


MODEL = Requirement(
    "model",
    "only nodes of model {}",
    of_role=_model,
    code="Selector",
    word="model",
    relaxes="the GPU or server model that is asked for",
)


def _taints(instance: Instance, role: Role) -> Iterator[Asked[Role]]:
    """The taints that keep it off nodes, those of a condition aside."""
    kept = sorted(
        {
            taint.key
            for node in instance.cluster.nodes
            for taint in without_conditions(node).taints
            if not tolerated(role.tolerations, (taint,))
        }
    )
    if kept:
        more = (Toleration(key, "Exists") for key in kept)
        change = dropping(tolerations=(*role.tolerations, *more))
        yield Asked(first_of(kept, 3, "other"), change)


TAINT = Requirement(
    "taints",
    "it does not tolerate the taints {}",
    of_role=_taints,
    code="Selector",
    word="tolerations",
    relaxes="taints, which it then tolerates all",
    relax_role=dropping(tolerations=(Toleration("", "Exists"),)),
    operator=True,
)


def _requests(_instance: Instance, gang: Gang) -> Iterator[Asked[Gang]]:
    names = sorted({name for role in gang.roles for name, amount in role.requests if amount})
    for name in names:
        yield Asked(name, partial(_unrequested, name))


def _unrequested(name: str, gang: Gang) -> Gang:
    roles = (
        replace(role, requests=tuple(one for one in role.requests if one[0] != name))
        for role in gang.roles
    )
    return replace(gang, roles=tuple(roles))


REQUEST = Requirement(
    "request",
    "its pods request {}",
    of_gang=_requests,
    code="Resources",
    word="requests",
    relaxes="CPU, memory and other resources",
    relax_role=dropping(requests=()),
)


def _open_nodes(instance: Instance, gang: Gang, role: Role) -> frozenset[int]:
    return beside_pins(instance, gang, role, open_nodes(instance, gang, role))


def _open_to(instance: Instance, gang: Gang, role: Role) -> frozenset[int] | None:
    """Nodes without those that are closed to pods with GPUs of the gang in any plan."""
    closed = closed_to(instance, gang) if role.gpus else frozenset()
    return instance.once(_every_node) - closed if closed else None


def _every_node(instance: Instance) -> frozenset[int]:
    return frozenset(range(len(instance.cluster.nodes)))


HOLDS = Declaration("holds", (HOLD,))

DECLARED = (
    Declaration(
        "nodes, reservations and pins",
        (SELECTED, SELECTOR, AFFINITY, MODEL, TAINT),
        eligible=_open_nodes,
    ),
    Declaration("closed nodes", eligible=_open_to),
)

RESOURCES = Declaration("resources", (REQUEST,))
