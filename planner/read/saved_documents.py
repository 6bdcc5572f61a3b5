"""Documents that a run has saved, of any kind that a report is made of: a plan or an audit."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from models.documents.audit import AuditDocument
from models.documents.plan import PlanDocument
from planner.read import plan_files

Saved = PlanDocument | AuditDocument

KINDS: dict[str, type[PlanDocument | AuditDocument]] = {
    "Plan": PlanDocument,
    "Audit": AuditDocument,
}


def read_saved(content: bytes, path: str) -> tuple[Saved, dict[str, Any]]:
    """The document in ``content``, typed and as JSON. Raises InputError with the places of its faults."""
    tree = plan_files.parse(content, path, kinds=tuple(KINDS))
    model = KINDS[tree["kind"]]
    try:
        return model.model_validate_json(content), tree
    except ValidationError:
        return plan_files.read_slowly(content, path, tree, model), tree
