"""From a plan document to the judge's facts and the plan's statements about every gang.

A broken document gives violations of form, reference and order, never an exception.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from pydantic import ValidationError

from models.documents.base import digest
from models.documents.plan import PlanDocument, PlanGang, PlanInstance, PlanPod, PlanStatus
from models.units import InvalidValueError
from models.verify.facts import Facts, Gang, Pod, PodKey
from models.verify.instance_facts import (
    MAX_FAULTS,
    Faults,
    GangReader,
    Place,
    path_step,
    read_instance,
)
from models.verify.partitions import with_partitions
from models.verify.shares import with_released, with_shares
from models.verify.standing import Standing
from models.verify.violation import Violation, printable, quoted

MAX_BITS = 4096
"""Values of tiers may be large, but not without limit."""


@dataclass(frozen=True, slots=True)
class StatedGang:
    """What the plan states of one gang. ``labels``: (name, uid) of its pods.

    ``ranks``: of its pods. ``reserved``: pods for which room is reserved, and their labels and ranks.
    """

    label: str
    document: PlanGang
    pods: Mapping[PodKey, Pod]
    labels: Mapping[PodKey, tuple[str, str | None]]
    ranks: Mapping[PodKey, int | None]
    reserved: Mapping[PodKey, Pod]
    reserved_labels: Mapping[PodKey, tuple[str, str | None]]
    reserved_ranks: Mapping[PodKey, int | None]


@dataclass(frozen=True, slots=True)
class Case:
    """``gangs[i]`` is what the plan states of ``facts.gangs[i]``; ``standing``: of these facts."""

    facts: Facts
    gangs: tuple[StatedGang, ...]
    status: PlanStatus
    standing: Standing


@dataclass(frozen=True)
class InstanceReading:
    """The ``instance`` of a plan as it was read from ``source``, and its faults."""

    source: object
    document: PlanInstance
    facts: Facts
    gang_reader: GangReader
    faults: tuple[Violation, ...]

    @cached_property
    def digest(self) -> str | None:
        return _digest(self.source)

    @cached_property
    def standing(self) -> Standing:
        return Standing(self.facts)


@dataclass(frozen=True, slots=True)
class CaseReading:
    """A plan as it was read.

    ``document``, ``instance``: None if the form is broken. ``case``: None with any fault but of
    order. ``faults``: of form, reference and order.
    """

    document: PlanDocument | None
    instance: InstanceReading | None
    case: Case | None
    faults: list[Violation]


def read_instance_alone(instance: object) -> InstanceReading | None:
    """Read the ``instance`` of plans to come. None if its form is broken, which reading a plan says."""
    try:
        document = PlanInstance.model_validate(instance, context={})
    except ValidationError:
        return None
    return _instance_reading(instance, document)


def _instance_reading(source: object, document: PlanInstance) -> InstanceReading:
    faults = Faults()
    facts, reader = read_instance(faults, document)
    return InstanceReading(source, document, facts, reader, tuple(faults.found))


def read_case(
    plan: object, document: PlanDocument | None = None, known: InstanceReading | None = None
) -> CaseReading:
    """Read a plan.

    ``document``: the plan as the document type, if it has been read already. ``known``: used if the
    plan's instance is the object that it was read from, unchanged since.
    """
    faults = Faults()
    parts = plan if isinstance(plan, dict) else {}
    if known is not None and parts.get("instance") is not known.source:
        known = None
    if document is None:
        given = plan if known is None else {**parts, "instance": known.document}
        try:
            document = PlanDocument.model_validate(given, context={})
        except ValidationError as error:
            _add_errors(faults, error)
            return CaseReading(None, known, None, faults.found)
    known = known or _instance_reading(parts.get("instance"), document.instance)
    faults.found.extend(known.faults)
    reader = known.gang_reader.reporting_to(faults)
    facts = known.facts
    gangs = _stated_gangs(faults, document.spec.gangs, facts, reader)
    pods = (one.pods.values() for one in gangs)
    facts = with_released(facts, zip(facts.gangs, pods, strict=False))
    if document.spec.partitions or facts.releases:
        facts, wrong = with_partitions(document.spec.partitions, facts)
        for fault in wrong:
            faults.add(*fault)
    if document.spec.shares:
        facts, wrong = with_shares(document.spec.shares, facts)
        for fault in wrong:
            faults.add(*fault)
    _check_amounts(faults, document.status)
    # Wrong order leaves everything well defined; any other fault makes the rest guesswork.
    if any(fault.rule != "order" for fault in faults.found):
        return CaseReading(document, known, None, faults.found)
    standing = known.standing if facts is known.facts else Standing(facts)
    return CaseReading(document, known, Case(facts, gangs, document.status, standing), faults.found)


def check_digests(
    plan: object, instance: InstanceReading, status: PlanStatus
) -> Iterator[Violation]:
    """Compares both digests with the parts of the document as it was given."""
    for name, actual, stated in (
        ("instance", instance.digest, status.digests.instance),
        ("spec", _digest(cast(dict[str, object], plan)["spec"]), status.digests.spec),
    ):
        if actual is None:
            yield Violation("form", None, f"{name}: is not a JSON document")
        elif actual != stated:
            what = f"status.digests.{name}: says {quoted(stated)}, is {actual}"
            yield Violation("digest", None, what)


def _digest(value: object) -> str | None:
    """sha256 of the canonical JSON; None if the value is not JSON."""
    try:
        return digest(value)
    except (ValueError, TypeError, RecursionError):
        return None


def _add_errors(faults: Faults, error: ValidationError) -> None:
    for one in error.errors(include_url=False, include_input=False)[:MAX_FAULTS]:
        where = "".join(path_step(step) for step in one["loc"]).lstrip(".") or "plan"
        cause = one.get("ctx", {}).get("error")
        what = cause.what if isinstance(cause, InvalidValueError) else one["msg"]
        faults.add("form", printable(where), printable(what))


def _check_amounts(faults: Faults, status: PlanStatus) -> None:
    for i, tier in enumerate(status.objectives):
        for field in ("value", "best", "bound"):
            if getattr(tier, field).bit_length() > MAX_BITS:
                faults.add("form", f"status.objectives[{i}].{field}", "is too large")


def _stated_gangs(
    faults: Faults, documents: Sequence[PlanGang], facts: Facts, reader: GangReader
) -> tuple[StatedGang, ...]:
    """What the plan states, in the order of the gangs of the instance."""
    by_key = {gang.key: gang for gang in facts.gangs}
    found: dict[tuple[str, str], StatedGang] = {}
    last: tuple[str, str] | None = None
    for i, document in enumerate(documents):
        where = f"spec.gangs[{i}]"
        key = document.key
        label = "/".join(key)
        if key not in by_key:
            faults.add("reference", where, f"no gang {label} in the instance")
            continue
        if key in found:
            faults.add("reference", where, "the gang is stated twice", label)
        elif last is not None and key < last:
            faults.add("order", where, "gangs must be sorted by namespace and name", label)
        last = key
        found[key] = _stated_gang(faults, document, where, label, by_key[key], reader)
    for key in sorted(by_key.keys() - found.keys()):
        label = "/".join(key)
        faults.add("reference", "spec.gangs", f"gang {label} is missing", label)
    return tuple(found[key] for key in by_key if key in found)


def _stated_gang(
    faults: Faults, document: PlanGang, where: Place, label: str, gang: Gang, reader: GangReader
) -> StatedGang:
    pods, labels, ranks = _stated_pods(faults, document.pods, f"{where}.pods", label, gang, reader)
    if document.reserved is None:
        return StatedGang(label, document, pods, labels, ranks, {}, {}, {})
    place, held = f"{where}.reserved.pods", document.reserved.pods
    reserved = _stated_pods(faults, held, place, label, gang, reader)
    return StatedGang(label, document, pods, labels, ranks, *reserved)


def _stated_pods(
    faults: Faults,
    documents: Sequence[PlanPod],
    where: Place,
    label: str,
    gang: Gang,
    reader: GangReader,
) -> tuple[dict[PodKey, Pod], dict[PodKey, tuple[str, str | None]], dict[PodKey, int | None]]:
    """Pods by role and index, (name, uid) and the rank of each."""
    pods: dict[PodKey, Pod] = {}
    labels: dict[PodKey, tuple[str, str | None]] = {}
    ranks: dict[PodKey, int | None] = {}
    last: PodKey = (-1, -1)
    for i, pod in enumerate(documents):
        place = f"{where}[{i}]"
        number = reader.role_number(pod.role, gang.roles, place)
        if number is None:
            continue
        key = (number, pod.index)
        if key in pods:
            faults.add("reference", place, "the pod is stated twice", label)
        elif key < last:
            faults.add("order", place, "pods must be sorted by role and index", label)
        last = key
        found = reader.place(pod, place, key, gang.roles)
        if found is not None:
            pods[key] = found
        labels[key] = (pod.name, pod.uid)
        ranks[key] = pod.rank
    return pods, labels, ranks
