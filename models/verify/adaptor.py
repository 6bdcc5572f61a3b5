"""From a plan document to its facts and its statements; digests and metadata on the way.

Promises: a hostile document gives faults, never an exception. Called by ``models.verify.check.check``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from models.verify.cluster_facts import cluster
from models.verify.facts import Facts
from models.verify.form import Form, seconds_of, shown
from models.verify.gang_facts import GangReader
from models.verify.policy_facts import API_VERSION, policy
from models.verify.statement import StatedGang, StatedStatus, stated_gangs, stated_status
from models.verify.violation import Violation


@dataclass(frozen=True, slots=True)
class Case:
    """Facts and statements; ``gangs[i]`` is what the plan says of ``facts.gangs[i]``."""

    facts: Facts
    gangs: tuple[StatedGang, ...]
    status: StatedStatus


def read_case(plan: object) -> tuple[Case | None, list[Violation]]:
    """The case, None if the form is broken; and every fault of form, reference and order."""
    form = Form()
    doc = form.mapping(
        plan, "plan", required=("apiVersion", "kind", "metadata", "instance", "spec", "status")
    )
    if form.faults:
        return None, form.faults
    if doc["apiVersion"] != API_VERSION:
        form.fault("apiVersion", f"must be {API_VERSION}, not {shown(doc['apiVersion'])}")
    if doc["kind"] != "Plan":
        form.fault("kind", f"must be Plan, not {shown(doc['kind'])}")
    _metadata(form, doc["metadata"])
    instance = form.mapping(
        doc["instance"],
        "instance",
        frozenset(("cluster", "gangs", "policy")),
        ("cluster", "gangs", "policy"),
    )
    if form.faults:
        return None, form.faults
    rules = policy(form, instance["policy"], "instance.policy")
    levels, nodes = cluster(form, instance["cluster"], "instance.cluster", rules.selector)
    reader = GangReader(form, tuple(level.name for level in levels), nodes, rules.min_share)
    gangs = reader.read_all(instance["gangs"], "instance.gangs")
    stated = stated_gangs(form, doc["spec"], gangs, reader)
    status = stated_status(form, doc["status"])
    # Order alone leaves everything well defined; anything else makes the rest guesswork.
    broken = any(fault.rule != "order" for fault in form.faults)
    case = None if broken else Case(Facts(levels, nodes, gangs, rules), stated, status)
    return case, form.faults


def _metadata(form: Form, value: object) -> None:
    metadata = form.mapping(value, "metadata", required=("name", "createdAt", "generator"))
    form.text(metadata.get("name"), "metadata.name")
    form.text(metadata.get("generator"), "metadata.generator")
    created = metadata.get("createdAt")
    if not isinstance(created, str) or seconds_of(created) is None:
        form.fault("metadata.createdAt", f"must be an RFC 3339 time, not {shown(created)}")


def digest_of(value: object) -> str | None:
    """sha256 of the canonical JSON; None if the value is not JSON (NaN, endless nesting, strange types)."""
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()
    except (ValueError, TypeError, RecursionError):
        return None


def check_digests(plan: dict[str, object], status: StatedStatus) -> list[Violation]:
    """Both digests against the document's own parts."""
    found = []
    for name, part, stated in (
        ("instance", plan["instance"], status.instance_digest),
        ("spec", plan["spec"], status.spec_digest),
    ):
        actual = digest_of(part)
        if actual is None:
            found.append(Violation("form", None, f"{name}: is not a JSON document"))
        elif actual != stated:
            found.append(
                Violation(
                    "digest", None, f"status.digests.{name}: says {shown(stated)}, is {actual}"
                )
            )
    return found
