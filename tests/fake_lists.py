"""Lists: selected, in pages, as the API server gives them out.

Promises: by namespace and name; a page says how to go on; items of built-in kinds do not say what they
are. Called by ``fake_objects``.
"""

from __future__ import annotations

import base64
import json

from fake_kinds import Kind
from fake_selecting import by_fields, by_labels
from fake_statuses import ApiError
from fake_store import Store
from fake_trees import Tree

_TYPE = ("kind", "apiVersion")


def selected(store: Store, kind: Kind, namespace: str, query: dict[str, str]) -> Tree:
    """The list that a query asks for. Raises ApiError."""
    items = list(store.all(kind, namespace))
    if selector := query.get("labelSelector"):
        items = list(filter(by_labels(selector), items))
    if selector := query.get("fieldSelector"):
        items = list(filter(by_fields(kind, selector), items))
    metadata: Tree = {"resourceVersion": str(store.revision)}
    if limit := int(query.get("limit") or 0):
        start = _start(query.get("continue"))
        left = len(items) - start - limit
        items = items[start : start + limit]
        if left > 0:
            metadata |= {"continue": _token(start + limit), "remainingItemCount": left}
    if not kind.custom:
        items = [{key: item[key] for key in item if key not in _TYPE} for item in items]
    return {
        "kind": f"{kind.name}List",
        "apiVersion": kind.api_version,
        "metadata": metadata,
        "items": items,
    }


def _token(start: int) -> str:
    return base64.b64encode(json.dumps({"v": "meta.k8s.io/v1", "start": start}).encode()).decode()


def _start(token: str | None) -> int:
    """Raises ApiError for a token that is none of ours."""
    if not token:
        return 0
    try:
        return int(json.loads(base64.b64decode(token))["start"])
    except (ValueError, KeyError, TypeError):
        raise ApiError(400, f"continue key is not valid: {token}") from None
