"""Refusals, worded as a real API server words them; raised as ApiError."""

from __future__ import annotations

import json
from collections.abc import Sequence

from apiserver_kinds import Kind, Tree

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
_REASONS = dict(
    line.split()
    for line in """400 BadRequest\n401 Unauthorized\n403 Forbidden\n404 NotFound
405 MethodNotAllowed\n409 Conflict\n410 Expired\n415 UnsupportedMediaType\n422 Invalid
429 TooManyRequests\n503 ServiceUnavailable\n504 Timeout""".splitlines()
)
Fault = tuple[str, str, str]
"""Of a field: its name, the reason as in causes, and all of the message after the name."""


class ApiError(Exception):
    """A request that is refused."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: Tree | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details
        self.reason = _REASONS.get(str(code), "") if reason is None else reason

    def tree(self) -> Tree:
        tree: Tree = status("Failure", code=self.code, message=self.message, reason=self.reason)
        return tree if self.details is None else tree | {"details": self.details}


def status(word: str, **more: object) -> Tree:
    """A Status; without what is empty."""
    tree = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": word}
    return tree | {key: value for key, value in more.items() if value}


def wrong(field: str, value: object, said: str) -> Fault:
    return field, "FieldValueInvalid", f"Invalid value: {json.dumps(value)}: {said}"


def barred(field: str, said: str) -> Fault:
    return field, "FieldValueForbidden", f"Forbidden: {said}"


def details(kind: Kind, name: str, *, singular: bool = False) -> Tree:
    tree = {"name": name} if name else {}
    tree |= {"group": kind.group} if kind.group else {}
    return tree | {"kind": kind.name if singular else kind.plural}


def missing(kind: Kind, name: str) -> ApiError:
    return ApiError(404, f'{kind.resource} "{name}" not found', details=details(kind, name))


def no_such_path() -> ApiError:
    return ApiError(404, "the server could not find the requested resource", details={})


def not_allowed() -> ApiError:
    said = "the server does not allow this method on the requested resource"
    return ApiError(405, said, details={})


def conflict(kind: Kind, name: str, why: str = MODIFIED) -> ApiError:
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, message, details=details(kind, name))


def exists(kind: Kind, name: str) -> ApiError:
    message = f'{kind.resource} "{name}" already exists'
    return ApiError(409, message, reason="AlreadyExists", details=details(kind, name))


def invalid(kind: Kind, name: str, faults: Sequence[Fault]) -> ApiError:
    """422 for all faults of an object."""
    words = [f"{field}: {detail}" for field, _, detail in faults]
    listed = words[0] if len(words) == 1 else f"[{', '.join(words)}]"
    causes = [{"reason": why, "message": said, "field": field} for field, why, said in faults]
    about = details(kind, name, singular=True) | {"causes": causes}
    return ApiError(422, f'{kind.group_kind} "{name}" is invalid: {listed}', details=about)


def denied(user: str, verb: str, kind: Kind, namespace: str, name: str, sub: str) -> ApiError:
    """403 without the right."""
    what = kind.resource + (f' "{name}"' if name else "")
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    asked = f"{kind.plural}/{sub}" if sub else kind.plural
    said = f'{what} is forbidden: User "{user}" cannot {verb} resource "{asked}" in API group'
    return ApiError(403, f'{said} "{kind.group}" {where}', details=details(kind, name))
