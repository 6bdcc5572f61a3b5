"""Input documents to one frozen Instance; plan files to plan documents.

Promises: strict; every fault with its place, at most 20; bounded memory; nothing but InputError
(65) or MissingPathError (66) comes out. Imports no solver. Called by the commands and by tests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, BinaryIO

from models.documents import PlanDocument
from models.instance import Instance
from models.quantities import described, shown
from planner.errors import Fault, InputError
from planner.reading.builder import build
from planner.reading.dialects import Documents
from planner.reading.findings import Findings
from planner.reading.hardware import nothing, shipped
from planner.reading.parsing import parse
from planner.reading.sources import Source, read_sources
from planner.reading.validating import validate

__all__ = ["instance_from_document", "read", "read_plan"]

_ALONE = "put a Policy alone there"


def read(
    paths: Sequence[str], *, policy: str | None = None, stdin: BinaryIO | None = None
) -> Instance:
    """The Instance of everything the paths name (files, folders, ``-``).

    ``policy``: a file whose Policy replaces any in the paths. Raises InputError, MissingPathError.
    """
    findings = Findings()
    documents = _documents(paths, stdin, findings)
    if policy is not None:
        own = _documents([policy], stdin, findings)
        for cluster in own.clusters:
            cluster.fault(("kind",), "a Cluster in the file of --policy", _ALONE)
        for gang in own.gangs:
            gang.fault(("kind",), "a Gang in the file of --policy", _ALONE)
        if not own.policies and not findings:
            findings.fault(Fault(f"no Policy in {shown(policy)}", "put a Policy there"))
        documents.policies = own.policies
    return build(documents, shipped)


def _documents(paths: Sequence[str], stdin: BinaryIO | None, findings: Findings) -> Documents:
    found, faults = read_sources(paths, stdin)
    documents = Documents(findings)
    for fault in faults:
        findings.fault(fault)
        documents.lose_all()
    for source in found:
        documents.read(source)
    return documents


def instance_from_document(document: object) -> Instance:
    """The Instance of a plan's ``instance``: ``{"cluster": .., "gangs": [..], "policy": ..}``.

    The inverse of ``models.canonical.instance_document``: complete in itself, so the catalogue is
    not consulted. Raises InputError; places are those of the document written as one JSON line.
    """
    if not isinstance(document, dict) or not isinstance(document.get("gangs"), list):
        hint = "a plan's instance holds cluster, gangs and policy"
        raise InputError(Fault("the plan holds no instance", hint))
    parts = [document.get("cluster"), *document["gangs"], document.get("policy")]
    try:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": parts})
    except RecursionError:
        raise InputError(Fault("the plan's instance is nested too deep")) from None
    documents = Documents(Findings())
    documents.read(Source("<plan>", text, "json"))
    return build(documents, nothing)


def read_plan(path: str, *, stdin: BinaryIO | None = None) -> dict[str, Any]:
    """The plan document of a file, well formed and typed; its contents are for the checker.

    Raises InputError, MissingPathError.
    """
    found, faults = read_sources([path], stdin)
    findings = Findings()
    for fault in faults:
        findings.fault(fault)
    if findings:
        findings.raise_all()
    source = found[0]
    composed = parse(source)
    for malformed in composed.faults:
        findings.malformed(source, malformed)
    if findings:
        findings.raise_all()
    trees = [tree for tree in composed.documents if tree is not None]
    if len(trees) != 1 or not isinstance(trees[0], dict) or trees[0].get("kind") != "Plan":
        what = described(trees[0]) if trees else "nothing"
        if trees and isinstance(trees[0], dict):
            what = f"a document of kind {shown(str(trees[0].get('kind')))}"
        findings.fault(
            Fault(
                f"expected one Plan, not {what}", "make one with gangplan plan --out", source.name
            )
        )
        findings.raise_all()
    validate(PlanDocument, trees[0], source, (0,), findings)
    if findings:
        findings.raise_all()
    plan: dict[str, Any] = json.loads(source.text)
    return plan
