"""What a plan states of its moves: sets of gangs that restart elsewhere, and what each set bought.

Promises: stated values as they stand, nothing is judged here. Called by ``statement``; judged by ``moves``.

What a plan document states: a decision a gang, a tier a line, its moves, how the search ended.

Promises: stated values as they stand, places resolved against the facts; nothing is judged here.
Called by ``documents``; judged by the rules, ``gangs``, ``tiers`` and ``status``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from models.verify.facts import Gang, Pod, PodKey
from models.verify.form import MAX_INTEGER, Form, Object, printable, shown
from models.verify.gang_facts import GangReader

_SET_REQUIRED = ["gangs", "gpus", "bought", "gain"]
_BOUGHT_REQUIRED = ["gangs", "gpus", "bandwidth", "wholeNodes", "wholeDomains"]


@dataclass(frozen=True, slots=True)
class StatedSet:
    """One entry of ``status.moves``. ``gangs``, ``bought``: ``namespace/name`` as written.

    ``moved``: GPUs of the moved gangs. The rest is against the plan without these moves: ``gpus`` (w of
    admitted gangs), ``bandwidth`` (w x share), ``nodes`` and ``domains`` wholly free; ``gain`` a GPU moved.
    """

    gangs: tuple[str, ...]
    moved: int
    bought: tuple[str, ...]
    gpus: int
    bandwidth: int
    nodes: int
    domains: int
    gain: Fraction


def stated_moves(form: Form, value: object, where: str) -> tuple[StatedSet, ...]:
    """All sets; a plan that says nothing of moves has none."""
    return tuple(
        _set(form, item, f"{where}[{i}]")
        for i, item in enumerate(form.optional_items(value, where))
    )


def _set(form: Form, value: object, where: str) -> StatedSet:
    doc = form.mapping(value, where, required=_SET_REQUIRED)
    bought = form.mapping(doc.get("bought", {}), f"{where}.bought", required=_BOUGHT_REQUIRED)
    gpus, bandwidth, nodes, domains = (
        form.integer(bought.get(name, 0), f"{where}.bought.{name}")
        for name in ("gpus", "bandwidth", "wholeNodes", "wholeDomains")
    )
    return StatedSet(
        gangs=_names(form, doc.get("gangs", []), f"{where}.gangs"),
        moved=form.integer(doc.get("gpus", 0), f"{where}.gpus", 0),
        bought=_names(form, bought.get("gangs", []), f"{where}.bought.gangs"),
        gpus=gpus,
        bandwidth=bandwidth,
        nodes=nodes,
        domains=domains,
        gain=_gain(form, doc.get("gain", 0), f"{where}.gain"),
    )


def _names(form: Form, value: object, where: str) -> tuple[str, ...]:
    return tuple(
        form.text(item, f"{where}[{i}]") for i, item in enumerate(form.items(value, where))
    )


def _gain(form: Form, value: object, where: str) -> Fraction:
    """The decimal as written; gains may be negative."""
    if type(value) is int and abs(value) <= MAX_INTEGER:
        return Fraction(value)
    if isinstance(value, float) and math.isfinite(value) and abs(value) <= MAX_INTEGER:
        return Fraction(repr(value))
    form.fault(where, f"must be a number, not {shown(value)}")
    return Fraction(0)


DECISIONS = ("place", "complete", "keep", "move", "resize", "preempt", "wait")

_MAX_BITS = 4096
"""Values of tiers may be large, not endless."""

_GANG_REQUIRED = [
    "namespace",
    "name",
    "decision",
    "pods",
    "bandwidthMBps",
    "share",
    "domains",
    "reason",
]
_POD_REQUIRED = ["name", "role", "index", "node", "gpus"]
_TIER_REQUIRED = ["name", "sense", "value", "best", "bound", "gap", "proof"]


@dataclass(frozen=True, slots=True)
class StatedGang:
    """One entry of ``spec.gangs``, in the order of the facts. ``labels``: pod to (name, uid)."""

    label: str
    decision: str
    pods: Mapping[PodKey, Pod]
    labels: Mapping[PodKey, tuple[str, str | None]]
    bandwidth: int | None
    share: int | None
    domains: Mapping[str, int] | None
    reason: tuple[str, str] | None
    aged: bool


@dataclass(frozen=True, slots=True)
class StatedTier:
    name: str
    sense: str
    value: int
    best: int
    bound: int
    gap: Fraction
    proof: str | None


@dataclass(frozen=True, slots=True)
class StatedStatus:
    outcome: str
    tiers: tuple[StatedTier, ...]
    seed: int
    instance_digest: str
    spec_digest: str
    moves: tuple[StatedSet, ...]


def stated_gangs(
    form: Form, value: object, gangs: tuple[Gang, ...], reader: GangReader
) -> tuple[StatedGang, ...]:
    """One statement a gang of the instance; a gang left out, unknown or stated twice is a fault."""
    spec = form.mapping(value, "spec", required=("gangs",))
    by_key = {gang.key: gang for gang in gangs}
    found: dict[tuple[str, str], StatedGang] = {}
    last: tuple[str, str] | None = None
    for i, item in enumerate(form.items(spec.get("gangs"), "spec.gangs")):
        where = f"spec.gangs[{i}]"
        doc = form.mapping(item, where, required=_GANG_REQUIRED)
        key = (
            form.text(doc.get("namespace"), f"{where}.namespace"),
            form.text(doc.get("name"), f"{where}.name"),
        )
        label = gang_label(key)
        if key not in by_key:
            form.fault(where, f"no gang {shown('/'.join(key))} in the instance", rule="reference")
            continue
        if key in found:
            form.fault(where, "the gang is stated twice", rule="reference", gang=label)
        elif last is not None and key < last:
            form.fault(
                where, "gangs must be sorted by namespace and name", rule="order", gang=label
            )
        last = key
        found[key] = _gang(form, doc, where, by_key[key], label, reader)
    for gang in gangs:
        if gang.key not in found:
            label = gang_label(gang.key)
            form.fault("spec.gangs", f"says nothing of gang {label}", rule="reference", gang=label)
    return tuple(found[gang.key] for gang in gangs if gang.key in found)


def gang_label(key: tuple[str, str]) -> str:
    """``namespace/name``, fit to print."""
    return printable(f"{key[0]}/{key[1]}")


def _gang(
    form: Form, doc: Object, where: str, gang: Gang, label: str, reader: GangReader
) -> StatedGang:
    pods: dict[PodKey, Pod] = {}
    labels: dict[PodKey, tuple[str, str | None]] = {}
    last: PodKey = (-1, -1)
    for i, item in enumerate(form.items(doc.get("pods"), f"{where}.pods")):
        place = f"{where}.pods[{i}]"
        pod = form.mapping(item, place, required=_POD_REQUIRED)
        number = reader.role_index(pod.get("role"), gang.roles, f"{place}.role")
        index = form.integer(pod.get("index"), f"{place}.index", 0)
        if number is None:
            continue
        key = (number, index)
        if key in pods:
            form.fault(place, "the pod is stated twice", rule="reference", gang=label)
        elif key < last:
            form.fault(place, "pods must be sorted by role and index", rule="order", gang=label)
        last = key
        found = reader.placed(pod, place, number, index, gang.roles[number])
        if found is not None:
            pods[key] = found
        uid = form.optional_text(pod.get("uid"), f"{place}.uid")
        labels[key] = (form.text(pod.get("name"), f"{place}.name"), uid)
    return StatedGang(
        label=label,
        decision=form.choice(doc.get("decision"), f"{where}.decision", DECISIONS),
        pods=pods,
        labels=labels,
        bandwidth=form.optional_integer(doc.get("bandwidthMBps"), f"{where}.bandwidthMBps", 0),
        share=form.optional_integer(doc.get("share"), f"{where}.share", 0),
        domains=_domains(form, doc.get("domains"), f"{where}.domains"),
        reason=_reason(form, doc.get("reason"), f"{where}.reason"),
        aged=form.flag(doc.get("aged"), f"{where}.aged"),
    )


def _domains(form: Form, value: object, where: str) -> Mapping[str, int] | None:
    if value is None:
        return None
    return {
        printable(name): form.integer(count, f"{where}[{name!r:.80}]", 0)
        for name, count in form.table(value, where).items()
    }


def _reason(form: Form, value: object, where: str) -> tuple[str, str] | None:
    if value is None:
        return None
    doc = form.mapping(value, where, required=("code", "message"))
    return form.text(doc.get("code"), f"{where}.code"), form.text(
        doc.get("message"), f"{where}.message"
    )


def stated_status(form: Form, value: object) -> StatedStatus:
    """The whole of ``status``."""
    status = form.mapping(value, "status", required=("outcome", "objectives", "search", "digests"))
    search = form.mapping(
        status.get("search", {}), "status.search", required=("solver", "seed", "stoppedBy")
    )
    form.text(search.get("solver"), "status.search.solver")
    form.choice(
        search.get("stoppedBy"), "status.search.stoppedBy", ("proof", "budget", "time", "signal")
    )
    digests = form.mapping(
        status.get("digests", {}), "status.digests", required=("instance", "spec")
    )
    return StatedStatus(
        outcome=form.choice(status.get("outcome"), "status.outcome", ("optimal", "feasible")),
        tiers=tuple(
            _tier(form, item, f"status.objectives[{i}]")
            for i, item in enumerate(form.items(status.get("objectives"), "status.objectives"))
        ),
        seed=form.integer(search.get("seed"), "status.search.seed"),
        instance_digest=form.text(digests.get("instance"), "status.digests.instance"),
        spec_digest=form.text(digests.get("spec"), "status.digests.spec"),
        moves=stated_moves(form, status.get("moves"), "status.moves"),
    )


def _tier(form: Form, value: object, where: str) -> StatedTier:
    doc = form.mapping(value, where, required=_TIER_REQUIRED)
    proof = doc.get("proof")
    return StatedTier(
        name=printable(form.text(doc.get("name"), f"{where}.name")),
        sense=form.choice(doc.get("sense"), f"{where}.sense", ("max", "min")),
        value=_amount(form, doc.get("value"), f"{where}.value"),
        best=_amount(form, doc.get("best"), f"{where}.best"),
        bound=_amount(form, doc.get("bound"), f"{where}.bound"),
        gap=_gap(form, doc.get("gap"), f"{where}.gap"),
        proof=None
        if proof is None
        else form.choice(proof, f"{where}.proof", ("exact", "numerical")),
    )


def _amount(form: Form, value: object, where: str) -> int:
    if type(value) is int and value.bit_length() <= _MAX_BITS:
        return value
    form.fault(where, f"must be an integer, not {shown(value)}")
    return 0


def _gap(form: Form, value: object, where: str) -> Fraction:
    """A finite JSON number, not negative."""
    if type(value) is int and value >= 0 and value.bit_length() <= _MAX_BITS:
        return Fraction(value)
    if isinstance(value, float) and math.isfinite(value) and value >= 0:
        return Fraction(value)
    form.fault(where, f"must be a number from 0, not {shown(value)}")
    return Fraction(0)
