"""Status objects, worded as a real API server words them; raised as ApiError."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from apiserver_kinds import Kind, Tree

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ApiError(Exception):
    """A request that is refused."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: Tree | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = _REASONS.get(code, "") if reason is None else reason
        self.details = details
        self.retry_after_s = retry_after_s

    def tree(self) -> Tree:
        tree: Tree = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            tree["reason"] = self.reason
        if self.details is not None:
            tree["details"] = self.details
        return tree | {"code": self.code}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault of a field. ``kind``: as in causes, such as FieldValueInvalid.

    ``detail``: all of the message after the field's name, as in ``Forbidden: may not ...``.
    """

    field: str
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.field}: {self.detail}"


def wrong(field: str, value: str, detail: str) -> FieldError:
    """``value``: as JSON."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {value}: {detail}")


def barred(field: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def success(code: int = 201) -> Tree:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}


def details(kind: Kind, name: str, *, singular: bool = False, sub: str = "") -> Tree:
    tree: Tree = {"name": name}
    if kind.group:
        tree["group"] = kind.group
    tree["kind"] = kind.name if singular else kind.plural + (f"/{sub}" if sub else "")
    return tree


def missing(kind: Kind, name: str) -> ApiError:
    return ApiError(404, f'{kind.resource} "{name}" not found', details=details(kind, name))


def no_such_path() -> ApiError:
    return ApiError(404, "the server could not find the requested resource", details={})


def not_allowed() -> ApiError:
    return ApiError(
        405, "the server does not allow this method on the requested resource", details={}
    )


def conflict(kind: Kind, name: str, why: str = MODIFIED, *, sub: str = "") -> ApiError:
    said = kind.resource + (f"/{sub}" if sub else "")
    message = f'Operation cannot be fulfilled on {said} "{name}": {why}'
    return ApiError(409, message, details=details(kind, name, sub=sub))


def exists(kind: Kind, name: str) -> ApiError:
    message = f'{kind.resource} "{name}" already exists'
    return ApiError(409, message, reason="AlreadyExists", details=details(kind, name))


def invalid(kind: Kind, name: str, errors: Sequence[FieldError], *, said: str = "") -> ApiError:
    """422 for all faults of an object; the message names each once, ``causes`` all of them.

    ``said``: what the message calls the object where that is not its kind.
    """
    words = list(dict.fromkeys(str(error) for error in errors))
    listed = words[0] if len(words) == 1 else f"[{', '.join(words)}]"
    causes = [
        {"reason": error.kind, "message": error.detail, "field": error.field} for error in errors
    ]
    tree = details(kind, name, singular=not said) | {"causes": causes}
    return ApiError(422, f'{said or kind.group_kind} "{name}" is invalid: {listed}', details=tree)


def rejected_patch() -> ApiError:
    """A JSON patch that cannot be applied: one answer for every cause."""
    message = "the server rejected our request due to an error in our request"
    return ApiError(422, message, details={})
