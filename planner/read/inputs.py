"""Input documents, and the instance inside a plan, to one frozen Instance.

Every fault has its place, at most 20 are reported. Only InputError (65) and MissingPathError (66)
are raised. Imports no solver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

from pydantic import ValidationError

from models.documents.policy import WhatIf
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.units import shown
from planner.errors import Fault, InputError
from planner.read.compact_cluster import catalogue_model, no_model
from planner.read.document_kinds import Documents
from planner.read.findings import Findings
from planner.read.instance_builder import LoadedInput, build, policy_alone
from planner.read.sources import Source, open_sources
from planner.read.validation import Entry

if TYPE_CHECKING:
    from planner.read.kube.objects import Gatherer


def read(
    paths: Sequence[str], *, policy: str | None = None, stdin: BinaryIO | None = None
) -> Instance:
    """The Instance of all files, folders and ``-`` in the paths: ``load`` without remarks."""
    return load(paths, policy=policy, stdin=stdin).instance


def load(
    paths: Sequence[str],
    *,
    policy: str | None = None,
    now: int | None = None,
    schedulers: tuple[str, ...] | None = None,
    stdin: BinaryIO | None = None,
    gather: Callable[[Gatherer], None] | None = None,
) -> LoadedInput:
    """The Instance of all files, folders and ``-`` in the paths, with remarks.

    ``gather``: adds the objects of a live cluster.

    ``policy``: a file whose Policy replaces any in the paths. ``now``: seconds since the epoch, in
    place of the Policy's ``now``. ``schedulers``: in place of its ``schedulerNames``; something
    in the input has each.
    Raises InputError, MissingPathError.
    """
    findings = Findings()
    documents = _documents(paths, stdin, findings, gather)
    if policy is not None:
        own = _documents([policy], stdin, findings)
        others: list[Entry[Any]] = [*own.clusters, *own.gangs, *own.queues]
        for entry in others:
            what = f"a {entry.document.kind} in the file of --policy"
            entry.fault(("kind",), what, "put a Policy alone there")
        _check_policy(own, policy)
        documents.policies = own.policies
    return build(documents, catalogue_model, now=now, schedulers=schedulers)


def read_policy(paths: Sequence[str], *, policy: str | None = None) -> Policy:
    """The Policy that ``load`` would use, read alone; the default if there is none.

    For verbs that read a live cluster before there is an input. Raises InputError, MissingPathError.
    """
    findings = Findings()
    documents = _documents(paths if policy is None else [policy], None, findings)
    if documents.slurm is not None:
        what = "the output of Slurm does not go with a live Kubernetes cluster"
        hint = "Slurm starts its jobs itself; gangplan plan shows what could start"
        findings.fault(Fault(what, hint))
    if policy is not None:
        _check_policy(documents, policy)
    return policy_alone(documents)


def _check_policy(documents: Documents, path: str) -> None:
    if not documents.policies and not documents.findings:
        documents.findings.fault(Fault(f"no Policy in {shown(path)}", "put a Policy there"))


def _documents(
    paths: Sequence[str],
    stdin: BinaryIO | None,
    findings: Findings,
    gather: Callable[[Gatherer], None] | None = None,
) -> Documents:
    documents = Documents(findings)
    if gather is not None:
        gather(documents.gatherer)
    for source in open_sources(paths, stdin):
        if isinstance(source, Fault):
            findings.fault(source)
        else:
            documents.read(source)
    return documents


def instance_from_document(document: object) -> Instance:
    """The Instance of a plan's ``instance``: ``{"cluster": .., "gangs": [..], "policy": ..}``.

    The inverse of ``models.documents.canonical.canonical_instance``: complete in itself, so the catalogue is
    not consulted. Raises InputError; places are those of the document written as one JSON line.
    """
    if not isinstance(document, dict) or not isinstance(document.get("gangs"), list):
        hint = "a plan's instance has cluster, gangs and policy"
        raise InputError(Fault("the plan has no instance", hint))
    queues = document.get("queues", [])
    if not isinstance(queues, list):
        raise InputError(Fault("the queues of the plan's instance are no list", None))
    parts = [document.get("cluster"), *document["gangs"], document.get("policy"), *queues]
    try:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": parts})
    except RecursionError:
        raise InputError(Fault("the plan's instance is nested too deep")) from None
    documents = Documents(Findings())
    documents.read(Source("<plan>", text, "json"))
    instance = build(documents, no_model, lenient=True).instance
    try:
        stated = document.get("whatIf")
        return replace(instance, what_if=None if stated is None else WhatIf.read(stated))
    except ValidationError:
        raise InputError(Fault("the plan's whatIf is none", None)) from None
